"""Builders and learners over a stream of messages: the agents' own machines with a log in memory between them.

From `events`, each builder's outputs become messages of a virtual `constraints` log, numbered per partition in order
of arrival, and go straight into the learners. From `constraints`, the learners read the existing ones.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kinstream.streams.agents.machine import Machine, Place
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.checkpoints.state_bytes import State, to_bytes
from kinstream.streams.errors import CheckpointError
from kinstream.streams.records.codec.codec import decode
from kinstream.streams.records.held_out import HeldOut
from kinstream.streams.records.message import Message, Output
from kinstream.streams.records.values import Control, Counts, Outcome


class Watch(Protocol):
    """Follows an agent's machines, to stop them at their checkpoints or to compare them there."""

    def before(self, message: Message, machine: Machine) -> bool:
        """Called before a message is applied; False leaves it out."""

    def after(self, message: Message, machine: Machine) -> None:
        """Called after a message was applied."""


@dataclass(frozen=True, slots=True)
class Model:
    """The result of a core in one space.

    Parameters
    ----------
    epoch, step : of the space.
    digest : sha256 over the core's state as the bytes of a checkpoint; None if the space is empty.
    """

    agent: str
    space: str
    partition: int
    epoch: int
    step: int
    status: str
    digest: str | None


def state_digest(state: State) -> str:
    """The sha256 that a checkpoint file of this state would have."""
    return hashlib.sha256(to_bytes(state)).hexdigest()


class VirtualLog:
    """A topic that stores nothing: it assigns every output the offset that it would have."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._next: Counter[int] = Counter()

    def append(self, output: Output, timestamp_ms: int) -> Message:
        """The output as a message for a consumer of this log.

        Raises
        ------
        ValueError : the output names no partition.
        """
        partition = output.partition
        if partition is None:
            raise ValueError(f"{output.topic}: an output of a chain names its partition")
        offset = self._next[partition]
        self._next[partition] += 1
        return Message(
            self.topic, partition, offset, timestamp_ms, output.key, output.value, output.headers, offset - 1
        )


class AgentReplay:
    """One agent over some partitions of its input.

    Parameters
    ----------
    place : of a partition.
    starts : offset at which each partition begins; 0 if it is not named.
    begin : called with each fresh machine, to load the state that it continues from.
    space : only the messages with this key.
    watch : see `Watch`.
    """

    def __init__(
        self,
        spec: AgentSpec,
        place: Callable[[int], Place],
        *,
        starts: Mapping[int, int] | None = None,
        begin: Callable[[Machine], None] = lambda machine: None,
        space: str | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.spec = spec
        self.machines: dict[int, Machine] = {}
        self._place = place
        self._starts = starts or {}
        self._begin = begin
        self._key = None if space is None else space.encode()
        self._watch = watch
        #: Partitions whose last message was left out.
        self._left_out: set[int] = set()

    @property
    def name(self) -> str:
        """Of the agent's group and checkpoints, such as `learner-opml`; a builder may share a learner's own name."""
        return self.spec.application

    def machine(self, partition: int) -> Machine:
        """The machine of a partition, created if needed."""
        if partition not in self.machines:
            machine = self.spec.make_machine(self._place(partition), _nothing_to_load)
            machine.next_offset = self._starts.get(partition, 0)
            self._begin(machine)
            self.machines[partition] = machine
        return self.machines[partition]

    def feed(self, message: Message) -> list[Output]:
        """Apply a message and return what it caused.

        Raises
        ------
        LogGap : the log has lost outputs that this agent follows.
        """
        machine = self.machine(message.partition)
        if message.offset < machine.next_offset:
            return []
        if self._leaves_out(message, machine):
            self._left_out.add(message.partition)
            return []
        if self._key is not None or message.partition in self._left_out:
            # Messages left out here, or by the choice of the range, were not dropped by the client.
            message = message._replace(previous=machine.next_offset - 1)
            self._left_out.discard(message.partition)
        outputs = machine.step(message)
        if self._watch is not None:
            self._watch.after(message, machine)
        return outputs

    def pass_to(self, ends: Mapping[int, int]) -> None:
        """Note that the input was read to these ends; a partition whose last message was left out is not there."""
        for partition, end in ends.items():
            if partition in self.machines and self._key is None and partition not in self._left_out:
                self.machines[partition].pass_to(end)

    def _leaves_out(self, message: Message, machine: Machine) -> bool:
        if self._key is not None and message.key != self._key:
            return True
        return self._watch is not None and not self._watch.before(message, machine)

    def models(self) -> Iterator[Model]:
        """Every space of every machine, by name."""
        for partition, machine in sorted(self.machines.items()):
            for name in sorted(machine.names()):
                space = machine.find(name)
                if space is not None:
                    digest = None if space.core is None else state_digest(space.core.state())
                    yield Model(
                        self.name, name, partition, space.epoch, space.step, space.status.value, digest
                    )

    def counts(self) -> Counter[str]:
        """The machines' counts of their input, over all partitions."""
        return sum((machine.counts for machine in self.machines.values()), Counter())

    def dead(self) -> Counter[str]:
        """Dead letters by reason, over all partitions."""
        return sum((machine.dead for machine in self.machines.values()), Counter())


class Pipeline:
    """Builders, the virtual log, learners, and the counts of the learners' outcomes.

    Parameters
    ----------
    builders : none if the messages are already constraints. Several are called in this order for each event; only the
        `constraints` topic itself has their real interleaving.
    constraints : name of the virtual log.
    """

    def __init__(
        self,
        builders: Sequence[AgentReplay],
        learners: Sequence[AgentReplay],
        constraints: str,
    ) -> None:
        self.builders = tuple(builders)
        self.learners = tuple(learners)
        self.outcomes: dict[tuple[str, str], Counts] = {}
        self.held_out: dict[tuple[str, str], HeldOut] = {}
        self._log = VirtualLog(constraints)

    def feed(self, message: Message) -> None:
        """Apply a message of `events`, or of `constraints` if there are no builders.

        Raises
        ------
        LogGap : the log has lost outputs that a learner follows.
        """
        if not self.builders:
            self._learn(message)
        for builder in self.builders:
            for output in builder.feed(message):
                if output.topic == self._log.topic:
                    self._learn(self._log.append(output, message.timestamp_ms))

    def _learn(self, message: Message) -> None:
        for learner in self.learners:
            for output in learner.feed(message):
                self._count(learner.machine(message.partition).place, output)

    def _count(self, place: Place, output: Output) -> None:
        if output.topic != place.output_topic:
            return
        record = decode(output.value, Outcome, Control)
        if isinstance(record, Outcome):
            key = (record.learner, record.space)
            self.outcomes[key] = self.outcomes.get(key, Counts()) + record.counts
            if record.held_out is not None:
                before = self.held_out.get(key)
                self.held_out[key] = record.held_out if before is None else before + record.held_out


def _nothing_to_load(name: str) -> State:
    raise CheckpointError(f"space {name!r}: a replay leaves no space to a file")
