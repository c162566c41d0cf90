"""Charts: each name is legible and inside the picture, and nothing depends on who has drawn before."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import matplotlib
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from kinstream.evaluation.report import charts
from kinstream.evaluation.report.charts import Chart
from kinstream.evaluation.report.page import Picture
from kinstream.evaluation.report.results import Results
from kinstream.evaluation.report.style import styled, svg
from tests.monitoring.report.made_results import WINE, Errors, made

LONG = "a name of a learner that is far too long for a chart, " * 2
#: Many learners, with names that are long, alike, formulas, or without a glyph in the font.
MANY = {
    "euclidean°": WINE["euclidean°"],
    "_hidden": WINE["opml"],
    "a$b$_c^2": WINE["oahu"],
    "漢字\x07": WINE["oasis"],
    LONG: WINE["opml"],
    "W" * 60: WINE["opml"],
    "MAHALANOBIS WITH ALL FEATURES": WINE["opml"],
    **{f"learner {i}": [value + i / 100 for value in WINE["oahu"]] for i in range(8)},
    "oahu": WINE["oahu"],
}


def drawn(errors: Errors) -> Iterator[tuple[Chart, Figure]]:
    results = Results(made(errors))
    with styled():
        for data in results.data_names:
            for chart in charts.charts(results, data):
                yield chart, chart.draw()


def texts(figure: Figure) -> list[tuple[str, Bbox]]:
    """What can be read in a figure, and where."""
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    found: list[Text] = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            # Matplotlib has labels for ticks beyond the ends, and does not draw them.
            found += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            found.append(axis.label)
    return [(t.get_text(), t.get_window_extent(canvas.get_renderer())) for t in found if t.get_text().strip()]


@pytest.mark.parametrize("errors", [{"wine": WINE}, {LONG: MANY}], ids=["few", "many"])
def test_every_text_is_inside_and_none_covers_another(errors: Errors) -> None:
    for chart, figure in drawn(errors):
        width, height = figure.bbox.width, figure.bbox.height
        found = texts(figure)
        for text, box in found:
            inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= width + 1 and box.y1 <= height + 1
            assert inside, (chart.kind, text, box)
        for (one, a), (other, b) in combinations(found, 2):
            # Tick labels at both ends of an axis may touch.
            shared = Bbox.intersection(a, b)
            assert shared is None or min(shared.width, shared.height) <= 2, (chart.kind, one, other)


def test_curves_are_shared_out_over_charts_of_the_same_axes() -> None:
    found = [(chart, figure) for chart, figure in drawn({"wine": MANY}) if chart.kind == charts.MISTAKES]
    assert [chart.part for chart, _ in found] == [0, 1, 2]
    assert len({(figure.axes[0].get_xlim(), figure.axes[0].get_ylim()) for _, figure in found}) == 1
    names = [text for _, figure in found for text in [t.get_text() for t in figure.legends[0].get_texts()]]
    # The metric that learns nothing is in each of them.
    assert [names.count(name) for name in ("euclidean", "oahu", "learner 3")] == [3, 1, 1]
    assert len(names) == len(MANY) - 1 + 3
    for _, figure in found:
        # Without colours each line still has a look of its own.
        looks = [
            (str(line.get_marker()), line.get_label() == "euclidean") for line in figure.axes[0].get_lines()
        ]
        assert len(set(looks)) == len(looks)


def test_alternative_texts_tell_the_numbers() -> None:
    alts = {chart.kind: chart.alt for chart, _ in drawn({"wine": WINE})}
    assert set(alts) == {"means", "mistakes", "utilisation"}
    assert alts["means"].startswith("k-NN error on wine, best first: opml 0.110, oahu 0.210, euclidean 0.212")
    assert alts["mistakes"] == (
        "Online mistake rate over constraints on wine: opml ends at 0.110; oasis ends at 0.314; oahu ends at 0.210; "
        "euclidean ends at 0.212."
    )
    assert "euclidean" not in alts["utilisation"]


def test_what_is_not_known_is_not_drawn() -> None:
    errors: Errors = {"wine": {"opml": [None, 0.2], "oasis": [None, None]}}
    found = {chart.kind: chart.alt for chart, _ in drawn(errors)}
    assert "oasis" in found["mistakes"]
    assert "oasis" not in found["means"]
    assert list(drawn({})) == []


def test_curves_of_one_point_can_be_seen() -> None:
    result = made({"wine": WINE})
    for cell in result["cells"]:
        cell["curve"] = {name: values[-1:] for name, values in cell["curve"].items()}
    with styled():
        found = [chart for chart in charts.charts(Results(result), "wine") if chart.kind == charts.MISTAKES]
        lines = found[0].draw().axes[0].get_lines()
    assert len(lines) == 4
    assert all(line.get_marker() not in ("", "None", None) for line in lines)


def test_streams_of_very_different_length_share_a_logarithmic_axis() -> None:
    result = made({"wine": WINE})
    for cell in result["cells"]:
        if cell["metric"] == "opml":
            curve = cell["curve"]
            cell["curve"] = {name: [100 * value for value in values] for name, values in curve.items()}
    results = Results(result)
    with styled():
        [chart] = [chart for chart in charts.charts(results, "wine") if chart.kind == charts.MISTAKES]
        axes = chart.draw().axes[0]
    assert axes.get_xscale() == "log"
    assert axes.get_xlim()[1] > 10_000


def test_pictures_are_the_same_bytes_whatever_was_drawn_before() -> None:
    def files() -> list[str]:
        return [svg(figure) for _, figure in drawn({"wine": WINE})]

    first = files()
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "path"}):
        mine = dict(matplotlib.rcParams)
        assert files() == first
        # What a program has set for its own charts stays.
        assert dict(matplotlib.rcParams) == mine


def test_a_drawing_follows_the_theme_and_needs_nothing_else() -> None:
    for _, figure in drawn({"wine": {**WINE, '<b onload="x()">$&': WINE["opml"]}}):
        drawing = svg(figure)
        assert drawing.startswith("<svg ")
        assert "prefers-color-scheme:dark" in drawing
        # All colours of lines and letters come from the style sheet.
        styles = re.findall(r'style="[^"]*"', drawing)
        assert styles and not [style for style in styles if re.search("#(?!ffffff)[0-9a-f]{6}", style)]
        addresses = set(re.findall(r"https?://[^\"' ]*", drawing))
        assert addresses == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
        assert set(re.findall(r"url\(([^)]*)\)", drawing)) <= {
            f"#{i}" for i in re.findall(r' id="([^"]*)"', drawing)
        }
        assert "<b " not in drawing
        picture = Picture("kind", "alt", drawing)
        assert base64.b64decode(picture.source.split(",")[1]).decode() == drawing
        assert picture.size[0] == round(figure.get_figwidth() * 72)
