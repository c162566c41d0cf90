"""Constraints of one kind for learners of another: a triplet as two pairs, and back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import UNDEFINED, Outcomes


def pairs_of_triplets(index: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    """(x, x+) similar and (x, x-) dissimilar, one after the other.

    Parameters
    ----------
    index : (m, 3) anchor, positive, negative.

    Returns
    -------
    tuple
        (2m, 2) rows of the pairs, and their signs (2m,).
    """
    pairs = np.ascontiguousarray(index[:, (0, 1, 0, 2)]).reshape(-1, 2)
    return pairs, np.tile(np.array([1, -1], np.int8), len(index))


def merged(pairs: Outcomes, triplets: Outcomes) -> None:
    """Write the outcomes of 2m pairs into the outcomes of their m triplets.

    A triplet is utilised, or clipped, if one of its pairs was; it is rejected only if both were, and degenerate if
    nothing could be learned from it because a pair was. Its mistake and margin are those that the kernel wrote for
    its first pair, its loss the sum of both.
    """
    first, second = pairs[slice(0, None, 2)], pairs[slice(1, None, 2)]
    triplets.rejected[:] = first.rejected & second.rejected
    triplets.utilised[:] = first.utilised | second.utilised
    triplets.clipped[:] = first.clipped | second.clipped
    triplets.degenerate[:] = (first.degenerate | second.degenerate) & ~triplets.utilised & ~triplets.rejected
    triplets.mistake[:] = np.where(triplets.rejected, UNDEFINED, first.mistake)
    triplets.loss[:] = first.loss + second.loss
    triplets.margin[:] = first.margin
