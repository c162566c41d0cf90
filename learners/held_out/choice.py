"""Chooses the held-out events by a hash of their content, not of their place in the log.

So all passes over a row, all lists of one query, every builder and every replay choose the same events, and no judged
event was learned under another number.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels.ensembles.hash_choice import chosen
from kinstream.streams.compute.arrays import plain
from kinstream.streams.records.values import ConstraintBlock

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]


def first_rows(block: ConstraintBlock) -> Numbers:
    """(k,) the first row of each event of the block. Rows of an event from an earlier block count as one event."""
    if block.events is None:
        return np.arange(len(block))
    begins = np.ones(len(block), np.bool_)
    begins[1:] = block.events[1:] != block.events[:-1]
    return np.flatnonzero(begins)


class HeldOutShare:
    """Holds out a share of a space's events, by the first modality of the anchor of their first constraint.

    Parameters
    ----------
    share : in (0, 1).
    space : its name; spaces choose independently.
    """

    def __init__(self, share: float, space: str) -> None:
        self._limit = np.uint64(int(share * 2.0**64))
        self._key = np.frombuffer(blake2b(space.encode(), digest_size=8).digest(), "<u4").astype(np.uint32)

    def vectors(self, block: ConstraintBlock, rows: NDArray[np.int32]) -> Flags:
        """(k,) which of these rows of the block's first table are of events that are held out."""
        found = np.empty(len(rows), np.bool_)
        words = plain(block.tables[0].vectors, np.float32).view(np.uint32)
        chosen(words, np.array(rows), self._key, self._limit, found)
        return found

    def rows(self, block: ConstraintBlock) -> Flags:
        """(m,) rows of events that are held out."""
        words = plain(block.tables[0].vectors, np.float32).view(np.uint32)
        if block.events is None:
            found = np.empty(len(block), np.bool_)
            chosen(words, block.index[:, 0].copy(), self._key, self._limit, found)
            return found
        firsts = first_rows(block)
        found = np.empty(len(firsts), np.bool_)
        chosen(words, block.index[firsts, 0], self._key, self._limit, found)
        return np.repeat(found, np.diff(firsts, append=len(block)))
