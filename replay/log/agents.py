"""The running agents for a replay: their birth records, decisions of operators, and starts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kinstream.streams.agents.generations.birth import Birth, read_birth, settings_digest
from kinstream.streams.agents.generations.generation import Generation
from kinstream.streams.agents.generations.numbers import newest_generation
from kinstream.streams.agents.inheritance import inherit
from kinstream.streams.agents.machine import Machine, Place
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.errors import SettingsError
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.cluster_view import ClusterView
from kinstream.streams.settings import Settings
from kinstream.streams.spelling import meant


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent to replay.

    Parameters
    ----------
    generation : of the running system, or None if this log has no such agent.
    partitions : of the input and of the output topic, for an agent without a generation.
    differences : why its outputs differ from those of the running agent, as clauses.
    unconfirmed : why the start of the agent is unknown; empty if a birth record has it.
    """

    spec: AgentSpec
    settings: Settings
    generation: Generation | None
    partitions: tuple[int, int]
    differences: tuple[str, ...] = ()
    unconfirmed: str = ""

    @property
    def name(self) -> str:
        return self.spec.application

    @property
    def number(self) -> int:
        """Of the generation."""
        return 1 if self.generation is None else self.generation.number

    @property
    def input_partitions(self) -> int:
        return self.partitions[0] if self.generation is None else self.generation.birth.input_partitions

    def place(self, partition: int) -> Place:
        """The agent's own place, with the operators' decisions to skip and to accept."""
        if self.generation is not None:
            return self.generation.place(partition)
        role = self.spec.output_role
        return Place(
            name=self.spec.name,
            generation=1,
            topic=self.settings.topic(self.spec.input_role),
            partition=partition,
            input_partitions=self.partitions[0],
            output_topic=None if role is None else self.settings.topic(role),
            output_partitions=self.partitions[1],
            dead_letters=self.settings.topic("dead-letters"),
        )

    def virtual_place(self, partition: int) -> Place:
        """For an input that is not a topic. Operators' decisions name offsets of the topic, so they do not apply."""
        return replace(self.place(partition), skipped=frozenset(), accepted_gaps=frozenset())

    def begin(self, machine: Machine) -> None:
        """Give a fresh machine the state that its generation continues from, if it began at the end of another one.

        With other settings than the generation's it takes over declarations only.

        Raises
        ------
        CheckpointError : the checkpoints of the generation before cannot be read.
        """
        if self.generation is None:
            return
        partition = machine.place.partition
        same = settings_digest(self.spec.shaping) == self.generation.birth.settings_digest
        if self.generation.birth.repartition is not None and same:
            store = self.generation.store(partition)
            begun = store.at(self.generation.birth_offset(partition))
            spaces, segments = begun.manifest.spaces, begun.manifest.segments
            last = begun.manifest.last_record
            machine.go_on(
                None if last is None else (last.offset, last.crc32),
                begun.partition,
                {name: store.load_space(file) for name, file in spaces.items()},
                lambda space, name: store.load_space(segments[space][name]),
            )
            return
        for store in self.generation.inherited(partition):
            inherit(machine, store)

    def birth_offset(self, partition: int) -> int | None:
        """Where the agent began to learn, or None if unknown."""
        return None if self.generation is None else self.generation.birth_offset(partition)


def open_builder(settings: Settings, name: str, cluster: Cluster) -> Agent:
    """The builder `[builders.NAME]`; see `open_agent`."""
    from kinstream.processors.agent import builder_spec

    spec = builder_spec(settings, name)
    return open_agent(spec, settings, cluster)


def open_learner(settings: Settings, name: str, cluster: Cluster) -> Agent:
    """The learner `[learners.NAME]`; see `open_agent`."""
    from kinstream.learners.agent import learner_spec

    spec = learner_spec(settings, name)
    return open_agent(spec, settings, cluster)


def open_agent(spec: AgentSpec, settings: Settings, cluster: Cluster) -> Agent:
    """Find the generation of an agent (the pinned one, else the newest). Nothing is written.

    Raises
    ------
    SettingsError : the cluster has no such topic.
    BrokerUnavailable : the brokers do not answer.
    CheckpointError : a birth record is damaged.
    """
    topics = [settings.topic(role) for role in (spec.input_role, spec.output_role) if role is not None]
    view = cluster.view(topics)
    if topics[0] not in view.topics:
        raise SettingsError(
            f"there is no topic {topics[0]}: kinstream topics create, or another topics.prefix"
        )
    counts = [view.topics[t].partitions if t in view.topics else settings.topics.partitions for t in topics]
    partitions = (counts[0], counts[-1])
    number = spec.pinned or newest_generation(settings, spec.application)
    birth = None if number is None else read_birth(settings.checkpoints.url, spec.application, number)
    if birth is None:
        why = f"{spec.application} has no birth record under {settings.checkpoints.shown}"
        return Agent(spec, settings, None, partitions, unconfirmed=why)
    other = other_log(birth, view)
    if other is not None:
        why = f"{spec.application} generation {birth.generation} began on another log ({other})"
        return Agent(spec, settings, None, partitions, unconfirmed=why)
    differences = []
    if settings_digest(spec.shaping) != birth.settings_digest:
        differences.append(
            f"the settings of {spec.application} are not those of generation {birth.generation}"
        )
    return Agent(spec, settings, Generation(spec, settings, birth), partitions, tuple(differences))


def other_log(birth: Birth, view: ClusterView) -> str | None:
    """How the cluster's topic differs from the birth record; None if it does not."""
    found = view.topics.get(birth.input_topic)
    if found is None:
        return f"topic {birth.input_topic}"
    if birth.cluster_id != (view.cluster_id or ""):
        return f"cluster {birth.cluster_id}"
    if birth.input_topic_id and found.topic_id and birth.input_topic_id != found.topic_id:
        return f"the topic was re-created: its id was {birth.input_topic_id}"
    if birth.input_partitions != found.partitions:
        return f"it had {birth.input_partitions} partitions"
    return None


def followed(settings: Settings, learners: Iterable[str]) -> list[str]:
    """The builders that the learners follow, by name.

    Raises
    ------
    SettingsError : there is no such learner.
    """
    found = set()
    for name in learners:
        if name not in settings.learners:
            known = ", ".join(settings.learners) or "none"
            raise SettingsError(
                f"no [learners.{name}] in the settings; there are: {known}{meant([name], settings.learners)}"
            )
        found |= set(settings.learners[name].follows)
    return sorted(found)
