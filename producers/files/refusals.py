"""Files that no reader takes: of other kinds, in other encodings, with two columns of one name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kinstream.streams.encodings import advice, not_utf8
from kinstream.streams.errors import SourceError


def refuse_twice(place: Path, names: Sequence[str]) -> None:
    """Refuse a table in which two columns have one name, with SourceError."""
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise SourceError(f"{place}: the header names {', '.join(map(repr, twice))} twice")


def refuse_other_text(place: Path, head: bytes) -> None:
    """Refuse a file that begins as something else than text in UTF-8, with SourceError."""
    if (what := not_utf8(head)) is not None:
        raise SourceError(f"{place}: not text in UTF-8: {advice(what)}")
