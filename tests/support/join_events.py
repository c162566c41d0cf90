"""Items, clicks and relations of a space, as encoded events: what the builders that join need."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.values import ClickBlock, ItemBlock, LoadPosition, RelationBlock, Table

#: Event times are near the times that `MemoryLog` gives, which begin at 0.
START_MS = 1_000


def items(
    space: str,
    first: int,
    count: int,
    *,
    d: int = 4,
    seed: int = 0,
    tombstones: tuple[str, ...] = (),
    load: LoadPosition | None = None,
) -> ItemBlock:
    """Items i0, i1, ... of a space, from number `first` on."""
    rng = np.random.default_rng([seed, first, sum(space.encode())])
    vectors = rng.standard_normal((count, d)).astype(np.float32)
    ids = tuple(f"i{n}" for n in range(first, first + count))
    return ItemBlock(space, ids, (Table("x", vectors),) if count else (), START_MS, tombstones, load)


def _whole(values: object) -> NDArray[np.int32]:
    return np.asarray(values, np.int32)


def clicks(
    space: str, number: int, lists: int, known: int, *, length: int = 6, load: LoadPosition | None = None
) -> ClickBlock:
    """Lists over items i0 .. i(known - 1); their query is an item."""
    rng = np.random.default_rng([number, known, sum(space.encode())])
    shown = np.concatenate([rng.choice(known, length + 1, replace=False) for _ in range(lists)])
    shown = shown.reshape(lists, length + 1)
    ids, index = np.unique(shown, return_inverse=True)
    index = index.reshape(shown.shape)
    clicked = np.flatnonzero(rng.random(lists * length) < 0.3)
    actors = tuple(f"u{n}" for n in range(5)) + tuple(f"s{n}" for n in range(9))
    times = START_MS + number * 10 + np.arange(lists)
    return ClickBlock(
        space=space,
        ids=tuple(f"i{n}" for n in ids.tolist()),
        list_ids=tuple(f"{number}-{n}" for n in range(lists)),
        actors=actors,
        session=_whole(rng.integers(5, 14, lists)),
        user=_whole(rng.integers(0, 5, lists)),
        query=_whole(index[:, 0]),
        query_row=np.full(lists, -1, np.int32),
        query_vectors=(),
        shown_at_ms=times.astype(np.int64),
        starts=_whole(np.arange(lists + 1) * length),
        item=_whole(index[:, 1:].reshape(-1)),
        position=_whole(np.tile(np.arange(length), lists)),
        clicked=_whole(clicked),
        click_ms=np.repeat(times, length)[clicked].astype(np.int64) + 1,
        dwell_ms=np.full(len(clicked), -1, np.int64),
        load=load,
    )


def relations(
    space: str, number: int, rows: int, known: int, *, load: LoadPosition | None = None
) -> RelationBlock:
    """Relations among items i0 .. i(known - 1), contradictions among them."""
    rng = np.random.default_rng([number, rows, sum(space.encode())])
    pairs = np.stack([rng.choice(known, 2, replace=False) for _ in range(rows)])
    ids, index = np.unique(pairs, return_inverse=True)
    index = index.reshape(pairs.shape)
    return RelationBlock(
        space=space,
        ids=tuple(f"i{n}" for n in ids.tolist()),
        left=_whole(index[:, 0]),
        right=_whole(index[:, 1]),
        similar=rng.random(rows) < 0.7,
        time_ms=np.full(rows, START_MS + number, np.int64),
        sources=("somebody",),
        source=_whole(rng.integers(-1, 1, rows)),
        load=load,
    )


def events(space: str, count: int) -> list[bytes]:
    """Items first, then clicks and relations between further items, replaced items and tombstones."""
    made: list[bytes] = []
    for number in range(count):
        load = LoadPosition("load", number)
        known = 10 + 2 * number
        match number % 4:
            case 0:
                made.append(encode(items(space, max(0, known - 14), 14, seed=number, load=load)))
            case 1:
                # Some of the items shown are not there yet.
                made.append(encode(clicks(space, number, 6, known + 2, load=load)))
            case 2:
                made.append(encode(relations(space, number, 6, known, load=load)))
            case _:
                gone = (f"i{number}", f"i{number + 2}")
                made.append(encode(items(space, known, 2, seed=number, tombstones=gone, load=load)))
    return made
