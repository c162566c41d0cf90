"""The memory of `ranking`, from the words of its class: sums of each query and item, in plain numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


class Remembering:
    """Queries are rows of bits, items are whole numbers. It has room for everything."""

    def __init__(self) -> None:
        self.queries: list[Any] = []
        self.clicks: list[dict[int, float]] = []
        self.seen: list[dict[int, float]] = []
        self.by: dict[tuple[int, int], int] = {}

    def row(self, query: Any) -> int:
        """Where the query stands whose bits differ least, and in four at most; -1 if it is none of them."""
        apart = [int(np.unpackbits((other ^ query).view(np.uint8)).sum()) for other in self.queries]
        least = min(apart, default=5)
        return apart.index(least) if least <= 4 else -1

    def says(self, query: Any, names: list[int]) -> tuple[list[float], bool]:
        """The rate of each item, and whether the query is known."""
        row = self.row(query)
        if row < 0:
            return [0.0] * len(names), False
        return [self.clicks[row].get(n, 0.0) / (1.0 + self.seen[row].get(n, 0.0)) for n in names], True

    def add(self, query: Any, names: list[int], clicked: list[int], actor: int, act: list[float]) -> None:
        """A list in the order of the log; `clicked` are places, and an actor of 0 is nobody."""
        row = self.row(query)
        if row < 0:
            row = len(self.queries)
            self.queries.append(query)
            self.clicks.append({})
            self.seen.append({})
        self.by[row, actor] = self.by.get((row, actor), 0) + 1
        weight = 1.0 / self.by[row, actor] if actor else 1.0
        for sums in (self.clicks[row], self.seen[row]):
            for name in sums:
                sums[name] *= math.exp(-1 / 100)
        for place, name in enumerate(names):
            if place in clicked or name in self.clicks[row]:
                a = act[place] if place in clicked else 1.0
                self.seen[row][name] = self.seen[row].get(name, 0.0) + weight * a * (place + 1.0) ** -0.5
                self.clicks[row].setdefault(name, 0.0)
            if place in clicked:
                self.clicks[row][name] += weight * min(1.0, 3.0 / len(clicked)) * act[place]
