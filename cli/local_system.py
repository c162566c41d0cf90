"""Every agent of the settings as a process of its own on this machine, started and stopped together."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from streams.settings import Settings

STOP_SECONDS: Final = 8.0


@dataclass(frozen=True, slots=True)
class Process:
    """A running command, its log, and the port of its metrics page."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class LocalSystem:
    """The agents of `settings`, each under its own supervisor.

    Parameters
    ----------
    arguments : options before the command (`--config FILE`).
    environment : what the processes see besides this one's environment.
    logs : folder for one log file per process.
    """

    def __init__(
        self, settings: Settings, arguments: Sequence[str], environment: Mapping[str, str], logs: Path
    ) -> None:
        self._settings = settings
        self._arguments = list(arguments)
        self._environment = {**os.environ, **environment}
        self._logs = logs
        self._open: list[IO[bytes]] = []
        self.processes: list[Process] = []

    def start_agents(self, extra: Sequence[str] = ("--create",)) -> None:
        """Start every builder, learner and the metrics agent."""
        roles = [("builder", name) for name in self._settings.builders]
        roles += [("learner", name) for name in self._settings.learners]
        for role, name in roles:
            self._start(f"{role}-{name}", ["worker", role, name, *extra], free_port())
        self._start("metrics", ["worker", "metrics", *extra], self._settings.worker.http_port or free_port())

    def start(self, name: str, command: Sequence[str]) -> Process:
        """Start another command of ours beside the agents."""
        return self._start(name, command, 0)

    def _start(self, name: str, command: Sequence[str], port: int) -> Process:
        self._logs.mkdir(parents=True, exist_ok=True)
        log = self._logs / f"{name}.log"
        stream = log.open("wb")
        self._open.append(stream)
        port_option = ["--set", f"worker.http_port={port}"] if port else []
        popen = subprocess.Popen(
            [sys.executable, "-m", "cli.main", *self._arguments, *port_option, *command],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            # Ctrl-C reaches this process alone, which then stops the others in order.
            start_new_session=True,
        )
        process = Process(name, popen, log, port)
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
        return [process.name for process in self.agents() if self._is_ready(process)]

    @staticmethod
    def _is_ready(process: Process) -> bool:
        try:
            with urllib.request.urlopen(f"{process.url}/readyz", timeout=1.0) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Stop every process: SIGTERM to all, then SIGKILL to what is left at the deadline."""
        running = [p for p in self.processes if p.popen.poll() is None]
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                process.popen.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + seconds
        for process in running:
            try:
                process.popen.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                # The supervisor and its worker share a session of their own.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.popen.pid, signal.SIGKILL)
                process.popen.wait()
        for stream in self._open:
            stream.close()
        self._open.clear()


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def tail(path: Path, lines: int = 15) -> str:
    """The last lines of a log."""
    with contextlib.suppress(OSError):
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    return ""
