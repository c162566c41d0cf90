"""Events of consecutive records as blocks: builders take blocks many times faster than single rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from kinstream.producers.loads.blocks import MAX_BLOCK_BYTES
from kinstream.producers.loads.click_rows import KIND_BYTES, click_block, score_bytes, weight_bytes, weighted
from kinstream.producers.loads.relation_rows import relation_block, relation_bytes
from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.lists.feedback import Feedback
from kinstream.streams.records.load_rows import number_of, rows_of
from kinstream.streams.records.state import State
from kinstream.streams.records.values import (
    Click,
    ItemBlock,
    Loaded,
    LoadPosition,
    Relation,
    SampleBlock,
    Table,
)

#: Spaces in one partition of a source.
MAX_SPACES: Final = 100_000
#: Bytes of a block beside its rows.
_BESIDE: Final = 4_096
#: Most bytes of the rows of one block.
ROOM: Final = MAX_BLOCK_BYTES - _BESIDE
#: Bytes of a label or an id beside its text.
_STRING: Final = 8
_ROWS: Final = "rows"
#: The shape of lists whose query has no vector.
_NO_QUERY: Final = (Click,)
#: The shape of events that share no block.
_ALONE: Final = (Feedback,)


class Block(NamedTuple):
    """A block, and the numbers of its rows."""

    event: Loaded
    numbers: list[int]


@dataclass(slots=True)
class _Pending:
    """Events of one space and one shape, which fit into one block.

    Parameters
    ----------
    shape : equal for events that may share a block.
    size : upper bound of their bytes.
    items : catalogue entries of the events: a block holds each once.
    numbers : of their rows.
    """

    shape: tuple[Any, ...]
    events: list[Loaded]
    size: int
    items: set[str]
    numbers: list[int]

    def has_room(self, shape: tuple[Any, ...], size: int, items: tuple[str, ...]) -> bool:
        """Whether an event may share the block."""
        alike = self.shape == shape != _ALONE
        return alike and self.size + size <= ROOM and self.items.isdisjoint(items)


class Packing:
    """Packs the events of a load, numbers its rows, and counts them in each space.

    Parameters
    ----------
    load_id : of the load.
    """

    def __init__(self, load_id: str) -> None:
        self._load_id = load_id
        self._pending: dict[str, _Pending] = {}
        self._rows: dict[str, int] = {}

    def add(self, events: Sequence[Loaded], offset: int) -> list[Block]:
        """Add the events of the record at an offset, and return the blocks that are full.

        Raises
        ------
        BadRecord : one does not fit into a block, or names one space too many. Then none is added.
        """
        for event in events:
            if event.space not in self._pending and event.space not in self._rows:
                self._check_room(event.space)
        sizes = [_size(event) for event in events]
        if sizes and max(sizes) > ROOM:
            raise BadRecord(
                Reason.TOO_LARGE, f"its event takes {max(sizes)} bytes; {MAX_BLOCK_BYTES} are the limit"
            )
        numbers = _numbers(events, offset)
        full: list[Block] = []
        for event, size, mine in zip(events, sizes, numbers, strict=True):
            space, shape = event.space, _shape(event)
            items = event.ids + event.tombstones if isinstance(event, ItemBlock) else ()
            pending = self._pending.get(space)
            if pending is not None and pending.has_room(shape, size, items):
                pending.events.append(event)
                pending.size += size
                pending.items.update(items)
                pending.numbers += mine
                continue
            if pending is not None:
                full.append(self._block(space))
            self._pending[space] = _Pending(shape, [event], size, set(items), mine)
        return full

    def _check_room(self, space: str) -> None:
        # Their numbers of rows are kept for ever, and any record may name another space.
        fresh = sum(name not in self._rows for name in self._pending)
        if len(self._rows) + fresh >= MAX_SPACES:
            raise BadRecord(
                Reason.SPACE_LIMIT, f"space {space!r} would be one more than {MAX_SPACES} in this partition"
            )

    def flush(self) -> Iterator[Block]:
        """All blocks that are not full, the space that began first first."""
        for space in list(self._pending):
            yield self._block(space)

    def _block(self, space: str) -> Block:
        pending = self._pending.pop(space)
        numbers = pending.numbers
        self._rows[space] = self._rows.get(space, 0) + len(numbers)
        event = replace(_joined(pending.events), load=LoadPosition(self._load_id, numbers[-1]))
        return Block(event, numbers)

    def state(self) -> State:
        return {_ROWS: json.dumps(self._rows, sort_keys=True)}

    def restore(self, state: State) -> None:
        self._rows = json.loads(str(state[_ROWS]))
        self._pending = {}


def _numbers(events: Sequence[Loaded], offset: int) -> list[list[int]]:
    """The numbers of the rows of each event.

    Raises
    ------
    BadRecord : they have too many rows together.
    """
    found, first = [], 0
    for event in events:
        rows = rows_of(event)
        start = number_of(offset, first + rows - 1) - rows + 1
        found.append(list(range(start, start + rows)))
        first += rows
    return found


def _size(event: Loaded) -> int:
    """Upper bound of the bytes of an event's rows."""
    match event:
        case Click():
            return list_bytes(event)
        case Relation():
            return relation_bytes(event)
        case Feedback():
            return _text((event.list_id, event.item or "", event.action or "", event.key)) + _STRING
        case SampleBlock():
            labels = 8 * len(event.labels) if isinstance(event.labels, np.ndarray) else _text(event.labels)
            return _vectors(event.tables) + labels + _text(event.ids or ())
        case ItemBlock():
            return _vectors(event.tables) + _text(event.ids) + _text(event.tombstones)
    raise TypeError(type(event).__name__)


