"""The supervisor starts a worker again, and neither outlives the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil

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
    parent = supervise(
        f"import os; open({str(note)!r}, 'a').write(os.environ['KINSTREAM_RESTARTS']); os._exit(75)"
    )
    until(lambda: note.exists() and len(note.read_text()) >= 3)
    parent.terminate()
    assert parent.wait(10) == 0
    assert note.read_text().startswith("012")


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
