"""Simulated people who search a catalogue of embeddings: they read what is shown and click, as a log records it.

A list shows the items that are nearest to its query in the embedding, or what another ranking puts first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.producers.simulated.settings import START_MS
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.scores import Scores
from kinstream.streams.records.values import DEFAULT_MODALITY, ClickBlock, ItemBlock, Table

Vectors = NDArray[np.float32]
Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]

MODELS: Final = ("position", "cascade")
#: Lists of a block of clicks.
BLOCK: Final = 200


@dataclass(frozen=True, slots=True)
class Searchers:
    """How people read lists and click.

    Parameters
    ----------
    shown : items in a list.
    model : "position": rank r, from 1, is looked at with probability r^-bias; "cascade": from the top down to the first
        click.
    bias : as above.
    attraction, noise : probability of a click on a relevant item that is looked at, and on another one.
    poisoned : share of the lists of which somebody looks at all, and clicks irrelevant items only, each with
        probability 1/2.
    poisoners : how many people do so.
    popular : probability of a click on one of the best-known items, a tenth of all, that is looked at, whether it is
        relevant or not.
    demand : the query of rank k, from 1, is asked in proportion to k^-demand; 0: every query as often as any other.
    alike : cosine with the relevant item from which another one is clicked with half of `attraction`; above 1: none.

    Raises
    ------
    SettingsError : a value is out of range.
    """

    shown: int = 20
    model: str = "position"
    bias: float = 0.5
    attraction: float = 0.9
    noise: float = 0.02
    poisoned: float = 0.0
    poisoners: int = 20
    popular: float = 0.0
    demand: float = 0.0
    alike: float = 2.0

    def __post_init__(self) -> None:
        for name in ("attraction", "noise", "poisoned", "popular"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise SettingsError(f"{name} must be between 0 and 1, not {getattr(self, name)!r}")
        for name in ("shown", "poisoners"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.model not in MODELS:
            raise SettingsError(f"model must be one of {', '.join(MODELS)}, not {self.model!r}")
        for name in ("bias", "demand", "alike"):
            if not getattr(self, name) >= 0.0:
                raise SettingsError(f"{name} must be at least 0, not {getattr(self, name)!r}")


@dataclass(frozen=True, slots=True, eq=False)
class Searches:
    """n lists as they were shown and clicked.

    Parameters
    ----------
    query : (n,) row of the query.
    items : (n, shown) rows of the items, from the top.
    clicked : (n, shown) which of them were clicked.
    poisoner : (n,) number of the person who poisons, -1 for all others, each of whom searches once.
    """

    query: Numbers
    items: Numbers
    clicked: Flags
    poisoner: Numbers

    def __len__(self) -> int:
        return len(self.query)


def searches(
    queries: Vectors,
    items: Vectors,
    relevant: Numbers,
    people: Searchers,
    lists: int,
    seed: int,
    best: Numbers | None = None,
    right: Flags | None = None,
) -> Searches:
    """People search until there are so many lists.

    Parameters
    ----------
    queries, items : (q, d) and (n, d); the queries by their rank, the most demanded one first.
    relevant : (q,) row of the item that answers each query.
    seed : equal arguments give equal lists.
    best : (q, shown) rows of the items that each query is shown; by default those with the largest inner products.
    right : (q, shown) which of them answer it; by default `relevant` alone.
    """
    draw = np.random.default_rng([seed, 2])
    if people.demand:
        demanded = np.arange(1.0, len(queries) + 1.0) ** -people.demand
        query = draw.choice(len(queries), lists, p=demanded / demanded.sum())
    else:
        rounds = -(-lists // len(queries))
        query = np.concatenate([draw.permutation(len(queries)) for _ in range(rounds)])[:lists]
    if best is None:
        best = np.argsort(-(queries @ items.T), axis=1, kind="stable")[:, : people.shown]
    famous = draw.random(len(items)) < 0.1
    shown = best[query]
    right = (best == relevant[:, None] if right is None else right)[query]
    likely = np.where(right, people.attraction, people.noise)
    if people.alike <= 1.0:
        near = _alike(items, best, relevant, people.alike)[query]
        likely = np.where(near & ~right, np.maximum(people.attraction / 2, people.noise), likely)
    likely = np.where(famous[shown], np.maximum(likely, people.popular), likely)
    clicked = draw.random(shown.shape) < likely
    if people.model == "cascade":
        clicked &= np.cumsum(clicked, axis=1) == 1
    else:
        clicked &= draw.random(shown.shape) < np.arange(1.0, shown.shape[1] + 1.0) ** -people.bias
    bad = draw.random(lists) < people.poisoned
    clicked = np.where(bad[:, None], ~right & (draw.random(shown.shape) < 0.5), clicked)
    poisoner = np.where(bad, draw.integers(people.poisoners, size=lists), -1)
    return Searches(query, shown, clicked, poisoner)


def _alike(items: Vectors, best: Numbers, relevant: Numbers, least: float) -> Flags:
    """(q, shown) which items shown have at least that cosine with the query's relevant one."""
    unit = items / np.maximum(np.linalg.norm(items, axis=1, keepdims=True), np.finfo(items.dtype).tiny)
    found: Flags = np.stack([unit[row] @ unit[own] for row, own in zip(best, relevant, strict=True)]) >= least
    return found


