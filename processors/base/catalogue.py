"""The items of a space: vectors by name, following items, changes and tombstones in log order.

A log-structured store. Entries are appended to an open tail; a full tail is sealed as a segment, and segments are
merged as they grow, at places that the log alone decides. A segment never changes in a checkpoint: an item that is
replaced or removed only loses its live bit, and the bits lie in the state. So a checkpoint of a million items writes
the tail, the bits, and the segments that are new.

References
----------
O'Neil, Cheng, Gawlick, O'Neil: The log-structured merge-tree. Acta Informatica 33, 1996.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.processors.base.builder import State
from kinstream.processors.base.id_table import Hashes, HashIndex, hashes
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.values import Event, ItemBlock, SampleBlock, Table, Vectors

#: The current place of an item's vectors: segment number * 2^32 + row. Holds until the next `put` or `remove`.
Reference = NDArray[np.int64]

#: Number of entries, and size of vectors in bytes, at which a tail is sealed.
_TAIL_ENTRIES: Final = 4096
_TAIL_BYTES: Final = 2**20
_LEAST_ENTRIES: Final = 64
#: Number of segments of a level that are merged into one of the next; those of the top level are merged only once they
#: are half dead.
_FAN_OUT: Final = 4
_TOP_LEVEL: Final = 2

_ROW: Final = 2**32
#: Bytes of an entry beside its vectors: hash and live bit, and its places in the index.
_ENTRY_BYTES: Final = 96


class _Segment:
    """Entries in order of arrival. Only `live` ever changes, unless an entry is erased."""

    def __init__(
        self, number: int, level: int, keys: Hashes, tables: tuple[Table, ...], live: NDArray[np.bool_]
    ) -> None:
        self.number, self.level, self.keys, self.tables, self.live = number, level, keys, tables, live
        self.version = 0

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def name(self) -> str:
        return f"catalogue-{self.number:08d}-{self.version}"

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.live.nbytes + sum(t.vectors.nbytes for t in self.tables)

    def erase(self, rows: NDArray[np.intp]) -> None:
        """Overwrite entries with zeros."""
        self.keys[rows] = 0
        self.live[rows] = False
        for table in self.tables:
            table.vectors[rows] = 0
        self.version += 1


class Catalogue:
    """Vectors of the items of one space.

    The first block of items determines the modalities and their dimensions.

    Examples
    --------
    >>> import numpy as np
    >>> from kinstream.processors.base.catalogue import Catalogue
    >>> from kinstream.processors.base.id_table import hashes
    >>> from kinstream.streams.records.values import ItemBlock, Table
    >>> catalogue = Catalogue()
    >>> vectors = np.eye(2, 3, dtype=np.float32)
    >>> catalogue.put(ItemBlock("shop", ("cup", "pot"), (Table("x", vectors),), time_ms=0))
    >>> found = catalogue.find(hashes(["pot", "pan"]))
    >>> bool(found[0] >= 0), int(found[1])
    (True, -1)
    >>> catalogue.vectors(found[:1])[0].vectors.tolist()
    [[0.0, 1.0, 0.0]]
    """

    def __init__(self) -> None:
        self.modalities: tuple[tuple[str, int], ...] = ()
        self._index = HashIndex()
        self._segments: dict[int, _Segment] = {}
        self._next = 0
        self._tail = self._empty_tail()
        self._tail_used = 0
        #: The block whose bytes were asked for last, and the hashes of its names: it usually comes next.
        self._asked: tuple[ItemBlock, Hashes] | None = None

    def __len__(self) -> int:
        """The number of items."""
        return len(self._index)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._index.nbytes + self._tail.nbytes + sum(s.nbytes for s in self._segments.values())

    # ---- reading ------------------------------------------------------------------------------------------------

    def find(self, keys: Hashes) -> Reference:
        """The place of each item, (n,) int64; -1 for a missing item."""
        return self._index.find(keys)

    def vectors(self, references: Reference) -> tuple[Table, ...]:
        """The vectors at references that were found, (n, d) float32 for each modality."""
        numbers, rows = np.divmod(references, _ROW)
        tables = tuple(
            Table(name, np.empty((len(references), size), np.float32)) for name, size in self.modalities
        )
        for number in np.unique(numbers).tolist():
            here = np.flatnonzero(numbers == number)
            segment = self._segments.get(number, self._tail)
            for table, source in zip(tables, segment.tables, strict=True):
                table.vectors[here] = source.vectors[rows[here]]
        return tables

    def bytes_with(self, event: Event) -> int:
        """Bytes of memory with the items of an event, about; 0 if none is new. Replaced entries do not count."""
        if not isinstance(event, ItemBlock | SampleBlock) or not event.ids:
            return 0
        if isinstance(event, ItemBlock):
            keys = hashes(event.ids)
            self._asked = event, keys
        else:
            keys = hashes([name for name in event.ids if name])
        fresh = int((self._index.find(keys) < 0).sum())
        vectors = 4 * sum(int(table.vectors.shape[1]) for table in event.tables)
        return (len(self) + fresh) * (vectors + _ENTRY_BYTES) if fresh else 0

    # ---- changing -----------------------------------------------------------------------------------------------

    def check(self, block: ItemBlock) -> None:
        """Refuse a block whose vectors differ in dimension from the catalogue.

        Raises
        ------
        BadRecord : with the reason.
        """
        sizes = {t.name: t.vectors.shape[1] for t in block.tables}
        if block.ids and self.modalities and sizes != dict(self.modalities):
            raise BadRecord(
                Reason.WRONG_DIMENSION, f"{_sizes(sizes)} in a catalogue of {_sizes(dict(self.modalities))}"
            )

    def put(self, block: ItemBlock) -> None:
        """Add or replace the items of a block, then remove those of its tombstones.

        Raises
        ------
        BadRecord : other dimensions than those of the catalogue; nothing is changed.
        """
        self.check(block)
        if block.ids:
            asked, self._asked = self._asked, None
            keys = asked[1] if asked is not None and asked[0] is block else hashes(block.ids)
            self.add(keys, block.tables)
        self.remove(block.tombstones)

    def add(self, keys: Hashes, tables: tuple[Table, ...]) -> None:
        """Add or replace items by the hashes of their names; vectors (n, d) of every modality."""
        if not self.modalities:
            self.modalities = tuple((t.name, t.vectors.shape[1]) for t in tables)
            self._tail = self._empty_tail()
        given = {t.name: t.vectors for t in tables}
        at = 0
        while at < len(keys):
            count = min(len(keys) - at, len(self._tail) - self._tail_used)
            rows = slice(self._tail_used, self._tail_used + count)
            some = keys[at : at + count]
            self._kill(self._index.find(some))
            self._tail.keys[rows] = some
            for table in self._tail.tables:
                table.vectors[rows] = given[table.name][at : at + count]
            where = self._tail.number * _ROW + np.arange(rows.start, rows.stop, dtype=np.int64)
            self._index.set(some, where)
            # An item that came twice in the block lives in its last place only.
            self._tail.live[rows] = self._index.find(some) == where
            self._tail_used += count
            at += count
            if self._tail_used == len(self._tail):
                self._seal()

    def remove(self, ids: Sequence[str]) -> None:
        """Erase items: all their vectors, including old ones, are overwritten. Unknown items are ignored."""
        if not ids:
            return
        keys = hashes(ids)
        known = self._index.remove(keys) >= 0
        if not known.any():
            return
        # Older vectors of a replaced item lie in dead entries, which no index knows.
        gone = HashIndex()
        gone.set(keys[known], np.zeros(int(known.sum()), np.int64))
        for segment in (*self._segments.values(), self._tail):
            rows = np.flatnonzero(gone.find(segment.keys) >= 0)
            if len(rows):
                segment.erase(rows)

    def _kill(self, references: Reference) -> None:
        """Take the live bits of replaced entries."""
        numbers, rows = np.divmod(references[references >= 0], _ROW)
        for number in np.unique(numbers).tolist():
            self._segments.get(number, self._tail).live[rows[numbers == number]] = False

    # ---- segments -----------------------------------------------------------------------------------------------

    def _empty_tail(self) -> _Segment:
        row_bytes = 4 * sum(size for _, size in self.modalities)
        entries = min(_TAIL_ENTRIES, max(_LEAST_ENTRIES, _TAIL_BYTES // max(1, row_bytes)))
        tables = tuple(Table(name, np.zeros((entries, size), np.float32)) for name, size in self.modalities)
        return _Segment(self._next, 0, np.zeros((entries, 2), np.uint64), tables, np.zeros(entries, np.bool_))

    def _seal(self) -> None:
        """The tail becomes a segment, and segments are merged if due."""
        # Erasures of a tail were never written apart from it.
        self._tail.version = 0
        self._segments[self._next] = self._tail
        self._next += 1
        for level in range(_TOP_LEVEL):
            equal = [s for s in self._segments.values() if s.level == level]
            if len(equal) >= _FAN_OUT:
                self._merge(equal, level + 1)
        # Two of the top level that are half empty make one.
        room = len(self._tail) * _FAN_OUT**_TOP_LEVEL
        sparse = [s for s in self._segments.values() if s.level == _TOP_LEVEL and 2 * s.live.sum() <= room]
        if len(sparse) >= 2:
            self._merge(sparse[:2], _TOP_LEVEL)
        for segment in [s for s in self._segments.values() if 2 * s.live.sum() < len(s)]:
            self._merge([segment], segment.level)
        self._tail = self._empty_tail()
        self._tail_used = 0

    def _merge(self, parts: Sequence[_Segment], level: int) -> None:
        """The live entries of segments as one new segment."""
        keys = np.concatenate([s.keys[s.live] for s in parts])
        tables = tuple(
            Table(name, np.concatenate([s.tables[place].vectors[s.live] for s in parts]))
            for place, (name, _) in enumerate(self.modalities)
        )
        for part in parts:
            del self._segments[part.number]
        if len(keys):
            merged = _Segment(self._next, level, keys, tables, np.ones(len(keys), np.bool_))
            self._segments[self._next] = merged
            self._index.set(keys, merged.number * _ROW + np.arange(len(keys), dtype=np.int64))
        self._next += 1

    # ---- checkpoints --------------------------------------------------------------------------------------------

    def state(self) -> State:
        """The state without the segments."""
        used = self._tail_used
        listed = [[s.number, s.level, len(s), s.version] for s in self._segments.values()]
        state: State = {
            "modalities": json.dumps(self.modalities),
            "segments": json.dumps(listed),
            "next": self._next,
            "tail.keys": self._tail.keys[:used].copy(),
            "tail.live": self._tail.live[:used].copy(),
        }
        state |= {f"tail.vectors.{t.name}": t.vectors[:used].copy() for t in self._tail.tables}
        state |= {f"live.{s.number:08d}": np.packbits(s.live) for s in self._segments.values()}
        return state

    def restore(self, state: State) -> None:
        """Continue from a state; `restore_segments` restores the rest."""
        self.modalities = tuple((name, size) for name, size in json.loads(str(state["modalities"])))
        self._index = HashIndex()
        self._next = int(state["next"])
        self._tail = self._empty_tail()
        keys = np.asarray(state["tail.keys"], np.uint64)
        used = self._tail_used = len(keys)
        self._tail.keys[:used] = keys
        self._tail.live[:used] = state["tail.live"]
        for table in self._tail.tables:
            table.vectors[:used] = state[f"tail.vectors.{table.name}"]
        self._segments = {}
        for number, level, entries, version in json.loads(str(state["segments"])):
            bits = np.asarray(state[f"live.{number:08d}"], np.uint8)
            live = np.unpackbits(bits, count=entries).astype(np.bool_)
            self._segments[number] = segment = _Segment(
                number, level, np.zeros((entries, 2), np.uint64), (), live
            )
            segment.version = version
        self._note(self._tail)

    def segments(self) -> tuple[str, ...]:
        """Names of the segments that the state needs."""
        return tuple(segment.name for segment in self._segments.values())

    def segment(self, name: str) -> State:
        """The content of a segment."""
        segment = self._named(name)
        state: State = {"keys": segment.keys}
        state |= {f"vectors.{t.name}": t.vectors for t in segment.tables}
        return state

    def restore_segments(self, load: Callable[[str], State]) -> None:
        """Load the segments of the restored state."""
        for segment in self._segments.values():
            content = load(segment.name)
            segment.keys = np.array(content["keys"], np.uint64)
            segment.tables = tuple(
                Table(name, np.array(content[f"vectors.{name}"], np.float32)) for name, _ in self.modalities
            )
            self._note(segment)

    def _note(self, segment: _Segment) -> None:
        rows = np.flatnonzero(segment.live)
        self._index.set(segment.keys[rows], segment.number * _ROW + rows)

    def _named(self, name: str) -> _Segment:
        for segment in self._segments.values():
            if segment.name == name:
                return segment
        raise KeyError(name)

    def keys(self) -> Hashes:
        """The hash of every item, (n, 2), in the order of `rows`."""
        return np.concatenate([s.keys[s.live] for s in (*self._segments.values(), self._tail)])

    def rows(self) -> tuple[Hashes, tuple[Vectors, ...]]:
        """Every item: hashes (n, 2), and vectors (n, d) of each modality."""
        parts = [*self._segments.values(), self._tail]
        vectors = tuple(
            np.concatenate([s.tables[place].vectors[s.live] for s in parts])
            for place in range(len(self.modalities))
        )
        return self.keys(), vectors


def _sizes(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name}: {size}" for name, size in sizes.items())
