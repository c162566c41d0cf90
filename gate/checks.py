"""Checks beside the test: what both sides have shown, whatever was clicked.

A ranking can win clicks and still be one that nobody wants: because it shows a few items to everybody, hides new
ones, or finds nothing. A winner that fails a check does not serve.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from kinstream.gate.lists.draft import SIDES, Side
from kinstream.gate.lists.list_id import Impression
from kinstream.streams.records.state import State

#: Bits of the sketch of distinct items; a mark has 24.
_BITS: Final = 1 << 14
#: The candidate has to show at least this part of the distinct items, and of the new ones, that the serving model does.
LEAST_COVERAGE: Final = 0.5
LEAST_FRESH: Final = 0.5
#: The candidate may find nothing for at most this share of queries more than the serving model.
MOST_EMPTY: Final = 0.01
#: Picks of new items of the serving model from which on their number is compared.
_FEW: Final = 50


class Shares:
    """What the picks of both sides have shown in one comparison."""

    def __init__(self) -> None:
        self._seen = np.zeros((2, _BITS), np.bool_)
        #: By side: picks, picks of new items, lists for which its ranking was empty.
        self._picks = [0, 0]
        self._fresh = [0, 0]
        self._empty = [0, 0]
        self._lists = 0

    def add(self, shown: Impression) -> None:
        """Count a list."""
        self._lists += 1
        for place, (mark, pick) in enumerate(zip(shown.marks, shown.picks, strict=True)):
            for side in SIDES if pick is Side.BOTH else (pick,):
                self._seen[side, mark % _BITS] = True
                self._picks[side] += 1
                self._fresh[side] += place in shown.fresh
        for side in shown.empty:
            self._empty[side] += 1

    def measured(self) -> dict[str, float]:
        """What both sides have shown: distinct items, shares of new items among the picks, shares of empty rankings."""
        found: dict[str, float] = {}
        for side in SIDES:
            name = side.name.lower()
            found[f"distinct_items_{name}"] = self._distinct(side)
            found[f"new_item_share_{name}"] = self._fresh[side] / max(1, self._picks[side])
            found[f"empty_share_{name}"] = self._empty[side] / max(1, self._lists)
        return found

    def failed(self, spared: int = 0) -> tuple[str, ...]:
        """The names of the checks that the candidate fails.

        Parameters
        ----------
        spared : lists for which the candidate may find nothing beside its share: as many as one user can have here.
        """
        serving, candidate = Side.SERVING, Side.CANDIDATE
        found = self.measured()
        failed = []
        if self._distinct(candidate) < LEAST_COVERAGE * self._distinct(serving):
            failed.append("coverage")
        least = LEAST_FRESH * found["new_item_share_serving"]
        if self._fresh[serving] >= _FEW and found["new_item_share_candidate"] < least:
            failed.append("new-items")
        if self._empty[candidate] > self._empty[serving] + MOST_EMPTY * self._lists + spared:
            failed.append("empty")
        return tuple(failed)

    def _distinct(self, side: Side) -> float:
        """Number of distinct items, estimated from the bits that are left (linear counting, Whang and others 1990)."""
        left = _BITS - int(self._seen[side].sum())
        return -_BITS * math.log(max(left, 1) / _BITS) + 0.0

    def state(self) -> State:
        return {
            "seen": np.packbits(self._seen, axis=1),
            "numbers": np.array([*self._picks, *self._fresh, *self._empty, self._lists], np.int64),
        }

    def restore(self, state: State) -> None:
        self._seen = np.unpackbits(np.asarray(state["seen"], np.uint8), axis=1).astype(np.bool_)
        numbers = np.asarray(state["numbers"]).tolist()
        self._picks, self._fresh, self._empty, self._lists = (
            numbers[:2],
            numbers[2:4],
            numbers[4:6],
            numbers[6],
        )
