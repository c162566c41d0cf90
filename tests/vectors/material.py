"""Catalogues that change, maps of them, and what a store should hold in the end: a rule of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.gate import Version
from kinstream.streams.records.values import Action, Control, ItemBlock, Record, Table
from kinstream.streams.records.vectors import ItemMap
from kinstream.streams.settings import Settings
from kinstream.vectors.agent import vectors_spec
from kinstream.vectors.embedding import Embedding
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent

EVENTS, VECTORS = "kinstream.events", "kinstream.vectors"
D = 6


def config(*spaces: str, **changes: Any) -> Settings:
    return Settings(**{"vectors": {space: {"learner": "adapter"} for space in spaces}, **changes})


def items(space: str, names: Sequence[str], X: NDArray[Any], gone: Sequence[str] = ()) -> ItemBlock:
    tables = (Table("x", X.astype(np.float32)),) if len(names) else ()
    return ItemBlock(space, tuple(names), tables, 5, tuple(gone))


def embedding(
    space: str, seed: int, *, d: int = D, k: int | None = None, product: str = "cosine", epoch: int = 0
) -> Embedding:
    """A random map to k dimensions, with one of queries; of d to d without."""
    rng = np.random.default_rng(seed)
    item = rng.normal(size=(k or d, d)).astype(np.float32)
    query = rng.normal(size=(k, d)).astype(np.float32) if k else np.empty((0, d), np.float32)
    model = Version(1, epoch, 100 * (seed + 1))
    head = ItemMap(space, "adapter", model, f"{seed:064x}", product, d, len(item), 0, item, query, 7)
    return Embedding(head, item, query)


def image(found: Embedding, x: NDArray[Any]) -> NDArray[Any]:
    """The vector of one item, by the formula."""
    x = np.asarray(x, np.float64)
    if found.head.product == "cosine" and np.linalg.norm(x) > 0:
        x = x / np.linalg.norm(x)
    return np.asarray(found.item.astype(np.float64) @ x)


class Catalogue:
    """What the events of a space say, applied one after the other; `holds` is what a store should."""

    def __init__(self) -> None:
        self.raw: dict[str, NDArray[Any]] = {}
        self.map: Embedding | None = None

    def put(self, block: ItemBlock) -> ItemBlock:
        for name, x in zip(block.ids, block.tables[0].vectors if block.ids else (), strict=True):
            self.raw[name] = x
        for name in block.tombstones:
            self.raw.pop(name, None)
        return block

    def holds(self) -> dict[str, NDArray[Any]]:
        assert self.map is not None
        return {name: image(self.map, x) for name, x in self.raw.items()}


def story(space: str, said: Catalogue, n: int = 40, seed: int = 0) -> Iterator[Record]:
    """Items, a version, changes and tombstones, a version of fewer dimensions, more changes."""
    rng = np.random.default_rng([seed, sum(space.encode())])

    def some(low: int, high: int) -> tuple[list[str], NDArray[Any]]:
        return [f"i{k}" for k in range(low, high)], rng.normal(size=(high - low, D))

    yield said.put(items(space, *some(0, n)))
    yield said.put(items(space, (), np.empty((0, D)), ["i3", "nothing"]))
    said.map = embedding(space, 1)
    yield from said.map.parts()
    for k in range(12):
        yield said.put(items(space, *some(k, k + 5), gone=[f"i{2 * k + 1}"]))
    yield said.put(items(space, ["twice", "twice", "both"], rng.normal(size=(3, D)), ["both"]))
    said.map = embedding(space, 2, k=3, product="dot")
    yield from said.map.parts()
    for k in range(12):
        yield said.put(items(space, *some(n - k, n + 3), gone=["twice", f"i{3 * k}"]))
    yield said.put(items(space, ["zero"], np.zeros((1, D))))


def append(log: MemoryLog, *records: Record) -> None:
    for record in records:
        log.append(EVENTS, record.space.encode(), encode(record))


def agent(config: Settings, log: MemoryLog, root: Any, **more: Any) -> Agent:
    return Agent(vectors_spec(config), config, log, root, **more)


def control(space: str, action: Action) -> Control:
    return Control(space, action, 5)
