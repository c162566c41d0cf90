"""The measures of an evaluation: their names, and which direction is better."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure.

    Parameters
    ----------
    name : as in results.
    title : for display.
    smaller_is_better : None if neither direction is better, so that it decides no win or loss.
    """

    name: str
    title: str
    smaller_is_better: bool | None

    @property
    def better(self) -> str:
        """Which direction is better, as text."""
        if self.smaller_is_better is None:
            return "neither direction is better"
        return "smaller is better" if self.smaller_is_better else "larger is better"


#: In the order of display. A learner that has nothing more to learn uses few constraints, so high utilisation is not
#: better in itself.
_NAMED: Final = (
    Measure("error", "k-NN error", True),
    Measure("macro_f1", "macro F1", False),
    Measure("auc", "verification AUC", False),
    Measure("map", "mean average precision", False),
    Measure("ndcg_at_10", "NDCG@10", False),
    Measure("mrr", "mean reciprocal rank", False),
    Measure("held_out_mistakes", "mistakes on held-out triplets", True),
    Measure("mistake_rate", "online mistake rate", True),
    Measure("utilisation", "utilisation", None),
)
_AT_K: Final = (("recall", "Recall@{}"), ("precision", "Precision@{}"))
_PATTERN: Final = re.compile(r"(recall|precision)_at_([1-9][0-9]*)")


def measure(name: str) -> Measure:
    """The measure of this name.

    Raises
    ------
    ValueError : there is no such measure.
    """
    for known in _NAMED:
        if known.name == name:
            return known
    found = _PATTERN.fullmatch(name)
    if found is None:
        names = ", ".join(known.name for known in _NAMED)
        raise ValueError(f"{name!r} is not a measure; there are {names}, recall_at_K and precision_at_K")
    return Measure(name, dict(_AT_K)[found[1]].format(found[2]), False)


def order(name: str) -> tuple[int, int]:
    """Sort key: named measures first, then recall and precision, each by K."""
    for place, known in enumerate(_NAMED):
        if known.name == name:
            return place, 0
    found = _PATTERN.fullmatch(measure(name).name)
    assert found is not None
    return len(_NAMED) + [base for base, _ in _AT_K].index(found[1]), int(found[2])
