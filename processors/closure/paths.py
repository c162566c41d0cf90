"""Chains of relations that explain why two items are similar or dissimilar."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.processors.closure.item_log import ItemLog
from kinstream.processors.closure.seed_log import Seed, SeedLog

_NAME_LENGTH: Final = 60


@dataclass(frozen=True, slots=True)
class Link:
    """A seed of a chain, in the direction of the chain. An erased item has no name."""

    left: str | None
    right: str | None
    similar: bool
    via: str
    offset: int
    row: int
    time_ms: int
    source: str | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Two items are similar by a chain of similar links, or dissimilar by one with exactly one dissimilar link."""

    similar: bool
    links: tuple[Link, ...]


def explain(seeds: SeedLog, items: ItemLog, relation: int, left: int, right: int) -> Explanation | None:
    """The shortest chain of seeds between two items.

    Parameters
    ----------
    relation : 1 for similar items, -1 for dissimilar ones; 0 has no explanation.
    """
    if relation == 0:
        return None
    one, other, sign, number = seeds.standing()
    related = sign != 0
    one, other, sign, number = one[related], other[related], sign[related], number[related]
    chain = _shortest(one, other, sign, left, right, relation)
    links, at = [], left
    for place in chain:
        seed = seeds.seed(int(number[place]))
        to = seed.right if seed.left == at else seed.left
        links.append(_link(seed, items, at, to))
        at = to
    return Explanation(relation > 0, tuple(links))


def _shortest(
    one: NDArray[np.int32],
    other: NDArray[np.int32],
    sign: NDArray[np.int8],
    start: int,
    goal: int,
    relation: int,
) -> list[int]:
    """Places of the seeds between two items, breadth first. An item is met on either side of a dissimilar seed."""
    ends = np.concatenate([one, other])
    order = np.argsort(ends, kind="stable")
    # Both lists begin at the item's edges.
    items = int(ends.max(initial=-1)) + 1
    starts = np.searchsorted(ends[order], np.arange(items + 1))
    opposite = np.concatenate([other, one])[order]
    places = order % len(one) if len(one) else order
    wanted = (goal, relation < 0)
    came: dict[tuple[int, bool], tuple[tuple[int, bool], int]] = {}
    first = (start, False)
    queue = deque([first])
    met = {first}
    while queue and wanted not in met:
        state = queue.popleft()
        item, crossed = state
        for edge in range(int(starts[item]), int(starts[item + 1])):
            place = int(places[edge])
            if sign[place] < 0 and (crossed or relation > 0):
                continue
            following = (int(opposite[edge]), crossed or bool(sign[place] < 0))
            if following not in met:
                met.add(following)
                came[following] = (state, place)
                queue.append(following)
    chain: list[int] = []
    at = wanted
    while at != first:
        at, place = came[at]
        chain.append(place)
    return chain[::-1]


def _link(seed: Seed, items: ItemLog, left: int, right: int) -> Link:
    return Link(
        items.name(left),
        items.name(right),
        seed.similar,
        seed.via,
        seed.offset,
        seed.row,
        seed.time_ms,
        seed.source,
    )


def chain_text(seeds: SeedLog, items: ItemLog, numbers: Sequence[int], total: int) -> str:
    """Some seeds of a chain as text, for a dead letter."""
    parts = []
    for number in numbers:
        seed = seeds.seed(number)
        names = " and ".join(_name(items.name(item)) for item in (seed.left, seed.right))
        word = "similar" if seed.similar else "dissimilar"
        where = seed_text(seed.via, seed.offset, seed.row, seed.time_ms, seed.source)
        parts.append(f"{names} {word} ({where})")
    more = f"; and {total - len(parts)} more" if total > len(parts) else ""
    return "; ".join(parts) + more


def seed_text(via: str, offset: int, row: int, time_ms: int, source: str | None) -> str:
    """The origin of a relation, as text."""
    from_source = "" if source is None else f", source {_name(source)}"
    return f"{via}, offset {offset} row {row}{from_source}, {_moment(time_ms)}"


def _name(name: str | None) -> str:
    if name is None:
        return "(erased)"
    return repr(name if len(name) <= _NAME_LENGTH else name[: _NAME_LENGTH - 3] + "...")


def _moment(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
