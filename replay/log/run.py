"""A whole replay: agents opened, range chosen, messages fed, models compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kinstream.replay.log.agents import Agent, followed, open_builder, open_learner
from kinstream.replay.log.comparison import (
    ChainWatch,
    Goal,
    OffsetWatch,
    SpaceComparison,
    foreign_versions,
    newest_checkpoints,
)
from kinstream.replay.log.guarantees import Claim, LogKind, claim
from kinstream.replay.log.pipeline import AgentReplay, Model, Pipeline
from kinstream.replay.log.sources import Point, TopicRange, topic_range
from kinstream.streams.agents.generations.generation import Generation
from kinstream.streams.agents.machine import Machine
from kinstream.streams.checkpoints.store import versions
from kinstream.streams.errors import CheckpointError, GenerationMismatch, SettingsError
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.records.held_out import HeldOut
from kinstream.streams.records.message import Message
from kinstream.streams.records.values import Counts
from kinstream.streams.settings import Settings
from kinstream.streams.topics import partition_of

Progress = Callable[[int], None]
#: Is given the replayed learners and the messages, and passes the messages on.
Beside = Callable[[Sequence[AgentReplay], Iterator[Message]], Iterator[Message]]


@dataclass(frozen=True, slots=True)
class Request:
    """What to replay.

    Parameters
    ----------
    learners : names in the settings.
    space : this one alone; its partition is read.
    until_checkpoint : stop at the newest checkpoints of the running system.
    compare : compare with them.
    """

    learners: tuple[str, ...]
    origin: LogKind
    start: Point | None = None
    end: Point | None = None
    space: str | None = None
    partitions: tuple[int, ...] = ()
    until_checkpoint: bool = False
    compare: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a replay.

    Parameters
    ----------
    ranges : [start, stop) per partition of what was read.
    outcomes : by (learner, space).
    held_out : verdicts on held-out events, by (learner, space) that had some.
    input : counts of the machines and dead letters by reason, by agent.
    """

    claim: Claim
    messages: int
    ranges: Mapping[int, tuple[int, int]]
    models: tuple[Model, ...]
    outcomes: Mapping[tuple[str, str], Counts]
    input: Mapping[str, Mapping[str, int]]
    dead: Mapping[str, Mapping[str, int]]
    comparisons: tuple[SpaceComparison, ...] = ()
    versions: Mapping[str, str] = field(default_factory=versions)
    held_out: Mapping[tuple[str, str], HeldOut] = field(default_factory=dict)


