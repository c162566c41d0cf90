"""Real worker processes on a real Kafka: started from a settings file, awaited by condition, ended afterwards."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import psutil

from kinstream.streams.checkpoint_view import Seen, agent_named, birth_of, folder_of, newest
from kinstream.streams.checkpoint_view import checkpoints as newest_checkpoints
from kinstream.streams.clients import confluent_producer
from kinstream.streams.cluster import Cluster
from kinstream.streams.emitter import Emitter
from kinstream.streams.groups import name_of
from kinstream.streams.identity import Headers
from kinstream.streams.log import Message
from kinstream.streams.reader import ends, read_range
from kinstream.streams.settings import Settings, load
from kinstream.streams.space import core_state
from kinstream.streams.state import to_bytes
from kinstream.streams.topics import CATALOGUE
from tests.faults.reference import Copies, Expected, copies, expected

ROOT: Final = Path(__file__).resolve().parents[2]
SECONDS: Final = 120.0
#: Agents by application, and the arguments of `kinstream worker` that run them.
AGENTS: Final = {
    "builder-one-pass": ("builder", "one-pass"),
    "learner-opml": ("learner", "opml"),
    "metrics": ("metrics",),
}

_TOML = """\
[kafka]
bootstrap_servers = "{bootstrap}"
[topics]
prefix = "{prefix}"
partitions = {partitions}
replication = 1
[checkpoints]
url = "{url}"
interval_seconds = 0.3
[worker]
session_timeout_seconds = 3.0
heartbeat_interval_seconds = 1.0
shutdown_seconds = 10.0
[builders.one-pass]
kind = "one-pass"
seed = 3
[learners.opml]
kind = "opml"
from = ["one-pass"]
gamma = 0.01
"""


def until(condition: Callable[[], object], what: str, seconds: float = SECONDS) -> float:
    """Wait for a condition, and return how long it took.

    Raises
    ------
    AssertionError : it did not hold within the time.
    """
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - began


class Process:
    """One `kinstream` process with what it starts; its output goes to a file."""

    def __init__(self, command: list[str], log: Path, environment: Mapping[str, str]) -> None:
        self.path = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                cwd=ROOT,
            )
        self.pid = self._process.pid

    def log(self) -> str:
        return self.path.read_text(errors="replace")

    def said(self, pattern: str, times: int = 1) -> bool:
        return len(re.findall(pattern, self.log())) >= times

    def expect(self, pattern: str, seconds: float = SECONDS, times: int = 1) -> None:
        """Wait until the output holds the pattern so many times."""
        until(lambda: self.said(pattern, times), f"{self.path.name} says {pattern!r} x{times}", seconds)

    def status(self, seconds: float = SECONDS) -> int:
        """Wait for the end; the exit status."""
        until(lambda: self._process.poll() is not None, f"{self.path.name} ends", seconds)
        return self._process.wait()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def terminate(self) -> None:
        self._process.terminate()

    def stop(self, seconds: float = SECONDS) -> int:
        """SIGTERM, and the exit status."""
        self.terminate()
        return self.status(seconds)

    def worker_pid(self) -> int:
        """The process that does the work: the supervisor's child, or this one where there is none."""
        children = psutil.Process(self.pid).children()
        return children[0].pid if children else self.pid

    def family(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = psutil.Process(self.pid)
            return [parent, *parent.children(recursive=True)]
        return []

    def end(self) -> None:
        """End it and its children at once, whatever state they are in."""
        found = self.family()
        for one in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        self._process.wait(20)
        psutil.wait_procs(found, 20)

    def page(self) -> str | None:
        """Where the worker serves `/metrics` and `/readyz`; None before it says so."""
        pages = re.findall(r"serves (http://\S+)/metrics", self.log())
        return pages[-1] if pages else None

    def readiness(self) -> tuple[int, dict[str, Any]]:
        """Status and body of `/readyz`; status 0 while nothing answers."""
        page = self.page()
        if page is None:
            return 0, {}
        try:
            with urllib.request.urlopen(f"{page}/readyz", timeout=5) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)
        except (OSError, http.client.HTTPException):
            return 0, {}

    def until_ready(self, seconds: float = SECONDS) -> None:
        """Wait until `/readyz` answers 200."""
        until(lambda: self.readiness()[0] == 200, f"{self.path.name} is ready", seconds)

    def metrics(self) -> dict[str, float]:
        """The series of the worker's page; empty while it does not answer."""
        page = self.page()
        if page is None:
            return {}
        try:
            with urllib.request.urlopen(f"{page}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except (OSError, http.client.HTTPException):
            return {}
        lines = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, value in lines}

    def metric(self, name: str, **labels: str) -> float | None:
        """The sum of the series of that name with those labels; None where there is none."""
        found = [
            value
            for series, value in self.metrics().items()
            if series.split("{")[0] == name and all(f'{k}="{v}"' in series for k, v in labels.items())
        ]
        return sum(found) if found else None


