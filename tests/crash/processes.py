"""Agents and loads as real processes: started, killed, stopped, continued, and always ended."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.alive import alive

#: What may take long on a loaded machine: a start, a rebalance, a restore.
PATIENCE = 120.0
_MANIFEST = re.compile(r"(\d{20})\.manifest\.json")
_SERVES = re.compile(r"serves (http://\S+)/metrics")


def until(condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Wait for a condition.

    Raises
    ------
    TimeoutError : it did not come true; says what was waited for.
    """
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.1)


@dataclass(frozen=True, slots=True)
class Agent:
    """A role of the system: `kinstream worker ROLE [NAME]`, reading the topic `reads`."""

    role: str
    name: str | None
    reads: str

    @property
    def application(self) -> str:
        return self.role if self.name is None else f"{self.role}-{self.name}"

    @property
    def command(self) -> list[str]:
        return ["worker", self.role, *([self.name] if self.name else []), "--create"]


@dataclass(frozen=True, slots=True)
class Kill:
    """A SIGKILL: of what, how (by hand or by which failpoint), and whether its work was still going on."""

    who: str
    how: str
    at_work: bool


@dataclass(slots=True)
class Process:
    """A command of ours in a session of its own, with its log."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path
    stream: IO[bytes]
    #: Every process of the session that was ever signalled or seen, to be looked for at the end.
    seen: set[psutil.Process] = field(default_factory=set)

    @property
    def status(self) -> int | None:
        return self.popen.poll()

    def child(self) -> psutil.Process | None:
        """The worker under a supervisor."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.popen.pid).children():
                if child.status() != psutil.STATUS_ZOMBIE and "--unsupervised" in child.cmdline():
                    self.seen.add(child)
                    return child
        return None

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def url(self) -> str | None:
        """Of the newest worker's pages."""
        found = _SERVES.findall(self.said())
        return found[-1] if found else None


