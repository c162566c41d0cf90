"""The real Prometheus and Alertmanager: found, or a reason not to test; started in a folder of their own, and ended."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.kafka.broker import reserve_port

DEPLOY: Final = Path(__file__).resolve().parents[3] / "deploy"
#: Rules and dashboards.
RULES: Final = DEPLOY / "helm" / "kinstream" / "files"
CONFIG: Final = DEPLOY / "prometheus" / "prometheus.yml"
RECORDING: Final = RULES / "kinstream.recording.yml"
ALERTS: Final = RULES / "kinstream.alerts.yml"
_PACKAGES: Final = {
    "promtool": "prometheus",
    "prometheus": "prometheus",
    "amtool": "prometheus-alertmanager",
    "alertmanager": "prometheus-alertmanager",
    "chromedriver": "chromium-driver",
}


def program(name: str) -> str:
    """Path of a program; where it is missing the test fails in CI, and is left out elsewhere."""
    # Debian's Alertmanager is called prometheus-alertmanager.
    found = shutil.which(name) or shutil.which(f"prometheus-{name}")
    if found is None:
        reason = f"{name} is not on the PATH (Debian package {_PACKAGES[name]})"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def run(name: str, *arguments: str, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    command = [program(name), *arguments]
    # It lives for a second: collecting garbage would take a third of that.
    environment = {**os.environ, "GOGC": "800"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=seconds, check=False, env=environment
    )


class Server:
    """A server with a port of its own. `port` is kept from others from the beginning."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.name = name
        self._reserved: socket.socket = reserve_port()
        self.port = int(self._reserved.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"

    @contextmanager
    def running(self, *arguments: str) -> Iterator[None]:
        """Run until the block ends; its log is printed, for the case that the test fails."""
        log = self.folder / f"{self.name}.log"
        with log.open("ab") as stream:
            process = subprocess.Popen(
                [program(self.name), f"--web.listen-address=127.0.0.1:{self.port}", *arguments],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
        try:
            self._wait_until_ready(process)
            yield
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._reserved.close()
            print(f"---- {log.name}\n{log.read_text(errors='replace')[-3000:]}")

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        limit = time.monotonic() + 30
        while True:
            try:
                self.get("/-/ready")
                return
            except OSError:
                if process.poll() is not None or time.monotonic() > limit:
                    raise
                time.sleep(0.05)

    def get(self, path: str, **parameters: str) -> bytes:
        query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
        with urllib.request.urlopen(f"{self.url}{path}{query}", timeout=20) as answer:
            found: bytes = answer.read()
            return found


class Prometheus(Server):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "prometheus")

    @contextmanager
    def serving(self, config: Path) -> Iterator[Prometheus]:
        """Run with a configuration file, with a store in the folder."""
        with self.running(f"--config.file={config}", f"--storage.tsdb.path={self.folder / 'data'}"):
            yield self

    def query(self, expr: str) -> list[dict[str, Any]]:
        """The result of an instant query.

        Raises
        ------
        AssertionError : Prometheus cannot answer it; with its reason.
        """
        try:
            answer = json.loads(self.get("/api/v1/query", query=expr))
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expr}: {error.read().decode()}") from error
        result = answer["data"]["result"]
        if answer["data"]["resultType"] == "scalar":
            return [{"metric": {}, "value": result}]
        return list(result)

    def label_values(self, label: str, match: str) -> list[str]:
        path = f"/api/v1/label/{label}/values"
        found: list[str] = json.loads(self.get(path, **{"match[]": match}))["data"]
        return found

    def firing(self) -> set[str]:
        """Names of the alerts that fire."""
        return {one["metric"]["alertname"] for one in self.query('ALERTS{alertstate="firing"}')}


class Alertmanager(Server):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "alertmanager")

    @contextmanager
    def serving(self, config: Path) -> Iterator[Alertmanager]:
        """Run with a configuration file, alone."""
        with self.running(
            f"--config.file={config}", f"--storage.path={self.folder / 'data'}", "--cluster.listen-address="
        ):
            yield self

    def tool(self, *arguments: str) -> str:
        """What amtool says."""
        done = run("amtool", f"--alertmanager.url={self.url}", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout
