"""What was taken back after its list had become constraints: it waits for the next block of the space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.processors.base.builder import State
from kinstream.processors.base.id_table import name_hashes
from kinstream.streams.records.randomised_id import one_spelling
from kinstream.streams.records.values import ConstraintBlock

#: How many wait at most.
MOST: Final = 20_000
#: Stands for the ids of all lists.
EVERY_LIST: Final = 0
#: A block takes along one for so many of its bytes, up to a number; one has 16 bytes.
_BYTES_OF_ONE: Final = 512
_MOST_IN_A_BLOCK: Final = 256
_STATE: Final = "retracted"
_COUNTS: Final = "count.retracted"


def list_hashes(list_ids: Sequence[str]) -> NDArray[np.uint64]:
    """(n,) what learners know lists by; above 0."""
    return name_hashes([one_spelling(list_id) for list_id in list_ids]) | np.uint64(1)


class Retractions:
    """Pairs of a list and an item that learners are to forget, in the order in which they came.

    Parameters
    ----------
    max_bytes : of a block.

    Attributes
    ----------
    room : bytes that a block keeps free for what it takes along.
    taken, evicted : how many came, and how many were dropped because too many waited.
    """

    def __init__(self, max_bytes: int) -> None:
        self._in_a_block = min(_MOST_IN_A_BLOCK, max_bytes // _BYTES_OF_ONE)
        self.room = 16 * (self._in_a_block + 1)
        self._waiting: dict[tuple[int, int], None] = {}
        self.taken = self.evicted = 0

    def take_back(self, list_id: str, item: str) -> None:
        """An item of one list."""
        self._add([(int(list_hashes([list_id])[0]), int(name_hashes([item])[0]))])

    def erase(self, items: Sequence[str]) -> None:
        """Items of all lists."""
        self._add([(EVERY_LIST, item) for item in name_hashes(items).tolist()])

    def _add(self, pairs: Sequence[tuple[int, int]]) -> None:
        self.taken += len(pairs)
        self._waiting |= dict.fromkeys(pairs)
        for first in list(islice(self._waiting, max(0, len(self._waiting) - MOST))):
            del self._waiting[first]
            self.evicted += 1

    def send(self, blocks: Sequence[ConstraintBlock]) -> list[ConstraintBlock]:
        """The blocks with what waits."""
        sent = []
        for block in blocks:
            pairs = list(islice(self._waiting, self._in_a_block))
            for pair in pairs:
                del self._waiting[pair]
            sent.append(replace(block, retracted=np.array(pairs, np.uint64)) if pairs else block)
        return sent

    # ---- state --------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Nothing if none has come."""
        if not self.taken:
            return {}
        waiting = np.array(list(self._waiting), np.uint64).reshape(-1, 2)
        return {_STATE: waiting, _COUNTS: np.array([self.taken, self.evicted], np.int64)}

    def restore(self, state: State) -> None:
        if _STATE in state:
            self._waiting = {(of, item): None for of, item in np.asarray(state[_STATE]).tolist()}
            self.taken, self.evicted = np.asarray(state[_COUNTS]).tolist()
