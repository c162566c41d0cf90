"""The builder agent: events in, constraint blocks out. It decodes, calls the builder, encodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, cast

import numpy as np

from kinstream.processors.base.builder import Builder, Growing, Origin
from kinstream.processors.registry import create
from kinstream.streams.agents.machine import FATE_PREFIX, Machine, Place, no_segment
from kinstream.streams.agents.refusals import Rows, rows_text
from kinstream.streams.agents.space import Space, Status
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.checkpoints.state_bytes import State
from kinstream.streams.compute.memory import check_space, most_of_a_space
from kinstream.streams.errors import BadRecord, Reason, SettingsError
from kinstream.streams.records.checks import not_finite_rows
from kinstream.streams.records.codec.codec import CODEC_VERSION, decode_event, encode
from kinstream.streams.records.gate import GateOrder
from kinstream.streams.records.lists.feedback import Feedback
from kinstream.streams.records.load_rows import known_rows, numbers_of, rows_of, without_first
from kinstream.streams.records.message import Message
from kinstream.streams.records.values import (
    Action,
    Click,
    ClickBlock,
    Control,
    Declaration,
    ItemBlock,
    Loaded,
    Relation,
    RelationBlock,
    SampleBlock,
    Table,
)
from kinstream.streams.records.vectors import ItemMap
from kinstream.streams.settings import Settings
from kinstream.streams.spelling import meant
from kinstream.streams.topics import partition_of


def builder_spec(settings: Settings, name: str) -> AgentSpec:
    """The agent of `[builders.NAME]`.

    Raises
    ------
    SettingsError : there is no such builder, or its constructor refuses the settings.
    """
    section = settings.builders.get(name)
    if section is None:
        raise SettingsError(
            f"no [builders.{name}] in the settings; there are: {', '.join(settings.builders) or 'none'}"
            f"{meant([name], settings.builders)}"
        )
    arguments = section.arguments()
    builder = create(section.kind, **arguments)

    def make(space: str, declaration: Declaration | None) -> Builder:
        return create(section.kind, **arguments)

    def machine(place: Place, load_space: Callable[[str], State]) -> Machine:
        spaces = settings.spaces
        return BuilderMachine(
            place,
            make,
            auto_create=spaces.auto_create,
            max_spaces=spaces.max_per_partition,
            load_space=load_space,
            float16=section.float16,
            most_bytes=most_of_a_space(settings.worker.max_resident_bytes),
        )

    return AgentSpec(
        application=f"builder-{name}",
        name=name,
        prefix=settings.topics.prefix,
        input_role="events",
        output_role="constraints",
        shaping={
            "kind": section.kind,
            "algorithm": builder.algorithm,
            "arguments": arguments,
            "auto_create": settings.spaces.auto_create,
            "max_spaces": settings.spaces.max_per_partition,
            "codec": CODEC_VERSION,
            **({"float16": True} if section.float16 else {}),
        },
        make_machine=machine,
        pinned=section.generation,
        warm_up=partial(_warm_up, section.kind),
    )


def _warm_up(kind: str) -> None:
    """Compile the kernels of the kind; the one-pass rule has none."""
    if kind != "one-pass":
        from kinstream.processors.warm_up import warm_up

        warm_up((kind,))


#: Number of loads into missing spaces whose last sequence is remembered.
MAX_STRAYS: Final = 10_000
#: Number of loads of a space whose last sequence is remembered.
MAX_LOADS: Final = 10_000
#: A refusal with more text than this about its rows is split, since it must fit a header.
MAX_ROWS_TEXT: Final = 4_096

BuilderFactory = Callable[[str, Declaration | None], Builder]


class BuilderMachine(Machine):
    """One partition of `events` under one builder.

    Parameters
    ----------
    make : builder of a space, from its name and declaration.
    auto_create, max_spaces : whether a valid event may create its space, and how many the partition holds.
    float16 : write vectors as float16.
    most_bytes : that the vectors of a space may take; None for no limit.
    """

    def __init__(
        self,
        place: Place,
        make: BuilderFactory,
        *,
        auto_create: bool,
        max_spaces: int,
        load_space: Callable[[str], State] | None = None,
        float16: bool = False,
        most_bytes: int | None = None,
    ) -> None:
        super().__init__(place, load_space)
        self._make = make
        self._float16 = float16
        self._most_bytes = most_bytes
        example = make("", None)
        self._follows = example.follows
        # All fates from the start: Prometheus sees no increase in a series that begins at one.
        self._fates = tuple(FATE_PREFIX + fate for fate in example.counts())
        self._note_fates()
        self._auto_create = auto_create
        self._max_spaces = max_spaces
        #: Sequences of loads into spaces that do not exist, by (space, load).
        self._strays: dict[tuple[str, str], int] = {}

    def _note_fates(self) -> None:
        for fate in self._fates:
            self.counts[fate] += 0

    def make_core(self, name: str, space: Space) -> Builder:
        return self._make(name, space.declaration)

    def apply(self, message: Message) -> None:
        self._apply(message, Origin(message.offset, message.timestamp_ms), ordinary=True)

    def apply_again(self, message: Message, rows: Rows) -> None:
        origin = Origin(message.offset, message.timestamp_ms, rows, self.still_refused)
        self._apply(message, origin, ordinary=False)

    def pass_over(self, message: Message) -> bool:
        return True

    def _apply(self, message: Message, origin: Origin, *, ordinary: bool) -> None:
        name = self.space_name(message)
        record = decode_event(message.value)
        self.check_key(record, name)
        if isinstance(record, Control):
            self._control(name, record, message.offset)
            return
        if isinstance(record, GateOrder | ItemMap):
            self._order(name, record, message)
            return
        known = self._count_once(name, record, message) if ordinary else 0
        if known and known == rows_of(record):
            self.counts["duplicates"] += 1
            return
        if not isinstance(record, self._follows):
            self.counts["not_followed"] += 1
            return
        try:
            self._follow(name, record, origin, known)
        except BadRecord as error:
            raise _of_rest(error, record, known) from error
        self.counts["applied"] += 1

    def _order(self, name: str, record: GateOrder | ItemMap, message: Message) -> None:
        """Obey an order. Builders leave it to the agent that it is for."""
        self.counts["not_followed"] += 1

    def _count_once(self, name: str, record: Loaded, message: Message) -> int:
        """Note the load's sequence; returns how many of the first rows were seen. A refused record uses up its sequence
        too."""
        load = record.load
        if load is None:
            return 0
        space = self.find(name)
        stray = (name, load.load_id)
        seen = max(self._strays.get(stray, -1), -1 if space is None else space.loads.get(load.load_id, -1))
        known = known_rows(record, load, seen, numbers_of(load, message.headers, rows_of(record)))
        if load.sequence <= seen:
            return known
        if space is None:
            # Bounded, because any producer can name missing spaces.
            self._strays.pop(stray, None)
            self._strays[stray] = load.sequence
            if len(self._strays) > MAX_STRAYS:
                del self._strays[next(iter(self._strays))]
                self.counts["loads_forgotten"] += 1
        else:
            loads = self.open(name).loads
            loads.pop(load.load_id, None)
            loads[load.load_id] = load.sequence
            if len(loads) > MAX_LOADS:
                del loads[next(iter(loads))]
                self.counts["loads_forgotten"] += 1
        return known

    def partition_state(self) -> State:
        strays = [[*place, sequence] for place, sequence in self._strays.items()]
        return super().partition_state() | {"strays": json.dumps(strays)}

    def restore_partition(self, state: State) -> None:
        super().restore_partition(state)
        self._note_fates()
        self._take_strays(state)

    def inherit(
        self,
        state: State | None,
        spaces: Mapping[str, State],
        segment: Callable[[str, str], State] = no_segment,
    ) -> None:
        super().inherit(state, spaces, segment)
        if state is not None:
            self._take_strays(state)

    def gather(self, parts: Mapping[int, State], homes: Mapping[tuple[int, int], int]) -> None:
        super().gather(parts, homes)
        self._note_fates()
        here, partitions = self.place.partition, self.place.input_partitions
        for _, state in sorted(parts.items()):
            self._strays |= {
                (space, load): sequence
                for space, load, sequence in json.loads(str(state["strays"]))
                if partition_of(space, partitions) == here
            }

    def _take_strays(self, state: State) -> None:
        strays = json.loads(str(state["strays"]))
        self._strays = {(space, load): sequence for space, load, sequence in strays}

    # ---- control ------------------------------------------------------------------------------------------------

    def _control(self, name: str, control: Control, offset: int) -> None:
        space = self.find(name)
        # The offset, or more for a space whose partition changed with the number of partitions.
        epoch = offset if space is None else max(offset, space.epoch + 1)
        match control.action:
            case Action.CREATE:
                if space is None:
                    self._check_room()
                self.open(name).begin(epoch, control.declaration)
            case _ if space is None or space.status is Status.DELETED:
                raise BadRecord(Reason.UNKNOWN_SPACE, f"{control.action.value}: there is no space {name!r}")
            case Action.RESET:
                self.open(name).begin(epoch, control.declaration or space.declaration)
            case Action.DELETE:
                self.open(name).begin(epoch, None, Status.DELETED)
            case Action.PAUSE:
                self.open(name).status = Status.PAUSED
                return
            case Action.RESUME:
                self.open(name).status = Status.ACTIVE
                return
        self._strays = {place: seen for place, seen in self._strays.items() if place[0] != name}
        opened = self.open(name)
        self.emit(name, opened, encode(replace(control, epoch=epoch, declaration=opened.declaration)))

    def _check_room(self) -> None:
        if sum(1 for _ in self.names()) >= self._max_spaces:
            raise BadRecord(Reason.SPACE_LIMIT, f"this partition already holds {self._max_spaces} spaces")

    # ---- events for the builder ----------------------------------------------------------------------------------

    def _follow(self, name: str, record: Loaded, origin: Origin, known: int) -> None:
        space = self.find(name)
        fresh = space is None
        self._check_open(name, space)
        declaration = None if space is None else space.declaration
        _check_declared(record, declaration)
        record, first = without_first(record, known)
        good, kept, broken = _finite(record, origin)
        if kept is not None:
            # The rows are already selected, and are numbered again.
            origin = replace(origin, rows=None, refused=())
        core = None if space is None else cast(Builder | None, space.core)
        if core is None:
            core = self._make(name, declaration)
        if isinstance(core, Growing):
            check_space(name, "its vectors would take", core.space_bytes(good), self._most_bytes)
        before = core.counts()
        try:
            made = core.process(good, origin)
        except MemoryError as lacking:
            if space is not None and space.core is not None:
                # The builder may be half changed: only a checkpoint has it whole.
                raise
            raise BadRecord(
                Reason.TOO_LARGE, f"space {name!r}: there is no memory for its vectors"
            ) from lacking
        self._count_fates(core.counts(), before)
        opened = self.open(name)
        if fresh:
            # Epochs are the offsets of control records. A space created by its first event has had none, and all
            # builders and generations must agree on its epoch.
            opened.begin(0, None)
        opened.core = core
        for constraints in made.blocks:
            value = encode(replace(constraints, epoch=opened.epoch), float16=self._float16)
            self.emit(name, opened, value)
        for error in (*broken, *(_numbered(error, kept) for error in made.refused)):
            for part in _in_parts(_shifted(error, first)):
                self.refuse(part)

    def _count_fates(self, now: Mapping[str, int], before: Mapping[str, int]) -> None:
        for fate, number in now.items():
            if number != before.get(fate, 0):
                self.counts[FATE_PREFIX + fate] += number - before.get(fate, 0)

    def _check_open(self, name: str, space: Space | None) -> None:
        if space is None:
            if not self._auto_create:
                raise BadRecord(
                    Reason.UNKNOWN_SPACE, f"there is no space {name!r}, and spaces.auto_create is off"
                )
            self._check_room()
        elif space.status is Status.DELETED:
            raise BadRecord(Reason.SPACE_DELETED, f"space {name!r} was deleted")
        elif space.status is Status.PAUSED:
            raise BadRecord(Reason.SPACE_PAUSED, f"space {name!r} is paused")


def _check_declared(record: Loaded, declaration: Declaration | None) -> None:
    if declaration is None or not isinstance(record, SampleBlock | ItemBlock):
        return
    sizes = tuple((t.name, t.vectors.shape[1]) for t in record.tables)
    if sizes and declaration.modalities and sorted(sizes) != sorted(declaration.modalities):
        raise BadRecord(Reason.WRONG_DIMENSION, f"declared {declaration.modalities}, got {sizes}")
    if isinstance(record, ItemBlock):
        return
    kind = "integer" if isinstance(record.labels, np.ndarray) else "string"
    if declaration.labels not in ("any", kind):
        raise BadRecord(Reason.WRONG_LABEL_TYPE, f"declared {declaration.labels} labels, got {kind} ones")


def _numbered(error: BadRecord, kept: list[int] | None) -> BadRecord:
    """A refusal with the rows of the record, from one with the rows of the selection."""
    if kept is None or error.rows is None:
        return error
    return BadRecord(error.reason, error.detail, tuple(kept[row] for row in error.rows))


def _of_rest(error: BadRecord, record: Loaded, known: int) -> BadRecord:
    """A refusal of a whole record; where some of its first rows were known, of the others, so that a redrive applies
    no row twice."""
    if not known or error.rows is not None:
        return error
    first = without_first(record, known)[1]
    last = rows_of(record) if isinstance(record, SampleBlock | ItemBlock) else _parts(record)
    return BadRecord(error.reason, error.detail, tuple(range(first, last)))


def _shifted(error: BadRecord, first: int) -> BadRecord:
    """A refusal with the parts of the record, from one with those of a rest that begins at part `first`."""
    if not first or error.rows is None:
        return error
    return BadRecord(error.reason, error.detail, tuple(row + first for row in error.rows))


def _finite(record: Loaded, origin: Origin) -> tuple[Loaded, list[int] | None, list[BadRecord]]:
    """The finite rows that a redrive selects, their numbers in the record (None for all), and a
    refusal of the others.

    Raises
    ------
    BadRecord : there is no such row, or no usable one.
    """
    if not isinstance(record, SampleBlock | ItemBlock):
        count = _parts(record)
        if origin.rows is not None and max(origin.rows) >= count:
            raise BadRecord(Reason.BAD_SHAPE, f"part {max(origin.rows)} of a record of {count}")
        return record, None, []
    count = len(record.tables[0].vectors) if record.tables else 0
    wanted = tuple(range(count)) if origin.rows is None else origin.rows
    if wanted and max(wanted) >= count:
        raise BadRecord(Reason.BAD_SHAPE, f"row {max(wanted)} of a block of {count}")
    broken = sorted(set(not_finite_rows(record.tables)) & set(wanted))
    good = [row for row in wanted if row not in set(broken)]
    removes = isinstance(record, ItemBlock) and record.tombstones and origin.rows is None
    if not good and not removes:
        raise BadRecord(Reason.NOT_FINITE, "every row holds NaN or infinity")
    refused = []
    if broken:
        where = ", ".join(str(row) for row in broken[:10])
        refused.append(BadRecord(Reason.NOT_FINITE, f"NaN or infinity in rows {where}", tuple(broken)))
    if isinstance(record, ItemBlock) and origin.rows is not None:
        record = replace(record, tombstones=())
    if len(good) == count:
        return record, good if origin.rows is not None else None, refused
    return _select(record, good), good, refused


def _parts(record: Click | ClickBlock | Relation | RelationBlock | Feedback) -> int:
    """The number of parts of a record that can be refused separately."""
    match record:
        case Click():
            return len(record.items)
        case ClickBlock():
            return len(record.item)
        case Relation() | Feedback():
            return 1
    return len(record)


def _in_parts(error: BadRecord) -> Iterator[BadRecord]:
    """A refusal, split if the numbers of its rows would not fit into a header."""
    rows = error.rows
    if rows is None or len(rows_text(rows)) <= MAX_ROWS_TEXT:
        yield error
        return
    half = len(rows) // 2
    for some in (rows[:half], rows[half:]):
        yield from _in_parts(BadRecord(error.reason, error.detail, some))


def _select(block: SampleBlock | ItemBlock, rows: list[int]) -> SampleBlock | ItemBlock:
    tables = tuple(Table(t.name, t.vectors[rows]) for t in block.tables)
    ids = None if block.ids is None else tuple(block.ids[row] for row in rows)
    if isinstance(block, ItemBlock):
        return replace(block, tables=tables if rows else (), ids=ids or ())
    labels = (
        block.labels[rows] if isinstance(block.labels, np.ndarray) else tuple(block.labels[r] for r in rows)
    )
    return replace(block, tables=tables, labels=labels, ids=ids)
