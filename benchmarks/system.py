"""A real Kafka in a temporary folder, a settings file, and `kinstream` processes on it."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kinstream.cli.local.system import tail
from kinstream.streams.kafka.clients import confluent_producer
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.emitter import Emitter
from kinstream.streams.kafka.reader import ends
from kinstream.streams.records.message import Output
from kinstream.streams.topics import CATALOGUE, Topic
from tests.kafka.broker import KafkaBroker
from tests.support.kafka_system import KafkaSystem
from tests.support.processes import Process, until

START_SECONDS: Final = 90.0
STOP_SECONDS: Final = 30.0
GAMMA: Final = 1e-3
_SERIES: Final = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


def series(page: str, name: str) -> dict[str, float]:
    """The values of a series on a metrics page, by its labels as they are written."""
    return {labels: float(value) for found, labels, value in _SERIES.findall(page) if found == name}


class System(KafkaSystem):
    """Topics, settings and processes of one benchmark.

    Parameters
    ----------
    broker : runs already.
    sections : settings by section, over those that every benchmark has.
    partitions : of every topic.
    """

    def __init__(
        self,
        broker: KafkaBroker,
        folder: Path,
        sections: Mapping[str, Mapping[str, Any]],
        partitions: int = 1,
    ) -> None:
        super().__init__(
            folder, broker.bootstrap, "kinstream", partitions, _toml(_settings(folder, sections))
        )
        self.broker = broker
        self._cluster = Cluster(self.settings.kafka)
        self._cluster.create(CATALOGUE, self.settings)

    def run(self, *command: str) -> Process:
        """Start `kinstream COMMAND`."""
        return self.start("-".join(command[:3]).replace("/", "_"), *command)

    def wait(self, condition: Callable[[], bool], what: str, seconds: float, every: float = 0.1) -> None:
        """Wait for a condition while every process runs.

        Raises
        ------
        RuntimeError : not within the time, or a process ended badly; with the end of its log.
        """
        limit = time.monotonic() + seconds
        while not condition():
            broken = [p for p in self.processes if p.ended not in (None, 0, -signal.SIGTERM)]
            if broken or time.monotonic() > limit:
                logs = "\n".join(f"-- {p.path.name}\n{tail(p.path)}" for p in broken or self.processes)
                raise RuntimeError(f"{what}: not within {seconds:.0f} s\n{logs}")
            time.sleep(every)

    def until_ready(self, *workers: Process) -> None:
        self.wait(lambda: all(worker.ready() for worker in workers), "the agents get ready", START_SECONDS)

    def append(self, outputs: Iterable[Output]) -> int:
        """Send records, and return how many once all of them are confirmed."""
        emitter = Emitter(confluent_producer(self.settings.kafka))
        count = 0
        for count, output in enumerate(outputs, 1):  # noqa: B007
            emitter.send(output.topic, output.key, output.value, output.headers, output.partition)
        emitter.confirm()
        emitter.close()
        return count

    def create(self, topics: Iterable[Topic]) -> None:
        """Create topics beside the catalogue."""
        self._cluster.create(tuple(topics), self.settings)

    def end(self, role: str) -> int:
        """How many offsets the topic has, over all partitions."""
        return sum(stop for _, stop in ends(self._cluster, self.topic(role)).values())

    def close(self) -> None:
        for process in self.processes:
            process.terminate()
        with contextlib.suppress(TimeoutError):
            until(lambda: not any(process.running for process in self.processes), "all end", STOP_SECONDS)
        super().close()
        self._cluster.close()


@contextlib.contextmanager
def system(on: tuple[int, Mapping[str, str]] = (1, {}), /, **sections: Mapping[str, Any]) -> Iterator[System]:
    """A broker and a system on it; both are gone afterwards.

    Parameters
    ----------
    on : the number of partitions of every topic, and further properties of the broker.
    """
    with tempfile.TemporaryDirectory(prefix="kinstream-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        # Neither the disk nor the log cleaner of the tests' broker is what is measured.
        partitions, properties = on
        extra = {"log.cleaner.enable": "false", **properties}
        with KafkaBroker(folder / "kafka", extra=extra) as broker:
            made = System(broker, folder, sections, partitions)
            try:
                yield made
            finally:
                made.close()


def _settings(folder: Path, sections: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {
        "checkpoints": {"url": str(folder / "checkpoints")},
        # OPML has no use for the pairs.
        "builders.one-pass": {"kind": "one-pass", "prefix_pairs": False},
        "learners.opml": {"kind": "opml", "from": ["one-pass"], "gamma": GAMMA, "unit": "published"},
    }
    for name, values in sections.items():
        found[name] = found.get(name, {}) | dict(values)
    return found


def _toml(sections: Mapping[str, Mapping[str, Any]]) -> str:
    lines: list[str] = []
    for section, values in sections.items():
        lines += [f"[{section}]", *(f"{name} = {json.dumps(value)}" for name, value in values.items())]
    return "\n".join(lines) + "\n"
