"""The constraints of a warm-up, which are learned at its end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.events import Numbers
from kinstream.learners.base.learner import State
from kinstream.streams.records.values import DEFAULT_MODALITY, ConstraintBlock, Kind, Table

Vectors = NDArray[np.float32]
Flags = NDArray[np.bool_]
#: Stands for the third vector of a pair.
NONE = -1


class FirstConstraints:
    """Pairs and triplets with their distinct vectors, in their order."""

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}
        self._vectors: list[Vectors] = []
        self._rows: list[tuple[int, int, int]] = []
        self._signs: list[int] = []
        self._ends: list[bool] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, block: ConstraintBlock, events: Numbers | None, kept: NDArray[np.intp]) -> None:
        """Take some rows of a block, in ascending order."""
        vectors = block.tables[0].vectors
        for row in kept:
            # Adding zero makes -0 and 0 one value.
            names = [
                self._place(np.asarray(vectors[i], np.float32) + np.float32(0.0)) for i in block.index[row]
            ]
            self._rows.append((names[0], names[1], names[2] if len(names) > 2 else NONE))
            self._signs.append(int(block.signs[row]))
            self._ends.append(events is None or row + 1 == len(block) or events[row + 1] != events[row])

    def blocks(self) -> list[ConstraintBlock]:
        """All of them as blocks, a new one for each change of kind; events are numbered anew."""
        index, ends = np.array(self._rows, np.int32).reshape(-1, 3), np.array(self._ends, np.bool_)
        signs, pairs = np.array(self._signs, np.int8), index[:, 2] == NONE
        table, found = Table(DEFAULT_MODALITY, np.array(self._vectors)), []
        for part in np.split(np.arange(len(index)), np.flatnonzero(np.diff(pairs)) + 1):
            if not len(part):
                continue
            kind = Kind.PAIR if pairs[part[0]] else Kind.TRIPLET
            m = len(part)
            found.append(
                ConstraintBlock(
                    space="",
                    kind=kind,
                    tables=(table,),
                    index=np.ascontiguousarray(index[part, : 2 if kind is Kind.PAIR else 3]),
                    signs=signs[part],
                    rules=("warm-up",),
                    rule=np.zeros(m, np.uint8),
                    derived=np.zeros(m, np.bool_),
                    weights=np.ones(m, np.float32),
                    time_ms=0,
                    events=np.concatenate([[0], np.cumsum(ends[part][:-1])]).astype(np.int32),
                )
            )
        return found

    def state(self) -> State:
        if not self._rows:
            return {}
        return {
            "vectors": np.array(self._vectors),
            "rows": np.array(self._rows, np.int32),
            "signs": np.array(self._signs, np.int8),
            "ends": np.array(self._ends, np.int8),
        }

    def restore(self, state: State) -> None:
        """Continue from `state()`, in a new object."""
        for vector in np.asarray(state.get("vectors", np.empty((0, 0))), np.float32):
            self._place(vector)
        self._rows = [(int(a), int(b), int(c)) for a, b, c in np.asarray(state.get("rows", np.empty((0, 3))))]
        self._signs = [int(sign) for sign in np.asarray(state.get("signs", []))]
        self._ends = [bool(end) for end in np.asarray(state.get("ends", []))]

    def _place(self, vector: Vectors) -> int:
        place = self._places.setdefault(vector.tobytes(), len(self._vectors))
        if place == len(self._vectors):
            self._vectors.append(vector)
        return place
