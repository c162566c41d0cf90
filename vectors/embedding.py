"""An item map as a value: how it makes vectors of items, how it is cut into records, and its form in a state."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.records.gate import Version
from kinstream.streams.records.state import State
from kinstream.streams.records.values import Vectors
from kinstream.streams.records.vectors import ItemMap, Rows

#: Largest part of a map in a record, in bytes.
PART_BYTES: Final = 480 * 1024
_TEXTS: Final = ("learner", "sha256", "product", "dimension", "rank", "time_ms")


@dataclass(frozen=True, slots=True, eq=False)
class Embedding:
    """The whole map of a version. `head` is its first part, of whose rows nothing is used.

    Parameters
    ----------
    item : (k, d) float32.
    query : (k, d) float32, or (0, d) if queries stay as they are.
    """

    head: ItemMap
    item: Rows
    query: Rows

    def __call__(self, X: Vectors) -> NDArray[np.float32]:
        """The vectors (n, k) of items (n, d).

        They are calculated in float64, in which nothing overflows that the records allow.
        """
        rows = X.astype(np.float64)
        if self.head.product == "cosine":
            lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
            rows = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0.0)
        with one_blas_thread():
            return np.asarray(rows @ self.item.T.astype(np.float64), np.float32)

    def parts(self, version: int = 0) -> list[ItemMap]:
        """The map as records, each below the size of a message."""
        row_bytes = 4 * self.head.dimension * (2 if len(self.query) else 1)
        step = max(1, PART_BYTES // row_bytes)
        return [
            replace(
                self.head,
                first=at,
                item=self.item[at : at + step],
                query=self.query[at : at + step],
                version=version,
            )
            for at in range(0, self.head.rank, step)
        ]

    @classmethod
    def of_parts(cls, parts: Sequence[ItemMap]) -> Self:
        """The inverse of `parts`."""
        item = np.concatenate([one.item for one in parts])
        return cls(replace(parts[0], first=0), item, np.concatenate([one.query for one in parts]))

    def state(self) -> State:
        """Everything, but the space and its numbers."""
        texts = {name: getattr(self.head, name) for name in _TEXTS}
        facts = texts | {"model": str(self.head.model)}
        return {"facts": json.dumps(facts, sort_keys=True), "item": self.item, "query": self.query}

    @classmethod
    def of_state(cls, space: str, state: State) -> Self:
        """The inverse of `state`."""
        facts: dict[str, Any] = json.loads(str(state["facts"]))
        item, query = np.array(state["item"], np.float32), np.array(state["query"], np.float32)
        model = Version.parse(facts.pop("model"))
        return cls(ItemMap(space=space, model=model, first=0, item=item, query=query, **facts), item, query)
