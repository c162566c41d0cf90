"""The items of a closure by number: 128-bit hashes for lookup, and their names for explanations."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.processors.base.builder import State
from kinstream.processors.base.id_table import Hashes, IdTable, Numbers

#: Items per segment.
SEGMENT: Final = 8192
_PREFIX: Final = "items-"


class ItemLog:
    """Items by first appearance. Names are stored as consecutive UTF-8; an erased item has neither name nor hash."""

    def __init__(self) -> None:
        self.table = IdTable()
        # Names of whole segments: the text, and where each name ends.
        self._sealed: list[tuple[bytes, NDArray[np.uint32]]] = []
        self._tail: list[str | None] = []
        self._versions: list[int] = []

    @property
    def nbytes(self) -> int:
        """Bytes of memory, without the open tail of names."""
        return self.table.nbytes + sum(len(text) + ends.nbytes for text, ends in self._sealed)

    def __len__(self) -> int:
        """The number of assigned numbers."""
        return self.table.numbered

    def add(self, keys: Hashes, names: Sequence[str], order: Numbers) -> Numbers:
        """Number items in the order in which they stand in a list of places.

        Parameters
        ----------
        keys, names : of distinct items.
        order : (n,) places in `names`.

        Returns
        -------
        (n,) the number at each place of the list.
        """
        before = len(self)
        found = self.table.add(keys[order])
        fresh = found >= before
        if fresh.any():
            _, first = np.unique(found[fresh], return_index=True)
            self._tail += [names[n] for n in order[fresh][first].tolist()]
            while len(self._tail) >= SEGMENT:
                self._sealed.append(_sealed(self._tail[:SEGMENT]))
                self._versions.append(0)
                self._tail = self._tail[SEGMENT:]
        return found

    def name(self, number: int) -> str | None:
        """The name of an item; None if it was erased."""
        segment, row = divmod(number, SEGMENT)
        if segment == len(self._sealed):
            return self._tail[row]
        if self.table.gone(np.array([number], np.int64))[0]:
            return None
        return _name(*self._sealed[segment], row)

    def remove(self, keys: Hashes) -> Numbers:
        """Erase items. Returns the numbers of the known ones."""
        found = self.table.remove(keys)
        found = found[found >= 0]
        for segment in np.unique(found // SEGMENT).tolist():
            rows = (found[found // SEGMENT == segment] % SEGMENT).tolist()
            if segment == len(self._sealed):
                for row in rows:
                    self._tail[row] = None
                continue
            text, ends = self._sealed[segment]
            self._sealed[segment] = _without(text, ends, rows)
            self._versions[segment] += 1
        return found

    # ---- checkpoints --------------------------------------------------------------------------------------------

    def state(self) -> State:
        """The open tail, and the names of the segments."""
        keys, gone = self._rows(len(self._sealed))
        return {
            "keys": keys,
            "gone": gone,
            "names": json.dumps(self._tail),
            "segments": json.dumps(self._versions),
        }

    def restore(self, state: State) -> None:
        """The inverse of `state`; `restore_segments` restores the rest."""
        self._tail = json.loads(str(state["names"]))
        self._versions = json.loads(str(state["segments"]))
        self._sealed = [(b"", np.empty(0, np.uint32))] * len(self._versions)
        self._open = (
            np.asarray(state["keys"], np.uint64).reshape(-1, 2),
            np.asarray(state["gone"], np.bool_),
        )

    def segments(self) -> tuple[str, ...]:
        return tuple(f"{_PREFIX}{number:08d}-{version}" for number, version in enumerate(self._versions))

    def holds(self, name: str) -> bool:
        """Whether a segment of that name is one of these."""
        return name.startswith(_PREFIX)

    def segment(self, name: str) -> State:
        number, version = (int(part) for part in name.removeprefix(_PREFIX).split("-"))
        if self._versions[number] != version:
            raise KeyError(name)
        keys, gone = self._rows(number)
        text, ends = self._sealed[number]
        return {"keys": keys, "gone": gone, "text": np.frombuffer(text, np.uint8), "ends": ends}

    def restore_segments(self, load: Callable[[str], State]) -> None:
        parts = []
        for number, name in enumerate(self.segments()):
            content = load(name)
            parts.append((np.asarray(content["keys"], np.uint64), np.asarray(content["gone"], np.bool_)))
            text = np.asarray(content["text"], np.uint8).tobytes()
            self._sealed[number] = (text, np.asarray(content["ends"], np.uint32))
        parts.append(self._open)
        keys, gone = (np.concatenate([part[place] for part in parts]) for place in (0, 1))
        self.table.restore(keys, gone)

    def _rows(self, segment: int) -> tuple[Hashes, NDArray[np.bool_]]:
        last = min((segment + 1) * SEGMENT, len(self))
        numbers = np.arange(segment * SEGMENT, last, dtype=np.int64)
        return self.table.hashes_of(numbers), self.table.gone(numbers)


def _sealed(names: Sequence[str | None]) -> tuple[bytes, NDArray[np.uint32]]:
    encoded = [b"" if name is None else name.encode() for name in names]
    return b"".join(encoded), np.cumsum([len(name) for name in encoded]).astype(np.uint32)


def _edges(ends: NDArray[np.uint32], row: int) -> tuple[int, int]:
    """Where a name begins and ends."""
    return int(ends[row - 1]) if row else 0, int(ends[row])


def _name(text: bytes, ends: NDArray[np.uint32], row: int) -> str:
    low, high = _edges(ends, row)
    return text[low:high].decode()


def _without(text: bytes, ends: NDArray[np.uint32], rows: list[int]) -> tuple[bytes, NDArray[np.uint32]]:
    """The names of a segment, those of some rows made empty."""
    lengths = np.diff(ends, prepend=np.uint32(0))
    lengths[rows] = 0
    kept, at = [], 0
    for low, high in sorted(_edges(ends, row) for row in rows):
        kept.append(text[at:low])
        at = high
    return b"".join([*kept, text[at:]]), np.cumsum(lengths).astype(np.uint32)
