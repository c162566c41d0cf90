"""Containers without an engine: a read-only root file system, a user without rights, a host of a network."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

from tests.support.processes import until

CONTAINED: Final = Path(__file__).with_name("contained.py")
#: Found here: inside, PATH is the image's.
_NSENTER: Final = shutil.which("nsenter") or "nsenter"
NAMESPACES: Final = ("--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child")


@dataclass(frozen=True)
class Specification:
    """What a container is made of.

    Parameters
    ----------
    mounts : (source, target, "ro" or "rw") each.
    tmpfs : (target, mode) each.
    rights : keep those of root; for programs of this machine that stand for images of others.
    """

    root: Path
    command: Sequence[str]
    environment: Mapping[str, str]
    mounts: Sequence[tuple[str, str, str]] = ()
    tmpfs: Sequence[tuple[str, str]] = (("/tmp", "1777"),)
    folder: str = "/"
    uid: int = 10001
    gid: int = 10001
    rights: bool = False
    host: str = "container"
    #: The network namespace; without one, the machine's.
    namespace: str | None = None


@dataclass
class Container:
    """A container that runs, with its log in a folder. A context manager that kills what is left."""

    specification: Specification
    folder: Path
    name: str
    log: Path = field(init=False)
    _process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / f"{self.name}.log"
        told = self.specification
        scratch = tempfile.mkdtemp(prefix=f"{self.name}-", dir=self.folder)
        path = Path(f"{scratch}.json")
        path.write_text(
            json.dumps(
                {
                    "root": str(told.root),
                    "scratch": scratch,
                    "mounts": list(told.mounts),
                    "tmpfs": list(told.tmpfs),
                    "host": told.host,
                    "uid": told.uid,
                    "gid": told.gid,
                    "environment": dict(told.environment),
                    "folder": told.folder,
                    "command": list(told.command),
                    "rights": told.rights,
                }
            )
        )
        network = ["ip", "netns", "exec", told.namespace] if told.namespace else []
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*network, "unshare", *NAMESPACES, sys.executable, str(CONTAINED), str(path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def status(self) -> int | None:
        """The exit status of the command, or None while it runs."""
        return self._process.poll()

    def wait(self, seconds: float) -> int:
        return self._process.wait(seconds)

    def check(self, command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
        """Run a health check inside, as the container's user."""
        told = self.specification
        user = [] if told.rights else [f"--setuid={told.uid}", f"--setgid={told.gid}"]
        return subprocess.run(
            [
                _NSENTER,
                f"--target={self._first().pid}",
                "--mount",
                "--net",
                "--pid",
                "--root",
                "--wd",
                *user,
                "--",
                *command,
            ],
            env=dict(told.environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )

    def terminate(self) -> None:
        """SIGTERM to process 1 of the container, as an engine sends it."""
        self._first().terminate()

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def _first(self) -> psutil.Process:
        """Process 1 of the container."""
        until(lambda: self.status is not None or psutil.Process(self._process.pid).children(), self.name)
        (child,) = psutil.Process(self._process.pid).children()
        return child

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # All others of the namespace are killed with its process 1. That one is not killed with its parent: a change of
        # user ends this.
        with contextlib.suppress(psutil.NoSuchProcess):
            for first in psutil.Process(self._process.pid).children():
                first.kill()
        self._process.kill()
        self._process.wait()


def completed(told: Specification, folder: Path, name: str, seconds: float) -> tuple[int, str]:
    """Run a container to its end: exit status and output."""
    with Container(told, folder, name) as container:
        return container.wait(seconds), container.text()
