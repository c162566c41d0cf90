"""More partitions for the topics, with the states and chains of every agent moved to where their spaces belong then.

Everything is checked before anything is written (`kinstream.streams.operations.repartition.checks`).
Then, in this order: the birth record of each agent's next generation (the lock: the old one is not opened from here
on), the place in the log at which this happens, the partitions of the topics, a starting checkpoint of every
partition, and the numbers of the new generations, those of readers before those that they read from: an agent that
can start has everything downstream of it moved. The same repartition run again completes one that was killed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kinstream.streams import failpoints
from kinstream.streams.agents.generations.birth import Birth, as_content, read_birth, write_birth
from kinstream.streams.agents.generations.generation import Generation
from kinstream.streams.agents.generations.numbers import make_newest
from kinstream.streams.agents.generations.open_generation import refuse_members, unfinished
from kinstream.streams.agents.generations.repartition_record import Growth, write_growth
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.checkpoints.files import without_secret
from kinstream.streams.errors import GenerationMismatch
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.reader import read_range
from kinstream.streams.operations.repartition.states import Beginning
from kinstream.streams.settings import Settings


@dataclass(frozen=True, slots=True)
class Move:
    """The move of one agent to its new partitions.

    Parameters
    ----------
    old : the generation that ends.
    birth : of the generation that continues with its states.
    ends : the position of the old one, per old partition: the ends of the log.
    beginnings : of the new partitions.
    size : bytes of the spaces that are written again.
    """

    spec: AgentSpec
    old: Generation
    birth: Birth
    ends: Mapping[int, int]
    beginnings: tuple[Beginning, ...] = field(repr=False)
    size: int

    @property
    def spaces(self) -> int:
        return sum(len(one.spaces) for one in self.beginnings)

    @property
    def moved(self) -> int:
        """Spaces that change their partition."""
        return sum(space.partition != b.partition for b in self.beginnings for space in b.spaces.values())

    @property
    def refusals(self) -> int:
        """Refused records and rows that a redrive can still apply."""
        return sum(b.refusals for b in self.beginnings)


@dataclass(frozen=True, slots=True)
class RepartitionPlan:
    """A repartition that has passed all checks.

    Parameters
    ----------
    topics : partitions of each topic as they are now.
    moves : in the order in which they are committed, readers first.
    done : agents that are already moved.
    absent : the metrics agent, if it has never run: it will count from here on.
    resumed : an earlier one was killed, and is completed.
    growths : the ends of the log when each topic got its partitions.
    notes : findings for the operator.
    lettered, held : number of refused records whose dead letter was found, and of all refused records held.
    """

    partitions: int
    topics: Mapping[str, int]
    moves: tuple[Move, ...]
    done: tuple[str, ...]
    absent: tuple[str, ...]
    resumed: bool
    growths: tuple[Growth, ...]
    notes: tuple[str, ...]
    lettered: int
    held: int
    settings: Settings = field(repr=False)

    @property
    def raised(self) -> dict[str, int]:
        """Topics that still have too few partitions."""
        return {name: self.partitions for name, count in self.topics.items() if count < self.partitions}

    def carry_out(self, cluster: Cluster) -> list[str]:
        """Write everything; returns notes for the operator.

        Raises
        ------
        GenerationMismatch : a generation or a worker has been started meanwhile.
        SettingsError, AccessDenied : the brokers refuse to add partitions.
        CheckpointError : the store refuses.
        """
        url = self.settings.checkpoints.url
        for move in self.moves:
            _take_number(url, move)
            failpoints.hit("repartition.after-birth")
        for move in self.moves:
            # A worker that had opened the old generation before its number was taken.
            refuse_members(move.spec, move.old.number, cluster)
        for growth in self.growths:
            write_growth(url, growth)
        failpoints.hit("repartition.after-record")
        for name, count in self.raised.items():
            cluster.grow({name: count})
            failpoints.hit("repartition.after-topic")
        notes = self._written_meanwhile(cluster)
        for move in self.moves:
            generation = Generation(move.spec, self.settings, move.birth)
            _decide(move, generation)
            for beginning in move.beginnings:
                beginning.save(generation.store(beginning.partition), move.birth.input_topic_id)
                failpoints.hit("repartition.after-partition")
        for move in self.moves:
            make_newest(self.settings, move.spec.application, move.birth.generation)
            failpoints.hit("repartition.after-commit")
        return notes

    def _written_meanwhile(self, cluster: Cluster) -> list[str]:
        """Records of producers that were not stopped: written between the checks and the new partitions."""
        notes = []
        seen: set[str] = set()
        for move in self.moves:
            topic = move.birth.input_topic
            if topic in seen or topic not in self.raised:
                continue
            seen.add(topic)
            ranges = {p: (end, cluster.bounds(topic, p)[1]) for p, end in move.ends.items()}
            late = sum(1 for _ in read_range(self.settings.kafka, topic, ranges))
            if late > 0:
                notes.append(
                    f"{topic}: {late} records were written while the partitions were added. Those on a partition where "
                    "their key no longer belongs will be dead letters (wrong-key). Send them again"
                )
        return notes


def without_time(birth: Birth) -> dict[str, object]:
    """A birth record as two runs of one repartition both write it."""
    return {name: value for name, value in as_content(birth).items() if name != "created_ms"}


def _take_number(url: str, move: Move) -> None:
    if write_birth(url, move.birth):
        return
    found = read_birth(url, move.birth.application, move.birth.generation)
    if found is None or without_time(found) != without_time(move.birth):
        raise taken(found or move.birth, url)


def taken(found: Birth, url: str) -> GenerationMismatch:
    """The error for a number that is already taken."""
    if found.repartition:
        return unfinished(found, url)
    return GenerationMismatch(
        f"{found.application} generation {found.generation} exists, but the newest is another: a start was broken "
        f"off. Start its worker once, or delete the folder {found.application}/{found.generation} under "
        f"{without_secret(url)}"
    )


def _decide(move: Move, generation: Generation) -> None:
    """Operators' decisions about records that were not read yet."""
    topic = move.birth.input_topic
    for p, end in move.ends.items():
        skipped = {offset for offset in move.old.parking.skipped(topic, p) if offset >= end}
        for offset in sorted(skipped - generation.parking.skipped(topic, p)):
            generation.parking.skip(topic, p, offset)
        for offset in sorted(move.old.accepted_gaps(p)):
            generation.accept_gap(p, offset)
