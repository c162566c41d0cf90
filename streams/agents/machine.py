"""One input partition of one agent as a state machine: message in, outputs out, no clock and no IO.

The worker feeds it from Kafka, replay from a log without a group, tests from a list; the state at an offset is the
same in all three. Builders, learners and metrics are its subclasses in each package's `agent.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import ClassVar, Final

import numpy as np

from kinstream.streams.agents.letter import Redrive, dead_letter, redrive_of
from kinstream.streams.agents.partition_spaces import PartitionSpaces
from kinstream.streams.agents.refusals import Refusals, Rows, moved_state, read_moved
from kinstream.streams.agents.space import HeirCore, Mark, Space, core_state, restore_space
from kinstream.streams.errors import BadRecord, LogGap, Reason
from kinstream.streams.records.identity import Identity, Position, Verdict, judge, read_identity
from kinstream.streams.records.message import Message, Output
from kinstream.streams.records.state import State, without_prefix
from kinstream.streams.records.values import Record
from kinstream.streams.topics import partition_of


class RecordsMissed(Exception):
    """The client dropped records on the way; the worker seeks back to `wanted`."""

    def __init__(self, wanted: int) -> None:
        super().__init__(f"wanted offset {wanted}")
        self.wanted = wanted


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a machine: its name, its input and its output.

    Parameters
    ----------
    name, generation : of the emitter.
    input_partitions, output_partitions : counts from the birth record.
    output_topic : None for an agent that emits nothing.
    skipped, accepted_gaps : input offsets that an operator made this consumer skip, or continue at although the log has
        lost records before them.
    """

    name: str
    generation: int
    topic: str
    partition: int
    input_partitions: int
    output_topic: str | None
    output_partitions: int
    dead_letters: str
    skipped: frozenset[int] = field(default_factory=frozenset)
    accepted_gaps: frozenset[int] = field(default_factory=frozenset)


_SKIPPED: Final = (
    "this consumer skips it: an operator said so, or three times there was no memory for it, or the process was killed "
    "in it"
)


#: Counts of a machine about its input, besides dead letters by reason.
COUNTED: Final = (
    "applied",
    "duplicates",
    "adopted",
    "stale_epoch",
    "not_followed",
    "redriven",
    "redrives_ignored",
    "loads_forgotten",
    "scaler_renewals",
)

#: Prefix of the counts of builders about their evidence, among the counts of a machine.
FATE_PREFIX: Final = "fate."


def no_segment(space: str, name: str) -> State:
    raise KeyError(f"{space}, segment {name}")


