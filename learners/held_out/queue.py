"""Held-out constraints that wait for their verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.records.state import State
from kinstream.streams.records.values import ConstraintBlock, Kind


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """Constraints of one kind.

    Parameters
    ----------
    vectors : (m, 2 or 3, D), of all modalities side by side, as they came.
    signs : (m,) of pairs.
    events : (m,) numbers of their events; they do not decrease.
    """

    kind: Kind
    vectors: NDArray[np.float32]
    signs: NDArray[np.int8]
    events: NDArray[np.int64]

    @classmethod
    def of(cls, block: ConstraintBlock, parts: Sequence[NDArray[Any]], rows: NDArray[np.int64]) -> Self:
        """Some rows of a block, at least one; `parts` are its tables in the model's order."""
        index = block.index[rows]
        vectors = np.asarray(parts[0][index], np.float32)
        if len(parts) > 1:
            vectors = np.concatenate([part[index] for part in parts], axis=2, dtype=np.float32)
        events = rows if block.events is None else block.events[rows].astype(np.int64)
        return cls(block.kind, vectors, block.signs[rows], events)

    @classmethod
    def all_of(cls, several: Sequence[Self]) -> Self:
        """Those of several blocks, at least one, in order."""
        events: list[NDArray[np.int64]] = []
        end = 0
        for one in several:
            # No event of a block has the number of another block's.
            events.append(one.events - one.events[0] + end)
            end = int(events[-1][-1]) + 1
        return cls(
            several[0].kind,
            np.concatenate([one.vectors for one in several]),
            np.concatenate([one.signs for one in several]),
            np.concatenate(events),
        )

    def __len__(self) -> int:
        return len(self.signs)

    def state(self) -> State:
        """Copies of all parts."""
        state: State = {"kind": self.kind.value, "vectors": self.vectors.copy()}
        return state | {"signs": self.signs.copy(), "events": self.events.copy()}

    @classmethod
    def restored(cls, state: State) -> Self:
        """The inverse of `state`."""
        return cls(
            Kind(str(state["kind"])),
            np.array(state["vectors"], np.float32),
            np.array(state["signs"], np.int8),
            np.array(state["events"], np.int64),
        )
