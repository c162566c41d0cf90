"""Builder, learner and metrics over an in-process log, with checkpoints on disk: what a crash test needs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from kinstream.streams.agents.machine import Place
from kinstream.streams.agents.partition import PartitionRunner
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.checkpoints.store import CheckpointStore
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.values import LoadPosition, SampleBlock, Table
from kinstream.streams.settings import Settings
from kinstream.streams.traces.spans import Spans
from tests.support.memory_log import MemoryLog, MemorySink

CONFIG: dict[str, Any] = {
    "builders": {"one-pass": {"kind": "one-pass", "seed": 3}},
    "learners": {
        "opml": {"kind": "opml", "from": ["one-pass"], "gamma": 0.01},
        "copml": {"kind": "copml", "from": ["one-pass"]},
    },
}


def settings(**changes: Any) -> Settings:
    return Settings(**{**CONFIG, **changes})


def samples(
    space: str, number: int, rows: int = 8, d: int = 4, seed: int = 0, load: str | None = "load"
) -> list[bytes]:
    """Encoded sample blocks of one load."""
    rng = np.random.default_rng([seed, sum(space.encode())])
    blocks = []
    for sequence in range(number):
        labels = rng.integers(0, 3, rows)
        vectors = (rng.normal(size=(rows, d)) + labels[:, None]).astype(np.float32)
        position = None if load is None else LoadPosition(load, sequence)
        blocks.append(
            encode(SampleBlock(space, (Table("x", vectors),), labels, 1_000 + sequence, None, position))
        )
    return blocks


class Agent:
    """One agent on every partition of its input, with its own sink."""

    def __init__(
        self,
        spec: AgentSpec,
        config: Settings,
        log: MemoryLog,
        root: Path,
        *,
        generation: int = 1,
        place_changes: Callable[[int], dict[str, Any]] = lambda partition: {},
        spans: Spans | None = None,
    ) -> None:
        self.spec = spec
        self.log = log
        self.topic = spec.input_topic(config)
        self.sink = MemorySink(log)
        self.runners: dict[int, PartitionRunner] = {}
        self._config = config
        self._root = root
        self._generation = generation
        self._place_changes = place_changes
        self._spans = spans
        for partition in range(log.partitions):
            self._take_over(partition)

    def _take_over(self, partition: int) -> None:
        output = None if self.spec.output_role is None else self._config.topic(self.spec.output_role)
        place = Place(
            name=self.spec.name,
            generation=self._generation,
            topic=self.topic,
            partition=partition,
            input_partitions=self.log.partitions,
            output_topic=output,
            output_partitions=self.log.partitions,
            dead_letters=self._config.topic("dead-letters"),
            **self._place_changes(partition),
        )
        store = CheckpointStore(
            str(self._root), self.spec.application, self._generation, self.topic, partition
        )
        runner = PartitionRunner(
            lambda load: self.spec.make_machine(place, load),
            store,
            self.sink,
            announce=self.spec.announce(store),
            spans=self._spans,
        )
        runner.restore(0, 0, self.log.end(self.topic, partition))
        runner.machine.on_owned(live=True)
        self.runners[partition] = runner

    def step(self, partition: int, limit: int = 1_000_000) -> int:
        """Apply up to `limit` waiting messages; returns how many."""
        runner = self.runners[partition]
        messages = self.log.read(self.topic, partition, runner.machine.next_offset)[:limit]
        runner.work(messages)
        return len(messages)

    def run(self) -> None:
        """Apply all that waits, and checkpoint."""
        for partition, runner in self.runners.items():
            self.step(partition)
            runner.checkpoint()

    def states(self) -> dict[str, Any]:
        """The state of every space's algorithm."""
        found = {}
        for runner in self.runners.values():
            for name in list(runner.machine.names()):
                space = runner.machine.find(name)
                if space is not None and space.core is not None:
                    found[name] = space.core.state()
        return found

    def judges(self) -> dict[str, Any]:
        """The state of every space's judge, for agents that have one."""
        found = {}
        for runner in self.runners.values():
            for name in list(runner.machine.names()):
                space = runner.machine.find(name)
                if space is not None and space.judge is not None:
                    found[name] = space.judge.state()
        return found

    def segments(self) -> dict[str, Any]:
        """The segments of every space that has some."""
        found = {}
        for runner in self.runners.values():
            machine = runner.machine
            for name in list(machine.names()):
                machine.find(name)
                for segment in machine.segments([name]).get(name, ()):
                    found[f"{name} {segment}"] = machine.segment(name, segment)
        return found
