"""The supervisor starts a worker again, and neither outlives the other."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest

from kinstream.streams.processes.supervisor import REFUSED
from tests.support import processes
from tests.support.alive import alive

until = partial(processes.until, seconds=60.0)
PARENT = """
import sys
from kinstream.streams.processes.supervisor import Supervisor
sys.exit(Supervisor([sys.executable, "-c", {child!r}], stop_seconds=3).run())
"""


def supervise(child: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PARENT.format(child=child)], cwd=Path.cwd())


def test_a_worker_that_ends_is_started_again(tmp_path: Path) -> None:
    note = tmp_path / "starts"
    child = (
        "import os, signal\n"
        f"with open({str(note)!r}, 'a') as note:\n    note.write(os.environ['KINSTREAM_RESTARTS'])\n"
        # The third stays: one that fails while it is asked to stop has failed to stop.
        "if os.environ['KINSTREAM_RESTARTS'] == '2':\n    signal.pause()\n"
        "os._exit(75)\n"
    )
    parent = supervise(child)
    until(lambda: note.exists() and note.read_text() == "012")
    parent.terminate()
    assert parent.wait(10) == 0


def test_a_refusal_is_final() -> None:
    assert supervise(f"import os; os._exit({REFUSED})").wait(15) == REFUSED


def test_a_stop_reaches_the_worker(tmp_path: Path) -> None:
    note = tmp_path / "note"
    child = (
        "import signal, sys, time\n"
        f"note = open({str(note)!r}, 'w')\n"
        "def stop(*_):\n    note.write('stopped'); note.close(); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "note.write('up '); note.flush()\n"
        "while True: time.sleep(0.05)\n"
    )
    parent = supervise(child)
    until(lambda: note.exists() and note.read_text() == "up ")
    parent.terminate()
    assert parent.wait(10) == 0
    assert note.read_text() == "up stopped"


@pytest.mark.long
def test_a_worker_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    note = tmp_path / "note"
    child = (
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"open({str(note)!r}, 'w').write('up')\nwhile True: time.sleep(0.05)\n"
    )
    parent = supervise(child)
    until(lambda: note.exists() and note.read_text() == "up")
    parent.terminate()
    assert parent.wait(10) == 1


def test_a_worker_tells_how_long_it_may_take_to_stop_and_in_which_form_to_log(tmp_path: Path) -> None:
    note, log = tmp_path / "note", tmp_path / "log"
    child = (
        "import os, signal, time\n"
        "from kinstream.streams.processes.supervisor import RESTARTS, tell_supervisor\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "tell_supervisor(0.5, 'json')\n"
        "if os.environ[RESTARTS] == '0':\n    time.sleep(1)\n    os._exit(75)\n"
        f"open({str(note)!r}, 'w').write('up')\nwhile True: time.sleep(0.05)\n"
    )
    with log.open("wb") as out:
        parent = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "from kinstream.streams.processes.log_lines import begin; begin('INFO')\n"
                + PARENT.format(child=child).replace("stop_seconds=3", "stop_seconds=100"),
            ],
            stderr=out,
        )
    until(lambda: note.exists())
    # The second worker has told it as well, before it wrote its note.
    parent.terminate()
    assert parent.wait(10) == 1
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert lines[0]["message"].startswith("the worker ended with status 75; starting it again in")
    assert lines[-1]["message"] == "the worker did not stop within 0 s; killing it"


def test_a_supervisor_imports_nothing_that_reads_settings(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nfrom kinstream.streams.processes import supervisor\n"
        "supervisor.Supervisor.run = lambda self: print(*sys.modules, sep='\\n') or 0\n"
    )
    for command in (["worker", "metrics"], ["serve"]):
        told = subprocess.run(
            [sys.executable, "-m", "kinstream.cli.main", *command],
            env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
            capture_output=True,
            text=True,
            check=True,
        )
        loaded = told.stdout.split()
        assert "kinstream.cli.shared.context" in loaded
        assert not {"numpy", "pydantic", "asyncio", "fastapi", "kinstream.streams.settings"} & set(loaded)


def test_a_worker_stops_when_its_supervisor_is_killed(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    child = (
        "import os, time\n"
        "from kinstream.streams.processes.supervisor import hold_on_to_supervisor\n"
        "hold_on_to_supervisor()\n"
        f"open({str(note)!r}, 'w').write(str(os.getpid()))\nwhile True: time.sleep(0.05)\n"
    )
    parent = supervise(child)
    until(lambda: note.exists() and note.read_text() != "")
    child_process = psutil.Process(int(note.read_text()))
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait(10)
    until(lambda: not alive(child_process))


@pytest.mark.long
@pytest.mark.parametrize("command", [["worker", "metrics"], ["serve"]])
def test_a_process_that_waits_for_brokers_ends_when_its_supervisor_is_killed(
    command: list[str], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    (tmp_path / "database.url").write_text("postgresql://127.0.0.1:1/a")
    (tmp_path / "kinstream.toml").write_text(
        f'[checkpoints]\nurl = "{tmp_path / "checkpoints"}"\n[worker]\nhttp_port = 0\n[serve]\nhttp_port = 0\n'
        '[serve.spaces.shop]\nlearner = "a"\nbackend = "pgvector"\ncollection = "b"\nconnection_file = "database.url"\n'
    )
    with socket.socket() as nobody:
        # Bound, but nobody listens: each connection is refused, and the start waits for its brokers.
        nobody.bind(("127.0.0.1", 0))
        with log.open("wb") as out:
            parent = psutil.Popen(
                [sys.executable, "-m", "kinstream.cli.main", *command],
                cwd=tmp_path,
                env={**os.environ, "KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{nobody.getsockname()[1]}"},
                stderr=out,
            )
        children = []
        try:
            until(lambda: "No broker answers" in log.read_text() or not alive(parent), log.read_text())
            children = parent.children()
            parent.kill()
            until(lambda: not any(map(alive, children)), "the process ends", seconds=10.0)
        finally:
            for process in (parent, *children):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            parent.wait(10)
    assert len(children) == 1
    assert "the supervisor is gone; stopping" in log.read_text()
