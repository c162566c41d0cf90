"""Queries and the items that answer them, from a file or of the packages that are installed."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinstream.producers.simulated.documentation import corpus
from kinstream.streams.errors import SettingsError, SourceError

Vectors = NDArray[np.float32]

DOCUMENTATION: Final = "documentation"
FILE_PREFIX: Final = "file:"
_NAMES: Final = ("queries", "items")
_TEXTS: Final = ("query_texts", "item_texts")


class Corpus(NamedTuple):
    """Queries and items (n, d), row i of the items the answer to row i of the queries; and their texts, if any."""

    queries: Vectors
    items: Vectors
    texts: tuple[list[str], list[str]] | None = None


def opened(source: str) -> Corpus:
    """Queries and the items that answer them.

    Parameters
    ----------
    source : "documentation", or "file:PATH" of an NPZ file with both, and with `query_texts` and `item_texts` if there
        are any.

    Raises
    ------
    SettingsError : another source.
    SourceError : the file cannot be read, or does not hold two tables of one shape of finite numbers.
    """
    if source == DOCUMENTATION:
        made = corpus()
        texts = [one.query for one in made.functions], [one.item for one in made.functions]
        return Corpus(made.queries, made.items, texts)
    if not source.startswith(FILE_PREFIX):
        raise SettingsError(f"--from {source!r}: write {DOCUMENTATION} or file:PATH")
    path = Path(source.removeprefix(FILE_PREFIX))
    try:
        with np.load(path, allow_pickle=False) as file:
            queries, items = (np.asarray(file[name], np.float32) for name in _NAMES)
            given = [file[name] for name in _TEXTS if name in file]
    except (OSError, ValueError, KeyError) as error:
        raise SourceError(f"{path}: not an NPZ file with {' and '.join(_NAMES)}: {error}") from error
    if queries.ndim != 2 or queries.shape != items.shape or len(queries) < 2:
        shapes = f"{queries.shape} and {items.shape}"
        raise SourceError(f"{path}: queries and items must be tables (n, d) of one shape, not {shapes}")
    for name, table in zip(_NAMES, (queries, items), strict=True):
        bad = np.flatnonzero(~np.isfinite(table).all(axis=1))
        if len(bad):
            raise SourceError(f"{path}: row {bad[0]} of {name} is not finite")
    if not given:
        return Corpus(queries, items)
    if len(given) != 2 or any(one.shape != (len(queries),) or one.dtype.kind != "U" for one in given):
        raise SourceError(
            f"{path}: {' and '.join(_TEXTS)} go together, each an array of {len(queries)} texts"
        )
    return Corpus(queries, items, (given[0].tolist(), given[1].tolist()))
