"""What other libraries log is made fit for people: one line, no traceback, and not again and again."""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import asyncio, logging, sys, threading
from kinstream.streams.processes.log_lines import begin

begin(sys.argv[1])
try:
    try:
        raise OSError("inner")
    except OSError as error:
        raise RuntimeError("outer") from error
except RuntimeError:
    for _ in range(50):
        logging.getLogger("mode").error("[^-App]: Crashed reason=%r\\n%s", "outer", "more", exc_info=True)
        logging.getLogger("asyncio").error("Task exception was never retrieved", exc_info=True)
        logging.getLogger("aiokafka.conn").error("Unable connect to node", exc_info=True)
        logging.getLogger("kinstream.streams.worker.transport").info("[^-Consumer]: Starting...")
    logging.getLogger("kinstream.worker").error("a fault of ours", exc_info=True)

def cancelled():
    raise asyncio.CancelledError

def broken():
    raise ValueError("in a thread of ours")

for target in (cancelled, broken):
    thread = threading.Thread(target=target, name=target.__name__)
    thread.start()
    thread.join()
"""


def logged(level: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", _SCRIPT, level], capture_output=True, text=True, check=True, timeout=120
    ).stderr


def test_lines_of_other_libraries_come_once_and_without_tracebacks() -> None:
    found = logged("INFO")
    lines = [line.partition(" ")[2].partition(" ")[2] for line in found.splitlines()]
    assert lines[:3] == [
        "ERROR mode: [^-App]: Crashed reason='outer' (RuntimeError)",
        "ERROR asyncio: Task exception was never retrieved (RuntimeError)",
        "ERROR kinstream.worker: a fault of ours",
    ]
    assert "aiokafka" not in found and "Starting" not in found


def test_our_own_errors_keep_their_traceback_and_a_cancelled_thread_is_no_error() -> None:
    found = logged("INFO")
    assert found.count("Traceback") == 3  # the error, its cause, and the one in the thread
    assert "OSError: inner" in found and "ValueError: in a thread of ours" in found
    assert "broken ended by an error" in found and "CancelledError" not in found


def test_at_debug_everything_is_there() -> None:
    found = logged("DEBUG")
    assert found.count("Unable connect to node") == 50 and "Starting" in found
    assert found.count("Task exception was never retrieved") == 50
