"""Rows as aligned text: one line a row, never cut, no lines drawn, so that programs can read it too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def columns(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A header and its rows, with two spaces between columns; an empty cell is a dash.

    Examples
    --------
    >>> columns(("NAME", "ROWS"), [("opml", 3), ("a-longer-one", "")])
    ['NAME          ROWS', 'opml          3', 'a-longer-one  -']
    """
    lines = [[_cell(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]


def _cell(value: object) -> str:
    text = str(value) or "-"
    # A row is one line, even if a name holds line ends.
    return (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    )
