"""The description of an agent, which makes the generic worker a source, a builder, a learner or a metrics agent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kinstream.streams import groups
from kinstream.streams.agents.machine import Machine, Place
from kinstream.streams.agents.partition import Announce, announce_nothing
from kinstream.streams.checkpoints.state_bytes import State
from kinstream.streams.checkpoints.store import CheckpointStore
from kinstream.streams.settings import Settings

MachineFactory = Callable[[Place, Callable[[str], State]], Machine]


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """An agent: its names, its topics by role, and the factory of its machine.

    Parameters
    ----------
    application : name of the consumer group and of the checkpoint folder, such as `learner-opml`.
    name : of the emitter.
    shaping : everything that shapes the outputs, for the birth record: settings, algorithm version, block limit, codec.
    pinned : the generation that the settings pin; None for the newest.
    announce : returns the records to publish after a checkpoint in that store.
    warm_up : compiles kernels; runs before the group is joined.
    collectors : prometheus-client collectors for this worker's metrics page.
    prefix : of the topics, for the names of groups.
    also_writes : roles of topics that must exist besides the output topic; a birth record does not hold them.
    reads : full name of the input topic, if it is not one of ours.
    """

    application: str
    name: str
    input_role: str
    output_role: str | None
    shaping: dict[str, Any]
    make_machine: MachineFactory
    pinned: int | None = None
    announce: Callable[[CheckpointStore], Announce] = lambda store: announce_nothing
    warm_up: Callable[[], None] = lambda: None
    collectors: Sequence[Any] = ()
    prefix: str = groups.DEFAULT_PREFIX
    also_writes: tuple[str, ...] = ()
    reads: str | None = None

    def input_topic(self, settings: Settings) -> str:
        """Full name of the topic that it reads."""
        return self.reads or settings.topic(self.input_role)

    def topics(self, settings: Settings) -> list[str]:
        """Full names of all topics that it reads or writes: input, output, what else it writes, dead letters."""
        output = () if self.output_role is None else (self.output_role,)
        written = (*output, *self.also_writes, "dead-letters")
        return [self.input_topic(settings), *(settings.topic(role) for role in written)]

    def group(self, generation: int) -> str:
        """Consumer group: a new generation is a new group."""
        return groups.name_of(self.prefix, self.application, generation)

    @property
    def command(self) -> str:
        """The command line that runs this agent, for advice."""
        return "kinstream worker " + self.application.replace("-", " ", 1)
