"""LEGO against POLA on the 45 pairs of digits of MNIST, section 5 of the LEGO paper.

Protocol. The first 10,000 training images are for learning, the 10,000 test images for testing; each pair of digits is
a separate problem. LEGO and POLA learn the same 1,000 random pairs, with the 5th and 95th percentile of squared
distances as targets. 5 neighbours vote.

Differences from the paper. The paper does not state which 10,000 images it uses, its scaling (here vectors are centred
and divided by one scale, of the training part), its choice of step sizes (here 30 % of the training images are left out
once), or k.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Final

import numpy as np

from benchmarks.papers.shared.baselines import euclidean
from benchmarks.papers.shared.comparison import Statement
from benchmarks.papers.shared.data_folder import DataFolder, Missing
from benchmarks.papers.shared.feeds import DrawnPairs
from benchmarks.papers.shared.protocol import Protocol
from benchmarks.papers.shared.published_tables import LEGO_AT_LEAST_POLA
from benchmarks.papers.shared.splitters import GivenTest, Parted
from kinstream.evaluation.experiment.data import LabelledRows
from kinstream.evaluation.experiment.plan import Contender, GridChoice, Measuring, Plan, grid
from kinstream.evaluation.experiment.splits import Scaling
from kinstream.streams.records.values import DEFAULT_MODALITY

CONSTRAINTS: Final = 1_000
TRAIN_ROWS: Final = 10_000
DIGITS: Final = tuple(combinations(range(10), 2))
QUICK_DIGITS: Final = ((0, 1), (3, 8), (4, 9))
ETAS: Final = (1e-9, 1e-8, 1e-7, 1e-6)
CAPS: Final = (1e-8, 1e-7, 1e-6)


def _called(pair: tuple[int, int]) -> str:
    return f"{pair[0]} and {pair[1]}"


def _sets(folder: DataFolder, quick: bool) -> list[LabelledRows | Missing]:
    rows = folder.load("mnist")
    if isinstance(rows, Missing):
        return [rows]
    X, y = next(iter(rows.tables.values())), rows.labels
    arrays = folder.arrays("mnist") or {}
    test = np.arange(len(y)) >= len(y) * 6 // 7
    if "is_test" in arrays:
        test = arrays["is_test"].astype(np.bool_)
    learned, tested = np.flatnonzero(~test)[:TRAIN_ROWS], np.flatnonzero(test)
    found: list[LabelledRows | Missing] = []
    for pair in QUICK_DIGITS if quick else DIGITS:
        first, last = (part[np.isin(y[part], pair)] for part in (learned, tested))
        both = np.concatenate([first, last])
        found.append(Parted(_called(pair), {DEFAULT_MODALITY: X[both]}, y[both], len(last)))
    return found


def _plan(rows: Sequence[LabelledRows], quick: bool) -> Plan:
    pairs = DrawnPairs(CONSTRAINTS, targets=True)
    return Plan(
        "lego-mnist-pairs",
        (
            euclidean(),
            Contender("lego", "lego", pairs, {"targets": "block"}, grid({"eta": ETAS})),
            Contender("pola", "pola", pairs, grid=({}, *grid({"cap": CAPS}))),
        ),
        splits=1,
        splitter=GivenTest(),
        scaling=Scaling("one-scale", "train"),
        choice=GridChoice("error"),
        measuring=Measuring(("classification",)),
    )


def _said(result: Mapping[str, Any], times: Sequence[Mapping[str, Any]]) -> list[Statement]:
    errors = {(s["data"], s["metric"]): s["mean"] for s in result["summary"] if s["measure"] == "error"}
    pairs = [data["name"] for data in result["data"]]
    at_least = sum(errors[pair, "lego"] <= errors[pair, "pola"] for pair in pairs)
    stated, of = LEGO_AT_LEAST_POLA
    below = sum(errors[pair, "lego"] < errors[pair, "euclidean"] for pair in pairs)
    return [
        Statement(
            "pairs of digits on which LEGO errs no more than POLA",
            f"{at_least} of {len(pairs)}",
            f"{stated} of {of}",
        ),
        Statement(
            "pairs of digits on which LEGO errs less than Euclidean distance", f"{below} of {len(pairs)}", ""
        ),
    ]


PROTOCOL: Final = Protocol(
    name="lego-mnist-pairs",
    title="LEGO paper, section 5: LEGO against POLA on 45 pairs of digits",
    sets=_sets,
    plan=_plan,
    cut=f"{len(QUICK_DIGITS)} pairs of digits instead of {len(DIGITS)}",
    extra=_said,
)
