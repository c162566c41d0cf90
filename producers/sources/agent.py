"""The source agent: records of another system's topic in, events out. It maps them and packs those that wait.

Every row has a number in a load: the load is (source, generation, input partition), and the number comes from the
offset of the record. So a row has the same number in every run, whatever block it is packed into and whatever the log
has lost since, and a builder that has seen a number applies no row up to it again
(`kinstream.streams.records.load_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kinstream.producers.sources.mapping import Mapper, mapper
from kinstream.producers.sources.packing import Block, Packing
from kinstream.producers.sources.values.placeholder import UNCHANGED, Unchanged
from kinstream.streams.agents.machine import FATE_PREFIX, Machine, Place, no_segment
from kinstream.streams.agents.refusals import Rows
from kinstream.streams.agents.space import Core, Space
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.configuration.sources import FEEDBACK, SourceSettings
from kinstream.streams.errors import BadRecord, Reason, SettingsError
from kinstream.streams.records.codec.codec import CODEC_VERSION, encode
from kinstream.streams.records.identity import EMITTER, EPOCH, GENERATION, ORIGIN
from kinstream.streams.records.load_rows import NUMBERS, ROWS, numbers_text
from kinstream.streams.records.message import Message, Output
from kinstream.streams.records.state import State, with_prefix, without_prefix
from kinstream.streams.settings import Settings
from kinstream.streams.spelling import meant
from kinstream.streams.topics import partition_of

ALGORITHM: Final = "source/3"
#: With `preset = "feedback"`: version 4 makes events of actions that are taken back late.
FEEDBACK_ALGORITHM: Final = "source/4"
_MAPPER: Final = "mapper."
_PACKING: Final = "packing."


def source_of(settings: Settings, name: str) -> SourceSettings:
    """The section `[sources.NAME]`.

    Raises
    ------
    SettingsError : there is no such source.
    """
    section = settings.sources.get(name)
    if section is None:
        raise SettingsError(
            f"no [sources.{name}] in the settings; there are: {', '.join(settings.sources) or 'none'}"
            f"{meant([name], settings.sources)}"
        )
    return section


def source_spec(settings: Settings, name: str) -> AgentSpec:
    """The agent of `[sources.NAME]`.

    Raises
    ------
    SettingsError : there is no such source, or its settings do not fit together.
    """
    section = source_of(settings, name)
    try:
        mapper(section)
    except SettingsError as error:
        raise SettingsError(f"[sources.{name}] {error}") from error

    def machine(place: Place, load_space: Callable[[str], State]) -> Machine:
        return SourceMachine(place, mapper(section), load_space)

    return AgentSpec(
        application=f"source-{name}",
        name=name,
        prefix=settings.topics.prefix,
        input_role="source",
        reads=section.topic,
        output_role="events",
        shaping={
            "algorithm": FEEDBACK_ALGORITHM if section.preset == FEEDBACK else ALGORITHM,
            **section.shaping(),
            "codec": CODEC_VERSION,
        },
        make_machine=machine,
        pinned=section.generation,
    )


def load_id(place: Place) -> str:
    """The load of a partition of a source."""
    return f"{ROWS}{place.name}/{place.generation}/{place.partition}"


class SourceMachine(Machine):
    """One partition of a source's topic."""

    keyed_by_space = False

    def __init__(
        self, place: Place, mapping: Mapper, load_space: Callable[[str], State] | None = None
    ) -> None:
        super().__init__(place, load_space)
        self._mapping = mapping
        self._packing = Packing(load_id(place))
        self._headers = (
            (EMITTER, place.name.encode()),
            (GENERATION, str(place.generation).encode()),
            (EPOCH, b"0"),
        )
        self._origin = f"{place.topic}/{place.partition}/"
        self._has_fates = bool(mapping.counts())
        self._note_fates()

    def make_core(self, name: str, space: Space) -> Core:
        raise RuntimeError(f"{self.place.name} is a source and has no space {name!r}")

    def apply(self, message: Message) -> None:
        try:
            found = self._mapping.events(message)
        except Unchanged:
            found = None
            self.counts[FATE_PREFIX + UNCHANGED] += 1
        if found is None:
            self.counts["not_followed"] += 1
        else:
            full = self._packing.add(found, message.offset)
            if full:
                self._send(full, message.offset)
            self.counts["applied"] += 1
        self._note_fates()

    def flush(self) -> list[Output]:
        self._outputs = []
        self._send(self._packing.flush(), self.next_offset - 1)
        return self._outputs

    def apply_again(self, message: Message, rows: Rows) -> None:
        if rows is not None:
            raise BadRecord(Reason.BAD_IDENTITY, "a source refuses whole records")
        self.apply(message)

    def pass_over(self, message: Message) -> bool:
        return True

    def _send(self, blocks: Iterable[Block], offset: int) -> None:
        """Emit blocks whose last row comes from the record at `offset` or one before it."""
        topic = self.place.output_topic
        assert topic is not None
        for event, numbers in blocks:
            origin = (ORIGIN, f"{self._origin}{offset}/0".encode())
            rows = ((NUMBERS, numbers_text(numbers)),) if len(numbers) > 1 else ()
            space = event.space
            home = partition_of(space, self.place.output_partitions)
            self._outputs.append(
                Output(topic, space.encode(), encode(event), (*self._headers, origin, *rows), home)
            )

    def _note_fates(self) -> None:
        # All fates from the start: Prometheus sees no increase in a series that begins at one.
        self.counts[FATE_PREFIX + UNCHANGED] += 0
        if not self._has_fates:
            return
        for fate, number in self._mapping.counts().items():
            self.counts[FATE_PREFIX + fate] = number

    # ---- checkpoints --------------------------------------------------------------------------------------------

    def partition_state(self) -> State:
        parts = with_prefix(_MAPPER, self._mapping.state()) | with_prefix(_PACKING, self._packing.state())
        return super().partition_state() | parts

    def restore_partition(self, state: State) -> None:
        super().restore_partition(state)
        self._mapping.restore(without_prefix(_MAPPER, state))
        self._packing.restore(without_prefix(_PACKING, state))
        self._note_fates()

    def inherit(
        self,
        state: State | None,
        spaces: Mapping[str, State],
        segment: Callable[[str, str], State] = no_segment,
    ) -> None:
        super().inherit(state, spaces, segment)
        if state is not None:
            self._mapping.inherit(without_prefix(_MAPPER, state))

    def gather(self, parts: Mapping[int, State], homes: Mapping[tuple[int, int], int]) -> Any:
        raise RuntimeError("the topic of a source belongs to another system, and is never repartitioned here")
