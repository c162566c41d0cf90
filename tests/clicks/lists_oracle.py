"""Click lists, and the mistakes of OPML on them from the definitions alone: nothing shared with the product.

A list of items is read as "click > skip above": each clicked item is preferred over every unclicked one above it. OPML
is Algorithm 1 of its paper, without a guard. All triplets of a list are judged by the map from before the list, and
learned then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.records.values import Click, ItemBlock, ItemClick, Table

Matrix = NDArray[np.float64]
#: Query, clicked and skipped item of a triplet, as (3, d).
Triplets = list[Matrix]

SPACE: Final = "shop"
ITEMS: Final = 120
DIMENSION: Final = 24
#: Items in a list, the query not among them.
SHOWN: Final = 10


@dataclass(frozen=True)
class Verdicts:
    """How many triplets there were, how many of them were mistakes, and how many if each had been learned at once."""

    scored: int
    mistakes: int
    one_by_one: int


def catalogue(seed: int = 3) -> NDArray[np.float32]:
    """Items of four kinds, which one direction in twenty-four tells apart."""
    draw = np.random.default_rng(seed)
    vectors = draw.normal(size=(ITEMS, DIMENSION))
    vectors[:, 0] += 1.5 * (np.arange(ITEMS) % 4)
    scaled: NDArray[np.float32] = (vectors / np.sqrt(DIMENSION)).astype(np.float32)
    return scaled


def item_block(vectors: NDArray[np.float32]) -> ItemBlock:
    return ItemBlock(SPACE, tuple(f"i{n}" for n in range(ITEMS)), (Table("x", vectors),), time_ms=1)


def lists(count: int, seed: int = 5) -> Iterator[Click]:
    """Users ask for an item and click those of its kind, or by accident."""
    draw = np.random.default_rng(seed)
    for number in range(count):
        query, *shown = draw.choice(ITEMS, SHOWN + 1, replace=False).tolist()
        clicked = [item for item in shown if draw.random() < (0.8 if item % 4 == query % 4 else 0.05)]
        yield Click(
            SPACE,
            f"list {number}",
            tuple(f"i{item}" for item in shown),
            tuple(range(SHOWN)),
            tuple(ItemClick(f"i{item}", 1_000 + number) for item in clicked),
            1_000 + number,
            query_item=f"i{query}",
        )


def triplets_of(click: Click, vectors: NDArray[np.float32]) -> Triplets:
    """What the list says, from the top down."""
    clicked = {one.item for one in click.clicks}
    assert click.query_item is not None
    named = [
        (click.query_item, item, above)
        for place, item in enumerate(click.items)
        if item in clicked
        for above in click.items[:place]
        if above not in clicked
    ]
    return [vectors[[int(name[1:]) for name in names]].astype(np.float64) for names in named]


def opml(events: Iterable[Triplets], gamma: float) -> Verdicts:
    """One pass over events of triplets."""
    L: Matrix = np.eye(DIMENSION)
    scored = mistakes = one_by_one = 0
    for event in events:
        judged_by = L.copy()
        for x, near, far in event:
            a, b = x - near, x - far
            scored += 1
            mistakes += _mistake(judged_by, a, b)
            one_by_one += _mistake(L, a, b)
            L = _stepped(L, a, b, gamma)
    return Verdicts(scored, mistakes, one_by_one)


def _mistake(L: Matrix, a: Any, b: Any) -> bool:
    margin = float(np.sum((L @ b) ** 2) - np.sum((L @ a) ** 2))
    assert abs(margin) > 1e-9, "a tie, which rounding would decide"
    return margin <= 0.0


def _stepped(L: Matrix, a: Any, b: Any, gamma: float) -> Matrix:
    if 1.0 + np.sum((L @ a) ** 2) - np.sum((L @ b) ** 2) <= 0.0:
        return L
    inverse = np.linalg.inv(np.eye(DIMENSION) + gamma * (np.outer(a, a) - np.outer(b, b)))
    return np.asarray(L @ inverse, np.float64)