class System:
    """One set of topics and checkpoints, and every process that works on them.

    Parameters
    ----------
    folder : for settings, checkpoints, logs and the loads' progress.
    text : of the settings file, without brokers, topics and checkpoints.
    """

    def __init__(self, folder: Path, bootstrap: str, prefix: str, partitions: int, text: str) -> None:
        self.folder = folder
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.partitions = partitions
        self.checkpoints = folder / "checkpoints"
        self.progress = folder / "loads"
        self.kills: list[Kill] = []
        self.processes: list[Process] = []
        self._lock = threading.Lock()
        (folder / "logs").mkdir(parents=True)
        self.settings = folder / "kinstream.toml"
        self.settings.write_text(
            f'{text}\n[topics]\nprefix = "{prefix}"\npartitions = {partitions}\nreplication = 1\n'
            f'\n[kafka]\nbootstrap_servers = "{bootstrap}"\n',
            encoding="utf-8",
        )

    def topic(self, role: str) -> str:
        return f"{self.prefix}.{role}"

    # ---- starting -----------------------------------------------------------------------------------------------

    def command(self, *arguments: str) -> list[str]:
        where = ["--config", str(self.settings), "--set", f"checkpoints.url={self.checkpoints}"]
        return [sys.executable, "-m", "kinstream.cli.main", *where, *arguments]

    def run(self, *arguments: str, seconds: float = PATIENCE) -> str:
        """Run a command to its end, which it has so many seconds for; its standard output."""
        done = subprocess.run(
            self.command(*arguments), capture_output=True, text=True, check=False, timeout=seconds
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(arguments)}: status {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def start(self, name: str, *arguments: str, failpoints: str = "") -> Process:
        """Start a command in a session of its own."""
        environment = {**os.environ, "KINSTREAM_FAILPOINTS": failpoints}
        with self._lock:
            log = self.folder / "logs" / f"{len(self.processes):03d}-{name}.log"
            stream = log.open("wb")
            popen = subprocess.Popen(
                self.command(*arguments),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            process = Process(name, popen, log, stream)
            process.seen.add(psutil.Process(popen.pid))
            self.processes.append(process)
        return process

    def start_worker(self, agent: Agent) -> Process:
        """A worker under its supervisor."""
        return self.start(agent.application, *agent.command)

    def start_bare(self, agent: Agent, failpoints: str) -> Process:
        """A worker without a supervisor: when a failpoint kills it, nobody starts it again."""
        return self.start(
            f"{agent.application}-bare", *agent.command, "--unsupervised", failpoints=failpoints
        )

    # ---- killing ------------------------------------------------------------------------------------------------

    def note_kill(self, who: str, how: str, at_work: bool) -> None:
        with self._lock:
            self.kills.append(Kill(who, how, at_work))
            when = time.strftime("%H:%M:%S")
            print(f"{when} SIGKILL {len(self.kills)}: {who}, {how}{'' if at_work else ', idle'}", flush=True)

    def kill_worker(self, process: Process, at_work: bool) -> None:
        """SIGKILL the worker; its supervisor starts it again."""
        until(lambda: process.child() is not None, f"a worker under {process.name}")
        child = process.child()
        if child is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
                self.note_kill(process.name, "worker", at_work)

    def kill_supervisor(self, process: Process, at_work: bool) -> None:
        """SIGKILL the supervisor; its worker notices and ends by itself."""
        until(lambda: process.child() is not None, f"a worker under {process.name}")
        child = process.child()
        process.popen.kill()
        process.popen.wait()
        self.note_kill(process.name, "supervisor", at_work)
        if child is not None:
            until(lambda: not alive(child), f"{process.name}: the worker ends after its supervisor", 60)

    def kill_both(self, process: Process, at_work: bool) -> None:
        """SIGKILL supervisor and worker at once, as when a machine is lost."""
        process.child()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.popen.pid, signal.SIGKILL)
        process.popen.wait()
        self.note_kill(process.name, "supervisor and worker", at_work)

    def freeze_worker(self, process: Process) -> psutil.Process:
        """SIGSTOP the worker; `resume()` on what is returned continues it."""
        until(lambda: process.child() is not None, f"a worker under {process.name}")
        child = process.child()
        assert child is not None
        child.suspend()
        print(f"{time.strftime('%H:%M:%S')} SIGSTOP: {process.name}", flush=True)
        return child

    def stop(self, process: Process, seconds: float = 60.0) -> int:
        """SIGTERM, and the exit status."""
        process.child()
        process.popen.terminate()
        return process.popen.wait(seconds)

    # ---- looking ------------------------------------------------------------------------------------------------

    def offsets(self, agent: Agent) -> dict[int, int]:
        """What the newest checkpoint of each partition wants next; -1 without one."""
        found = {}
        for partition in range(self.partitions):
            folder = self.checkpoints / agent.application / "1" / f"{self.topic(agent.reads)}-{partition}"
            names = os.listdir(folder) if folder.is_dir() else []
            numbers = [int(match[1]) for match in map(_MANIFEST.fullmatch, names) if match]
            found[partition] = max(numbers, default=-1)
        return found

    def ends(self, role: str) -> dict[int, int]:
        """The next offset of each partition of a topic."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "looker", "log_level": 0})
        try:
            places = {p: TopicPartition(self.topic(role), p) for p in range(self.partitions)}
            return {p: consumer.get_watermark_offsets(at, timeout=20)[1] for p, at in places.items()}
        finally:
            consumer.close()

    def settled(self, agent: Agent) -> bool:
        """Whether the newest checkpoints of an agent cover all of its input."""
        return all(
            offset == end or (offset == -1 and end == 0)
            for offset, end in zip(self.offsets(agent).values(), self.ends(agent.reads).values(), strict=True)
        )

    def metrics_pages(self, processes: list[Process]) -> list[str]:
        """The metrics page of each worker."""
        pages = []
        for process in processes:
            url = process.url()
            if url is None:
                raise ConnectionError(f"{process.name} has not said where it serves its metrics")
            with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
                pages.append(answer.read().decode())
        return pages

    def faults(self) -> list[str]:
        """What the logs hold of workers that ended by a fault of their own, and of commands that broke."""
        found = []
        for process in self.processes:
            for line in process.said().splitlines():
                ours = " kinstream." in line and (" CRITICAL " in line or " ERROR " in line)
                if ours or line.startswith("Traceback"):
                    found.append(f"{process.log.name}: {line}")
        return found

    def tails(self, lines: int = 25) -> Iterator[str]:
        """The end of every log that is not empty, the newest last."""
        for process in self.processes:
            text = process.said().splitlines()
            if text:
                yield f"---- {process.log.name}, status {process.status}\n" + "\n".join(text[-lines:])

    # ---- ending -------------------------------------------------------------------------------------------------

    def stop_all(self, seconds: float = 60.0) -> Mapping[str, int]:
        """SIGTERM to all that runs, and the exit statuses."""
        running = [process for process in self.processes if process.status is None]
        for process in running:
            process.child()
            process.popen.terminate()
        return {process.log.name: process.popen.wait(seconds) for process in running}

    def left(self) -> list[str]:
        """Processes of ours that still run."""
        return [f"{p.pid}" for process in self.processes for p in process.seen if alive(p)]

    def close(self) -> None:
        """End whatever still runs, without ceremony."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.popen.pid, signal.SIGKILL)
            process.popen.wait(30)
            process.stream.close()


def copy_topic(bootstrap: str, records: Iterable[tuple[bytes | None, bytes, int]], target: str) -> None:
    """Write records of (key, value, partition) in order to a topic that is empty: they get the same offsets."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    failures: list[str] = []

    def told(error: object, message: object) -> None:
        if error is not None:
            failures.append(str(error))

    for key, value, partition in records:
        while True:
            try:
                producer.produce(target, key=key, value=value, partition=partition, on_delivery=told)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if producer.flush(60) or failures:
        raise RuntimeError(f"{target}: the copy failed: {failures[:3]}")


@contextmanager
def running(system: System) -> Iterator[System]:
    """Ends everything on leaving; on a failure, shows the logs first."""
    try:
        yield system
    except BaseException:
        for text in system.tails():
            print(text)
        raise
    finally:
        system.close()
