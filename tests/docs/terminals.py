"""Walks a page as its reader would: writes its files and runs its commands, long-running ones in the background."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.docs.pages import ROOT, blocks

SECONDS = 180.0


class Walk:
    """One page, in a folder of its own, without settings of the developer's.

    Parameters
    ----------
    variables : in addition to those of this process.
    environment : the folder of a virtual environment in which Kinstream is installed; by default this process's, with
        the sources of this checkout.

    Attributes
    ----------
    seconds : longest wait for a command, and for a condition.
    """

    seconds = SECONDS

    def __init__(
        self,
        page: Path,
        folder: Path,
        variables: Mapping[str, str] | None = None,
        environment: Path | None = None,
    ) -> None:
        self.page = page
        self.folder = folder
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "KINSTREAM_"))
        }
        if environment is None:
            own = {"PATH": f"{Path(sys.executable).parent}:{kept['PATH']}", "PYTHONPATH": str(ROOT / "src")}
        else:
            own = {"PATH": f"{environment / 'bin'}:{kept['PATH']}", "PYTHONPATH": ""}
        self.environment = kept | own | {"PYTHONUNBUFFERED": "1"} | dict(variables or {})
        self._running: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []

    def write_files(self) -> None:
        """The files that the page shows, by their marks `<!-- file: PATH -->`."""
        for block in blocks(self.page, "python", "text", "toml"):
            if (named := re.fullmatch(r"<!-- file: (.+) -->", block.before)) is not None:
                target = self.folder / named[1]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(block.text, encoding="utf-8")

    def commands(self, name: str) -> str:
        """The shell example below `<!-- test: NAME -->`."""
        (found,) = [b.text for b in blocks(self.page, "sh") if b.before == f"<!-- test: {name} -->"]
        return found

    def run(self, commands: str) -> subprocess.CompletedProcess[str]:
        """Run lines of a shell, to the first that fails."""
        return subprocess.run(
            ["bash", "-euc", commands],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=self.seconds,
            check=False,
        )

    def done(self, commands: str) -> str:
        """The output of lines that must all succeed."""
        ended = self.run(commands)
        assert ended.returncode == 0, f"{commands}\n{ended.stdout}{ended.stderr}\n{self.logs()}"
        return ended.stdout

    def start(self, name: str, command: str | None = None) -> Path:
        """Start the example of that name, or a line of one, in a terminal of its own; the file of its output."""
        log = self.folder / f"{name}.log"
        stream = log.open("wb")
        process = subprocess.Popen(
            ["bash", "-euc", f"exec {(command or self.commands(name)).strip()}"],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._running.append((process, stream))
        return log

    def start_agents(self, name: str, ready: int) -> None:
        """Start `kinstream up`, do what its `export` line says, and wait until so many agents are ready."""
        log = self.start(name)
        self.until(lambda: log.read_text().count(": ready after") >= ready, f"{ready} agents are ready")
        (line,) = re.findall(r"^\s*export (.+)$", log.read_text(), flags=re.M)
        self.environment |= dict(word.split("=", 1) for word in line.split())

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition; fails when its time is over or a background command has ended."""
        looked = time.monotonic()
        limit = looked + self.seconds
        while not condition():
            ended = [p.returncode for p, _ in self._running if p.poll() is not None]
            assert not ended and time.monotonic() < limit, f"{what}: {ended}\n{self.logs()}"
            # Most conditions are commands of their own: they have a third of the time.
            time.sleep(max(1.0, 2 * (time.monotonic() - looked)))
            looked = time.monotonic()

    def logs(self) -> str:
        """The ends of all logs in the folder."""
        paths = sorted(self.folder.rglob("*.log"))
        return "\n".join(f"---- {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in paths)

    def close(self) -> None:
        """Ctrl-C in every terminal, the newest first, and wait; further ones may be opened."""
        for process, stream in reversed(self._running):
            if process.poll() is None:
                os.kill(process.pid, signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(30)
            stream.close()
        self._running.clear()


@contextmanager
def walk(
    page: Path, folder: Path, variables: Mapping[str, str] | None = None, environment: Path | None = None
) -> Iterator[Walk]:
    """Ends all that the page has started."""
    found = Walk(page, folder, variables, environment)
    try:
        yield found
    finally:
        found.close()


def installed_as_told(page: Path, folder: Path) -> Path:
    """A new virtual environment with Kinstream and the extras that a page names first, and nothing else.

    Needs an index of packages, or a cache of them. What is installed is the last commit.
    """
    named = re.search(r"pip install '(kinstream\[[\w,]+\])'", page.read_text(encoding="utf-8"))
    assert named is not None, page
    source, environment = folder / "source", folder / "environment"
    subprocess.run(["git", "clone", "-q", ROOT, source], check=True)
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    wanted = named[1].replace("kinstream", str(source), 1)
    pip = str(environment / "bin" / "pip")
    # What is imported is compiled then.
    install = ("install", "-q", "--no-compile", "--disable-pip-version-check")
    subprocess.run([pip, *install, wanted], check=True)
    return environment
