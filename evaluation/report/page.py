"""The page of a report: one file that needs no other files and no network."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from kinstream.evaluation.measures.names import Measure
from kinstream.evaluation.report import charts
from kinstream.evaluation.report.advice import shares_of, shown_shares
from kinstream.evaluation.report.answer import answer
from kinstream.evaluation.report.results import Entry, LearnerStanding, Mark, Results
from kinstream.evaluation.report.words import capital, chance, number, several, spread

#: Kinds of charts, with their titles and descriptions.
_KINDS: Final = {
    charts.MEANS: (
        "Means",
        "Dot: mean over splits; bar: standard deviation; hollow: un-learned. The line is the best of these.",
    ),
    charts.MISTAKES: (
        "Mistakes while learning",
        "Share of the constraints so far that the model got wrong before it learned from them. Mean over splits, band: "
        "standard deviation; dotted: the un-learned metric with the fewest.",
    ),
    charts.UTILISATION: (
        "Utilisation",
        "Share of the constraints so far that changed the model. Mean over splits, band: standard deviation.",
    ),
}
#: Data sets whose charts are open from the beginning.
_OPEN: Final = 2


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart on the page."""

    kind: str
    alt: str
    svg: str

    @property
    def source(self) -> str:
        """The drawing itself, as an address."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg.encode()).decode("ascii")

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the drawing in points, so that the page does not move while it is read."""
        head = self.svg[: self.svg.index(">")]
        box = head.split('viewBox="')[1].split('"')[0].split()
        return round(float(box[2])), round(float(box[3]))


@dataclass(frozen=True, slots=True)
class MeasureTable:
    """All of one measure.

    Parameters
    ----------
    rows : name of a metric, whether it is un-learned, its entries by data set, how it compares over these.
    marks : whether anything could be tested against an un-learned metric.
    """

    measure: Measure
    rows: Sequence[tuple[str, bool, Sequence[Entry | None], LearnerStanding]]
    marks: bool


def page(results: Results, pictures: Mapping[str, Sequence[Picture]]) -> str:
    """The page as HTML.

    Parameters
    ----------
    pictures : of each data set, in the order of display.
    """
    return _template().render(
        title=str(results.plan.get("name") or "Evaluation"),
        answer=answer(results),
        results=results,
        facts=_facts(results),
        headline=None if results.headline is None else _comparison(results, results.headline),
        marks=list(Mark),
        sections=[_section(results, data, pictures.get(str(data["name"]), ())) for data in results.data],
        open_data=len(results.data) <= _OPEN,
        left_out=list(_left_out(results)),
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("kinstream.evaluation.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"spread": spread, "number": number, "chance": chance, "capital": capital}
    return environment.get_template("report.html")


def _facts(results: Results) -> str:
    parts = (
        several(len(results.data), "data set"),
        several(len(results.learners), "learner"),
        several(len(results.unlearned), "un-learned metric"),
        several(results.splits, "split"),
    )
    return ", ".join(parts)


def _comparison(results: Results, what: Measure) -> MeasureTable:
    rows = []
    for name in results.names:
        entries = [results.entries(data, what).get(name) for data in results.data_names]
        if any(entry is not None for entry in entries):
            rows.append((name, name in results.unlearned, entries, results.standing(name, what)))
    marks = any(
        entry is not None and entry.test is not None for _, _, entries, _ in rows for entry in entries
    )
    return MeasureTable(what, rows, marks)


def _section(results: Results, data: Mapping[str, Any], pictures: Sequence[Picture]) -> dict[str, Any]:
    name = str(data["name"])
    what = results.headline
    best = None
    if what is not None:
        best = next((entry for entry in results.entries(name, what).values() if entry.best), None)
    groups = [
        (*words, [picture for picture in pictures if picture.kind == kind])
        for kind, words in _KINDS.items()
        if any(picture.kind == kind for picture in pictures)
    ]
    facts = [several(data["rows"], "row"), several(data["features"], "feature")]
    if data.get("classes"):
        facts.append(several(data["classes"], "class", "classes"))
    found = shares_of(results, name)
    return {
        "name": name,
        "facts": ", ".join(facts),
        "best": best,
        "groups": groups,
        "metric": found and found.metric,
        "shares": found and shown_shares(found),
    }


def _left_out(results: Results) -> Iterator[str]:
    """Values that are missing or partial, as notes to the reader."""
    for data in results.data_names:
        most = max((len(results.of(data, name)) for name in results.names), default=0)
        for name in results.names:
            there = len(results.of(data, name))
            if there < most:
                yield f"{name} on {data}: {there} of {several(most, 'split')} were run"
    for what in results.measures:
        for data in results.data_names:
            entries = results.entries(data, what)
            for name in results.names:
                cells = len(results.of(data, name))
                known = entries[name].n if name in entries else 0
                # Un-learned metrics may have no stream: they then make no mistakes and use nothing.
                if entries and known < cells and not (known == 0 and name in results.unlearned):
                    yield f"{what.title} of {name} on {data}: known for {known} of {several(cells, 'split')}"
    words = {
        "rejected": "refused, because they or the model after them were not finite, or the guard forbids the step",
        "degenerate": "without a direction to learn from",
        "ignored": "of a kind that the learner does not learn from",
    }
    for name in results.names:
        for count, meaning in words.items():
            total = sum(
                (cell["counts"] or {}).get(count, 0)
                for data in results.data_names
                for cell in results.of(data, name)
            )
            if total:
                yield f"{name}: {several(total, 'constraint')} {meaning}, over all data sets and splits"
