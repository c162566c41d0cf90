"""The relations that a closure accepted, in order, with their origins; the graph is rebuilt from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.processors.base.builder import State

#: Entries per segment.
SEGMENT: Final = 8192
#: What an entry does. A `SUPPORTED` relation counts by its votes and was already known when it began to count.
SIMILAR, DISSIMILAR, SUPPORTED_SIMILAR, SUPPORTED_DISSIMILAR, ERASED, WITHDRAWN = range(6)
#: Origins of an entry.
VIA: Final = ("relation", "label", "co-click")
RELATION, LABEL, CO_CLICK = range(3)

_DTYPES: Final = {
    "left": np.int32,
    "right": np.int32,
    "kind": np.int8,
    "via": np.int8,
    "offset": np.int64,
    "row": np.int32,
    "time": np.int64,
    "source": np.int32,
}
#: Columns that a segment stores minus their minimum, in the fewest bytes.
_NARROWED: Final = ("offset", "row", "time", "source")
_PREFIX: Final = "seeds-"

Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Seed:
    """An entry: items by number, and its origin."""

    left: int
    right: int
    kind: int
    via: str
    offset: int
    row: int
    time_ms: int
    source: str | None

    @property
    def similar(self) -> bool:
        return self.kind in (SIMILAR, SUPPORTED_SIMILAR)


class SeedLog:
    """An append-only log in segments of `SEGMENT` entries, some 20 bytes each."""

    def __init__(self) -> None:
        self._sealed: list[tuple[Columns, list[str]]] = []
        self._tail: Columns = {name: np.zeros(SEGMENT, dtype) for name, dtype in _DTYPES.items()}
        self._used = 0
        # For the tail: the place of each source, and the source at each place.
        self._sources: dict[str, int] = {}
        self._source_names: list[str] = []

    def __len__(self) -> int:
        return len(self._sealed) * SEGMENT + self._used

    @property
    def nbytes(self) -> int:
        """Bytes of memory, without the names of sources."""
        parts = [self._tail, *(columns for columns, _ in self._sealed)]
        return sum(column.nbytes for columns in parts for column in columns.values())

    def append(self, entries: Columns, sources: Sequence[str]) -> None:
        """Append entries.

        Parameters
        ----------
        entries : all columns, (n,) each; `source` is a place in `sources`, -1 for none.
        """
        at, count = 0, len(entries["left"])
        while at < count:
            some = min(count - at, SEGMENT - self._used)
            rows = slice(self._used, self._used + some)
            for name, column in self._tail.items():
                column[rows] = entries[name][at : at + some]
            used, places = np.unique(self._tail["source"][rows], return_inverse=True)
            own = [self._own(sources[n]) if n >= 0 else -1 for n in used.tolist()]
            self._tail["source"][rows] = np.array(own, np.int32)[places]
            self._used += some
            at += some
            if self._used == SEGMENT:
                self._sealed.append((_narrow(self._tail), self._source_names))
                self._used, self._sources, self._source_names = 0, {}, []

    def _own(self, source: str) -> int:
        place = self._sources.setdefault(source, len(self._sources))
        if place == len(self._source_names):
            self._source_names.append(source)
        return place

    def seed(self, number: int) -> Seed:
        """An entry by its number."""
        segment, row = divmod(number, SEGMENT)
        here = segment == len(self._sealed)
        columns, sources = (self._tail, self._source_names) if here else self._sealed[segment]
        of = {name: _one(columns, name, row) for name in _DTYPES}
        return Seed(
            of["left"],
            of["right"],
            of["kind"],
            VIA[of["via"]],
            of["offset"],
            of["row"],
            of["time"],
            None if of["source"] < 0 else sources[of["source"]],
        )

    def standing(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """The valid entries: left, right, sign (0 for an erasure of left) and number; without the withdrawn."""
        parts = [
            *(columns for columns, _ in self._sealed),
            {n: c[: self._used] for n, c in self._tail.items()},
        ]
        left, right, kind, via = (
            np.concatenate([columns[name] for columns in parts]) for name in ("left", "right", "kind", "via")
        )
        kept = kind != WITHDRAWN
        gone = np.flatnonzero(~kept)
        if len(gone):
            low, high = np.minimum(left, right).astype(np.int64), np.maximum(left, right)
            pair = (low << 32) | high
            # The last time that each pair was withdrawn: its earlier entries by votes are void.
            pairs, last = np.unique(pair[gone][::-1], return_index=True)
            at = np.minimum(np.searchsorted(pairs, pair), len(pairs) - 1)
            until = np.where(pairs[at] == pair, gone[::-1][last][at], -1)
            kept &= ~((np.arange(len(pair)) < until) & (via == RELATION) & (kind != ERASED))
        rows = np.flatnonzero(kept)
        sign = np.array([1, -1, 1, -1, 0], np.int8)[kind[rows]]
        return left[rows], right[rows], sign, rows.astype(np.int32)

    # ---- checkpoints --------------------------------------------------------------------------------------------

    def state(self) -> State:
        """The open tail, and the number of segments."""
        state: State = {name: column[: self._used].copy() for name, column in self._tail.items()}
        return state | {"sources": json.dumps(self._source_names), "segments": len(self._sealed)}

    def restore(self, state: State) -> None:
        """The inverse of `state`; `restore_segments` brings the rest."""
        self._used = len(np.asarray(state["left"]))
        for name, column in self._tail.items():
            column[: self._used] = state[name]
        self._source_names = json.loads(str(state["sources"]))
        self._sources = {source: n for n, source in enumerate(self._source_names)}
        self._sealed = [({}, [])] * int(state["segments"])

    def segments(self) -> tuple[str, ...]:
        return tuple(f"{_PREFIX}{number:08d}" for number in range(len(self._sealed)))

    def holds(self, name: str) -> bool:
        """Whether a segment of that name is one of these."""
        return name.startswith(_PREFIX)

    def segment(self, name: str) -> State:
        columns, sources = self._sealed[int(name.removeprefix(_PREFIX))]
        return {**columns, "sources": json.dumps(sources)}

    def restore_segments(self, load: Callable[[str], State]) -> None:
        for number, name in enumerate(self.segments()):
            content = load(name)
            sources = json.loads(str(content["sources"]))
            self._sealed[number] = (
                {key: np.asarray(content[key]) for key in content if key != "sources"},
                sources,
            )


def _narrow(columns: Columns) -> Columns:
    narrow: Columns = {name: columns[name].copy() for name in _DTYPES if name not in _NARROWED}
    for name in _NARROWED:
        least = columns[name].min().astype(np.int64)
        rest = (columns[name] - least).astype(np.uint64)
        narrow[name] = rest.astype(np.min_scalar_type(rest.max()))
        narrow[f"{name}.least"] = np.array([least], np.int64)
    return narrow


def _one(columns: Columns, name: str, row: int) -> int:
    least = columns.get(f"{name}.least")
    return int(columns[name][row]) + (0 if least is None else int(least[0]))
