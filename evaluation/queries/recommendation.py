"""One sentence of advice from a comparison of rankings; it says to keep what people have where that is the truth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from kinstream.evaluation.queries.compare import BATCH, BY_ITEM, BY_QUERY, HINDSIGHT
from kinstream.evaluation.runner.statistics import LEVEL, holm, paired

#: Rows that nobody can serve, or that say nothing of a query that is new.
_LEFT_OUT: Final = frozenset({BATCH, BY_ITEM, BY_QUERY, HINDSIGHT})


def recommended(rows: Sequence[dict[str, Any]], learners: Sequence[str]) -> str:
    """The advice, from the rows of `kinstream.evaluation.queries.compare.summarised`.

    A ranking is recommended if it is better on queries that were never asked: by a t-test over the splits, with Holm's
    correction for the number of rankings.

    Parameters
    ----------
    learners : how the names of rows begin that are learned.
    """
    (had,) = [row["metric"] for row in rows if row["had"]]
    others = [row for row in rows if not row["had"] and row["metric"] not in _LEFT_OUT]
    if len(rows[0]["changes"]) < 2:
        return "One split recommends nothing: take --splits 3 or more."
    tests = [paired(row["changes"], np.zeros(len(row["changes"]))) for row in others]
    corrected = holm(np.array([1.0 if test.p is None else test.p for test in tests]))
    better = [row for row, p in zip(others, corrected, strict=True) if p < LEVEL and row["change"] > 0.0]
    if not better:
        return f"Keep {had}: nothing is significantly better on queries that were never asked."
    best = max(better, key=lambda row: float(row["change"]))
    unlearned = [row for row in better if not _learned(row, learners)]
    text = f"Recommended: {_gain(best)}."
    if not _learned(best, learners):
        return f"{text} It needs no learning."
    if unlearned:
        first = max(unlearned, key=lambda row: float(row["change"]))
        return f"{text} Without any learning: {_gain(first)}."
    return text


def _learned(row: dict[str, Any], learners: Sequence[str]) -> bool:
    return any(str(row["metric"]).startswith(name) for name in learners)


def _gain(row: dict[str, Any]) -> str:
    asked = row["asked"]
    return (
        f"{row['metric']}, {row['change']:+.1f} ± {row['error']:.1f} % on queries never asked and "
        f"{asked['change']:+.1f} ± {asked['error']:.1f} % on those asked"
    )
