"""A real Kafka in a temporary folder, a settings file, and `kinstream` processes on it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import psutil

from kinstream.cli.local_system import free_port, tail
from kinstream.streams.clients import confluent_producer
from kinstream.streams.cluster import Cluster
from kinstream.streams.emitter import Emitter
from kinstream.streams.log import Message, Output
from kinstream.streams.reader import ends, read_range
from kinstream.streams.settings import Settings, load
from kinstream.streams.topics import CATALOGUE
from tests.kafka.broker import KafkaBroker

START_SECONDS: Final = 90.0
STOP_SECONDS: Final = 30.0
GAMMA: Final = 1e-3
_SERIES: Final = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


class Worker:
    """One `kinstream` command in a session of its own. A worker has a page at `url`."""

    def __init__(self, command: list[str], log: Path, port: int) -> None:
        self.log = log
        self.url = f"http://127.0.0.1:{port}"
        with log.open("wb") as out:
            self.popen = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    @property
    def running(self) -> bool:
        return self.popen.poll() is None

    def process(self) -> psutil.Process | None:
        """The process that does the work: the supervisor's child. None between two of them."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.popen.pid).children():
                return child
        return None

    def ready(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
        return False

    def page(self) -> str:
        """The metrics page; empty while it does not answer."""
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/metrics", timeout=5) as answer:
            return str(answer.read().decode())
        return ""

    def stop(self) -> None:
        """SIGTERM; SIGKILL to the whole session at the deadline."""
        with contextlib.suppress(ProcessLookupError):
            self.popen.terminate()
        try:
            self.popen.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.popen.pid, signal.SIGKILL)
            self.popen.wait()


def series(page: str, name: str) -> dict[str, float]:
    """The values of a series on a metrics page, by its labels as they are written."""
    return {labels: float(value) for found, labels, value in _SERIES.findall(page) if found == name}


class System:
    """Topics, settings and processes of one benchmark.

    Parameters
    ----------
    broker : runs already.
    sections : settings by section, over those that every benchmark has.
    """

    def __init__(self, broker: KafkaBroker, folder: Path, sections: Mapping[str, Mapping[str, Any]]) -> None:
        self.folder = folder
        self.broker = broker
        self._file = folder / "kinstream.toml"
        self._file.write_text(_toml(_settings(broker.bootstrap, folder, sections)), encoding="utf-8")
        self.settings: Settings = load(self._file)
        self.workers: list[Worker] = []
        self.cluster = Cluster(self.settings.kafka)
        self.cluster.create(CATALOGUE, self.settings)

    def start(self, *command: str) -> Worker:
        """Start `kinstream COMMAND`."""
        port = free_port()
        options = ["--config", str(self._file), "--set", f"worker.http_port={port}"]
        worker = Worker(
            [sys.executable, "-m", "kinstream.cli.main", *options, *command],
            self.folder / f"{len(self.workers)}-{'-'.join(command[:3])}.log".replace("/", "_"),
            port,
        )
        self.workers.append(worker)
        return worker

    def wait(self, condition: Callable[[], bool], what: str, seconds: float, every: float = 0.1) -> None:
        """Wait for a condition while every process runs.

        Raises
        ------
        RuntimeError : not within the time, or a process ended badly; with the end of its log.
        """
        limit = time.monotonic() + seconds
        while not condition():
            broken = [w for w in self.workers if w.popen.poll() not in (None, 0, -signal.SIGTERM)]
            if broken or time.monotonic() > limit:
                logs = "\n".join(f"-- {w.log.name}\n{tail(w.log)}" for w in broken or self.workers)
                raise RuntimeError(f"{what}: not within {seconds:.0f} s\n{logs}")
            time.sleep(every)

    def until_ready(self, *workers: Worker) -> None:
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

    def end(self, role: str) -> int:
        """How many offsets the topic has, over all partitions."""
        return sum(stop for _, stop in ends(self.cluster, self.settings.topic(role)).values())

    def ends(self, role: str) -> dict[int, int]:
        return {p: stop for p, (_, stop) in ends(self.cluster, self.settings.topic(role)).items()}

    def read(self, role: str, after: Mapping[int, int] | None = None) -> list[Message]:
        """The records of a topic, from those offsets on."""
        topic = self.settings.topic(role)
        ranges = {
            p: ((after or {}).get(p, start), stop) for p, (start, stop) in ends(self.cluster, topic).items()
        }
        return list(read_range(self.settings.kafka, topic, ranges))

    def close(self) -> None:
        for worker in self.workers:
            worker.stop()
        self.cluster.close()


@contextlib.contextmanager
def system(**sections: Mapping[str, Any]) -> Iterator[System]:
    """A broker and a system on it; both are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="kinstream-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        # Neither the disk nor the log cleaner of the tests' broker is what is measured.
        with KafkaBroker(folder / "kafka", extra={"log.cleaner.enable": "false"}) as broker:
            made = System(broker, folder, sections)
            try:
                yield made
            finally:
                made.close()


def _settings(
    bootstrap: str, folder: Path, sections: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {
        "kafka": {"bootstrap_servers": bootstrap},
        "topics": {"partitions": 1, "replication": 1},
        "checkpoints": {"url": str(folder / "checkpoints")},
        # OPML has no use for the pairs.
        "builders.one-pass": {"kind": "one-pass", "prefix_pairs": False},
        "learners.opml": {"kind": "opml", "from": ["one-pass"], "gamma": GAMMA},
    }
    for name, values in sections.items():
        found[name] = found.get(name, {}) | dict(values)
    return found


def _toml(sections: Mapping[str, Mapping[str, Any]]) -> str:
    lines: list[str] = []
    for section, values in sections.items():
        lines += [f"[{section}]", *(f"{name} = {json.dumps(value)}" for name, value in values.items())]
    return "\n".join(lines) + "\n"
