"""Standard output that may be full, or lack characters; and standard error that may be full."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any, Final

from kinstream.streams.errors import OutputFailed

_STANDARD: Final = 1


def begin_output() -> None:
    """Print from now on so that a character which standard output lacks is written as an escape, and so that a failed
    write raises OutputFailed.

    A closed pipe, as of `| head`, is no failure.
    """
    stream = sys.stdout
    if not isinstance(stream, io.TextIOWrapper) or stream.closed or _number(stream) != _STANDARD:
        # Closed, or another program has replaced it.
        return
    stream.flush()
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Output()),
        encoding=stream.encoding,
        errors="backslashreplace",
        # PYTHONUNBUFFERED writes through.
        line_buffering=stream.line_buffering or stream.write_through,
    )


def end_output() -> None:
    """Write what is left. Raises OutputFailed."""
    if sys.stdout is not None:
        sys.stdout.flush()


def end_errors() -> None:
    """Drop what standard error does not take: Python would end with another status for it."""
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except OSError:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")


class _Output(io.FileIO):
    """Standard output. After a failed write it takes everything and writes nothing: the failure is reported once."""

    def __init__(self) -> None:
        super().__init__(_STANDARD, "wb", closefd=False)
        self._failed = False

    def write(self, data: Any, /) -> int:
        if self._failed:
            return len(data)
        try:
            return super().write(data)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            self._failed = True
            raise OutputFailed(f"standard output cannot be written: {error.strerror or error}") from None


def _number(stream: io.TextIOWrapper) -> int:
    try:
        return stream.fileno()
    except OSError:
        return -1
