"""The log of a process: our lines, and shortened lines of other libraries.

An error that ends a process is logged by us in one line, with a traceback if it is a bug of ours. The messages of
faust, aiokafka and asyncio before it would only hide that line: they get one line each, without a traceback, and
repeats are dropped. The watchdog reports an outage; aiokafka's lines are dropped.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from traceback import format_exc
from typing import Final, Literal

from kinstream.streams.processes.json_lines import JsonFormatter, name_agent
from kinstream.streams.secrets import HidingFormatter, hide

#: These libraries, by the first part of their loggers' names.
OTHERS: Final = frozenset({"faust", "aiokafka", "mode", "asyncio", "opentelemetry"})
#: The loggers of faust's services in our transport: faust names them after the module. Our own lines have loggers of
#: other names, such as `kinstream.worker`.
SERVICES: Final = "kinstream.streams"
#: Lowest level of their lines. Errors that aiokafka logs are retried, or raised to us.
_LEVELS: Final = {
    "faust": logging.WARNING,
    "mode": logging.WARNING,
    SERVICES: logging.WARNING,
    "aiokafka": logging.CRITICAL,
    "botocore": logging.WARNING,
    # `kinstream.traces` logs what was dropped.
    "opentelemetry": logging.CRITICAL,
    "urllib3": logging.ERROR,
}
#: Seconds for which a line is not repeated.
QUIET_SECONDS: Final = 60.0
_TEXT: Final = "%(asctime)s %(levelname)s %(name)s%(agent)s: %(message)s"
_LONGEST: Final = 300
#: Number of lines that are remembered.
_KEPT: Final = 256


def begin(level: str) -> None:
    """Log to standard error from now on; with DEBUG, also every line of other libraries."""
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(HidingFormatter(_TEXT))
    lines.addFilter(name_agent)
    debug = level.upper() == "DEBUG"
    if not debug:
        lines.addFilter(OneLine())
    logging.basicConfig(level=level.upper(), handlers=[lines])
    for name, least in _LEVELS.items():
        # At DEBUG aiokafka would log its credentials, and botocore what it signs and the answers that hold its own.
        logging.getLogger(name).setLevel(logging.INFO if debug else least)
    threading.excepthook = _thread_ended


def use(form: Literal["text", "json"]) -> None:
    """Write lines in that form from now on; the settings, which are read after the start, decide it."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, HidingFormatter | JsonFormatter):
            handler.setFormatter(JsonFormatter() if form == "json" else HidingFormatter(_TEXT))


def report(text: str, *, traceback: bool = False) -> None:
    """Write what ends a process to standard error: for people, or as a line of the log if that is JSON.

    Parameters
    ----------
    traceback : include that of the exception being handled.
    """
    root = logging.getLogger()
    if any(isinstance(handler.formatter, JsonFormatter) for handler in root.handlers):
        logging.getLogger("kinstream").error("%s", text, exc_info=traceback)
    else:
        found = format_exc() if traceback else f"kinstream: {text}\n"
        # Standard error may be full; the exit status stays.
        with suppress(OSError):
            print(hide(found), end="", file=sys.stderr, flush=True)


def _thread_ended(ended: threading.ExceptHookArgs) -> None:
    """Log an error that has ended a thread, with secrets hidden. Cancellation is the normal end of faust's threads."""
    if ended.exc_value is None or ended.exc_type.__name__ == "CancelledError":
        return
    name = ended.thread.name if ended.thread else "thread"
    found = (ended.exc_type, ended.exc_value, ended.exc_traceback)
    logging.getLogger("kinstream").error("%s ended by an error", name, exc_info=found)


class OneLine(logging.Filter):
    """Limits how often a line of another library is logged, and drops its traceback.

    Parameters
    ----------
    clock : in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith(f"{SERVICES}."):
            record.name = "faust"
        if record.name.partition(".")[0] not in OTHERS:
            return True
        # Lines are compared by format: the same line about another node or attempt is a repeat.
        place = (record.name, str(record.msg))
        now = self._clock()
        if now - self._seen.get(place, -QUIET_SECONDS) < QUIET_SECONDS:
            return False
        if len(self._seen) >= _KEPT:
            self._seen.clear()
        self._seen[place] = now
        text = record.getMessage().strip()
        first = text.partition("\n")[0].rstrip(": ")
        if record.exc_info and record.exc_info[1] is not None:
            first += f" ({type(record.exc_info[1]).__name__})"
        record.msg, record.args = first[:_LONGEST], ()
        record.exc_info = record.exc_text = record.stack_info = None
        return True
