"""Queries and the items that answer them, from a file or of the packages that are installed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.producers.simulated.documentation import corpus
from kinstream.replay.log.sources import FILE_PREFIX
from kinstream.streams.errors import SettingsError, SourceError

Vectors = NDArray[np.float32]

DOCUMENTATION: Final = "documentation"
_NAMES: Final = ("queries", "items")


def opened(source: str) -> tuple[Vectors, Vectors]:
    """Queries and items (n, d); row i of the items answers row i of the queries.

    Parameters
    ----------
    source : "documentation", or "file:PATH" of an NPZ file with both.

    Raises
    ------
    SettingsError : another source.
    SourceError : the file cannot be read, or does not hold two tables of one shape of finite numbers.
    """
    if source == DOCUMENTATION:
        made = corpus()
        return made.queries, made.items
    if not source.startswith(FILE_PREFIX):
        raise SettingsError(f"--from {source!r}: write {DOCUMENTATION} or file:PATH")
    path = Path(source.removeprefix(FILE_PREFIX))
    try:
        with np.load(path, allow_pickle=False) as file:
            queries, items = (np.asarray(file[name], np.float32) for name in _NAMES)
    except (OSError, ValueError, KeyError) as error:
        raise SourceError(f"{path}: not an NPZ file with {' and '.join(_NAMES)}: {error}") from error
    if queries.ndim != 2 or queries.shape != items.shape or len(queries) < 2:
        shapes = f"{queries.shape} and {items.shape}"
        raise SourceError(f"{path}: queries and items must be tables (n, d) of one shape, not {shapes}")
    for name, table in zip(_NAMES, (queries, items), strict=True):
        bad = np.flatnonzero(~np.isfinite(table).all(axis=1))
        if len(bad):
            raise SourceError(f"{path}: row {bad[0]} of {name} is not finite")
    return queries, items