def list_bytes(click: Click) -> int:
    """Upper bound of the bytes of a list."""
    names = len("".join(click.items)) + len(click.list_id)
    for name in (click.session, click.user, click.address, click.query_item):
        if name is not None:
            names += len(name)
    # As `click_bytes`, with the most bytes that a character takes.
    rows = 8 * len(click.items) + 20 * len(click.clicks) + score_bytes(click) + weight_bytes(click)
    for one in click.clicks:
        if one.action is not None:
            rows += KIND_BYTES + 4 * len(one.action) + _STRING
    return 32 + rows + 4 * names + _STRING * (len(click.items) + 5) + _vectors(click.query_vector)


def _vectors(tables: tuple[Table, ...]) -> int:
    return sum(table.vectors.nbytes for table in tables)


def _text(names: Iterable[str]) -> int:
    return sum(4 * len(name) + _STRING for name in names)


def _shape(event: Loaded) -> tuple[Any, ...]:
    match event:
        case Click():
            # A block has a weight for each click, also of lists without any.
            weights = (Click, "weight") if weighted(event) else _NO_QUERY
            if event.scores is None and not event.query_vector:
                return weights
            # A block has a number for each name and item, also of lists without that score.
            names = () if event.scores is None else event.scores.names
            return (*weights, names, *_sizes(event.query_vector))
        case SampleBlock():
            kind = isinstance(event.labels, np.ndarray)
            return (SampleBlock, kind, event.ids is None, *_sizes(event.tables))
        case ItemBlock():
            return (ItemBlock, bool(event.tombstones), *_sizes(event.tables))
    return (type(event),)


def _sizes(tables: tuple[Table, ...]) -> Iterator[tuple[str, int]]:
    return ((t.name, t.vectors.shape[1]) for t in tables)


def _joined(events: list[Loaded]) -> Loaded:
    """One event of several of the same shape. Samples and items have one time in a block: the newest of its rows'."""
    first = events[0]
    if len(events) == 1:
        return first
    match first:
        case Click():
            return click_block(events, first.space, 0)  # type: ignore[arg-type]
        case Relation():
            return relation_block(events, first.space, 0)  # type: ignore[arg-type]
    blocks: list[Any] = events
    tables = tuple(
        Table(table.name, np.concatenate([block.tables[number].vectors for block in blocks]))
        for number, table in enumerate(first.tables)  # type: ignore[union-attr]
    )
    time = max(block.time_ms for block in blocks)
    if isinstance(first, ItemBlock):
        ids = tuple(name for block in blocks for name in block.ids)
        gone = tuple(name for block in blocks for name in block.tombstones)
        return replace(first, ids=ids, tables=tables, tombstones=gone, time_ms=time)
    assert isinstance(first, SampleBlock)
    labels: Any = tuple(label for block in blocks for label in block.labels)
    if isinstance(first.labels, np.ndarray):
        labels = np.concatenate([block.labels for block in blocks])
    ids_ = None if first.ids is None else tuple(name for block in blocks for name in block.ids)
    return replace(first, tables=tables, labels=labels, ids=ids_, time_ms=time)