class Machine(PartitionSpaces):
    """State of one input partition, and of the spaces in it.

    Parameters
    ----------
    place : names and counts.
    load_space : returns the state of a space that was left in its checkpoint file.
    """

    def __init__(self, place: Place, load_space: Callable[[str], State] | None = None) -> None:
        super().__init__(load_space)
        self.place = place
        self.next_offset = 0
        self._last: Message | tuple[int, int] | None = None
        self.refusals = Refusals()
        #: Refusals of other partitions, by number, whose spaces came to this partition with a repartition.
        self.moved_refusals: dict[int, Refusals] = {}
        self.counts: Counter[str] = Counter()
        self.dead: Counter[str] = Counter()
        self._outputs: list[Output] = []
        self._message: Message
        #: The rows that a redrive brings back; None for the whole of a message.
        self._rows: Rows = None
        #: The rows of the same record that stay refused while a redrive applies others.
        self.still_refused: tuple[int, ...] = ()

    #: Whether the key of a message names its space; that of a source's is another system's.
    keyed_by_space: ClassVar[bool] = True

    # ---- one message --------------------------------------------------------------------------------------------

    def step(self, message: Message) -> list[Output]:
        """Apply one message and return its outputs, in order.

        Raises
        ------
        RecordsMissed : the client dropped records before this one.
        LogGap : the log has lost outputs of an emitter that this machine follows.
        """
        if message.offset < self.next_offset:
            return []
        if message.offset > self.next_offset and message.previous >= self.next_offset:
            raise RecordsMissed(self.next_offset)
        self._message = message
        self._rows = None
        self._outputs = []
        try:
            self._dispatch(message)
        except BadRecord as error:
            self.refuse(error)
        self._last = message
        self.next_offset = message.offset + 1
        return self._outputs

    def pass_to(self, position: int) -> None:
        """Continue at a position of the log: no record that is still to come is before it."""
        self.next_offset = max(self.next_offset, position)

    def flush(self) -> list[Output]:
        """What is held back until no message waits. Called after some calls of `step`, and before every checkpoint."""
        return []

    @property
    def last_record(self) -> tuple[int, int] | None:
        """Offset and checksum of the last record applied; calculated when a checkpoint asks, not for every record."""
        if isinstance(self._last, Message):
            self._last = (self._last.offset, self._last.checksum())
        return self._last

    def _dispatch(self, message: Message) -> None:
        redrive = redrive_of(message)
        skipped = message.offset in self.place.skipped
        if redrive is not None:
            if redrive.consumer == self.place.name:
                self._redrive(message, redrive, skipped)
        elif not skipped:
            self.apply(message)
        elif self.pass_over(message):
            raise self._skipped(message)

    def _redrive(self, message: Message, redrive: Redrive, skipped: bool) -> None:
        refusals = None
        if redrive.topic == message.topic:
            here = redrive.partition == message.partition
            refusals = self.refusals if here else self.moved_refusals.get(redrive.partition)
        if refusals is None or not refusals.holds(redrive.offset, redrive.rows):
            self.counts["redrives_ignored"] += 1
            return
        # The refusal that it belongs to is settled in any case: a new refusal has the redrive's own offset.
        refusals.remove(redrive.offset, redrive.rows)
        self.still_refused = refusals.rows_of(redrive.offset)
        self._rows = redrive.rows
        if skipped:
            raise self._skipped(message)
        self.counts["redriven"] += 1
        self.apply_again(message, redrive.rows)

    def _skipped(self, message: Message) -> BadRecord:
        name = (message.key or b"").decode(errors="replace") if self.keyed_by_space else ""
        return BadRecord(Reason.SKIPPED, f"space {name!r}: {_SKIPPED}" if name else _SKIPPED)

    def refuse(self, error: BadRecord) -> None:
        """Send the message, or the rows that the error names, to dead letters."""
        message = self._message
        rows = self._rows if error.rows is None else error.rows
        self.refusals.add(message.offset, rows)
        self.dead[error.reason.value] += 1
        letter = dead_letter(
            message, self.place.name, error.reason, error.detail, rows, self.place.dead_letters
        )
        self._outputs.append(letter)

    @abstractmethod
    def apply(self, message: Message) -> None:
        """Apply an ordinary message, moving marks; raise `BadRecord` with the state otherwise untouched."""

    @abstractmethod
    def apply_again(self, message: Message, rows: Rows) -> None:
        """Apply a redriven message (those rows of it), touching no mark and no sequence."""

    @abstractmethod
    def pass_over(self, message: Message) -> bool:
        """Move the marks as if the message were applied, without reading its body, which may end the process.

        Returns
        -------
        bool : whether it would have been applied.
        """

    # ---- chains -------------------------------------------------------------------------------------------------

    def emit(self, name: str, space: Space, value: bytes, key: bytes | None = None) -> None:
        """Emit an output of a space, with the next identity of its chain. Its key is the space's name by default."""
        topic = self.place.output_topic
        if topic is None:
            raise RuntimeError(f"{self.place.name} has no output topic")
        position, previous = space.next_position(self.place.generation, self._message.offset)
        space.emitted = position
        identity = Identity(self.place.name, position, self.place.topic, self.place.partition, previous)
        partition = partition_of(name, self.place.output_partitions)
        self._outputs.append(Output(topic, key or name.encode(), value, identity.headers(), partition))

    def receive(self, message: Message, name: str, identity: Identity | None = None) -> Identity | None:
        """Judge a chained input and move its mark. Returns None for a duplicate or an ended epoch.

        Parameters
        ----------
        identity : of the message, if it was read already.

        Raises
        ------
        LogGap : the log has lost outputs before this one.
        """
        identity = identity or read_identity(message.headers)
        space = self.find(name)
        mark = None if space is None else space.marks.get(identity.emitter)
        match judge(mark and mark.position, identity):
            case Verdict.DUPLICATE:
                self.counts["duplicates"] += 1
                return None
            case Verdict.GAP if mark is not None and not self._accepted(mark, message):
                raise LogGap(self._gap_text(message, identity, mark.position))
            case Verdict.ADOPT | Verdict.GAP:
                self.counts["adopted"] += 1
            case Verdict.TAKE:
                pass
        space = self.open(name)
        space.marks[identity.emitter] = Mark(identity.position, message.offset)
        if identity.position.epoch < space.epoch:
            self.counts["stale_epoch"] += 1
            return None
        return identity

    def _accepted(self, mark: Mark, message: Message) -> bool:
        return any(mark.at < gap <= message.offset for gap in self.place.accepted_gaps)

    def _gap_text(self, message: Message, identity: Identity, mark: Position) -> str:
        before = identity.previous and identity.previous.text()
        return (
            f"{message.topic} partition {message.partition} offset {message.offset}: the log has lost outputs of "
            f"{identity.emitter!r} after {mark.text()}; the next one found follows {before} "
            f"(generation/epoch/offset/part). To continue without them: kinstream accept-gap {self.place.name} "
            f"--partition {message.partition} --offset {message.offset}"
        )

    def space_name(self, message: Message, partition_matters: bool = True) -> str:
        """The space that the message key names.

        Raises
        ------
        BadRecord : no key, not UTF-8, or a key that belongs on another partition.
        """
        try:
            name = (message.key or b"").decode()
        except UnicodeDecodeError as error:
            raise BadRecord(Reason.WRONG_KEY, "the message key is not UTF-8") from error
        if not name:
            raise BadRecord(Reason.WRONG_KEY, "the message key must be the space")
        home = partition_of(name, self.place.input_partitions)
        if partition_matters and home != message.partition:
            detail = (
                f"space {name!r} belongs on partition {home}: produce with the murmur2_random partitioner"
            )
            raise BadRecord(Reason.WRONG_KEY, detail)
        return name

    def check_key(self, record: Record, name: str) -> None:
        """Refuse a record whose space is not its key."""
        if record.space != name:
            raise BadRecord(Reason.WRONG_KEY, f"the key names {name!r} and the record names {record.space!r}")

    # ---- checkpoints --------------------------------------------------------------------------------------------

    def partition_state(self) -> State:
        """The state that does not belong to a single space."""
        state: State = {f"count.{name}": self.counts[name] for name in COUNTED}
        state |= {f"count.{name}": number for name, number in sorted(self.counts.items()) if number}
        state |= {f"dead.{reason}": number for reason, number in sorted(self.dead.items())}
        state |= self.refusals.state()
        state |= moved_state(self.moved_refusals)
        return state

    def restore(
        self, next_offset: int, last_record: tuple[int, int] | None, state: State, names: Iterable[str]
    ) -> None:
        """Take over from a checkpoint; the spaces are read when they are needed."""
        self.next_offset = next_offset
        self._last = last_record
        self.restore_partition(state)
        self.leave_in_files(names)

    def restore_partition(self, state: State) -> None:
        """The inverse of `partition_state`."""
        self._take_counts(state)
        self._take_refusals(state)

    def _take_counts(self, state: State) -> None:
        self.counts = Counter({n: int(v) for n, v in without_prefix("count.", state).items()})
        self.dead = Counter({n: int(v) for n, v in without_prefix("dead.", state).items()})

    def _take_refusals(self, state: State) -> None:
        self.refusals.restore(np.asarray(state["refused_runs"]), np.asarray(state["refused_rows"]))
        self.moved_refusals = read_moved(state)

    def go_on(
        self,
        last_record: tuple[int, int] | None,
        state: State,
        spaces: Mapping[str, State],
        segment: Callable[[str, str], State],
    ) -> None:
        """Continue a fresh machine from states in memory, as from a checkpoint.

        Parameters
        ----------
        segment : reads a segment of a space.
        """
        self._last = last_record
        self.restore_partition(state)
        self.read_segments_with(segment)
        self.take_in(spaces)

    def gather(self, parts: Mapping[int, State], homes: Mapping[tuple[int, int], int]) -> None:
        """Turn a fresh machine into one partition of an input whose number of partitions was raised.

        Counts stay with their partition, so that sums over all partitions do not change. A refusal goes to the
        partition where its record belongs now: there a redrive of it can be applied.

        Parameters
        ----------
        parts : the last `partition_state` of every old partition.
        homes : where the record that was refused at (partition, offset) belongs now. A record that is not named stays
            with its holder.
        """
        here = self.place.partition
        if here in parts:
            self._take_counts(parts[here])
        come: list[tuple[int, int, Rows]] = []
        for holder, state in parts.items():
            own = Refusals()
            own.restore(np.asarray(state["refused_runs"]), np.asarray(state["refused_rows"]))
            for origin, refusals in {**read_moved(state), holder: own}.items():
                come += [
                    (origin, offset, rows)
                    for offset, rows in refusals.parts()
                    if homes.get((origin, offset), holder) == here
                ]
        for origin, offset, rows in sorted(come, key=itemgetter(0, 1)):
            held = self.refusals if origin == here else self.moved_refusals.setdefault(origin, Refusals())
            held.add(offset, rows)

    def inherit(
        self,
        state: State | None,
        spaces: Mapping[str, State],
        segment: Callable[[str, str], State] = no_segment,
    ) -> None:
        """Begin where another generation ended: declarations, positions and refusals stay; learned state does not.

        Without the epochs, the outputs of this generation would seem older than those of the one before. Algorithms
        take over what was declared to them, such as the catalogue of items.

        Parameters
        ----------
        segment : reads a segment of a space.
        """
        if state is not None:
            self._take_refusals(state)
        for name, old in spaces.items():
            found = restore_space(old)
            found.emitted, found.step = None, 0
            core = core_state(old)
            if core is not None:
                fresh = self.make_core(name, found)
                if isinstance(fresh, HeirCore):
                    fresh.inherit(core, partial(segment, name))
                    found.core = fresh
            self.add(name, found)

    # ---- what a page may show: agents with content of their own override these -----------------------------------

    def on_owned(self, live: bool) -> None:
        """The partition is restored; `live` if nothing of it was ever shown."""

    def on_live(self) -> None:
        """The partition has reached the end that the log had when it was taken over."""

    def on_revoked(self) -> None:
        """Another worker owns the partition from now on."""
