"""Queries and the items that answer them, from a file or of the packages that are installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinstream.evaluation.queries.judgements import Judgements
from kinstream.producers.simulated import documentation
from kinstream.producers.simulated.documentation import corpus, encoded_corpus
from kinstream.streams.errors import BadRecord, SettingsError, SourceError
from kinstream.streams.records.codec.json_events import read_json
from kinstream.streams.records.values import Event

Vectors = NDArray[np.float32]

DOCUMENTATION: Final = "documentation"
MINILM: Final = "minilm"
FILE_PREFIX: Final = "file:"
_NAMES: Final = ("queries", "items")
_TEXTS: Final = ("query_texts", "item_texts")
_JUDGEMENTS: Final = "judgements"


class Corpus(NamedTuple):
    """Queries (q, d) and items (n, d), their texts, if any, and which items answer.

    Without judgements, row i of the items answers row i of the queries.
    """

    queries: Vectors
    items: Vectors
    texts: tuple[list[str], list[str]] | None = None
    judgements: Judgements | None = None

    @property
    def answered(self) -> int:
        """How many queries have an answer."""
        return len(self.queries if self.judgements is None else self.judgements.queries)


def of_documentation(made: documentation.Corpus) -> Corpus:
    """Functions of the documentation with their texts."""
    texts = [one.query for one in made.functions], [one.item for one in made.functions]
    return Corpus(made.queries, made.items, texts)


def lines_of(path: Path) -> Iterator[Event]:
    """The events of a file that has one as JSON in each line (docs/json-events.md).

    Raises
    ------
    SourceError : the file cannot be read, or a line is no event; with its number.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    try:
                        yield read_json(line)
                    except BadRecord as error:
                        raise SourceError(f"{path}: line {number}: {error}") from error
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from error


def opened(source: str) -> Corpus:
    """Queries and the items that answer them.

    Parameters
    ----------
    source : "documentation"; "minilm", the same by another encoder; or "file:PATH" of an NPZ file with both, with
        `query_texts` and `item_texts` if there are any, and `judgements`, rows of query, item and grade.

    Raises
    ------
    SettingsError : another source.
    SourceError : the file cannot be read, or its arrays do not fit each other.
    """
    if source in (DOCUMENTATION, MINILM):
        return of_documentation(corpus() if source == DOCUMENTATION else encoded_corpus())
    if not source.startswith(FILE_PREFIX):
        raise SettingsError(
            f"--from {source!r}: write {DOCUMENTATION}, {MINILM}, file:PATH, events:PATH or space:NAME"
        )
    path = Path(source.removeprefix(FILE_PREFIX))
    try:
        with np.load(path, allow_pickle=False) as file:
            queries, items = (np.asarray(file[name], np.float32) for name in _NAMES)
            given = [file[name] for name in _TEXTS if name in file]
            table = file.get(_JUDGEMENTS)
    except (OSError, ValueError, KeyError) as error:
        raise SourceError(f"{path}: not an NPZ file with {' and '.join(_NAMES)}: {error}") from error
    shapes = f"{queries.shape} and {items.shape}"
    if any(one.ndim != 2 or len(one) < 2 for one in (queries, items)) or queries.shape[1] != items.shape[1]:
        raise SourceError(f"{path}: queries and items must be tables (q, d) and (n, d), not {shapes}")
    if table is None and len(queries) != len(items):
        raise SourceError(f"{path}: {_JUDGEMENTS} are missing, and queries and items are of {shapes}")
    for name, rows in zip(_NAMES, (queries, items), strict=True):
        bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if len(bad):
            raise SourceError(f"{path}: row {bad[0]} of {name} is not finite")
    try:
        judged = None if table is None else Judgements.of_table(table, len(queries), len(items))
    except ValueError as error:
        raise SourceError(f"{path}: {error}") from error
    if not given:
        return Corpus(queries, items, None, judged)
    wanted = zip(given, (queries, items), strict=False)
    if len(given) != 2 or any(one.shape != (len(of),) or one.dtype.kind != "U" for one, of in wanted):
        raise SourceError(
            f"{path}: {' and '.join(_TEXTS)} go together, each an array of as many texts as vectors"
        )
    return Corpus(queries, items, (given[0].tolist(), given[1].tolist()), judged)
