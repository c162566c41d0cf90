"""The files of a report: the page by an HTML parser, all of it byte for byte."""

from __future__ import annotations

import base64
import random
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

import pytest

from kinstream.evaluation.report import write_report
from kinstream.streams.errors import SettingsError
from tests.monitoring.report.made_results import IRIS, WINE, Errors, made

EVIL: Final = "\"><script>alert(1)</script><img src=x onerror=alert(2)> & '{{ 7 * 7 }}'"
VOID: Final = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """A page as a browser reads it: its tags, its text, its tables."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.style = ""
        #: Rows of each table: each cell as its tag, its attributes and its text.
        self.tables: list[list[list[tuple[str, dict[str, str | None], str]]]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == [], "a tag is not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), (tag, attrs)
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("th", "td"):
            self.tables[-1][-1].append((tag, dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "style":
            self.style += data
            return
        self.text.append(data)
        if "td" in self._open or "th" in self._open:
            tag, attributes, before = self.tables[-1][-1][-1]
            self.tables[-1][-1][-1] = (tag, attributes, before + data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def said(self) -> str:
        return " ".join(" ".join(self.text).split())

    def table(self, first: str) -> list[list[str]]:
        """The one table whose header begins with these words."""
        [found] = [rows for rows in self.tables if rows[0][0][2] == first]
        return [[" ".join(text.split()) for _, _, text in row] for row in found]


def page(folder: Path) -> Page:
    return Page((folder / "report.html").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_report(made({"wine": WINE, "iris": IRIS}), folder)
    return folder


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One whose names would like to be something else."""
    folder = tmp_path_factory.mktemp("evil")
    errors = {EVIL: {"euclidean°": WINE["euclidean°"], EVIL + "°": WINE["cosine°"], EVIL + "2": WINE["opml"]}}
    errors["../../etc"] = errors[EVIL]
    result = made(errors, plan={"name": EVIL, EVIL: {EVIL: EVIL}}, versions={EVIL: EVIL})
    for cell in result["cells"]:
        cell["settings"] = {EVIL: EVIL}
        cell["weights"] = {"constraints": [1, 2], "names": [EVIL], "values": [[1.0], [1.0]]}
    for metric in result["metrics"]:
        metric["kind"] = metric["builder"] = EVIL
    write_report(result, folder)
    return folder


# ---- the page --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["report", "evil"])
def test_the_page_needs_nothing_but_itself(which: str, request: pytest.FixtureRequest) -> None:
    found = page(request.getfixturevalue(which))
    for tag, attributes in found.tags:
        assert tag not in ("script", "iframe", "object", "embed", "base", "form"), tag
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in ("src", "srcset", "href", "action", "data", "poster"):
                assert value is not None
                assert value.startswith(("data:", "#")), (tag, value[:60])
    assert not re.search(r"url\(|@import|expression", found.style)


def test_names_are_text_and_nothing_else(evil: Path) -> None:
    found = page(evil)
    plain = " ".join(EVIL.split())
    assert plain in found.said()
    # Nothing of a name is run as a template.
    assert "49" not in found.said()
    for image in found.all("img"):
        drawing = base64.b64decode(str(image["src"]).split(",", 1)[1]).decode()
        assert "<script" not in drawing and "<img" not in drawing
    assert sum("onerror" in str(attributes.get("alt")) for attributes in found.all("img")) > 0


def test_files_stay_in_their_folder(evil: Path) -> None:
    assert [path.name for path in evil.iterdir()] == ["report.html"]


def test_every_picture_has_words(report: Path) -> None:
    images = page(report).all("img")
    # Means, mistakes and utilisation of two data sets.
    assert len(images) == 6
    assert len({image["alt"] for image in images}) == 6
    for image in images:
        assert len(str(image["alt"])) > 40
        assert int(str(image["width"])) > 100 < int(str(image["height"]))


def test_tables_are_whole(report: Path) -> None:
    found = page(report)
    assert len(found.tables) == 2
    for rows in found.tables:
        for tag, attributes, _ in rows[0]:
            assert (tag, attributes.get("scope")) == ("th", "col")
        width = sum(int(attributes.get("colspan") or 1) for _, attributes, _ in rows[0])
        for row in rows[1:]:
            assert sum(int(attributes.get("colspan") or 1) for _, attributes, _ in row) == width
            assert row[0][0] == "th" and row[0][1]["scope"] == "row"
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    for link in found.all("a"):
        assert str(link["href"]).removeprefix("#") in ids
    for section in found.all("section"):
        assert section.get("aria-labelledby", ids[0]) in ids


