"""Metrics that several experiments share: un-learned ones, and those that are fitted to a whole set."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from benchmarks.papers.shared.feeds import DrawnPairs
from kinstream.evaluation.experiment.feeds import Built
from kinstream.evaluation.experiment.plan import Contender

#: One-pass triplets after which LMNN is fitted, once. They repeat the rows until all are included, so the chains of
#: similar rows are the classes.
LMNN_TRIPLETS: Final = 3_000
#: Random pairs that ITML is fitted to, once.
ITML_PAIRS: Final = 1_000
#: Distinct rows after which scalers and targets are frozen, at the latest after four times as many constraints.
WARM_UP: Final = 64
#: Constraints beyond that: for the warm-up, and because a fit waits for a constraint with a loss.
_MORE: Final = 4 * WARM_UP + 244


def euclidean() -> Contender:
    """Euclidean distance."""
    return Contender("euclidean", "euclidean", Built("one-pass"), unlearned=True)


def cosine() -> Contender:
    """Euclidean distance of rows divided by their lengths, which ranks like the angle."""
    return Contender("cosine", "euclidean", Built("one-pass"), {"scaler": "unit"}, unlearned=True)


def batch() -> tuple[Contender, ...]:
    """LMNN and ITML with the settings of their authors; none if the package metric-learn is not installed."""
    if find_spec("metric_learn") is None:
        return ()
    return (
        Contender(
            "lmnn",
            "lmnn",
            Built("one-pass", {"prefix_pairs": False}, limit=LMNN_TRIPLETS + _MORE, passes=1_000),
            {"buffer": LMNN_TRIPLETS, "refit_every": 0, "warm_up": WARM_UP},
        ),
        itml(),
    )


def itml() -> Contender:
    """ITML, fitted once."""
    settings = {"buffer": ITML_PAIRS, "refit_every": 0, "warm_up": WARM_UP}
    return Contender("itml", "itml", DrawnPairs(ITML_PAIRS + _MORE), settings)
