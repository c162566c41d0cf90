"""Lists as aligned text: one line a row, never cut, so that grep and cut work on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import click


def echo_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a header and its rows in columns."""
    lines = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def moment(time_ms: int) -> str:
    """A time of a record, in UTC to the second."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(time_ms)
