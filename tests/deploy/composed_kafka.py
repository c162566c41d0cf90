"""The broker of compose.yaml without a container: set up from its environment by the program of its image."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.kafka.broker import KafkaBroker

#: Files that the image brings with it, and that the program wants to see.
_DEFAULTS: Final = ("server.properties", "log4j2.yaml", "tools-log4j2.yaml")
#: Listeners of compose.yaml: their ports in the container.
INSIDE, OUTSIDE, CONTROLLER = "19092", "9092", "29093"


class ComposedKafka(KafkaBroker):
    """A broker with the settings that its image would make of `environment`, on ports and in a folder of its own."""

    def __init__(self, folder: Path, environment: Mapping[str, str | int]) -> None:
        super().__init__(folder)
        ports = {INSIDE: self.port, OUTSIDE: self.proxied_port, CONTROLLER: self._controller}
        self._environment = {"PATH": os.environ["PATH"]}
        for name, value in environment.items():
            text = str(value).replace("kafka:", "127.0.0.1:").replace("://:", "://127.0.0.1:")
            for inside, here in ports.items():
                text = text.replace(f"127.0.0.1:{inside}", f"127.0.0.1:{here}")
                text = text.replace(f"localhost:{inside}", f"127.0.0.1:{here}")
            self._environment[name] = text
        self._environment["KAFKA_LOG_DIRS"] = str(folder / "data")

    def _properties(self) -> str:
        folders = {name: self.folder / name for name in ("default", "mounted", "final")}
        for folder in folders.values():
            folder.mkdir()
        for name in _DEFAULTS:
            (folders["default"] / name).touch()
        options = [
            word for name, folder in folders.items() for word in (f"--{name}-configs-dir", str(folder))
        ]
        # It also formats the data folder with CLUSTER_ID.
        command = self._command("kafka.docker.KafkaDockerWrapper", "setup", *options, heap="256m")
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, check=False, timeout=120
        )
        if done.returncode != 0:
            raise RuntimeError(f"the image could not be set up: {done.stdout[-1000:]}{done.stderr[-1000:]}")
        return (folders["final"] / "server.properties").read_text()
