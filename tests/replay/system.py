"""A running system in memory: a log, agents with checkpoints and birth records, and the cluster as replay asks it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from kinstream.learners.agent import learner_spec
from kinstream.processors.agent import builder_spec
from kinstream.replay.log.guarantees import LogKind
from kinstream.replay.log.run import Replay, Request, Result
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.cluster_view import ClusterView, TopicView
from kinstream.streams.records.message import Message
from kinstream.streams.settings import KafkaSettings
from tests.support.memory_log import MemoryLog
from tests.support.memory_system import MemorySystem
from tests.support.pipeline import samples

EVENTS = "kinstream.events"
CONSTRAINTS = "kinstream.constraints"
#: The last one lives on partition 1 of 2, the others on partition 0.
SPACES = ("a", "b", "d")


class System(MemorySystem):
    """Builders and learners of `changes` over the default configuration, with births at offset 0.

    Parameters
    ----------
    root : of the checkpoints.
    """

    def __init__(self, root: Path, **changes: Any) -> None:
        super().__init__(root, **changes)
        #: Consumers in each group, for what asks the cluster.
        self.members: dict[str, int] = {}
        self.builders = {n: self.begin(builder_spec(self.settings, n)) for n in self.settings.builders}
        self.learners = {n: self.begin(learner_spec(self.settings, n)) for n in self.settings.learners}

    def load(self, number: int = 12, spaces: tuple[str, ...] = SPACES, load: str = "load") -> None:
        """Write sample blocks of some spaces, one after the other."""
        blocks = {space: samples(space, number, load=load) for space in spaces}
        for turn in range(number):
            for space in spaces:
                self.log.append(EVENTS, space.encode(), blocks[space][turn])

    def run(self) -> None:
        """Let every agent apply all that waits, and checkpoint."""
        for agent in (*self.builders.values(), *self.learners.values()):
            agent.run()

    def run_builders(self) -> None:
        """Let the builders alone apply all that waits."""
        for agent in self.builders.values():
            agent.run()

    def replay(self, origin: LogKind, *learners: str, **request: Any) -> Result:
        """Replay from a topic of this system."""
        names = learners or tuple(self.settings.learners)
        return Replay(Request(names, origin, **request), self.settings, self.cluster).run()

    @property
    def cluster(self) -> Cluster:
        """What replay asks about the log."""
        return cast(Cluster, MemoryCluster(self.log, self.members))

    def read_range(
        self, kafka: KafkaSettings, topic: str, ranges: Mapping[int, tuple[int, int]], patience: float = 0.0
    ) -> Iterator[Message]:
        """In place of `kinstream.streams.kafka.reader.read_range`."""
        for partition, (start, stop) in ranges.items():
            previous = start - 1
            for message in self.log.read(topic, partition, start):
                if message.offset < stop:
                    yield message._replace(previous=previous)
                    previous = message.offset


class MemoryCluster:
    """What replay asks a cluster. The time of a record is its offset."""

    #: What a test changes to have another cluster.
    id = "memory"
    topic_ids: Mapping[str, str] = {}

    def __init__(self, log: MemoryLog, members: Mapping[str, int] | None = None) -> None:
        self._log = log
        self._members = members or {}

    def view(self, topics: list[str]) -> ClusterView:
        ids = self.topic_ids
        return ClusterView(
            self.id, 1, {n: TopicView(n, ids.get(n, "id"), self._log.partitions) for n in topics}
        )

    def topic_id(self, topic: str) -> str:
        return self.topic_ids.get(topic, "id")

    def group_members(self, group: str) -> int:
        return self._members.get(group, 0)

    def committed(self, group: str, topic: str, partitions: int) -> dict[int, int]:
        return {}

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        held = self._log.entries[topic, partition]
        return (held[0].offset if held else 0), self._log.end(topic, partition)

    def offset_at(self, topic: str, partition: int, time_ms: int) -> int | None:
        return time_ms if time_ms < self._log.end(topic, partition) else None


def connect(log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands find this log where they look for brokers."""

    class Connected(MemoryCluster):
        def __init__(self, kafka: object) -> None:
            super().__init__(log)

        def wait(self, seconds: float) -> None:
            """It is there."""

        def close(self) -> None:
            """Nothing is open."""

    monkeypatch.setattr("kinstream.streams.kafka.cluster.Cluster", Connected)
