"""One set of topics and checkpoints on a real Kafka, a settings file, and every process that works on them."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from kinstream.streams.errors import BrokerUnavailable
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.reader import ends, read_range
from kinstream.streams.records.message import Message
from kinstream.streams.settings import Settings, load
from kinstream.streams.topics import PARTITIONER
from tests.support.processes import ROOT, Process, until


def transactional(bootstrap: str, name: str) -> Producer:
    """A writer in transactions, which takes the place of one of its name: what that one has begun is aborted."""
    made = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "partitioner": PARTITIONER,
            "log_level": 0,
        }
    )
    made.init_transactions(60)
    return made


class KafkaSystem:
    """What crash runs, fault tests, the soak run and the benchmarks start their workers with.

    Parameters
    ----------
    folder : for settings, checkpoints and logs.
    text : of the settings file, without brokers and topics; what is appended to the file belongs to its last section.
    changes : settings by their dotted name, over those of the file.
    """

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        prefix: str,
        partitions: int,
        text: str,
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = folder
        self.root = folder / "checkpoints"
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.partitions = partitions
        self.file = folder / "kinstream.toml"
        self.changes = dict(changes or {})
        self.processes: list[Process] = []
        self._text = text
        self._lock = threading.Lock()
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        self.configure()

    def configure(self, bootstrap: str | None = None, **changes: Any) -> None:
        """Write the settings anew; `worker__stall_seconds` is the setting `worker.stall_seconds`."""
        if bootstrap is not None:
            self.bootstrap = bootstrap
        self.changes |= {name.replace("__", "."): value for name, value in changes.items()}
        self.file.write_text(
            f'[kafka]\nbootstrap_servers = "{self.bootstrap}"\n'
            f'[topics]\nprefix = "{self.prefix}"\npartitions = {self.partitions}\nreplication = 1\n{self._text}',
            encoding="utf-8",
        )
        self.settings: Settings = load(self.file, dict(self.changes))

    @contextlib.contextmanager
    def cluster(self) -> Iterator[Cluster]:
        cluster = Cluster(self.settings.kafka)
        try:
            yield cluster
        finally:
            cluster.close()

    def topic(self, role: str) -> str:
        return f"{self.prefix}.{role}"

    def command(self, *arguments: str) -> list[str]:
        made = [sys.executable, "-m", "kinstream.cli.main", "--config", str(self.file)]
        for name, value in self.changes.items():
            made += ["--set", f"{name}={json.dumps(value)}"]
        return [*made, *arguments]

    def finished(self, *arguments: str, seconds: float) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, which it has so many seconds for."""
        return subprocess.run(
            self.command(*arguments), capture_output=True, text=True, check=False, timeout=seconds, cwd=ROOT
        )

    def start(
        self, name: str, *arguments: str, failpoints: str = "", environment: Mapping[str, str] | None = None
    ) -> Process:
        """Start a command."""
        told = {"KINSTREAM_FAILPOINTS": failpoints, **(environment or {})}
        with self._lock:
            log = self.folder / "logs" / f"{len(self.processes):03d}-{name}.log"
            process = Process(self.command(*arguments), log, told)
            self.processes.append(process)
        return process

    def ends(self, role: str) -> dict[int, int]:
        """The next offset of each partition of a topic, as soon as the brokers answer.

        A broker that stood still longer than its session is fenced until it has registered again.
        """
        found: dict[int, int] = {}

        def answered() -> bool:
            with contextlib.suppress(BrokerUnavailable), self.cluster() as cluster:
                found.update({p: end for p, (_, end) in sorted(ends(cluster, self.topic(role)).items())})
                return True
            return False

        until(answered, f"the brokers tell where {self.topic(role)} ends")
        return found

    def read(self, role: str, after: Mapping[int, int] | None = None) -> list[Message]:
        """Every committed record of a topic, or those from some offsets on, partition by partition."""
        with self.cluster() as cluster:
            found = ends(cluster, self.topic(role))
        ranges = {p: ((after or {}).get(p, start), stop) for p, (start, stop) in found.items()}
        return list(read_range(self.settings.kafka, self.topic(role), ranges))

    def tails(self, characters: int = 6000) -> Iterator[str]:
        """The end of every log, the newest last."""
        for process in self.processes:
            yield f"---- {process.path.name}, status {process.ended}\n{process.log()[-characters:]}"

    def close(self) -> None:
        """End whatever still runs."""
        for process in self.processes:
            process.end()
