"""Catalogues, click logs and relations of a crash run: three spaces, one on each partition."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.crash.storm import Load

#: Name, dimension, classes.
SPACES = (("markets", 8, 12), ("shop", 16, 6), ("wines", 5, 3))
LIST_LENGTH = 8


@dataclass(frozen=True, slots=True)
class Given:
    """How many items, lists and relations a space was given."""

    space: str
    items: int
    lists: int
    relations: int


def make(folder: Path, scale: int, seed: int) -> tuple[list[Given], list[Load]]:
    """Files of all spaces, and the loads that send them: `scale` items a space, and a list and a relation an item."""
    given, loads = [], []
    for number, (space, d, classes) in enumerate(SPACES):
        rng = np.random.default_rng([seed, number])
        size = Given(space, scale, scale, scale)
        labels = rng.integers(0, classes, scale)
        vectors = rng.normal(size=(classes, d))[labels] + 0.7 * rng.normal(size=(scale, d))
        rows = [f"i{n}," + ",".join(f"{x:.5f}" for x in row) for n, row in enumerate(vectors)]
        # Some items come again, so that the catalogue has more entries than items.
        rows += rows[::10]
        header = "id," + ",".join(f"f{n}" for n in range(d))
        (folder / f"{space}-items.csv").write_text("\n".join([header, *rows]) + "\n")
        (folder / f"{space}.jsonl").write_text("".join(_lists(space, size, labels, rng)))
        (folder / f"{space}-relations.csv").write_text("".join(_relations(size, labels, rng)))
        given.append(Given(space, len(rows), size.lists, size.relations))
        loads += [
            Load(space, folder / f"{space}-items.csv", len(rows), "items", 32),
            Load(space, folder / f"{space}.jsonl", size.lists, "clicks", 16),
            Load(space, folder / f"{space}-relations.csv", size.relations, "relations", 16),
        ]
    return given, loads


def _lists(space: str, size: Given, labels: NDArray[np.int64], rng: np.random.Generator) -> Iterator[str]:
    start = int(time.time() * 1000) - 6 * 3_600_000
    for number in range(size.lists):
        # Later lists show later items; an item that is not there yet is refused, and told so.
        known = max(2 * LIST_LENGTH, min(size.items, (number + 1) * size.items // size.lists))
        shown = rng.choice(known, LIST_LENGTH + 1, replace=False)
        query, items = shown[0], shown[1:]
        relevant = (labels[items] == labels[query]) ^ (rng.random(LIST_LENGTH) < 0.1)
        at = start + number * 100
        clicked = items[relevant & (rng.random(LIST_LENGTH) < 0.7)]
        yield (
            json.dumps(
                {
                    "list_id": f"{space}-{number}",
                    "query_item": f"i{query}",
                    "user": f"u{number % 97}",
                    "session": f"s{number // 5}",
                    "shown_at_ms": at,
                    "items": [f"i{n}" for n in items],
                    "clicks": [
                        {"item": f"i{n}", "time_ms": at + 10 + place} for place, n in enumerate(clicked)
                    ],
                }
            )
            + "\n"
        )


def _relations(size: Given, labels: NDArray[np.int64], rng: np.random.Generator) -> Iterator[str]:
    yield "left,right,similar\n"
    for number in range(size.relations):
        known = max(10, min(size.items, (number + 1) * size.items // size.relations))
        left, right = rng.choice(known, 2, replace=False)
        # Now and then somebody is wrong.
        similar = bool(labels[left] == labels[right]) ^ bool(rng.random() < 0.02)
        yield f"i{left},i{right},{'true' if similar else 'false'}\n"
