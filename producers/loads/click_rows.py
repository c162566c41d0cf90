"""Result lists as rows of a load, and as a block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np

from kinstream.producers.loads.blocks import STRING_BYTES
from kinstream.producers.loads.record_rows import UNKNOWN_TIME, RecordRows
from kinstream.streams.records.scores import Scores
from kinstream.streams.records.values import Click, ClickBlock, LoadPosition, Table

#: session, user, address, query, query_row, starts: int32; shown_at: int64.
_LIST_BYTES: Final = 6 * 4 + 8
#: item, position: int32.
_SHOWN_BYTES: Final = 4 + 4
#: clicked: int32; click and dwell time: int64.
_CLICK_BYTES: Final = 4 + 8 + 8
#: A click and its kind: int32.
KIND_BYTES: Final = 4 + 4


@dataclass(frozen=True, slots=True)
class ClickRows(RecordRows[Click]):
    """Consecutive result lists."""

    def record(self, space: str, load: LoadPosition, time_ms: int) -> ClickBlock:
        """Their block."""
        return click_block(self.entries, space, time_ms, load)


def click_bytes(click: Click) -> int:
    """Upper bound of the bytes that a list takes in a block."""
    named = (click.session, click.user, click.address, click.query_item)
    names = [*click.items, click.list_id, *(name or "" for name in named)]
    fixed = _LIST_BYTES + _SHOWN_BYTES * len(click.items) + _CLICK_BYTES * len(click.clicks)
    vector = sum(4 * int(t.vectors.shape[1]) for t in click.query_vector)
    kinds = [one.action for one in click.clicks if one.action is not None]
    names += kinds
    more = KIND_BYTES * len(kinds) + score_bytes(click) + weight_bytes(click)
    return fixed + vector + more + len("".join(names).encode()) + STRING_BYTES * len(names)


def weighted(click: Click) -> bool:
    """Whether an action of a list has a weight."""
    return any(one.weight is not None for one in click.clicks)


def weight_bytes(click: Click) -> int:
    """Bytes that the weights of a list take in a block whose lists have some."""
    return 4 * len(click.clicks) if weighted(click) else 0


def score_bytes(click: Click) -> int:
    """Upper bound of the bytes that the scores of a list take in a block whose lists have the same names."""
    if click.scores is None:
        return 0
    names = sum(len(name.encode()) + STRING_BYTES for name in click.scores.names)
    return names + 4 * click.scores.values.size


def click_block(
    lists: Sequence[Click], space: str, time_ms: int, load: LoadPosition | None = None
) -> ClickBlock:
    """Result lists in columns.

    Parameters
    ----------
    lists : at least one; those with a query vector have the same modalities and dimensions, and all scores together at
        most `MOST_NAMES` names.
    time_ms : for those whose time is `UNKNOWN_TIME`.
    """
    actors: dict[str, int] = {}
    shown_names = list(chain.from_iterable([c.items for c in lists]))
    ids = {name: number for number, name in enumerate(dict.fromkeys(shown_names))}
    item = list(map(ids.__getitem__, shown_names))
    lengths = [len(c.items) for c in lists]
    starts = np.concatenate([[0], np.cumsum(lengths)])
    query = _indices([c.query_item for c in lists], ids)
    session = _indices([c.session for c in lists], actors)
    user = _indices([c.user for c in lists], actors)
    located = any(c.address is not None for c in lists)
    address = _indices([c.address for c in lists], actors) if located else None
    clicked = [
        start + c.items.index(click.item)
        for start, c in zip(starts.tolist(), lists, strict=False)
        for click in c.clicks
    ]
    carried = [c.query_vector for c in lists if c.query_vector]
    vectors = tuple(
        Table(table.name, np.concatenate([query[number].vectors for query in carried]))
        for number, table in enumerate(carried[0] if carried else ())
    )
    has_vector = np.array([bool(c.query_vector) for c in lists])
    clicks = list(chain.from_iterable(c.clicks for c in lists))
    kinds: dict[str, int] = {}
    action = _indices([click.action for click in clicks], kinds)
    shown = np.array([c.shown_at_ms for c in lists], np.int64)
    at = np.array([click.time_ms for click in clicks], np.int64)
    return ClickBlock(
        space=space,
        ids=tuple(ids),
        list_ids=tuple(c.list_id for c in lists),
        actors=tuple(actors),
        session=session,
        user=user,
        query=query,
        query_row=np.where(has_vector, np.cumsum(has_vector) - 1, -1).astype(np.int32),
        query_vectors=vectors,
        shown_at_ms=np.where(shown == UNKNOWN_TIME, time_ms, shown),
        starts=starts.astype(np.int32),
        item=np.array(item, np.int32),
        position=np.array(list(chain.from_iterable(c.positions for c in lists)), np.int32),
        clicked=np.array(clicked, np.int32),
        click_ms=np.where(at == UNKNOWN_TIME, time_ms, at),
        dwell_ms=np.array([-1 if c.dwell_ms is None else c.dwell_ms for c in clicks], np.int64),
        load=load,
        address=address,
        scores=_scores(lists, starts),
        kinds=tuple(kinds),
        action=action if kinds else None,
        weight=np.array([1.0 if c.weight is None else c.weight for c in clicks], np.float32)
        if any(map(weighted, lists))
        else None,
    )


def _scores(lists: Sequence[Click], starts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Scores | None:
    """The scores of all lists, under the names that any of them has."""
    given = [c.scores for c in lists]
    names = tuple(sorted({name for one in given if one is not None for name in one.names}))
    if not names:
        return None
    values = np.full((int(starts[-1]), len(names)), np.nan, np.float32)
    for first, one in zip(starts.tolist(), given, strict=False):
        if one is not None:
            values[first : first + len(one), [names.index(name) for name in one.names]] = one.values
    return Scores(names, values)


def _indices(
    names: Sequence[str | None], known: dict[str, int]
) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """(n,) places of names in `known`, which grows; -1 for none."""
    return np.array([-1 if n is None else known.setdefault(n, len(known)) for n in names], np.int32)
