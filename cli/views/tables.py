"""Lists as aligned text: one line a row, never cut, so that grep and cut work on it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import click

from kinstream.streams.columns import columns


def echo_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a header and its rows in columns."""
    for line in columns(header, rows):
        click.echo(line)


def for_a_person() -> bool:
    """Whether standard output is a terminal: only there is output shortened, coloured or drawn."""
    return sys.stdout.isatty()


def moment(time_ms: int) -> str:
    """A time of a record, in UTC to the second."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(time_ms)
