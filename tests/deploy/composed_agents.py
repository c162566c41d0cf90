"""The agents of compose.yaml as processes of this machine, each with a port of its own."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from prometheus_client.parser import text_string_to_metric_families

from tests.kafka.broker import reserve_port

#: The kernels of five processes may have to be compiled.
LIMIT_SECONDS: Final = 240.0
END_SECONDS: Final = 30.0
T = TypeVar("T")


class Agents:
    """Runs Kinstream with one settings file. A context manager that ends what it has started."""

    def __init__(self, settings: Path, bootstrap: str, folder: Path) -> None:
        self._command = [sys.executable, "-m", "kinstream.cli.main", "--config", str(settings)]
        self._folder = folder
        self._environment = os.environ | {
            "KAFKA_BOOTSTRAP_SERVERS": bootstrap,
            "KINSTREAM_CHECKPOINTS__URL": str(folder / "checkpoints"),
            "KINSTREAM_WORKER__HTTP_HOST": "127.0.0.1",
            "KINSTREAM_SERVE__HTTP_HOST": "127.0.0.1",
        }
        self._ports: dict[str, socket.socket] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command, to its end."""
        command = [*self._command, *arguments]
        return subprocess.run(
            command, env=self._environment, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS
        )

    def start(self, name: str, arguments: Iterable[str]) -> None:
        """An agent, with its log in the folder."""
        self._ports[name] = reserve_port()
        port = str(self._ports[name].getsockname()[1])
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [*self._command, *arguments],
                env=self._environment
                | {"KINSTREAM_WORKER__HTTP_PORT": port, "KINSTREAM_SERVE__HTTP_PORT": port},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait_until_ready(self) -> None:
        """Return once every agent says that it is."""
        for name in self._processes:
            self._until(lambda name=name: self._page(name, "/readyz"), f"{name} is not ready")  # type: ignore[misc]

    def wait_for_learners(self, agent: str, names: Iterable[str]) -> dict[str, float]:
        """Constraints seen by each learner, once they are the same and no longer change."""
        wanted = set(names)
        before: dict[str, float] = {}

        def settled() -> dict[str, float] | None:
            nonlocal before
            found = dict.fromkeys(wanted, 0.0)
            for family in text_string_to_metric_families(self._page(agent, "/metrics") or ""):
                for sample in family.samples:
                    if sample.name == "kinstream_constraints_seen_total":
                        found[sample.labels["learner"]] += sample.value
            same, before = found == before, found
            return found if same and min(found.values()) > 0 and len(set(found.values())) == 1 else None

        return self._until(settled, "the learners do not get on", pause=2.0)

    def wait_for_models(self, agent: str, spaces: Iterable[str]) -> None:
        """Return once a service has learned models of these spaces."""
        wanted = set(spaces)

        def loaded() -> bool | None:
            found = {
                sample.labels["space"]
                for family in text_string_to_metric_families(self._page(agent, "/metrics") or "")
                for sample in family.samples
                if sample.name == "kinstream_serve_model_age_seconds"
            }
            return True if wanted <= found else None

        self._until(loaded, "the service has no model")

    def stop(self, seconds: float) -> dict[str, int]:
        """SIGTERM to all; exit status of each, which must come within `seconds` and what the supervisor adds."""
        for process in self._processes.values():
            process.terminate()
        limit = time.monotonic() + seconds + 10
        return {
            name: process.wait(max(0.1, limit - time.monotonic()))
            for name, process in self._processes.items()
        }

    def _page(self, name: str, path: str) -> str | None:
        port = self._ports[name].getsockname()[1]
        with contextlib.suppress(OSError, urllib.error.URLError):
            answer: bytes = urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5).read()
            return answer.decode()
        return None

    def _until(self, condition: Callable[[], T | None], failure: str, pause: float = 0.2) -> T:
        limit = time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < limit:
            found = condition()
            if found is not None:
                return found
            ended = {name: one.returncode for name, one in self._processes.items() if one.poll() is not None}
            if ended:
                failure = f"ended: {ended}"
                break
            time.sleep(pause)
        logs = "\n".join(f"== {path.name}\n{path.read_text()[-1500:]}" for path in self._folder.glob("*.log"))
        raise AssertionError(f"{failure}\n{logs}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            # A supervisor that is killed leaves its worker to find that out.
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for port in self._ports.values():
            port.close()
