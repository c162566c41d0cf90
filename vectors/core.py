"""One space of the agent `vectors`: its catalogue, the map of its version, and the blocks that follow from both.

An order brings a map, in parts. With its last part a version begins: all items are written under it at once, and
the last block says how many there are. Changes of items are written under the version that there is then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Final

import numpy as np

from kinstream.processors.base.builder import MAX_BLOCK_BYTES, Made, Origin
from kinstream.processors.base.catalogue import Catalogue
from kinstream.processors.base.id_table import Hashes, hashes
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.codec.vectors import LARGEST
from kinstream.streams.records.state import State, with_prefix, without_prefix
from kinstream.streams.records.values import Event, ItemBlock, Kind, Table, Vectors
from kinstream.streams.records.vectors import ItemMap, VectorBlock
from kinstream.vectors.embedding import Embedding

_CATALOGUE: Final = "catalogue."
_MAP: Final = "map."
_PENDING: Final = "pending."
#: Rows that are mapped at once.
_ROWS: Final = 4096


class SpaceVectors:
    """The core of one space. Deterministic: the same records give the same blocks and the same state, bit for bit.

    Parameters
    ----------
    space : its name.
    """

    algorithm: ClassVar[str] = "vectors/1"
    follows: ClassVar[tuple[type, ...]] = (ItemBlock,)
    emits: ClassVar[frozenset[Kind]] = frozenset()

    def __init__(self, space: str) -> None:
        self._space = space
        self.catalogue = Catalogue()
        #: Name of each item, by the bytes of its hash.
        self._names: dict[bytes, str] = {}
        self.map: Embedding | None = None
        self.version = 0
        self._pending: list[ItemMap] = []
        self._made: list[ItemMap | VectorBlock] = []
        self._counts = {"versions": 0, "vectors": 0, "tombstones": 0}

    @property
    def size(self) -> int:
        """The number of items."""
        return len(self._names)

    def counts(self) -> dict[str, int]:
        """What was written so far."""
        return dict(self._counts)

    def take(self) -> list[ItemMap | VectorBlock]:
        """The records that were made since the last call."""
        made, self._made = self._made, []
        return made

    # ---- items --------------------------------------------------------------------------------------------------

    def process(self, event: Event, origin: Origin) -> Made:
        """Apply the items of a block, then its tombstones; `take` returns what is to be written.

        Raises
        ------
        BadRecord : several modalities, or another dimension than that of the catalogue or of the map.
        """
        if not isinstance(event, ItemBlock):
            raise TypeError(f"a catalogue does not follow {type(event).__name__}")
        self._check(event)
        good, refused = _usable(event)
        removed = dict(zip(event.tombstones, _keys(event.tombstones), strict=True))
        gone = [name for name, key in removed.items() if key in self._names]
        if good.ids:
            self.catalogue.put(good)
        else:
            self.catalogue.remove(good.tombstones)
        last = {name: row for row, name in enumerate(good.ids)}
        self._names.update(zip(_keys(good.ids), good.ids, strict=True))
        for name, key in removed.items():
            last.pop(name, None)
            self._names.pop(key, None)
        if self.map is not None:
            rows = (
                good.tables[0].vectors[list(last.values())]
                if last
                else np.empty((0, self.map.head.dimension))
            )
            self._write(tuple(last), rows, gone, event.time_ms)
        return Made(refused=refused)

    def _check(self, event: ItemBlock) -> None:
        if not event.ids:
            return
        if len(event.tables) != 1:
            raise BadRecord(
                Reason.WRONG_DIMENSION, f"items of {len(event.tables)} modalities; a map is of one"
            )
        self.catalogue.check(event)
        size = event.tables[0].vectors.shape[1]
        if self.map is not None and size != self.map.head.dimension:
            raise BadRecord(
                Reason.WRONG_DIMENSION, f"{size} features, and the map has {self.map.head.dimension}"
            )

    # ---- versions -----------------------------------------------------------------------------------------------

    def publish(self, part: ItemMap, offset: int) -> None:
        """Take a part of a map; with the last one, write a version.

        Raises
        ------
        BadRecord : the part does not continue the one before it, or the map does not fit the catalogue.
        """
        held = self._pending if part.first else []
        rows = sum(len(one.item) for one in held)
        if rows != part.first or any(one.origin != part.origin for one in held):
            raise BadRecord(
                Reason.BAD_SHAPE, f"a map from row {part.first} on, where {rows} rows of it are known"
            )
        sizes = self.catalogue.modalities
        if sizes and sizes[0][1] != part.dimension:
            raise BadRecord(
                Reason.WRONG_DIMENSION, f"a map of {part.dimension} features, and items have {sizes[0][1]}"
            )
        self._pending = [*held, part]
        if rows + len(part.item) == part.rank:
            self._begin(Embedding.of_parts(self._pending), offset)
            self._pending = []

    def _begin(self, found: Embedding, offset: int) -> None:
        # The offset, or more if the space has come from another partition.
        self.map, self.version = found, max(offset, self.version + 1)
        self._made += found.parts(self.version)
        self._counts["versions"] += 1
        names, X = self.items()
        for at in range(0, len(names), _ROWS):
            self._write(names[at : at + _ROWS], X[at : at + _ROWS], (), found.head.time_ms)
        self._block((), np.empty((0, found.head.rank), np.float32), (), found.head.time_ms, len(names))

    def items(self) -> tuple[tuple[str, ...], Vectors]:
        """Names and vectors (n, d) of all items, in the order of the catalogue."""
        if not self.catalogue.modalities:
            return (), np.empty((0, 0), np.float32)
        return self._listed(), self.catalogue.rows()[1][0]

    def _listed(self) -> tuple[str, ...]:
        return tuple(self._names[key] for key in _split(self.catalogue.keys()))

    def _write(self, names: Sequence[str], X: Any, gone: Sequence[str], time_ms: int) -> None:
        """Blocks of items (n, d) and tombstones under the version."""
        assert self.map is not None
        mapped = self.map(X) if len(names) else np.empty((0, self.map.head.rank), np.float32)
        for low, high in _runs(names, 4 * mapped.shape[1]):
            self._block(names[low:high], mapped[low:high], (), time_ms)
        for low, high in _runs(gone, 0):
            self._block((), mapped[:0], gone[low:high], time_ms)

    def _block(
        self,
        names: Sequence[str],
        mapped: Vectors,
        gone: Sequence[str],
        time_ms: int,
        complete: int | None = None,
    ) -> None:
        self._counts["vectors"] += len(names)
        self._counts["tombstones"] += len(gone)
        made = VectorBlock(self._space, self.version, tuple(names), mapped, tuple(gone), time_ms, complete)
        self._made.append(made)

    # ---- checkpoints --------------------------------------------------------------------------------------------

    def state(self) -> State:
        """The state without the segments of the catalogue."""
        state = with_prefix(_CATALOGUE, self.catalogue.state())
        names = [name.encode() for name in self._listed()]
        state["names"] = np.frombuffer(b"".join(names), np.uint8)
        state["lengths"] = np.array([len(name) for name in names], np.int32)
        state |= {f"count.{name}": number for name, number in self._counts.items()}
        if self.map is not None:
            state |= with_prefix(_MAP, self.map.state())
        if self._pending:
            state |= with_prefix(_PENDING, Embedding.of_parts(self._pending).state())
        return state | {"version": self.version}

    def restore(self, state: State) -> None:
        """Continue from a state; `restore_segments` restores the rest."""
        self.catalogue = Catalogue()
        self.catalogue.restore(without_prefix(_CATALOGUE, state))
        self._counts = {name: int(state[f"count.{name}"]) for name in self._counts}
        self.version = int(state["version"])
        found, pending = without_prefix(_MAP, state), without_prefix(_PENDING, state)
        self.map = Embedding.of_state(self._space, found) if found else None
        held = Embedding.of_state(self._space, pending) if pending else None
        self._pending = [] if held is None else [held.head]
        text = np.asarray(state["names"], np.uint8).tobytes()
        ends = np.cumsum(np.asarray(state["lengths"], np.int64)).tolist()
        names = [text[low:high].decode() for low, high in pairwise([0, *ends])]
        self._names = dict(zip(_keys(names), names, strict=True))

    def segments(self) -> tuple[str, ...]:
        return self.catalogue.segments()

    def segment(self, name: str) -> State:
        return self.catalogue.segment(name)

    def restore_segments(self, load: Any) -> None:
        self.catalogue.restore_segments(load)

    def inherit(self, state: State, load: Any) -> None:
        """Items and map are declared to the agent, so another generation goes on with them."""
        self.restore(state)
        self.restore_segments(load)


def _keys(names: Sequence[str]) -> list[bytes]:
    return _split(hashes(names))


def _split(keys: Hashes) -> list[bytes]:
    data = keys.tobytes()
    return [data[at : at + 16] for at in range(0, len(data), 16)]


def _usable(block: ItemBlock) -> tuple[ItemBlock, list[BadRecord]]:
    """The block without items that no store could hold, and the refusals of those."""
    tombstones = tuple(name for name in block.tombstones if _storable(name))
    bad = [row for row, name in enumerate(block.ids) if not _storable(name)]
    large: list[int] = []
    if block.ids:
        beyond = np.abs(block.tables[0].vectors).max(axis=1) > LARGEST
        large = [row for row in np.flatnonzero(beyond).tolist() if row not in set(bad)]
    refused = []
    if bad:
        text = "a name is empty, has a zero character, or is not valid UTF-8"
        refused.append(BadRecord(Reason.BAD_SHAPE, text, tuple(bad)))
    if large:
        refused.append(BadRecord(Reason.NOT_FINITE, f"a number beyond {LARGEST:g}", tuple(large)))
    out = {*bad, *large}
    if not out and len(tombstones) == len(block.tombstones):
        return block, refused
    rows = [row for row in range(len(block.ids)) if row not in out]
    ids = tuple(block.ids[row] for row in rows)
    tables = tuple(Table(t.name, t.vectors[rows]) for t in block.tables) if rows else ()
    return ItemBlock(block.space, ids, tables, block.time_ms, tombstones), refused


def _storable(name: str) -> bool:
    try:
        return bool(name) and b"\0" not in name.encode()
    except UnicodeEncodeError:
        return False


def _runs(names: Sequence[str], row_bytes: int) -> Iterator[tuple[int, int]]:
    """Ranges of names whose blocks stay below the limit."""
    low = size = 0
    for n, name in enumerate(names):
        more = len(name.encode()) + 5 + row_bytes
        if n > low and size + more > MAX_BLOCK_BYTES:
            yield low, n
            low, size = n, 0
        size += more
    if low < len(names):
        yield low, len(names)
