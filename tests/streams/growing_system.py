"""A whole system in memory whose topics can be given more partitions, and a small one that has learned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from kinstream.learners.agent import learner_spec
from kinstream.monitoring.agent import metrics_spec
from kinstream.monitoring.tallies import Tallies
from kinstream.processors.agent import builder_spec
from kinstream.streams.agents.generations.open_generation import open_generation
from kinstream.streams.agents.partition import PartitionRunner
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.cluster_view import ClusterView, TopicView
from kinstream.streams.operations.letters import LetterFilter, StandingRefusals, choose, redrives
from kinstream.streams.operations.letters import plan as plan_redrive
from kinstream.streams.operations.repartition.checks import plan
from kinstream.streams.operations.repartition.repartition import RepartitionPlan
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.identity import Headers
from kinstream.streams.records.message import Message
from kinstream.streams.records.values import Action, Control, Counts, Declaration
from kinstream.streams.settings import KafkaSettings, Settings
from kinstream.streams.topics import CATALOGUE
from tests.support.memory_log import MemoryLog, MemorySink
from tests.support.pipeline import samples

EVENTS, CONSTRAINTS, OUTCOMES = "kinstream.events", "kinstream.constraints", "kinstream.outcomes"
DEAD = "kinstream.dead-letters"
CONFIG: dict[str, Any] = {
    "builders": {
        "one-pass": {"kind": "one-pass", "seed": 3},
        "random": {"kind": "random-pairs", "seed": 5},
        "joined": {"kind": "closure", "seed": 7},
    },
    "learners": {
        "opml": {"kind": "opml", "from": ["one-pass"], "gamma": 0.01},
        "pairs": {"kind": "lego", "from": ["random"]},
        "items": {"kind": "opml", "from": ["joined"]},
    },
    "metrics": {"top_spaces": 3, "window": 50},
}


class TimedLog(MemoryLog):
    """A log whose clock counts the events: the same events bear the same times, whatever their partitions."""

    clock = 0

    def append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
        time_ms: int | None = None,
    ) -> int:
        self.clock += topic == EVENTS
        return super().append(topic, key, value, headers, partition, self.clock)


@dataclass
class GrowingCluster:
    """What is asked of a cluster, whose topics each have their own number of partitions."""

    log: MemoryLog
    counts: dict[str, int]
    members: dict[str, int] = field(default_factory=dict)
    strangers: dict[str, str] = field(default_factory=dict)
    id: str = "memory"
    topic_ids: dict[str, str] = field(default_factory=dict)
    allowed: dict[str, frozenset[str]] = field(default_factory=dict)

    def view(self, topics: Iterable[str]) -> ClusterView:
        known = {name: self.counts[name] for name in topics if name in self.counts}
        views = {n: TopicView(n, self.topic_ids.get(n, "id"), count) for n, count in known.items()}
        return ClusterView(self.id, 1, views)

    def topic_id(self, topic: str) -> str:
        return self.topic_ids.get(topic, "id")

    def operations(self, topics: Iterable[str], groups: Iterable[str]) -> dict[str, frozenset[str] | None]:
        return {f"topic {name}": self.allowed.get(name) for name in topics}

    def group_members(self, group: str) -> int:
        return self.members.get(group, 0)

    def groups(self, prefix: str) -> list[str]:
        return sorted(group for group in self.strangers if group.startswith(prefix))

    def committed(self, group: str, topic: str, partitions: int) -> dict[int, int]:
        return {0: 1} if self.strangers.get(group) == topic else {}

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        held = self.log.entries[topic, partition]
        return (held[0].offset if held else 0), self.log.end(topic, partition)

    def offset_at(self, topic: str, partition: int, time_ms: int) -> int | None:
        later = [m.offset for m in self.log.entries[topic, partition] if m.timestamp_ms >= time_ms]
        return min(later) if later else None

    def grow(self, topics: Mapping[str, int]) -> None:
        self.counts |= topics


class Worker:
    """An agent on every partition, as `kinstream.streams.worker.worker` takes them over."""

    def __init__(self, system: GrowingSystem, spec: AgentSpec, **options: Any) -> None:
        self.system = system
        self.generation = open_generation(spec, system.settings, system.asked, **options)
        self.sink = MemorySink(system.log)
        self.topic = self.generation.birth.input_topic
        self.runners: dict[int, PartitionRunner] = {}
        self.marks: dict[int, int] = {}
        self.emitted_to: dict[int, int] = {}
        for p in range(self.generation.birth.input_partitions):
            runner = self.generation.runner(p, self.sink)
            start, end = system.cluster.bounds(self.topic, p)
            self.emitted_to[p] = self.generation.emitted_to(p, end)
            self.marks[p] = self.generation.mark_started(p)
            runner.restore(self.generation.birth_offset(p), start, end)
            self.generation.verify_last_record(runner.manifest, system.asked, start)
            runner.machine.on_owned(live=True)
            self.runners[p] = runner

    def work(self) -> Worker:
        """Apply all that waits, and checkpoint."""
        for p, runner in self.runners.items():
            runner.work(self.system.log.read(self.topic, p, runner.machine.next_offset))
            if runner.dirty:
                runner.checkpoint()
        return self

    def stop(self) -> Worker:
        """End in order."""
        for p, runner in self.runners.items():
            if runner.machine.next_offset >= self.emitted_to[p]:
                self.generation.mark_final(p, runner.machine.next_offset, self.marks[p])
        return self

    def spaces(self) -> dict[str, dict[str, Any]]:
        """What each space has become, without the places in the log at which it did."""
        found = {}
        for runner in self.runners.values():
            for name in list(runner.machine.names()):
                space = runner.machine.find(name)
                assert space is not None
                assert name not in found, f"{name} is on two partitions"
                found[name] = {
                    "core": None if space.core is None else space.core.state(),
                    "step": space.step,
                    "status": space.status,
                    "declaration": space.declaration,
                    "loads": space.loads,
                }
        return found

    def counts(self) -> dict[str, int]:
        """What the machines counted, all partitions together."""
        found: dict[str, int] = {}
        for runner in self.runners.values():
            machine = runner.machine
            named = {**machine.counts, **{f"dead {reason}": n for reason, n in machine.dead.items()}}
            for name, number in {**named, "refused": _refused(machine)}.items():
                found[name] = found.get(name, 0) + number
        return {name: number for name, number in found.items() if number}


def _refused(machine: Any) -> int:
    return len(machine.refusals) + sum(len(refusals) for refusals in machine.moved_refusals.values())


class GrowingSystem:
    """Builders, learners and the metrics agent over one log.

    Parameters
    ----------
    partitions : of every topic at first.
    log : one that is there already.
    """

    def __init__(self, root: Path, partitions: int, *, log: TimedLog | None = None, **changes: Any) -> None:
        config = {**CONFIG, **changes}
        name = f"growing-{len(_systems)}:1"
        kafka = {"bootstrap_servers": name}
        self.settings = Settings.model_validate({**config, "checkpoints": {"url": str(root)}, "kafka": kafka})
        _systems[name] = self
        self.root = root
        self.log = log or TimedLog(partitions=partitions)
        self.cluster = GrowingCluster(self.log, {t.name("kinstream"): partitions for t in CATALOGUE})
        self.builders = [builder_spec(self.settings, name) for name in self.settings.builders]
        self.learners = [learner_spec(self.settings, name) for name in self.settings.learners]
        self.metrics = metrics_spec(self.settings)

    @property
    def asked(self) -> Cluster:
        return cast(Cluster, self.cluster)

    @property
    def specs(self) -> list[AgentSpec]:
        return [*self.builders, *self.learners, self.metrics]

    def send(self, space: str, *values: bytes) -> None:
        """Events, as producers with the partitioner of the catalogue send them."""
        self.log.partitions = self.cluster.counts[EVENTS]
        for value in values:
            self.log.append(EVENTS, space.encode(), value)

    def control(self, space: str, action: Action, declaration: Declaration | None = None) -> None:
        self.send(space, encode(Control(space, action, 1_000, declaration)))

    def drain(self) -> dict[str, Worker]:
        """Let every agent read to the end and stop; by application."""
        return {spec.application: Worker(self, spec, create=True).work().stop() for spec in self.specs}

    def plan(self, partitions: int, **options: Any) -> RepartitionPlan:
        return plan(self.specs, self.settings, self.asked, partitions, **options)

    def repartition(self, partitions: int) -> RepartitionPlan:
        made = self.plan(partitions)
        made.carry_out(self.asked)
        return made

    def redrive(self, **choice: Any) -> int:
        """As `kinstream dead-letters redrive`; returns how many were sent."""
        standing = StandingRefusals(self.settings)
        letters = [m for p in range(self.log.partitions) for m in self.log.read(DEAD, p, 0)]
        planned = plan_redrive(
            choose(letters, LetterFilter(**choice)).letters, standing.topics, standing.holds
        )
        for output in redrives(letters, planned.send, standing.place):
            self.log.append(output.topic, output.key, output.value, output.headers, output.partition)
        return len(planned.send)

    def read_range(self, topic: str, ranges: Mapping[int, tuple[int, int]]) -> Iterator[Message]:
        for partition, (start, stop) in ranges.items():
            previous = start - 1
            for message in self.log.read(topic, partition, start):
                if message.offset < stop:
                    yield message._replace(previous=previous)
                    previous = message.offset

    def totals(self, metrics: Worker) -> dict[tuple[str, str], tuple[Counts, dict[str, Counts]]]:
        """What the metrics agent has counted by space and learner, shown or not."""
        found = {}
        for runner in metrics.runners.values():
            tallies: Tallies = runner.machine.tallies  # type: ignore[attr-defined]
            for space, learners in tallies._spaces.items():
                for learner, tally in learners.items():
                    assert (space, learner) not in found
                    found[space, learner] = tally.totals, dict(sorted(tally.by_rule.items()))
        return found


#: By the brokers of their settings.
_systems: dict[str, GrowingSystem] = {}


def read_range(
    kafka: KafkaSettings, topic: str, ranges: Mapping[int, tuple[int, int]], patience: float = 0.0
) -> Iterator[Message]:
    """In place of `kinstream.streams.kafka.reader.read_range`."""
    return _systems[kafka.bootstrap_servers].read_range(topic, ranges)


@contextmanager
def in_memory() -> Iterator[None]:
    """Has everything read the logs of these systems."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (
            "kinstream.streams.agents.generations.generation",
            "kinstream.streams.agents.generations.ending",
            "kinstream.streams.operations.repartition.checks",
            "kinstream.replay.log.sources",
        ):
            patch.setattr(f"{module}.read_range", read_range)
        yield


