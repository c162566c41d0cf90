"""Weights of metrics by what they lost on rows: un-learned ones, and learners among themselves."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.mixture.neighbours import Losses, Neighbours

Vector = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: Share of all un-learned metrics in the weights, and how many standard errors of a loss are a factor of e.
SHARE: Final = 0.25
ERRORS: Final = 0.5
#: Rows that the error of a metric is known from before one is judged, and their loss.
ROWS: Final = 5.0
LOSS: Final = 0.25


def weights(learners: Flags, usable: Flags, judge: Neighbours) -> Vector:
    """Weights (N,) whose sum is 1; un-learned metrics share all until a new row was judged.

    What all lost on new rows decides. Once more rows have come again than were new, and these were at least 500, the
    weight that all learners have by that is shared among them by what they lost on rows that came again: new rows tell
    what they were worth earlier.

    Parameters
    ----------
    learners : (N,) which learn.
    usable : (N,) whose distances tell vectors apart; the others weigh nothing.
    """
    found = np.where(learners, 0.0, 1.0 / (~learners).sum())
    if judge.new.rows:
        prior = np.where(learners, (1.0 - SHARE) / learners.sum(), SHARE * found)
        found = _favoured(prior, judge.new)
        if judge.repeated and judge.again.rows:
            latest = _favoured(np.where(learners, prior, 0.0), judge.again)
            found = np.where(learners, found[learners].sum() / latest.sum() * latest, found)
    found = np.where(usable, found, 0.0)
    total = float(found.sum())
    return found / total if total > 0.0 else np.full(len(found), 1.0 / len(found))


def _favoured(prior: Vector, losses: Losses) -> Vector:
    """Prior weights (N,), divided by e for each half a standard error of the least loss that a metric lost more."""
    # The weighted mean of n losses is worth 7 n / 16 of them.
    count = max(1.0, 7.0 * losses.rows / 16.0)
    least = float(losses.means[prior > 0.0].min())
    rate = (least * count + ROWS * LOSS) / (count + ROWS)
    error = np.sqrt(rate * (1.0 - rate) / count)
    return np.asarray(prior * np.exp(-np.maximum(losses.means - least, 0.0) / (ERRORS * error)))