def test_the_headline_table_has_marks_that_do_not_need_colour(report: Path) -> None:
    found = page(report)
    tables = [table for table in found.tables if table[0][0][2] == "Metric" and len(table[0]) == 5]
    rows = {row[0][2]: [" ".join(text.split()) for _, _, text in row[1:]] for row in tables[0]}
    assert rows["Metric"] == ["better/same/worse", "mean rank", "wine", "iris"]
    assert rows["opml"] == ["1/1/0", "1.5", "0.110 ± 0.010▲", "0.040 ± 0.014"]
    assert rows["oasis"] == ["0/0/2", "5.0", "0.314 ± 0.011▼", "0.216 ± 0.021▼"]
    assert rows["euclidean"] == ["", "3.5", "0.212 ± 0.013°", "0.050 ± 0.007"]
    assert rows["cosine"][3] == "0.040 ± 0.007°"
    for attributes in found.all("span"):
        if attributes.get("role") == "img":
            assert attributes["aria-label"]
    assert "▲ significantly better, also after Holm's correction" in found.said()


def test_the_answer_comes_first(report: Path) -> None:
    found = page(report)
    assert "Run opml: it is better than doing nothing on 1 of 2 data sets." in found.said()
    table = found.table("Data set")
    assert [row[:2] for row in table] == [
        ["Data set", "Run"],
        ["wine", "opml"],
        ["iris", "cosine, un-learned"],
    ]


def test_what_was_left_out_is_said(tmp_path: Path) -> None:
    errors: Errors = {
        "wine": {"euclidean°": [0.2, 0.3, 0.2], "opml": [0.1, None, 0.2], "oasis": [None, None]}
    }
    write_report(made(errors), tmp_path)
    said = page(tmp_path).said()
    assert "oasis on wine: 2 of 3 splits were run" in said
    assert "k-NN error of opml on wine: known for 2 of 3 splits" in said
    assert "k-NN error of oasis on wine: known for 0 of 2 splits" in said
    assert "oasis: 4 constraints refused" in said
    assert "euclidean" not in said.split("Left out")[-1]


def test_nothing_was_left_out(tmp_path: Path) -> None:
    write_report(made({"wine": {"euclidean°": [0.2, 0.3], "opml": [0.1, 0.2]}}), tmp_path)
    assert (
        "Nothing: every metric was run on every split, and every measure is known." in page(tmp_path).said()
    )


@pytest.mark.parametrize(
    "result",
    [
        made({}),
        made({"wine": {}}),
        made({"wine": {"opml": [None]}}),
        made({"wine": {"euclidean°": [0.1, 0.2]}}),
        made({"wine": {"opml": [0.1]}}),
    ],
    ids=["nothing", "no metrics", "no measure", "no learner", "one value"],
)
def test_a_page_comes_of_everything(result: dict[str, Any], tmp_path: Path) -> None:
    for cell in result["cells"]:
        cell["counts"] = cell["curve"] = cell["weights"] = cell["roc"] = cell["recall"] = None
    write_report(result, tmp_path)
    assert page(tmp_path).all("h1")


def test_many_data_sets_are_folded_and_few_are_open(report: Path, tmp_path: Path) -> None:
    def data_details(folder: Path) -> list[bool]:
        tags = page(folder).tags
        ids = [attributes.get("id") for _, attributes in tags]
        section = tags[ids.index("data") : ids.index("left-out")]
        return ["open" in attributes for tag, attributes in section if tag == "details"]

    assert data_details(report) == [True, True]
    few = {"euclidean°": [0.2, 0.3], "opml": [0.1, 0.2]}
    write_report(made({"a": few, "b": few, "c": few}), tmp_path)
    assert data_details(tmp_path) == [False, False, False]


# ---- files -----------------------------------------------------------------------------------------------------------


def test_the_same_result_gives_the_same_bytes(report: Path, tmp_path: Path) -> None:
    result = made({"wine": WINE, "iris": IRIS})
    random.Random(3).shuffle(result["cells"])
    written = write_report(result, tmp_path / "a" / "b")
    assert written == tmp_path / "a" / "b" / "report.html"
    assert written.read_bytes() == (report / "report.html").read_bytes()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=r"the report cannot be written to .*file"):
        write_report(made({}), tmp_path / "file")


def test_the_page_shows_cost_and_shares_of_the_recommended_metric(tmp_path: Path) -> None:
    features = [
        {"name": name, "share": share} for name, share in ((EVIL, 0.6), ("height", 0.5), ("depth", -0.1))
    ]
    lines = [{"data": "wine", "metric": name, "features": features} for name in ("oasis", "opml")]
    result = made({"wine": WINE}, importance=lines)
    times = []
    for cell in result["cells"]:
        cell |= {"constraints": 100, "columns": 13}
        place = {name: cell[name] for name in ("data", "metric", "split")}
        times.append(place | {"seconds_learning": 0.001, "seconds_transform": 0.001, "transformed": 100})
    write_report(result, tmp_path, times=times)
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    text = "".join(page.text)
    assert "Cost: 10.0 µs a constraint to learn, 10.0 µs a row to transform, 13 columns." in text
    assert "Share of each feature in the metric opml, mean over splits" in text
    (table,) = [rows for rows in page.tables if rows[0][0][2] == "Feature"]
    assert [[cell[2] for cell in row] for row in table[1:]] == [
        [EVIL, "60.0 %"],
        ["height", "50.0 %"],
        ["depth", "-10.0 %"],
    ]