def comparable(spaces: Mapping[str, Mapping[str, Any]], *, but: str = "\0") -> dict[str, Any]:
    """States as plain values that can be compared with ==, bit for bit; without what ends in `but`."""
    return {name: {key: _plain(of, but) for key, of in facts.items()} for name, facts in spaces.items()}


def _plain(value: Any, but: str) -> Any:
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, dict):
        return {key: _plain(of, but) for key, of in value.items() if not key.endswith(but)}
    # A number that is none equals itself here.
    return value.hex() if isinstance(value, float) else value


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


SPACES = tuple(f"space {number}" for number in range(5))
SMALL: dict[str, Any] = {
    "builders": {"one-pass": {"kind": "one-pass", "seed": 3}},
    "learners": {"opml": {"kind": "opml", "from": ["one-pass"], "gamma": 0.01}},
}
#: Agents, and partitions of the larger input.
AGENTS, LARGER = 3, 5


def load(system: GrowingSystem, name: str = "load", blocks: int = 3) -> None:
    for space in SPACES:
        system.send(space, *samples(space, blocks, load=name, seed=len(name)))


def small(root: Path, partitions: int = 2, **changes: Any) -> GrowingSystem:
    """One that has learned and ended."""
    made = GrowingSystem(root, partitions, **{**SMALL, **changes})
    load(made)
    made.send(SPACES[0], b"\x00 nothing that decodes")
    made.drain()
    return made
