"""The numbers of a report as CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kinstream.replay.evaluation.measures.names import order
from kinstream.replay.evaluation.report.results import Results

Row = Sequence[object]

#: The names of all possible files.
TABLES: Final = ("cells.csv", "summary.csv", "tests.csv", "curves.csv", "weights.csv", "roc.csv")

_COUNTS: Final = (
    "seen",
    "scored",
    "mistakes",
    "utilised",
    "clipped",
    "rejected",
    "degenerate",
    "ignored",
    "loss",
    "split_scored",
    "split_mistakes",
)
_TESTS: Final = (
    "data",
    "measure",
    "first",
    "second",
    "difference",
    "t",
    "p",
    "p_unpaired",
    "p_holm",
    "verdict",
    "n",
)


def tables(results: Results) -> Iterator[tuple[str, str]]:
    """Names and contents of all files. Unknown values are empty; floats have all their digits."""
    yield "cells.csv", _text(*_cells(results))
    yield "summary.csv", _text(*_summary(results))
    yield "tests.csv", _text(_TESTS, ([line[name] for name in _TESTS] for line in results.tests))
    yield "curves.csv", _text(*_curves(results))
    weights = list(_weights(results))
    if weights:
        yield "weights.csv", _text(("data", "metric", "split", "constraints", "name", "weight"), weights)
    roc = list(_roc(results))
    if roc:
        yield "roc.csv", _text(("data", "metric", "split", "fpr", "tpr"), roc)


def _text(header: Row, rows: Iterable[Row]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(["" if value is None else value for value in row] for row in rows)
    return file.getvalue()


def _cells(results: Results) -> tuple[Row, Iterable[Row]]:
    measures = sorted({name for cell in results.cells for name in cell["measures"]}, key=order)
    roles = {metric["name"]: metric["role"] for metric in results.metrics}
    facts = ("data", "split", "seed", "metric")
    rows = (
        [
            *(cell[name] for name in facts),
            roles[cell["metric"]],
            cell["train_rows"],
            cell["test_rows"],
            json.dumps(cell["settings"], sort_keys=True),
            *((cell["counts"] or {}).get(name) for name in _COUNTS),
            *(cell["measures"].get(name) for name in measures),
        ]
        for cell in results.cells
    )
    return (*facts, "role", "train_rows", "test_rows", "settings", *_COUNTS, *measures), rows


def _summary(results: Results) -> tuple[Row, Iterable[Row]]:
    names = ("data", "metric", "measure", "mean", "std", "n")
    return names, ([line[name] for name in names] for line in results.summary)


def _curves(results: Results) -> tuple[Row, Iterable[Row]]:
    names = ("constraints", "scored", "mistakes", "utilised")
    rows = (
        [*_place(cell), *point]
        for cell in results.cells
        if cell.get("curve")
        for point in zip(*(cell["curve"][name] for name in names), strict=True)
    )
    return ("data", "metric", "split", *names), rows


def _weights(results: Results) -> Iterator[Row]:
    for cell in results.cells:
        weights = cell.get("weights")
        if weights:
            for at, values in zip(weights["constraints"], weights["values"], strict=True):
                for name, value in zip(weights["names"], values, strict=True):
                    yield [*_place(cell), at, name, value]


def _roc(results: Results) -> Iterator[Row]:
    for cell in results.cells:
        if cell.get("roc"):
            for point in zip(cell["roc"]["fpr"], cell["roc"]["tpr"], strict=True):
                yield [*_place(cell), *point]


def _place(cell: Mapping[str, Any]) -> Row:
    return [cell["data"], cell["metric"], cell["split"]]
