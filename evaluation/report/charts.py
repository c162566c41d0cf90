"""The charts of a report. Many learners take several charts of the same axes, so that each stays legible."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from kinstream.evaluation.report import curves
from kinstream.evaluation.report.curves import Line, MeanCurve
from kinstream.evaluation.report.results import Entry, Results
from kinstream.evaluation.report.style import INK, LOOKS, MUTED
from kinstream.evaluation.report.words import capital, number, shortened

_WIDTH: Final = 4.4
#: Height of the axes of curves, and of a line of text.
_HEIGHT: Final = 2.4
_LINE: Final = 0.21
#: Lines of a chart, at most.
_TOGETHER: Final = len(LOOKS)
#: Letters of a name beside which a legend has room for another one.
_SHORT: Final = 18
#: Ratio of stream lengths from which a common axis is logarithmic.
_UNEQUAL: Final = 8.0
#: Initial share of a stream whose noisy values may leave the chart.
_BEGINNING: Final = 0.02

MEANS: Final = "means"
MISTAKES: Final = "mistakes"
UTILISATION: Final = "utilisation"


@dataclass(frozen=True, slots=True, eq=False)
class Chart:
    """One chart.

    Parameters
    ----------
    data : the data set of the chart.
    kind : the kind of content.
    part : number among several of the same data set and kind, from 0.
    alt : alternative text.
    draw : draws it; within `style.styled`.
    """

    data: str
    kind: str
    part: int
    alt: str
    draw: Callable[[], Figure]


def charts(results: Results, data: str) -> Iterator[Chart]:
    """All charts of a data set, in the order of display."""
    yield from _means(results, data)
    cells = {name: results.of(data, name) for name in results.names}
    yield from _shares(results, data, cells, MISTAKES, "online mistake rate", "mistakes", "scored")
    yield from _shares(results, data, cells, UTILISATION, "utilisation", "utilised", "constraints")


# ---- means -----------------------------------------------------------------------------------------------------------


def _means(results: Results, data: str) -> Iterator[Chart]:
    what = results.headline
    if what is None or not results.entries(data, what):
        return
    # The sort is stable: equal ones stay in the order of display.
    entries = sorted(
        results.entries(data, what).values(),
        key=lambda entry: entry.mean if what.smaller_is_better else -entry.mean,
    )
    reference = results.reference(data, what)
    described = ", ".join(f"{entry.metric} {number(entry.mean)}" for entry in entries)
    alt = f"{capital(what.title)} on {data}, best first: {described}."

    def draw() -> Figure:
        figure, axes = _axes(0.22 * len(entries) + 0.15, below=0, left=2.05)
        axes.grid(visible=False, axis="y")
        for place, entry in enumerate(entries):
            _dot(axes, place, entry, entry.metric in results.unlearned)
        if reference is not None:
            axes.axvline(reference.mean, color=MUTED, linewidth=1.0, dashes=(4, 2), zorder=1)
        axes.set_ylim(len(entries) - 0.4, -0.6)
        labels = [f"{shortened(e.metric, 22)} {e.mark.sign if e.mark else ' '}" for e in entries]
        axes.set_yticks(range(len(entries)), labels)
        axes.tick_params(axis="y", length=0)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel(f"{what.title} ({what.better})")
        _title(figure, capital(what.title) + (", mean ± std" if results.splits > 1 else ""), data)
        return figure

    yield Chart(data, MEANS, 0, alt, draw)


def _dot(axes: Axes, place: int, entry: Entry, unlearned: bool) -> None:
    colour = MUTED if unlearned else LOOKS[0].colour
    axes.errorbar(
        entry.mean,
        place,
        xerr=entry.std,
        fmt="s" if unlearned else "o",
        color=colour,
        markerfacecolor="none" if unlearned else colour,
        markersize=4.5,
        linewidth=1.2,
    )


# ---- curves over constraints -----------------------------------------------------------------------------------------


def _shares(
    results: Results,
    data: str,
    cells: Mapping[str, Sequence[Line]],
    kind: str,
    title: str,
    part: str,
    whole: str,
) -> Iterator[Chart]:
    # An un-learned metric makes mistakes but uses no constraint.
    names = results.names if kind == MISTAKES else results.learners
    found = {name: curve for name in names if (curve := curves.share(cells[name], part, whole)) is not None}
    if not found:
        return
    ends = [float(curve.x[-1]) for curve in found.values()]
    log = max(ends) > _UNEQUAL * min(ends)
    top = _top(found.values())

    def dress(axes: Axes) -> None:
        axes.set_ylim(0.0, top)
        axes.set_xlabel("constraints" + (" (logarithmic)" if log else ""))
        _count_axis(axes, log, min(float(curve.x[0]) for curve in found.values()), max(ends))

    # Over whole streams; a curve may end with the longest of its splits alone.
    whole_streams = _known(results, data, "mistake_rate" if kind == MISTAKES else "utilisation")
    lines, reference = _with_reference(
        results, found, {name: -value for name, value in whole_streams.items()}
    )
    yield from _in_parts(data, kind, f"{title} over constraints", lines, reference, dress, whole_streams)


def _top(found: Any) -> float:
    """Upper end of an axis of shares: noise of the first few constraints may leave it."""
    highest = 0.0
    for curve in found:
        later = curve.x >= _BEGINNING * curve.x[-1]
        highest = max(highest, float(np.max(curve.mean[later] + np.nan_to_num(curve.std[later]))))
    return min(1.02, max(1.08 * highest, 0.01))


def _count_axis(axes: Axes, log: bool, start: float, end: float) -> None:
    if log:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(10, numticks=7))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlim(max(start, 1.0), end * 1.05)
    else:
        axes.set_xlim(0.0, end * 1.02)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _count(value)))


def _count(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1e4 else f"{value:,.0f}"


def _known(results: Results, data: str, name: str) -> dict[str, float]:
    """Means of a measure, by metric."""
    return {
        metric: entry.mean
        for what in results.measures
        if what.name == name
        for metric, entry in results.entries(data, what).items()
    }


def _with_reference(
    results: Results, found: Mapping[str, MeanCurve], larger: Mapping[str, float]
) -> tuple[dict[str, MeanCurve], tuple[str, MeanCurve] | None]:
    """Curves of the learners, and the one of the best un-learned metric, which every part shows."""
    plain = [name for name in results.unlearned if name in found]
    learned = {name: curve for name, curve in found.items() if name not in plain}
    if not plain or not learned:
        return dict(found), None
    best = max(plain, key=lambda name: larger.get(name, -np.inf))
    return learned, (best, found[best])


# ---- shared parts ---------------------------------------------------------------------------------------------------


def _in_parts(
    data: str,
    kind: str,
    title: str,
    found: dict[str, MeanCurve],
    reference: tuple[str, MeanCurve] | None,
    dress: Callable[[Axes], None],
    values: Mapping[str, float],
) -> Iterator[Chart]:
    """As many charts as it takes to show all curves, with the same axes.

    Parameters
    ----------
    reference : a curve that every part shows, without colour.
    values : by curve, for the alternative text; without one, the end of the curve.
    """
    names = list(found)
    parts = [names[i : i + _TOGETHER] for i in range(0, len(names), _TOGETHER)]
    for place, part in enumerate(parts):
        known = {name: values.get(name, found[name].last) for name in part}
        if reference is not None:
            known[reference[0]] = values.get(reference[0], reference[1].last)
        lines = "; ".join(f"{name} ends at {number(value)}" for name, value in known.items())
        where = f" ({place + 1} of {len(parts)})" if len(parts) > 1 else ""
        heading = f"{capital(shortened(title, 38))}{where}"

        def draw(part: list[str] = part, heading: str = heading) -> Figure:
            shown = [*part, reference[0]] if reference is not None else part
            columns = 1 if any(shortened(name, _SHORT) != name for name in shown) else 2
            figure, axes = _axes(_HEIGHT, below=-(-len(shown) // columns))
            handles = [_curve(axes, i, name, found[name]) for i, name in enumerate(part)]
            if reference is not None:
                handles.append(_plain(axes, *reference))
            dress(axes)
            axes.yaxis.set_major_locator(MaxNLocator(5))
            figure.legend(
                handles=handles,
                loc="lower left",
                bbox_to_anchor=(0.02, 0.0),
                ncols=columns,
                frameon=False,
                fontsize=9.5,
                handlelength=2.4,
                columnspacing=1.0,
                borderaxespad=0.2,
                labelspacing=0.35,
            )
            _title(figure, heading, data)
            return figure

        yield Chart(data, kind, place, f"{capital(title)} on {data}{where}: {lines}.", draw)


def _curve(axes: Axes, place: int, name: str, curve: MeanCurve) -> Line2D:
    look = LOOKS[place]
    if np.isfinite(curve.std).any():
        spread = np.nan_to_num(curve.std)
        low, high = np.clip(curve.mean - spread, 0.0, None), curve.mean + spread
        axes.fill_between(curve.x, low, high, color=look.colour, alpha=0.13, linewidth=0)
    # Markers of different lines at different places.
    every = max(1, len(curve.x) // 6)
    [line] = axes.plot(
        curve.x,
        curve.mean,
        color=look.colour,
        linestyle=look.dash,
        marker=look.marker,
        markevery=(place * every // _TOGETHER, every),
        label=_legend_label(name),
    )
    return line


def _plain(axes: Axes, name: str, curve: MeanCurve) -> Line2D:
    [line] = axes.plot(
        curve.x,
        curve.mean,
        color=INK,
        linestyle=(0, (1, 2)),
        linewidth=1.2,
        # A single point has no visible line.
        marker="x" if len(curve.x) == 1 else "",
        label=_legend_label(name),
    )
    return line


def _legend_label(name: str) -> str:
    # A leading underscore would hide a name from the legend.
    short = shortened(name, 44)
    return f"\N{ZERO WIDTH SPACE}{short}" if short.startswith("_") else short


def _axes(height: float, *, below: int, left: float = 0.66) -> tuple[Figure, Axes]:
    """A figure of one plot of this height in inches, with this many lines of text below it."""
    top, bottom = 0.54, 0.5 + _LINE * below
    total = height + top + bottom
    figure = Figure(figsize=(_WIDTH, total))
    box = (left / _WIDTH, bottom / total, (_WIDTH - left - 0.14) / _WIDTH, height / total)
    return figure, figure.add_axes(box)


def _title(figure: Figure, text: str, data: str) -> None:
    height = figure.get_figheight()
    figure.text(0.02, 1.0 - 0.06 / height, text, ha="left", va="top", fontsize=10.5, fontweight="bold")
    figure.text(
        0.02, 1.0 - 0.25 / height, shortened(data, 44), ha="left", va="top", fontsize=9.5, color=MUTED
    )
