"""The compiled loop behind a portfolio: the vote of all members, their mistakes, and the weights that follow."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.compute.compiled import compiled

Vector = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: The fate of a constraint in a member: it was scored, the member has no verdict, or it was rejected.
SCORED: Final = 0
ABSENT: Final = 1
REJECTED: Final = 2
#: An un-learned metric that is wrong twice as often has a share smaller by 2 to this power.
POWER: Final = 2.0


@compiled
def _share(
    losses: Vector, gone: Flags, first: int, prior: Vector, eta: float, share: float, weights: Vector
) -> bool:
    """Add `share` in all, as prior_i exp(-eta losses_i), to the members from `first` on; false if none is left."""
    least, total = np.inf, 0.0
    for i in range(first, len(losses)):
        if not gone[i]:
            least = min(least, losses[i])
    for i in range(first, len(losses)):
        if not gone[i]:
            total += prior[i] * np.exp(-eta * (losses[i] - least))
    if total == 0.0:
        return False
    for i in range(first, len(losses)):
        if not gone[i]:
            weights[i] += share * prior[i] * np.exp(-eta * (losses[i] - least)) / total
    return True


@compiled
def weigh(
    losses: Vector,
    gone: Flags,
    learned: int,
    prior: Vector,
    seen: float,
    start: float,
    floor: float,
    weights: Vector,
) -> None:
    """Fill in the weights (N,): exponential weights of all members, and a floor shared by un-learned metrics only.

    w = (1 - floor) h + floor (a + u) / 2, where over the remaining un-learned metrics u_i is proportional to prior_i
    ((1 + min losses) / (1 + losses_i))^2 and a_i to u_i exp(-eta losses_i); over all members h_i is proportional to b_i
    prior_i exp(-eta losses_i), b_i = `start` for learners and 1 for the others; and eta = sqrt(8 ln N / max(seen, 1)).

    Parameters
    ----------
    losses : (N,) decayed sums of losses.
    gone : (N,) dropped members; their weight is 0.
    learned : number of members that learn, the first ones; the others are un-learned metrics.
    prior : (N,) above 0.
    seen : decayed number of the constraints behind `losses`.
    start : above 0.
    """
    N = len(losses)
    eta = np.sqrt(8.0 * np.log(N) / max(seen, 1.0))
    weights[:] = 0.0
    share = prior.copy()
    for i in range(learned):
        share[i] *= start
    _share(losses, gone, 0, share, eta, 1.0 - floor, weights)
    if floor == 0.0:
        return
    least = np.inf
    for i in range(learned, N):
        if not gone[i]:
            least = min(least, losses[i])
    for i in range(learned, N):
        share[i] = prior[i] * ((1.0 + least) / (1.0 + losses[i])) ** POWER
    if _share(losses, gone, learned, share, eta, 0.5 * floor, weights):
        _share(losses, gone, learned, share, 0.0, 0.5 * floor, weights)
    else:
        share[:] = 1.0
        _share(losses, gone, 0, share, eta, floor, weights)


@compiled
def _vote(
    fates: NDArray[np.int8],
    mistakes: NDArray[np.int8],
    margins: NDArray[Any],
    gone: Flags,
    weights: Vector,
    sizes: Vector,
    keep: float,
    t: int,
) -> tuple[int, float]:
    """The values that `follow` fills in for constraint t, by these weights and sizes, which do not change."""
    vote, scored, ranked = 0.0, False, False
    for i in range(len(weights)):
        if gone[i] or fates[i, t] != SCORED:
            continue
        scored = True
        size = abs(margins[i, t])
        ranked = ranked or not np.isnan(size)
        if not np.isfinite(size):
            vote += weights[i] * (1.0 - 2.0 * mistakes[i, t])
        elif size > 0.0:
            vote += weights[i] * (margins[i, t] / (keep * sizes[i, 0] + size) * (keep * sizes[i, 1] + 1.0))
    if not scored:
        return -1, np.nan
    return (0 if vote > 0.0 else 1), (vote if ranked else np.nan)


@compiled
def follow(
    fates: NDArray[np.int8],
    mistakes: NDArray[np.int8],
    margins: NDArray[Any],
    split: Flags,
    ends: NDArray[np.int32],
    learned: int,
    prior: Vector,
    starts: Vector,
    floor: float,
    keep: float,
    patience: int,
    losses: Vector,
    gone: Flags,
    refused: NDArray[np.int64],
    sizes: Vector,
    seen: Vector,
    mistake: NDArray[np.int8],
    margin: Vector,
) -> None:
    """Let all members vote on each constraint by the weights before its event, then count their mistakes.

    A triplet is decided by sum_i w_i m_i / s_i, of margins m_i over their mean magnitude s_i so far; a pair by the sum
    of w_i over the members that are right less that over those that are wrong. At most 0 is a mistake.

    The loss of a member is its mistake. A member that rejects a constraint that others score has the loss 1, and after
    `patience` of these in a row it is dropped permanently. A member without a verdict gets the weighted average loss of
    the others, so its relative weight stays.

    Parameters
    ----------
    fates : (N, m) of `SCORED`, `ABSENT`, `REJECTED`.
    mistakes : (N, m) 1 or 0 where scored.
    margins : (N, m), NaN for pairs.
    split : (m,) constraints of which members may have learned something before: they get a vote, but do not change
        losses.
    ends : (m,) see `kinstream.learners.kernels.events.Judged`.
    learned, prior, floor : see `weigh`.
    starts : (m,) of `weigh`, for each constraint.
    keep : factor of all earlier counts, for a new constraint.
    losses, gone, refused : (N,) decayed losses, dropped members, and rejections in a row; changed in place.
    sizes : (N, 2) decayed sum of magnitudes of margins, and their number; changed in place.
    seen : (1,) decayed number of constraints; changed in place.
    mistake, margin : (m,) filled in, -1 and NaN if no member had a verdict.
    """
    N, m = mistakes.shape
    weights = np.empty(N)
    judged = 0
    for t in range(m):
        weigh(losses, gone, learned, prior, seen[0], starts[t], floor, weights)
        if len(ends) > 0 and ends[t] > 0:
            for s in range(t, ends[t]):
                mistake[s], margin[s] = _vote(fates, mistakes, margins, gone, weights, sizes, keep, s)
            judged = ends[t]
        if t >= judged:
            mistake[t], margin[t] = -1, np.nan
        vote, share, lost = 0.0, 0.0, 0.0
        scored, ranked = False, False
        for i in range(N):
            if gone[i] or fates[i, t] != SCORED:
                continue
            scored = True
            share += weights[i]
            lost += weights[i] * mistakes[i, t]
            size = abs(margins[i, t])
            ranked = ranked or not np.isnan(size)
            if np.isfinite(size):
                sizes[i, 0] = keep * sizes[i, 0] + size
                sizes[i, 1] = keep * sizes[i, 1] + 1.0
                if size > 0.0:
                    vote += weights[i] * (margins[i, t] / sizes[i, 0] * sizes[i, 1])
            else:
                vote += weights[i] * (1.0 - 2.0 * mistakes[i, t])
        if not scored:
            continue
        if t >= judged:
            mistake[t] = 0 if vote > 0.0 else 1
        if ranked and t >= judged:
            margin[t] = vote
        mean = lost / share if share > 0.0 else 0.5
        if not split[t]:
            seen[0] = keep * seen[0] + 1.0
        for i in range(N):
            if gone[i]:
                continue
            loss = mean
            if fates[i, t] == SCORED:
                loss = float(mistakes[i, t])
                refused[i] = 0
            elif fates[i, t] == REJECTED:
                loss = 1.0
                refused[i] += 1
                gone[i] = refused[i] >= patience
            if not split[t]:
                losses[i] = keep * losses[i] + loss
