"""The memory of `ranking`, from the words of its class: sums of each query and item, in plain numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kinstream.learners.ranking.remembered import BITS


class Remembering:
    """Queries are rows of bits, items are whole numbers. It has room for everything."""

    def __init__(self) -> None:
        self.queries: list[Any] = []
        self.clicks: list[dict[int, float]] = []
        self.seen: list[dict[int, float]] = []
        self.lists: list[float] = []
        self.by: dict[tuple[int, int], int] = {}

    def near(self, query: Any) -> list[float]:
        """What each query counts."""
        found = []
        for other in self.queries:
            apart = int(np.unpackbits((other ^ query).view(np.uint8)).sum())
            k = math.exp((math.cos(math.pi * apart / BITS) - 1.0) / 0.03)
            found.append(k if k > 0.01 else 0.0)
        return found

    def says(self, query: Any, names: list[int]) -> tuple[list[float], bool]:
        """The rate of each item, and whether enough is known."""
        near = self.near(query)
        rates = [
            sum(k * c.get(name, 0.0) for k, c in zip(near, self.clicks, strict=True))
            / (1.0 + sum(k * s.get(name, 0.0) for k, s in zip(near, self.seen, strict=True)))
            for name in names
        ]
        return rates, sum(k * min(n, 2.0) for k, n in zip(near, self.lists, strict=True)) >= 0.9

    def add(self, query: Any, names: list[int], clicked: list[int], actor: int, act: list[float]) -> None:
        """A list in the order of the log; `clicked` are places, and an actor of 0 is nobody."""
        row = next((i for i, one in enumerate(self.queries) if (one == query).all()), len(self.queries))
        if row == len(self.queries):
            self.queries.append(query)
            self.clicks.append({})
            self.seen.append({})
            self.lists.append(0.0)
        self.by[row, actor] = self.by.get((row, actor), 0) + 1
        weight = 1.0 / self.by[row, actor] if actor else 1.0
        for sums in (self.clicks[row], self.seen[row]):
            for name in sums:
                sums[name] *= math.exp(-1 / 100)
        self.lists[row] = self.lists[row] * math.exp(-1 / 100) + weight
        for place, name in enumerate(names):
            if place in clicked or name in self.clicks[row]:
                a = act[place] if place in clicked else 1.0
                self.seen[row][name] = self.seen[row].get(name, 0.0) + weight * a * (place + 1.0) ** -0.5
                self.clicks[row].setdefault(name, 0.0)
            if place in clicked:
                self.clicks[row][name] += weight * min(1.0, 3.0 / len(clicked)) * act[place]