def catalogue(space: str, items: Vectors) -> Iterator[ItemBlock]:
    """The items (n, d) as events; their names are their rows."""
    for rows in np.array_split(np.arange(len(items)), -(-len(items) // BLOCK)):
        names = tuple(str(row) for row in rows.tolist())
        yield ItemBlock(space, names, (Table(DEFAULT_MODALITY, items[rows]),), START_MS)


def click_blocks(
    space: str,
    found: Searches,
    queries: Vectors,
    lists: int = BLOCK,
    *,
    first: int = 0,
    scores: Mapping[str, NDArray[np.floating[Any]]] | None = None,
) -> Iterator[ClickBlock]:
    """The lists as events, a second from each other, the query as its vector.

    Parameters
    ----------
    lists : of a block.
    first : number of the first list, which names it and its user.
    scores : (n, shown) by name, of the items shown.
    """
    for begin in range(0, len(found), lists):
        rows = np.arange(begin, min(begin + lists, len(found)))
        distinct, item = np.unique(found.items[rows], return_inverse=True)
        users = [
            f"poisoner-{bad}" if bad >= 0 else f"user-{first + row}" for row, bad in _people(found, rows)
        ]
        actors = tuple(dict.fromkeys(users))
        place = {name: number for number, name in enumerate(actors)}
        clicked = np.flatnonzero(found.clicked[rows])
        length, times = found.items.shape[1], START_MS + 1_000 * (first + rows)
        yield ClickBlock(
            space,
            tuple(str(row) for row in distinct.tolist()),
            tuple(f"list-{first + row}" for row in rows.tolist()),
            actors,
            np.full(len(rows), -1, np.int32),
            np.array([place[name] for name in users], np.int32),
            np.full(len(rows), -1, np.int32),
            np.arange(len(rows), dtype=np.int32),
            (Table(DEFAULT_MODALITY, np.ascontiguousarray(queries[found.query[rows]])),),
            times.astype(np.int64),
            np.arange(len(rows) + 1, dtype=np.int32) * np.int32(length),
            item.reshape(-1).astype(np.int32),
            np.tile(np.arange(length, dtype=np.int32), len(rows)),
            clicked.astype(np.int32),
            (times[clicked // length] + 1 + clicked % length).astype(np.int64),
            np.full(len(clicked), -1, np.int64),
            scores=Scores.of({name: one[rows].reshape(-1) for name, one in scores.items()})
            if scores
            else None,
        )


def _people(found: Searches, rows: Numbers) -> Iterator[tuple[int, int]]:
    return zip(rows.tolist(), found.poisoner[rows].tolist(), strict=True)
