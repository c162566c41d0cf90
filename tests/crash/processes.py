"""Agents and loads as real processes: started, killed, stopped, continued, and always ended."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka import Producer

from tests.support.alive import alive
from tests.support.kafka_system import KafkaSystem
from tests.support.processes import SECONDS, Process, until

_MANIFEST = re.compile(r"(\d{20})\.manifest\.json")


@dataclass(frozen=True, slots=True)
class Agent:
    """A role of the system: `kinstream worker ROLE [NAME]`, reading the topic `reads`, as so many workers.

    Parameters
    ----------
    together : its workers run all other agents, too.
    """

    role: str
    name: str | None
    reads: str
    workers: int = 2
    together: bool = False

    @property
    def application(self) -> str:
        return self.role if self.name is None else f"{self.role}-{self.name}"

    @property
    def command(self) -> list[str]:
        which = ["all"] if self.together else [self.role, *([self.name] if self.name else [])]
        return ["worker", *which, "--create"]


@dataclass(frozen=True, slots=True)
class Kill:
    """A SIGKILL: of what, how (by hand or by which failpoint), and whether its work was still going on."""

    who: str
    how: str
    at_work: bool


class System(KafkaSystem):
    """One set of topics and checkpoints, and every process that works on them.

    Parameters
    ----------
    folder : for settings, checkpoints, logs and the loads' progress.
    text : of the settings file, without brokers, topics and checkpoints.
    """

    def __init__(self, folder: Path, bootstrap: str, prefix: str, partitions: int, text: str) -> None:
        where = {"checkpoints.url": str(folder / "checkpoints")}
        super().__init__(folder, bootstrap, prefix, partitions, text, where)
        self.progress = folder / "loads"
        self.kills: list[Kill] = []
        self._kills = threading.Lock()

    # ---- starting -----------------------------------------------------------------------------------------------

    def run(self, *arguments: str, seconds: float = SECONDS) -> str:
        """Run a command to its end, which it has so many seconds for; its standard output."""
        done = self.finished(*arguments, seconds=seconds)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(arguments)}: status {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

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
        with self._kills:
            self.kills.append(Kill(who, how, at_work))
            when = time.strftime("%H:%M:%S")
            print(f"{when} SIGKILL {len(self.kills)}: {who}, {how}{'' if at_work else ', idle'}", flush=True)

    def kill_worker(self, process: Process, at_work: bool) -> None:
        """SIGKILL the worker; its supervisor starts it again."""
        until(lambda: process.child() is not None, f"a worker under {process.path.stem}")
        child = process.child()
        if child is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
                self.note_kill(process.path.stem, "worker", at_work)

    def kill_supervisor(self, process: Process, at_work: bool) -> None:
        """SIGKILL the supervisor; its worker notices and ends by itself."""
        until(lambda: process.child() is not None, f"a worker under {process.path.stem}")
        child = process.child()
        process.popen.kill()
        process.popen.wait()
        self.note_kill(process.path.stem, "supervisor", at_work)
        if child is not None:
            until(lambda: not alive(child), f"{process.path.stem}: the worker ends after its supervisor", 60)

    def kill_both(self, process: Process, at_work: bool) -> None:
        """SIGKILL supervisor and worker at once, as when a machine is lost."""
        process.child()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.popen.pid, signal.SIGKILL)
        process.popen.wait()
        self.note_kill(process.path.stem, "supervisor and worker", at_work)

    def freeze_worker(self, process: Process) -> psutil.Process:
        """SIGSTOP the worker; `resume()` on what is returned continues it."""
        until(lambda: process.child() is not None, f"a worker under {process.path.stem}")
        child = process.child()
        assert child is not None
        child.suspend()
        print(f"{time.strftime('%H:%M:%S')} SIGSTOP: {process.path.stem}", flush=True)
        return child

    # ---- looking ------------------------------------------------------------------------------------------------

    def offsets(self, agent: Agent) -> dict[int, int]:
        """What the newest checkpoint of each partition wants next; -1 without one."""
        found = {}
        for partition in range(self.partitions):
            folder = self.root / agent.application / "1" / f"{self.topic(agent.reads)}-{partition}"
            names = os.listdir(folder) if folder.is_dir() else []
            numbers = [int(match[1]) for match in map(_MANIFEST.fullmatch, names) if match]
            found[partition] = max(numbers, default=-1)
        return found

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
                raise ConnectionError(f"{process.path.stem} has not said where it serves its metrics")
            with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
                pages.append(answer.read().decode())
        return pages

    def faults(self) -> list[str]:
        """What the logs hold of workers that ended by a fault of their own, and of commands that broke."""
        found = []
        for process in self.processes:
            for line in process.log().splitlines():
                ours = " kinstream." in line and (" CRITICAL " in line or " ERROR " in line)
                if ours or line.startswith("Traceback"):
                    found.append(f"{process.path.name}: {line}")
        return found

    # ---- ending -------------------------------------------------------------------------------------------------

    def stop_all(self, seconds: float = 60.0) -> Mapping[str, int]:
        """SIGTERM to all that runs, and the exit statuses."""
        running = [process for process in self.processes if process.running]
        for process in running:
            process.terminate()
        return {process.path.name: process.status(seconds) for process in running}

    def left(self) -> list[int]:
        """Processes of ours that still run."""
        return [pid for process in self.processes for pid in process.left()]

    def end(self) -> None:
        """Stop all that runs: every process ends with status 0 and leaves none behind."""
        statuses = self.stop_all()
        assert set(statuses.values()) == {0}, statuses
        assert not self.left()


def copy_topic(
    bootstrap: str, records: Iterable[tuple[bytes | None, bytes, int, Mapping[str, bytes]]], target: str
) -> None:
    """Write records of (key, value, partition, headers) in order to an empty topic: they get the same offsets."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    failures: list[str] = []

    def told(error: object, message: object) -> None:
        if error is not None:
            failures.append(str(error))

    for key, value, partition, headers in records:
        while True:
            try:
                producer.produce(
                    target, key=key, value=value, partition=partition, headers=dict(headers), on_delivery=told
                )
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
