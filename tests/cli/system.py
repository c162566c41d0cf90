"""A whole system over an in-process log, with its checkpoints and birth records, for the command line to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from click.testing import CliRunner, Result

from kinstream.cli.main import cli
from kinstream.learners.agent import learner_spec
from kinstream.processors.agent import builder_spec
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.identity import Headers
from kinstream.streams.records.message import Message
from kinstream.streams.records.values import Action, Control, Declaration
from tests.support.memory_log import MemoryLog
from tests.support.memory_system import MemorySystem
from tests.support.pipeline import samples

EVENTS = "kinstream.events"
LETTERS = "kinstream.dead-letters"
TOML = """
[builders.one-pass]
kind = "one-pass"
seed = 3

[learners.opml]
kind = "opml"
from = ["one-pass"]
gamma = 0.01

[learners.copml]
kind = "copml"
from = ["one-pass"]

[checkpoints]
url = "{root}"
"""


class System(MemorySystem):
    """One builder and two learners. `run` applies all that waits and checkpoints."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "checkpoints")
        self.folder = folder
        (folder / "kinstream.toml").write_text(TOML.format(root=self.root), encoding="utf-8")
        specs = [builder_spec(self.settings, "one-pass")]
        specs += [learner_spec(self.settings, name) for name in ("opml", "copml")]
        self.agents = [self.begin(spec) for spec in specs]

    def control(self, space: str, action: Action, declaration: Declaration | None = None) -> None:
        self.log.append(EVENTS, space.encode(), encode(Control(space, action, 1, declaration)))

    def samples(self, space: str, number: int = 6, **options: Any) -> None:
        for value in samples(space, number, **options):
            self.log.append(EVENTS, space.encode(), value)

    def run(self) -> None:
        for agent in self.agents:
            agent.run()

    def cli(self, *arguments: str, input: str | None = None) -> Result:
        """Run a command; an error of ours is the result's exception, as `main` gets it.

        `input` is typed at a terminal; without it there is none.
        """
        config = str(self.folder / "kinstream.toml")
        with patch("kinstream.cli.shared.confirmation.at_terminal", return_value=input is not None):
            return CliRunner().invoke(cli, ["--config", config, *arguments], input=input)

    def letters(self) -> list[Message]:
        return [m for p in range(self.log.partitions) for m in self.log.read(LETTERS, p, 0)]


def connect(log: MemoryLog, patch: pytest.MonkeyPatch) -> None:
    """Give the commands the in-process log where they would ask for brokers."""

    def ends(cluster: Any, topic: str) -> dict[int, tuple[int, int]]:
        return {p: (0, log.end(topic, p)) for p in range(log.partitions)}

    def read_range(
        kafka: Any, topic: str, ranges: Mapping[int, tuple[int, int]], patience: float = 0.0
    ) -> Iterator[Message]:
        for partition, (start, stop) in ranges.items():
            yield from (m for m in log.read(topic, partition, start) if m.offset < stop)

    class FakeCluster:
        def __init__(self, kafka: Any) -> None: ...

        def view(self, topics: list[str]) -> Any:
            found = {t: SimpleNamespace(partitions=log.partitions) for t in topics}
            return SimpleNamespace(topics=found, cluster_id=None)

        def operations(self, topics: list[str], groups: list[str]) -> dict[str, None]:
            return dict.fromkeys([f"topic {name}" for name in topics] + [f"group {name}" for name in groups])

        def bounds(self, topic: str, partition: int) -> tuple[int, int]:
            return 0, log.end(topic, partition)

        def close(self) -> None: ...

        def offset_at(self, topic: str, partition: int, time_ms: int) -> int | None:
            later = [m.offset for m in log.read(topic, partition, 0) if m.timestamp_ms >= time_ms]
            return min(later) if later else None

    class FakeEmitter:
        def __init__(
            self, config: dict[str, Any], on_delivery: Callable[[str, int, int], None] | None = None
        ) -> None:
            self._on_delivery = on_delivery

        def send(
            self, topic: str, key: bytes, value: bytes, headers: Headers = (), partition: int | None = None
        ) -> None:
            offset = log.append(topic, key, value, headers, partition)
            if self._on_delivery is not None:
                self._on_delivery(topic, -1 if partition is None else partition, offset)

        def confirm(self, deadline_seconds: float) -> None: ...

        def close(self) -> None: ...

    patch.setenv("KAFKA_BOOTSTRAP_SERVERS", "nowhere.invalid:9092")
    patch.setattr("kinstream.streams.kafka.cluster.Cluster", FakeCluster)
    patch.setattr("kinstream.streams.kafka.emitter.Emitter", FakeEmitter)
    patch.setattr("kinstream.streams.kafka.reader.ends", ends)
    patch.setattr("kinstream.streams.kafka.reader.read_range", read_range)
