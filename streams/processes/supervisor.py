"""The parent of a worker process: starts it again when it ends, with growing pauses, until it is stopped.

It reads no settings, and imports nothing that does: what it needs of them, the worker tells it. The worker starts
sooner for it, and the supervisor needs little memory as long as it runs.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from kinstream.streams.processes.listening import HANDED
from kinstream.streams.processes.log_lines import use

log = logging.getLogger("kinstream.supervisor")

#: Exit status of a worker that must not be started again: the settings, the log or the store need an operator.
REFUSED: Final = 3
#: Exit status of a worker whose settings are wrong in themselves.
WRONG_SETTINGS: Final = 2
#: Exit status of a worker that ended itself and must be restarted.
RESTART: Final = 75
FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 30.0
#: A worker that ran this long was healthy: the next pause is short again.
HEALTHY_SECONDS: Final = 30.0
#: The supervisor gives up after this many ends in a row without a healthy run.
MAX_FAILURES: Final = 20
#: A worker that has reported nothing is starting, and has nothing to hand over.
STARTING_SECONDS: Final = 5.0

#: Seconds between two looks at a child whose end no signal tells, and while it ends.
LOOK_SECONDS: Final = 1.0
ENDING_SECONDS: Final = 0.02

#: File descriptor of the socket on which a worker waits for the end of its supervisor, and tells it of the settings.
LEASH: Final = "KINSTREAM_LEASH"
RESTARTS: Final = "KINSTREAM_RESTARTS"
#: Whether the predecessor of a worker crashed below Python.
CRASHED: Final = "KINSTREAM_CRASHED"
#: SIGKILL is not among them: it comes from an operator or the out-of-memory killer.
CRASHES: Final = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT})


class Supervisor:
    """Runs `command` as a child process, one at a time.

    Parameters
    ----------
    command : the worker's own command line.
    name : of the worker in log lines.
    stop_seconds : after a stop signal, how long the child may take before it is killed, unless it tells otherwise.
    popen : how each child is started, as of `subprocess.Popen`.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        name: str = "the worker",
        stop_seconds: float = STARTING_SECONDS,
        env: Mapping[str, str] | None = None,
        **popen: Any,
    ) -> None:
        self._command, self._name, self._popen = list(command), name, popen
        self._environment = {**os.environ} if env is None else {**env}
        self._stop_seconds = stop_seconds
        self._stopping = threading.Event()
        self._asked = False
        self._child: subprocess.Popen[bytes] | None = None
        #: Seconds between two looks at the child; None where a signal tells of its end.
        self._looks: float | None = LOOK_SECONDS
        self._wakes, self._woken = socket.socketpair()
        for end in (self._wakes, self._woken):
            end.setblocking(False)

    def run(self) -> int:
        """In the main thread: supervise until a signal to stop, or a refusal; returns the exit status for the shell."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: self.stop())
        # Only a signal with a handler wakes: also the one at a child's end.
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._looks = None
        with self._wakes, self._woken:
            signal.set_wakeup_fd(self._woken.fileno(), warn_on_full_buffer=False)
            try:
                return self._supervise()
            finally:
                signal.set_wakeup_fd(-1)

    def stop(self) -> None:
        """End the child, and with it `supervise`; from any thread."""
        self._stopping.set()
        # There are signals enough to read, or nobody reads any more.
        with contextlib.suppress(OSError):
            self._woken.send(b"\0")

    def kill(self) -> None:
        """End the child at once, with all processes of its session if it leads one."""
        child = self._child
        if child is not None and child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)

    def supervise(self) -> int:
        """In any thread: supervise until `stop`, or a refusal; returns an exit status. Only once."""
        with self._wakes, self._woken:
            return self._supervise()

    def _supervise(self) -> int:
        pause = FIRST_PAUSE
        failures = restarts = 0
        crashed = False
        while True:
            began = time.monotonic()
            status = self._run_child(restarts, crashed)
            if self._stopping.is_set():
                # A worker that ended before the request has not failed to stop.
                return 0 if status in (0, -signal.SIGTERM, -signal.SIGINT) or not self._asked else 1
            if status in (0, WRONG_SETTINGS, REFUSED):
                return status
            crashed = -status in CRASHES
            lived = time.monotonic() - began
            failures = 0 if lived > HEALTHY_SECONDS else failures + 1
            pause = FIRST_PAUSE if lived > HEALTHY_SECONDS else min(pause * 2, LONGEST_PAUSE)
            if failures >= MAX_FAILURES:
                log.error("%s ended %d times in a row; giving up", self._name, failures)
                return 1
            log.warning("%s ended with status %d; starting it again in %.1f s", self._name, status, pause)
            if self._stopping.wait(pause):
                return 0
            restarts += 1

    def _run_child(self, restarts: int, crashed: bool) -> int:
        ours, theirs = socket.socketpair()
        leash = theirs.fileno()
        told = {LEASH: str(leash), RESTARTS: str(restarts), CRASHED: str(int(crashed))}
        page = [int(self._environment[HANDED])] if HANDED in self._environment else []
        with ours:
            ours.setblocking(False)
            with theirs:
                child = self._child = subprocess.Popen(
                    self._command, env=self._environment | told, pass_fds=(leash, *page), **self._popen
                )
            watched, looks = [self._wakes, ours], self._looks
            while True:
                if self._stopping.is_set():
                    return self._end_child(child)
                if (status := child.poll()) is not None:
                    return status
                # Signals before this call have left a byte.
                ready, _, _ = select.select(watched, (), (), looks)
                if self._wakes in ready:
                    self._wakes.recv(4096)
                if ours in ready and not self._listen(ours):
                    # The child ends: the signal of its end is to come, or it is looked at soon.
                    watched.remove(ours)
                    looks = self._looks and ENDING_SECONDS

    def _listen(self, ours: socket.socket) -> bool:
        """Take what the child has reported, in one short message; False if it reports no more."""
        try:
            message = ours.recv(4096)
        except ConnectionResetError:
            return False
        if message:
            told = json.loads(message)
            self._stop_seconds = told["stop_seconds"]
            use(told["log_format"])
        return bool(message)

    def _end_child(self, child: subprocess.Popen[bytes]) -> int:
        ended = child.poll()
        if ended is not None:
            return ended
        self._asked = True
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signal.SIGTERM)
        try:
            return child.wait(timeout=self._stop_seconds)
        except subprocess.TimeoutExpired:
            log.error("%s did not stop within %.0f s; killing it", self._name, self._stop_seconds)
            child.kill()
            return child.wait()


def supervisor() -> int | None:
    """In a worker: process id of its supervisor; None without one."""
    return os.getppid() if LEASH in os.environ else None


def hold_on_to_supervisor() -> None:
    """In a worker: stop when the supervisor is gone, for any reason. A worker that is still starting ends at once."""
    leash = os.environ.get(LEASH)
    if leash is None:
        return

    def wait() -> None:
        # What was reported and not taken resets the connection.
        with contextlib.suppress(ConnectionResetError):
            os.read(int(leash), 1)
        log.warning("the supervisor is gone; stopping")
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="leash", daemon=True).start()


def tell_supervisor(stop_seconds: float, log_format: Literal["text", "json"]) -> None:
    """In a worker: tell the supervisor what it needs of the settings.

    Parameters
    ----------
    stop_seconds : how long the worker may take to stop before it is killed.
    log_format : the form of log lines.
    """
    leash = os.environ.get(LEASH)
    if leash is not None:
        # Without a supervisor, this process ends as well.
        with contextlib.suppress(BrokenPipeError):
            os.write(
                int(leash), json.dumps({"stop_seconds": stop_seconds, "log_format": log_format}).encode()
            )
