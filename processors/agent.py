"""The builder agent: events in, constraint blocks out. It decodes, calls the builder, encodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, cast

import numpy as np

from processors.base import Builder
from processors.registry import create
from streams.agent import AgentSpec
from streams.codec import CODEC_VERSION, decode_event, encode
from streams.errors import BadRecord, Reason, SettingsError
from streams.log import Message
from streams.machine import Machine, Place
from streams.records import Action, Control, Declaration, LoadPosition, SampleBlock, Table
from streams.refusals import Rows, rows_text
from streams.settings import Settings
from streams.space import Space, Status
from streams.state import State
from streams.validate import not_finite_rows


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
        )

    return AgentSpec(
        application=f"builder-{name}",
        name=name,
        input_role="events",
        output_role="constraints",
        shaping={
            "kind": section.kind,
            "algorithm": builder.algorithm,
            "arguments": arguments,
            "auto_create": settings.spaces.auto_create,
            "max_spaces": settings.spaces.max_per_partition,
            "codec": CODEC_VERSION,
        },
        make_machine=machine,
        pinned=section.generation,
    )


#: Loads into spaces that do not exist of which the last sequence is remembered.
MAX_STRAYS: Final = 10_000
#: More text than this about the rows of a record, and it is refused as a whole: it must fit a header.
MAX_ROWS_TEXT: Final = 4_096

BuilderFactory = Callable[[str, Declaration | None], Builder]


class BuilderMachine(Machine):
    """One partition of `events` under one builder.

    Parameters
    ----------
    make : builder of a space, from its name and declaration.
    auto_create, max_spaces : whether a valid event may create its space, and how many the partition holds.
    """

    def __init__(
        self,
        place: Place,
        make: BuilderFactory,
        *,
        auto_create: bool,
        max_spaces: int,
        load_space: Callable[[str], State] | None = None,
    ) -> None:
        super().__init__(place, load_space)
        self._make = make
        self._auto_create = auto_create
        self._max_spaces = max_spaces
        #: Sequences of loads into spaces that do not exist, by (space, load).
        self._strays: dict[tuple[str, str], int] = {}

    def make_core(self, name: str, space: Space) -> Builder:
        return self._make(name, space.declaration)

    def apply(self, message: Message) -> None:
        self._apply(message, None, ordinary=True)

    def apply_again(self, message: Message, rows: Rows) -> None:
        self._apply(message, rows, ordinary=False)

    def pass_over(self, message: Message) -> bool:
        return True

    def _apply(self, message: Message, rows: Rows, *, ordinary: bool) -> None:
        name = self.space_name(message)
        record = decode_event(message.value)
        self.check_key(record, name)
        if isinstance(record, Control):
            self._control(name, record, message.offset)
            return
        if ordinary and not self._count_once(name, record.load):
            self.counts["duplicates"] += 1
            return
        if not isinstance(record, SampleBlock):
            self.counts["not_followed"] += 1
            return
        self._samples(name, record, rows, message.offset)
        self.counts["applied"] += 1

    def _count_once(self, name: str, load: LoadPosition | None) -> bool:
        """Note the load's sequence; False if it was seen. Refusing a record uses its sequence up too."""
        if load is None:
            return True
        space = self.find(name)
        stray = (name, load.load_id)
        seen = max(self._strays.get(stray, -1), -1 if space is None else space.loads.get(load.load_id, -1))
        if load.sequence <= seen:
            return False
        if space is None:
            # Bounded, because the names of spaces that do not exist are anybody's.
            self._strays.pop(stray, None)
            self._strays[stray] = load.sequence
            if len(self._strays) > MAX_STRAYS:
                del self._strays[next(iter(self._strays))]
        else:
            self.open(name).loads[load.load_id] = load.sequence
        return True

    def partition_state(self) -> State:
        strays = [[*place, sequence] for place, sequence in self._strays.items()]
        return super().partition_state() | {"strays": json.dumps(strays)}

    def restore_partition(self, state: State) -> None:
        super().restore_partition(state)
        self._take_strays(state)

    def inherit(self, state: State | None, spaces: Mapping[str, State]) -> None:
        super().inherit(state, spaces)
        if state is not None:
            self._take_strays(state)

    def _take_strays(self, state: State) -> None:
        strays = json.loads(str(state["strays"]))
        self._strays = {(space, load): sequence for space, load, sequence in strays}

    # ---- control ------------------------------------------------------------------------------------------------

    def _control(self, name: str, control: Control, offset: int) -> None:
        space = self.find(name)
        # The offset; more only for a space whose partition changed with the number of partitions.
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

    # ---- samples ------------------------------------------------------------------------------------------------

    def _samples(self, name: str, block: SampleBlock, rows: Rows, offset: int) -> None:
        space = self.find(name)
        fresh = space is None
        if fresh and not self._auto_create:
            raise BadRecord(
                Reason.UNKNOWN_SPACE, f"there is no space {name!r}, and spaces.auto_create is off"
            )
        if fresh:
            self._check_room()
        if space is not None and space.status is Status.DELETED:
            raise BadRecord(Reason.SPACE_DELETED, f"space {name!r} was deleted")
        if space is not None and space.status is Status.PAUSED:
            raise BadRecord(Reason.SPACE_PAUSED, f"space {name!r} is paused")
        count = len(block.tables[0].vectors)
        wanted = tuple(range(count)) if rows is None else rows
        if max(wanted) >= count:
            raise BadRecord(Reason.BAD_SHAPE, f"row {max(wanted)} of a block of {count}")
        broken = set(not_finite_rows(block.tables)) & set(wanted)
        good = [row for row in wanted if row not in broken]
        if not good:
            raise BadRecord(Reason.NOT_FINITE, "every row holds NaN or infinity")
        if len(rows_text(tuple(broken))) > MAX_ROWS_TEXT:
            raise BadRecord(Reason.NOT_FINITE, f"{len(broken)} of {count} rows hold NaN or infinity")
        declaration = None if space is None else space.declaration
        _check_declared(block, declaration)
        core = cast(Builder | None, None if space is None else space.core) or self._make(name, declaration)
        blocks = core.process(block if len(good) == count else _select(block, good), offset)
        opened = self.open(name)
        if fresh:
            # Epochs are the offsets of control records. A space that came by itself has had none, and every
            # builder and every generation must say the same of it.
            opened.begin(0, None)
        opened.core = core
        for constraints in blocks:
            self.emit(name, opened, encode(replace(constraints, epoch=opened.epoch)))
        if broken:
            where = ", ".join(str(row) for row in sorted(broken)[:10])
            self.refuse(
                BadRecord(Reason.NOT_FINITE, f"NaN or infinity in rows {where}", tuple(sorted(broken)))
            )


def _check_declared(block: SampleBlock, declaration: Declaration | None) -> None:
    if declaration is None:
        return
    sizes = tuple((t.name, t.vectors.shape[1]) for t in block.tables)
    if declaration.modalities and sorted(sizes) != sorted(declaration.modalities):
        raise BadRecord(Reason.WRONG_DIMENSION, f"declared {declaration.modalities}, got {sizes}")
    kind = "integer" if isinstance(block.labels, np.ndarray) else "string"
    if declaration.labels not in ("any", kind):
        raise BadRecord(Reason.WRONG_LABEL_TYPE, f"declared {declaration.labels} labels, got {kind} ones")


def _select(block: SampleBlock, rows: list[int]) -> SampleBlock:
    labels = (
        block.labels[rows] if isinstance(block.labels, np.ndarray) else tuple(block.labels[r] for r in rows)
    )
    return replace(
        block,
        tables=tuple(Table(t.name, t.vectors[rows]) for t in block.tables),
        labels=labels,
        ids=None if block.ids is None else tuple(block.ids[row] for row in rows),
    )
