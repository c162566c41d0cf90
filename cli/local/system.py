"""Every agent of the settings on this machine, started and stopped together."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException
from ipaddress import ip_address
from pathlib import Path
from typing import IO, Any, Final

from kinstream.cli.local.supervised import Supervised
from kinstream.streams.processes.listening import HANDED, bound
from kinstream.streams.processes.supervisor import REFUSED, WRONG_SETTINGS
from kinstream.streams.settings import ServeSettings, Settings

STOP_SECONDS: Final = 8.0
#: Name of the process that runs every agent.
_ALL: Final = "worker"
#: Commands that are started again when they end.
_SUPERVISED: Final = ("worker", "serve")
#: By default glibc lets eight threads for each processor have a heap of their own, and keeps what each has freed.
_FEW_ARENAS: Final = {"MALLOC_ARENA_MAX": "2"}
#: Largest answer of a readiness check, in bytes.
_MAX_PAGE_BYTES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Process:
    """A running command, its log, the port of its metrics page, and the agents that are on it."""

    name: str
    popen: subprocess.Popen[bytes] | Supervised
    log: Path
    port: int
    host: str = "127.0.0.1"
    agents: frozenset[str] = frozenset()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


class LocalSystem:
    """The agents of `settings`, which this process supervises: in one process, or each in its own.

    Parameters
    ----------
    arguments : options before the command (`--config FILE`).
    environment : variables added to this process's environment.
    logs : folder for one log file per process.
    """

    def __init__(
        self, settings: Settings, arguments: Sequence[str], environment: Mapping[str, str], logs: Path
    ) -> None:
        self._settings = settings
        self._arguments = list(arguments)
        self._environment = {**_FEW_ARENAS, **os.environ, **environment}
        self._logs = logs
        self._open: list[IO[bytes]] = []
        self._sockets: dict[str, socket.socket] = {}
        self.processes: list[Process] = []

    def give(self, environment: Mapping[str, str], arguments: Sequence[str] = ()) -> None:
        """Add variables for processes that are started from now on."""
        self._environment |= environment
        self._arguments += arguments

    def reserve(self) -> None:
        """Bind the address of every agent's page. They are held until `stop`, so that no other process can take them.

        Raises
        ------
        CannotListen : the port of the settings is taken, or its address is not this machine's.
        """
        worker = self._settings.worker
        # The agent that Prometheus scrapes most often has the port of the settings.
        ports = {"metrics": worker.http_port, _ALL: worker.http_port}
        for name in self._commands():
            if name not in self._sockets:
                self._sockets[name] = bound(worker.http_host, ports.get(name, 0), "worker")

    def _commands(self) -> dict[str, list[str]]:
        """Every process of agents by its name, with the command that runs it."""
        return {_ALL: ["worker", "all"]} if self._settings.worker.together else self._agents()

    def _agents(self) -> dict[str, list[str]]:
        """Every agent by its name, with the command that runs it alone."""
        found = {f"source-{name}": ["worker", "source", name] for name in self._settings.sources}
        found |= {f"builder-{name}": ["worker", "builder", name] for name in self._settings.builders}
        found |= {f"learner-{name}": ["worker", "learner", name] for name in self._settings.learners}
        found |= {"gate": ["worker", "gate"]} if self._settings.gate else {}
        found |= {"vectors": ["worker", "vectors"]} if self._settings.vectors else {}
        found |= {f"sink-{name}": ["worker", "sink", name] for name in self._settings.sinks}
        return found | {"metrics": ["worker", "metrics"]}

    def start_agents(self) -> None:
        """Start every agent and service of the settings. Raises CannotListen, before any is started."""
        self.reserve()
        for name, command in self._commands().items():
            self._start(name, [*command, "--create"], self._sockets[name])
        for service in self.services():
            # It listens on a port of its own.
            self.start(service, [service])
        if self._settings.vectors:
            self.start("vectors-watch", ["vectors", "watch"])

    def services(self) -> dict[str, str]:
        """The service over HTTP, if the settings name a space, with its address, which is "" for any port."""
        return {"serve": address_of(self._settings.serve)} if self._settings.serve.spaces else {}

    def start(self, name: str, command: Sequence[str]) -> Process:
        """Start another Kinstream command beside the agents."""
        return self._start(name, command, None)

    def _start(self, name: str, command: Sequence[str], page: socket.socket | None) -> Process:
        self._logs.mkdir(parents=True, exist_ok=True)
        log = self._logs / f"{name}.log"
        stream = log.open("wb")
        self._open.append(stream)
        port = page.getsockname()[1] if page else 0
        port_option = ["--set", f"worker.http_port={port}"] if page else []
        line = [sys.executable, "-m", "kinstream.cli.main", *self._arguments, *port_option, *command]
        options: dict[str, Any] = {
            "env": {**self._environment, HANDED: str(page.fileno())} if page else self._environment,
            "stdin": subprocess.DEVNULL,
            "stdout": stream,
            "stderr": subprocess.STDOUT,
            # Only this process receives Ctrl-C, and then stops the others in order.
            "start_new_session": True,
        }
        popen = (
            Supervised(name, [*line, "--unsupervised"], **options)
            if command[0] in _SUPERVISED
            else subprocess.Popen(line, **options)
        )
        agents = frozenset(self._agents() if name == _ALL else [name] if page else [])
        process = Process(name, popen, log, port, _reached(self._settings.worker.http_host), agents)
        self.processes.append(process)
        return process

    def agents(self) -> list[Process]:
        return [process for process in self.processes if process.port]

    def failed(self) -> Process | None:
        """A process that ended although it should run, or ended badly."""
        for process in self.processes:
            status = process.popen.poll()
            if status is not None and (process.port or status):
                return process
        return None

    def ready(self) -> list[str]:
        """Names of the agents that are ready."""
        processes = self.agents()
        # In parallel: a starting agent may answer slowly.
        with ThreadPoolExecutor(max(1, len(processes))) as pool:
            return sorted(name for names in pool.map(ready_agents, processes) for name in names)

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Stop every process: SIGTERM to all, then SIGKILL to what is left at the deadline."""
        running = [p for p in self.processes if p.popen.poll() is None]
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                process.popen.terminate()
        deadline = time.monotonic() + seconds
        for process in running:
            try:
                process.popen.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                _kill(process.popen)
                process.popen.wait()
        for stream in self._open:
            stream.close()
        for page in self._sockets.values():
            page.close()
        self._open.clear()
        self._sockets.clear()