class System:
    """Topics under a prefix of their own, a settings file, and the processes that use them.

    Parameters
    ----------
    changes : settings by their dotted name.
    """

    def __init__(self, folder: Path, bootstrap: str, *, partitions: int = 2, **changes: Any) -> None:
        self.folder = folder
        self.root = folder / "checkpoints"
        self.prefix = f"faults-{uuid4().hex[:8]}"
        self.file = folder / "kinstream.toml"
        self.changes: dict[str, Any] = {}
        self._partitions = partitions
        self._processes: list[Process] = []
        folder.mkdir(parents=True, exist_ok=True)
        self.configure(bootstrap, **changes)

    # ---- settings and topics ------------------------------------------------------------------------------------

    def configure(self, bootstrap: str | None = None, **changes: Any) -> None:
        """Write the settings anew; `worker__stall_seconds` is the setting `worker.stall_seconds`."""
        if bootstrap is not None:
            self.bootstrap = bootstrap
        self.changes |= {name.replace("__", "."): value for name, value in changes.items()}
        url = self.changes.get("checkpoints.url", str(self.root))
        text = _TOML.format(
            bootstrap=self.bootstrap, prefix=self.prefix, partitions=self._partitions, url=url
        )
        self.file.write_text(text, encoding="utf-8")
        self.settings: Settings = load(self.file, dict(self.changes))

    def create_topics(self) -> System:
        with self.cluster() as cluster:
            cluster.create(CATALOGUE, self.settings)
        return self

    @contextlib.contextmanager
    def cluster(self) -> Iterator[Cluster]:
        cluster = Cluster(self.settings.kafka)
        try:
            yield cluster
        finally:
            cluster.close()

    def topic(self, role: str) -> str:
        return self.settings.topic(role)

    # ---- processes ----------------------------------------------------------------------------------------------

    def command(self, *arguments: str) -> list[str]:
        made = [sys.executable, "-m", "kinstream.cli.main", "--config", str(self.file)]
        for name, value in self.changes.items():
            made += ["--set", f"{name}={json.dumps(value)}"]
        return [*made, *arguments]

    def run(self, *arguments: str, seconds: float = 60.0) -> tuple[int, str]:
        """Run a command to its end: exit status and output."""
        done = subprocess.run(
            self.command(*arguments), capture_output=True, text=True, check=False, timeout=seconds, cwd=ROOT
        )
        return done.returncode, done.stdout + done.stderr

    def worker(
        self, application: str, *options: str, environment: Mapping[str, str] | None = None, tag: str = ""
    ) -> Process:
        """Start `kinstream worker` for an agent."""
        log = self.folder / f"{application}{tag}-{len(self._processes)}.log"
        command = self.command("worker", *AGENTS[application], *options)
        process = Process(command, log, environment or {})
        self._processes.append(process)
        return process

    def adopt(self, process: Process) -> Process:
        """Have a process that was started by other means end with the system."""
        self._processes.append(process)
        return process

    def members(self, application: str, generation: int = 1) -> int:
        """How many members the group of a generation has."""
        with self.cluster() as cluster:
            return cluster.group_members(name_of(self.prefix, application, generation))

    def begin_generation(self, application: str, *options: str, generation: int = 2) -> Process:
        """Begin a generation once the old one's group is empty, and see it served."""
        until(lambda: not self.members(application, generation - 1), "the old group is empty")
        worker = self.worker(application, "--new-generation", *options)
        worker.expect(rf"{application}: generation {generation} begins")
        worker.expect(rf"{application} generation {generation} serves")
        return worker

    def close(self) -> None:
        """End every process and print the ends of their logs, for the case that the test failed."""
        for process in self._processes:
            process.end()
        for process in self._processes:
            print(f"---- {process.path.name}\n{process.log()[-6000:]}")

    # ---- what goes in -------------------------------------------------------------------------------------------

    def send(
        self,
        records: Iterable[tuple[str | bytes | None, bytes | None]],
        role: str = "events",
        headers: Headers = (),
        partition: int | None = None,
    ) -> list[tuple[int, int]]:
        """Send (key, value) records and return where they landed, as (partition, offset), in order of arrival."""
        landed: list[tuple[int, int]] = []
        emitter = Emitter(
            confluent_producer(self.settings.kafka) | {"message.max.bytes": 2_000_000},
            on_delivery=lambda topic, place, offset: landed.append((place, offset)),
        )
        for key, value in records:
            emitter.send(
                self.topic(role), key.encode() if isinstance(key, str) else key, value, headers, partition
            )
        emitter.confirm(60.0)
        emitter.close()
        return landed

    def read(self, role: str) -> list[Message]:
        """Every committed record of a topic, partition by partition."""
        with self.cluster() as cluster:
            found = ends(cluster, self.topic(role))
        return list(read_range(self.settings.kafka, self.topic(role), found))

    def ends(self, role: str) -> dict[int, int]:
        with self.cluster() as cluster:
            return {p: end for p, (_, end) in ends(cluster, self.topic(role)).items()}

    # ---- what came of it ----------------------------------------------------------------------------------------

    def checkpoints(self, application: str, generation: int | None = None) -> dict[int, list[int]]:
        """Offsets of the manifests of each partition, rising."""
        agent = agent_named(self.settings, application)
        birth = birth_of(self.settings, agent)
        if birth is None:
            return {}
        number = generation or birth.generation
        return {
            p: folder_of(self.settings, application, number, birth.input_topic, p).offsets()
            for p in range(birth.input_partitions)
        }

    def folder_of(self, application: str, partition: int, generation: int = 1) -> Path:
        """Where the checkpoints of a partition lie."""
        role = {"builder": "events", "learner": "constraints"}.get(application.split("-")[0], "outcomes")
        return self.root / application / str(generation) / f"{self.topic(role)}-{partition}"

    def committed(self, application: str, role: str, generation: int = 1) -> dict[int, int]:
        """The offsets that the group has committed; empty for a group that never did."""
        with self.cluster() as cluster:
            return cluster.committed(
                name_of(self.prefix, application, generation), self.topic(role), self._partitions
            )

    def wait_for(self, application: str, ends: Mapping[int, int], seconds: float = SECONDS) -> float:
        """Wait until the newest checkpoints want these offsets, or later ones; a birth counts as one."""

        def there() -> bool:
            birth = birth_of(self.settings, agent_named(self.settings, application))
            found = self.checkpoints(application)
            starts = {} if birth is None else birth.start_offsets
            return all((found.get(p) or [starts.get(p, 0)])[-1] >= end for p, end in ends.items())

        return until(there, f"{application} has checkpoints at {dict(ends)}", seconds)

    def settle(self, seconds: float = SECONDS, upto: str = "learner-opml") -> None:
        """Wait until builder and learner (`upto`) have checkpointed all of what the events give."""
        self.wait_for("builder-one-pass", self.ends("events"), seconds)
        if upto == "learner-opml":
            self.settle_learner(seconds)

    def settle_learner(self, seconds: float = SECONDS) -> None:
        """Wait until the learner has checkpointed all constraints that are there."""
        self.wait_for("learner-opml", self.ends("constraints"), seconds)

    def states(self, application: str) -> dict[str, bytes]:
        """The algorithm of every space in the newest checkpoints, as bytes."""
        found: dict[str, bytes] = {}
        for seen in newest_checkpoints(self.settings, agent_named(self.settings, application)):
            for name, file in seen.manifest.spaces.items():
                core = core_state(seen.state(file))
                if core is not None:
                    found[name] = to_bytes(core)
        return found

    def partition_state(self, application: str, partition: int, generation: int = 1) -> dict[str, Any]:
        agent = agent_named(self.settings, application)
        birth = birth_of(self.settings, agent)
        assert birth is not None
        seen: Seen | None = newest(
            folder_of(self.settings, application, generation, birth.input_topic, partition)
        )
        assert seen is not None
        return dict(seen.state(seen.manifest.partition_state))

    def chain(self, role: str) -> Copies:
        """The outputs in a topic, each identity once, by emitter and space; and how many came again."""
        return copies(self.read(role))

    def expected(self) -> Expected:
        """What an undisturbed run in one process makes of the events in the log."""
        return expected(self.settings, self.read("events"), self.folder / f"reference-{uuid4().hex[:8]}")

    def check_exact(self, upto: str = "learner-opml") -> Expected:
        """State, constraints, outcomes and chains equal those of an undisturbed run."""
        wanted = self.expected()
        constraints = self.chain("constraints")
        assert constraints.values == wanted.constraints
        assert not constraints.breaks
        assert self.states("builder-one-pass") == wanted.builder
        if upto == "learner-opml":
            outcomes = self.chain("outcomes")
            assert outcomes.values == wanted.outcomes
            assert self.states("learner-opml") == wanted.learner
        return wanted


def patched(folder: Path, code: str) -> dict[str, str]:
    """An environment in which a worker process runs `code` before anything else."""
    folder.mkdir(parents=True)
    guard = "import sys\nif '--unsupervised' in sys.orig_argv:\n"
    body = textwrap.indent(textwrap.dedent(code), "    ")
    (folder / "sitecustomize.py").write_text(guard + body, encoding="utf-8")
    return {"PYTHONPATH": str(folder)}


def stop_process(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


def continue_process(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)
