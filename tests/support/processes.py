"""`kinstream` commands as real processes: awaited by condition, signalled, and always ended with what they started."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import psutil

from tests.support.alive import alive

ROOT: Final = Path(__file__).resolve().parents[2]
#: For what may take long on a loaded machine: a start, a rebalance, a restore.
SECONDS: Final = 240.0
#: Seconds between two looks at a condition, at the beginning of a wait and of a long one.
SOONEST: Final = 0.05
SELDOM: Final = 0.4
_SERVES: Final = re.compile(r"serves (http://\S+)/metrics")


def until(
    condition: Callable[[], object],
    what: str = "the condition holds",
    seconds: float = SECONDS,
    every: float | None = None,
) -> float:
    """Wait for a condition, and return how long it took, in seconds.

    Parameters
    ----------
    every : seconds between two looks. By default a pause is at least as long as the look before it, which takes time
        from what is waited for, and grows with the wait.

    Raises
    ------
    TimeoutError : it did not hold within the time.
    """
    began = looked = time.monotonic()
    while not condition():
        now = time.monotonic()
        if now - began > seconds:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        time.sleep(min(max((now - began) / 10, SOONEST), SELDOM) + now - looked if every is None else every)
        looked = time.monotonic()
    return time.monotonic() - began


class Process:
    """One command in a session of its own; its output goes to a file.

    Parameters
    ----------
    path : the log.
    environment : what the command sees besides this process's environment.
    """

    def __init__(self, command: list[str], path: Path, environment: Mapping[str, str]) -> None:
        self.path = path
        with path.open("ab") as out:
            self.popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                cwd=ROOT,
                start_new_session=True,
            )
        self.pid = self.popen.pid
        #: Every process of the session that was seen, to be checked at the end.
        self.seen = {psutil.Process(self.pid)}

    # ---- output -------------------------------------------------------------------------------------------------

    def log(self) -> str:
        return self.path.read_text(errors="replace")

    def said(self, pattern: str, times: int = 1) -> bool:
        return len(re.findall(pattern, self.log())) >= times

    def expect(self, pattern: str, seconds: float = SECONDS, times: int = 1) -> None:
        """Wait until the output holds the pattern so many times."""
        until(lambda: self.said(pattern, times), f"{self.path.name} says {pattern!r} x{times}", seconds)

    # ---- life ---------------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        return self.popen.poll() is None

    @property
    def ended(self) -> int | None:
        """The exit status; None while it runs."""
        return self.popen.poll()

    def status(self, seconds: float = SECONDS) -> int:
        """Wait for the end; the exit status."""
        until(lambda: not self.running, f"{self.path.name} ends", seconds)
        return self.popen.wait()

    def terminate(self) -> None:
        self.child()
        with contextlib.suppress(ProcessLookupError):
            self.popen.terminate()

    def stop(self, seconds: float = SECONDS) -> int:
        """SIGTERM, and the exit status."""
        self.terminate()
        return self.status(seconds)

    def child(self) -> psutil.Process | None:
        """The process that does the work: the supervisor's child. None between two of them."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.pid).children():
                if child.status() != psutil.STATUS_ZOMBIE and "--unsupervised" in child.cmdline():
                    self.seen.add(child)
                    return child
        return None

    def worker_pid(self) -> int:
        """The process that does the work: the supervisor's child, or this one where there is none."""
        child = self.child()
        return self.pid if child is None else child.pid

    def family(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = psutil.Process(self.pid)
            return [parent, *parent.children(recursive=True)]
        return []

    def end(self) -> None:
        """SIGKILL to it, its children and its session, in whatever state they are."""
        found = self.family()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        for one in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        self.popen.wait(20)
        psutil.wait_procs(found, 20)

    def left(self) -> list[int]:
        """Those that were seen and still run."""
        return [one.pid for one in self.seen if alive(one)]

    # ---- pages --------------------------------------------------------------------------------------------------

    def url(self) -> str | None:
        """Of the newest worker's pages; None before it says where they are."""
        found = _SERVES.findall(self.log())
        return found[-1] if found else None

    def readiness(self) -> tuple[int, dict[str, Any]]:
        """Status and body of `/readyz`; status 0 while nothing answers."""
        url = self.url()
        if url is None:
            return 0, {}
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)
        except (OSError, http.client.HTTPException):
            return 0, {}

    def ready(self) -> bool:
        return self.readiness()[0] == 200

    def until_ready(self, seconds: float = SECONDS) -> None:
        """Wait until `/readyz` answers 200."""
        until(self.ready, f"{self.path.name} is ready", seconds)

    def page(self) -> str:
        """The metrics page; empty while it does not answer."""
        url = self.url()
        with contextlib.suppress(OSError, http.client.HTTPException):
            if url is not None:
                with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
                    return str(answer.read().decode())
        return ""

    def metrics(self) -> dict[str, float]:
        """The series of the worker's page, by name and labels as they are written; empty while it does not answer."""
        lines = (line.rsplit(" ", 1) for line in self.page().splitlines() if line and line[0] != "#")
        return {name: float(value) for name, value in lines}

    def metric(self, name: str, **labels: str) -> float | None:
        """The sum of the series of that name with those labels; None where there is none."""
        found = [
            value
            for series, value in self.metrics().items()
            if series.split("{")[0] == name and all(f'{k}="{v}"' in series for k, v in labels.items())
        ]
        return sum(found) if found else None
