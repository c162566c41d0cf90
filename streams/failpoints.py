"""Named places where a test can end, stop or fail the process.

`KINSTREAM_FAILPOINTS="checkpoint.before-manifest=kill@3;agent.after-send-before-ack=raise"` kills the process
at the third hit of the first and raises at the first hit of the second. Without the variable, a hit costs one
lookup.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Final

from kinstream.streams.errors import SettingsError

VARIABLE: Final = "KINSTREAM_FAILPOINTS"

#: All failpoints. Another name is an error, in a specification and in a call.
NAMES: Final = frozenset(
    {
        "producer.after-send-before-ack",
        "agent.after-send-before-ack",
        "agent.after-flush-before-manifest",
        "checkpoint.between-space-files",
        "checkpoint.before-manifest",
        "checkpoint.after-manifest",
        "checkpoint.during-restore",
        "checkpoint.during-prune",
        "repartition.after-birth",
        "repartition.after-record",
        "repartition.after-topic",
        "repartition.after-partition",
        "repartition.after-commit",
    }
)


class Effect(StrEnum):
    """The effect of a failpoint. `kill` and `exit` end the process at once, `pause` stops it until SIGCONT."""

    KILL = "kill"
    EXIT = "exit"
    PAUSE = "pause"
    RAISE = "raise"


class _Failpoint:
    """Counts its hits and takes effect at exactly one of them."""

    def __init__(self, name: str, effect: Effect, at: int) -> None:
        self._name = name
        self._effect = effect
        self._at = at
        self._hits = 0
        self._lock = threading.Lock()

    def hit(self) -> None:
        with self._lock:
            self._hits += 1
            due = self._hits == self._at
        if not due:
            return
        if self._effect is Effect.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        elif self._effect is Effect.PAUSE:
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self._effect is Effect.EXIT:
            os._exit(1)
        else:
            raise RuntimeError(f"failpoint {self._name}, hit {self._at}")


#: Empty until the first hit, so that the command reports a wrong specification, and not an import.
_points: dict[str, _Failpoint | None] = {}


def hit(name: str) -> None:
    """Pass the failpoint `name`.

    Raises
    ------
    RuntimeError : the failpoint is set to `raise` at this hit.
    SettingsError : no failpoint has this name, or the environment variable cannot be parsed.
    """
    try:
        point = _points[name]
    except KeyError:
        point = _first_hit(name)
    if point is not None:
        point.hit()


def install(specification: str) -> None:
    """Arm failpoints in this process, replacing those armed so far; an empty text disarms all.

    Raises
    ------
    SettingsError : an unknown name or effect, or a hit that is not a number from 1.
    """
    global _points
    points: dict[str, _Failpoint | None] = dict.fromkeys(NAMES)
    for part in filter(None, (text.strip() for text in specification.split(";"))):
        name, _, action = part.partition("=")
        effect, at, number = action.partition("@")
        _known(name)
        if effect not in set(Effect):
            raise SettingsError(f"{VARIABLE}: {part!r}: the effect must be one of {', '.join(Effect)}")
        if at and not (number.isascii() and number.isdigit() and int(number) > 0):
            raise SettingsError(f"{VARIABLE}: {part!r}: what follows @ must be a number from 1")
        points[name] = _Failpoint(name, Effect(effect), int(number) if at else 1)
    _points = points


@contextmanager
def installed(specification: str) -> Iterator[None]:
    """Arm failpoints for a `with` block, and restore what was armed before.

    Raises
    ------
    SettingsError : as `install`.
    """
    global _points
    before = _points
    install(specification)
    try:
        yield
    finally:
        _points = before


def _first_hit(name: str) -> _Failpoint | None:
    if not _points:
        install(os.environ.get(VARIABLE, ""))
    _known(name)
    return _points[name]


def _known(name: str) -> None:
    if name not in NAMES:
        raise SettingsError(f"no failpoint has the name {name!r}; there are: {', '.join(sorted(NAMES))}")
