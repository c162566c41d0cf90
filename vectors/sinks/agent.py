"""The sink agent: versions of a space in, rows of a store out. It decodes, judges identities, and hands on in batches.

The store keeps the position up to which it has applied the log, beside what it has applied. So after a crash, what the
checkpoint does not know to be written is left out where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kinstream.streams.agents.machine import FATE_PREFIX, Machine, Place
from kinstream.streams.agents.refusals import Rows
from kinstream.streams.agents.space import Core, Space
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.errors import BadRecord, Reason, SettingsError
from kinstream.streams.records.codec.codec import CODEC_VERSION, decode_vectors
from kinstream.streams.records.identity import Identity, read_identity
from kinstream.streams.records.message import Message, Output
from kinstream.streams.records.state import State
from kinstream.streams.records.values import Control
from kinstream.streams.records.vectors import VectorBlock
from kinstream.streams.settings import Settings
from kinstream.streams.spelling import meant
from kinstream.streams.topics import partition_of
from kinstream.vectors.sinks.base import Change, EpochBegins, Lane, Writer
from kinstream.vectors.sinks.kinds import create

_FATES: Final = ("versions", "vectors", "tombstones")


def sink_spec(settings: Settings, name: str) -> AgentSpec:
    """The agent of `[sinks.NAME]`.

    Raises
    ------
    SettingsError : there is no such sink, or the package of its store is not installed.
    """
    section = settings.sinks.get(name)
    if section is None:
        raise SettingsError(
            f"no [sinks.{name}] in the settings; there are: {', '.join(settings.sinks) or 'none'}"
            f"{meant([name], settings.sinks)}"
        )
    writer = create(section)

    def machine(place: Place, load_space: Callable[[str], State]) -> Machine:
        return SinkMachine(place, section.space, writer, load_space)

    return AgentSpec(
        application=f"sink-{name}",
        name=name,
        prefix=settings.topics.prefix,
        input_role="vectors",
        output_role=None,
        shaping={
            "space": section.space,
            "store": section.store,
            "collection": section.collection,
            "codec": CODEC_VERSION,
        },
        make_machine=machine,
    )


class SinkMachine(Machine):
    """One partition of `vectors` under a sink. Records of other spaces are left out unread.

    Parameters
    ----------
    writer : of the store; it is called when no message waits, and before every checkpoint.
    """

    def __init__(
        self,
        place: Place,
        space: str,
        writer: Writer,
        load_space: Callable[[str], State] | None = None,
    ) -> None:
        super().__init__(place, load_space)
        self._space = space
        self._writer = writer
        self._home = partition_of(space, place.input_partitions) == place.partition
        self._lane = Lane(place.name, place.generation, place.partition)
        self._changes: list[tuple[int, Change]] = []
        #: Up to where the store has applied the log; None before the machine moves.
        self._written: int | None = None
        for fate in _FATES:
            self.counts[FATE_PREFIX + fate] += 0

    def make_core(self, name: str, space: Space) -> Core:
        raise RuntimeError("the spaces of a sink hold no algorithm")

    def step(self, message: Message) -> list[Output]:
        self._begin()
        return super().step(message)

    def pass_to(self, position: int) -> None:
        self._begin()
        super().pass_to(position)

    def _begin(self) -> None:
        if self._written is None:
            self._written = self.next_offset

    def flush(self) -> list[Output]:
        if self._home and self._written is not None and self._written < self.next_offset:
            self._writer.write(self._lane, self._written, self._changes, self.next_offset)
            self._changes, self._written = [], self.next_offset
        return []

    def apply(self, message: Message) -> None:
        name = self.space_name(message)
        if name != self._space:
            self.counts["not_followed"] += 1
            return
        identity = self.receive(message, name)
        if identity is not None:
            self._take(message, name, identity)

    def apply_again(self, message: Message, rows: Rows) -> None:
        name = self.space_name(message)
        if name == self._space:
            self._take(message, name, read_identity(message.headers))

    def pass_over(self, message: Message) -> bool:
        name = self.space_name(message)
        return name == self._space and self.receive(message, name) is not None

    def _take(self, message: Message, name: str, identity: Identity) -> None:
        record, epoch = decode_vectors(message.value), identity.position.epoch
        self.check_key(record, name)
        if record.epoch != epoch:
            raise BadRecord(Reason.BAD_IDENTITY, f"the headers say epoch {epoch}, the record {record.epoch}")
        space = self.open(name)
        if epoch > space.epoch:
            space.begin(epoch, None)
            self._changes.append((message.offset, EpochBegins(epoch)))
        if not isinstance(record, Control):
            self._changes.append((message.offset, record))
            if isinstance(record, VectorBlock):
                self.counts[FATE_PREFIX + "vectors"] += len(record.ids)
                self.counts[FATE_PREFIX + "tombstones"] += len(record.tombstones)
                self.counts[FATE_PREFIX + "versions"] += record.complete is not None
        self.counts["applied"] += 1