class Replay:
    """A replay of a topic, opened: `size` messages at most are to come, and `run` applies them.

    Raises
    ------
    SettingsError : an unknown learner, builder, topic or partition.
    GenerationMismatch : a comparison is requested and the running system has no such agent on this log.
    CheckpointError : a birth record, or every checkpoint of a partition, is damaged.
    BrokerUnavailable : the brokers do not answer.
    """

    def __init__(self, request: Request, settings: Settings, cluster: Cluster) -> None:
        self._request = request
        self._settings = settings
        self._cluster = cluster
        names = followed(settings, request.learners)
        self.learners = [open_learner(settings, name, cluster) for name in request.learners]
        self._builders: list[Agent] = []
        if request.origin is LogKind.EVENTS:
            self._builders = [open_builder(settings, name, cluster) for name in names]
        self._sources = self._builders or self.learners
        self._unconfirmed = [a.unconfirmed for a in (*self._builders, *self.learners) if a.unconfirmed]
        self._against = [text for agent in (*self._builders, *self.learners) for text in agent.differences]
        self._goals: dict[str, dict[int, Goal]] = {}
        self._chains: dict[str, ChainWatch] = {}
        if request.compare or request.until_checkpoint:
            self._read_checkpoints()
        self.range = self._choose_range()
        self.size = self.range.size()
        self._check_start()

    # ---- preparing ----------------------------------------------------------------------------------------------

    def _read_checkpoints(self) -> None:
        for agent in (*self._builders, *self.learners):
            if agent.generation is None:
                raise GenerationMismatch(
                    f"there are no checkpoints to stop at or to compare with: {agent.unconfirmed}. "
                    "Check checkpoints.url and KAFKA_BOOTSTRAP_SERVERS"
                )
            self._goals[agent.name] = self._newest(agent, agent.generation)
        for agent in self.learners if self._builders else ():
            if len(self._settings.learners[agent.spec.name].follows) == 1:
                self._chains[agent.name] = self._watch_chain(agent)
                self._against += self._chains[agent.name].exceptions()

    def _newest(self, agent: Agent, generation: Generation) -> dict[int, Goal]:
        partitions: Iterable[int] = range(agent.input_partitions)
        if agent in self._sources:
            partitions = [p for p in partitions if self._reads(p)]
        return newest_checkpoints(generation, partitions)

    def _watch_chain(self, agent: Agent) -> ChainWatch:
        attempts = 3
        while True:
            goals = self._goals[agent.name].values()
            try:
                return ChainWatch(
                    agent.name, goals, until=self._request.until_checkpoint, wanted=self._reads_space
                )
            except CheckpointError:
                # A running learner prunes its checkpoints while they are read: then there are newer ones.
                attempts -= 1
                if not attempts or agent.generation is None:
                    raise
                self._goals[agent.name] = self._newest(agent, agent.generation)

    def _reads_space(self, space: str) -> bool:
        only = self._request.space
        return only in (None, space) and self._reads(self._home(space))

    def _reads(self, partition: int) -> bool:
        request = self._request
        if request.partitions and partition not in request.partitions:
            return False
        return request.space is None or partition == self._home(request.space)

    def _home(self, space: str) -> int:
        return partition_of(space, self._sources[0].input_partitions)

    def _choose_range(self) -> TopicRange:
        request = self._request
        topic = self._settings.topic(self._sources[0].spec.input_role)
        births: dict[int, int] = {}
        for agent in self._sources:
            for p in range(agent.partitions[0]):
                born = agent.birth_offset(p)
                if born is not None:
                    births[p] = min(born, births.get(p, born))
        return topic_range(
            self._cluster,
            topic,
            partitions=self._partitions(),
            start=request.start,
            end=request.end,
            births=births,
            stops=self._stops() if request.until_checkpoint else None,
        )

    def _partitions(self) -> list[int] | None:
        request = self._request
        if request.space is not None and not self._reads(self._home(request.space)):
            raise SettingsError(f"space {request.space!r} lives on partition {self._home(request.space)}")
        if request.space is not None:
            return [self._home(request.space)]
        return list(request.partitions) or None

    def _stops(self) -> dict[int, int]:
        """The offsets of the last checkpoints."""
        stops: dict[int, int] = {}
        for agent in self._sources:
            for p, goal in self._goals[agent.name].items():
                stops[p] = max(goal.offset, stops.get(p, 0))
            for chain in self._chains.values():
                for space, offset in chain.needed(agent.spec.name, agent.number).items():
                    p = self._home(space)
                    stops[p] = max(offset, stops.get(p, 0))
        return stops

    def _start_of(self, agent: Agent, partition: int) -> int:
        """Where an agent that reads the topic begins: not before its birth offset, unless requested."""
        start = self.range.ranges[partition][0]
        born = agent.birth_offset(partition)
        return start if born is None or self._request.start is not None else max(start, born)

    def _check_start(self) -> None:
        for agent in self._sources:
            places = []
            for p, (_, stop) in self.range.ranges.items():
                born, start = agent.birth_offset(p), self._start_of(agent, p)
                if born is not None and start != born and (start > born or stop > start):
                    gone = (
                        ", because the log no longer holds earlier records"
                        if self.range.log_starts[p] > born
                        else ""
                    )
                    places.append(f"partition {p} at {start} and not at {born}{gone}")
            if places:
                more = f" and {len(places) - 3} more" if len(places) > 3 else ""
                self._against.append(f"{agent.name} did not begin here ({', '.join(places[:3])}{more})")
        for agent in (*self._builders, *self.learners) if self._builders else ():
            if agent.number > 1:
                self._against.append(
                    f"{agent.name} is in generation {agent.number}; only the constraints topic shows where one ends "
                    "and the next begins"
                )

    # ---- running ------------------------------------------------------------------------------------------------

    def run(
        self,
        progress: Progress = lambda done: None,
        beside: Beside = lambda learners, messages: messages,
    ) -> Result:
        """Read the range and apply it.

        Parameters
        ----------
        progress : called with the number of offsets passed.
        beside : sees each message before it is applied.

        Raises
        ------
        BrokerUnavailable : the brokers stopped answering.
        LogGap : the log has lost outputs that a learner follows.
        """
        watches: dict[str, OffsetWatch] = {}
        for agent in self._sources:
            starts = {p: self._start_of(agent, p) for p in self.range.ranges}
            goals = self._goals.get(agent.name)
            if goals is not None:
                until = self._request.until_checkpoint and not self._builders
                space = self._request.space
                watches[agent.name] = OffsetWatch(agent.name, goals, starts, until=until, space=space)
        pipeline = self._pipeline(watches)
        messages = _run(pipeline, beside(pipeline.learners, self._counted(progress)))
        for replayed in pipeline.builders or pipeline.learners:
            replayed.pass_to(self.range.stops)
        found: list[SpaceComparison] = []
        if self._request.compare:
            for replayed in (*pipeline.builders, *pipeline.learners):
                if replayed.name in watches:
                    found += watches[replayed.name].finish(replayed, self.range.stops)
                elif replayed.name in self._chains:
                    found += self._chains[replayed.name].finish()
        goals_read = [goal for some in self._goals.values() for goal in some.values()]
        follows = {a.spec.name: self._settings.learners[a.spec.name].follows for a in self.learners}
        foreign = foreign_versions(goals_read) if goals_read else None
        claimed = claim(self._request.origin, follows, self._against, self._unconfirmed, foreign)
        return _result(pipeline, claimed, messages, self.range.ranges, found)

    def _begins_at_birth(self, agent: Agent, partition: int) -> bool:
        """Whether the replay of that partition begins where and as the running agent began to learn."""
        return partition in self.range.ranges and self._start_of(agent, partition) == agent.birth_offset(
            partition
        )

    def _pipeline(self, watches: Mapping[str, OffsetWatch]) -> Pipeline:
        def source(agent: Agent) -> AgentReplay:
            starts = {p: self._start_of(agent, p) for p in self.range.ranges}
            # A builder's limit on spaces depends on all spaces, so only learners may leave some out.
            space = None if self._builders else self._request.space

            def begin(machine: Machine) -> None:
                if self._begins_at_birth(agent, machine.place.partition):
                    agent.begin(machine)

            watch = watches.get(agent.name)
            return AgentReplay(agent.spec, agent.place, starts=starts, begin=begin, space=space, watch=watch)

        def behind(agent: Agent) -> AgentReplay:
            watch = self._chains.get(agent.name)
            return AgentReplay(agent.spec, agent.virtual_place, space=self._request.space, watch=watch)

        builders = [source(agent) for agent in self._builders]
        learners = [behind(agent) if builders else source(agent) for agent in self.learners]
        return Pipeline(builders, learners, self._settings.topic("constraints"))

    def _counted(self, progress: Progress) -> Iterator[Message]:
        reached = self.range.starts
        done = 0
        for message in self.range.messages(self._settings.kafka):
            yield message
            done += message.offset + 1 - reached[message.partition]
            reached[message.partition] = message.offset + 1
            progress(done)
        progress(self.size)


def _run(pipeline: Pipeline, messages: Iterable[Message]) -> int:
    number = 0
    for message in messages:
        pipeline.feed(message)
        number += 1
    return number


def _result(
    pipeline: Pipeline,
    claimed: Claim,
    messages: int,
    ranges: Mapping[int, tuple[int, int]],
    comparisons: Sequence[SpaceComparison],
) -> Result:
    agents = (*pipeline.builders, *pipeline.learners)
    return Result(
        claimed,
        messages,
        ranges,
        tuple(model for agent in agents for model in agent.models()),
        pipeline.outcomes,
        {agent.name: agent.counts() for agent in agents},
        {agent.name: agent.dead() for agent in agents},
        tuple(comparisons),
        held_out=pipeline.held_out,
    )