def _kill(popen: subprocess.Popen[bytes] | Supervised) -> None:
    """End it with all processes of its session."""
    if isinstance(popen, Supervised):
        popen.kill()
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(popen.pid, signal.SIGKILL)


def address_of(service: ServeSettings) -> str:
    """Where requests on this machine reach a service; "" if it takes any free port."""
    return f"http://{_reached(service.http_host)}:{service.http_port}" if service.http_port else ""


def _reached(host: str) -> str:
    """The address for requests to a page on this machine."""
    try:
        address = ip_address(host or "127.0.0.1")
    except ValueError:
        return host
    if address.version == 4:
        return "127.0.0.1" if address.is_unspecified else host
    return "[::1]" if address.is_unspecified else f"[{host}]"


def ready_agents(process: Process) -> frozenset[str]:
    """The agents of which the process's own worker answers that they are ready; answers of others are ignored."""
    try:
        try:
            answer = urllib.request.urlopen(f"{process.url}/readyz", timeout=1.0)
        except urllib.error.HTTPError as failing:
            # Others on the page may be ready.
            answer = failing
        with answer:
            answered = json.loads(answer.read(_MAX_PAGE_BYTES))
    except (OSError, ValueError, HTTPException):
        return frozenset()
    if not isinstance(answered, dict) or answered.get("supervisor") != process.popen.pid:
        return frozenset()
    ready = {one.get("agent") for one in answered.get("agents", [answered]) if one.get("status") == "ok"}
    return process.agents & ready


def answers(url: str) -> bool:
    """Whether a service runs at an address."""
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=1.0):
            return True
    except (OSError, ValueError, HTTPException):
        return False


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def tail(path: Path, lines: int = 15) -> str:
    """The last lines of a log."""
    with contextlib.suppress(OSError):
        return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
    return ""


def stop_on_signals() -> threading.Event:
    """An event that SIGINT and SIGTERM set."""
    event = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: event.set())
    return event


def status_of(ended: int | None) -> int:
    """The exit status after an agent has ended: its own, 2 or 3, if a restart would not help."""
    return ended if ended in (REFUSED, WRONG_SETTINGS) else 1
