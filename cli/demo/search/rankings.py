"""Two rankings of the same items: by the embeddings as they are, and by the query map that was learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.cli.demo.search.material import Material
from kinstream.evaluation.queries.measures import answered
from kinstream.search.queries.model import QueryModel

#: Items of a ranking, and queries that the page proposes.
TOP: Final = 10
PROPOSED: Final = 5
#: Characters of a text that the page shows.
LONGEST: Final = 180


@dataclass(frozen=True, slots=True)
class AskedQuery:
    """A query: its vector, and the row of the item that answers it, if that is known."""

    vector: NDArray[np.float32]
    answer: int | None


class Rankings:
    """Answers of the page.

    Parameters
    ----------
    material : what is searched.
    """

    def __init__(self, material: Material) -> None:
        self._material = material
        self._known = {material.functions[row].query: row for row in material.tested.tolist()}

    def proposed(self) -> list[str]:
        """Held-out queries of a length that fits the page."""
        rows = (self._material.functions[row].query for row in self._material.tested.tolist())
        return [query for query in rows if 30 <= len(query) <= 70][:PROPOSED]

    def asked(self, text: str) -> AskedQuery | None:
        """A typed query; None if the embedder knows nothing of it."""
        row = self._known.get(text)
        vector = self._material.queries[row] if row is not None else self._material.embed([text])[0]
        return AskedQuery(vector, row) if vector.any() else None

    def has(self, rows: list[int]) -> bool:
        """Whether these are some rows of items, no more than a ranking shows."""
        return 0 < len(rows) <= TOP and all(0 <= row < len(self._material.items) for row in rows)

    def both(self, asked: AskedQuery, model: QueryModel) -> dict[str, Any]:
        """The first items by each ranking: the place of each in the other one, and its score by the query map."""
        scores = np.stack([asked.vector, model.map(asked.vector)]) @ self._material.items.T
        orders = np.argsort(-scores, axis=1, kind="stable")
        places = np.empty_like(orders)
        np.put_along_axis(places, orders, np.arange(orders.shape[1])[None], axis=1)
        found: dict[str, Any] = {
            name: [
                self._shown(row, int(places[1 - side, row]), float(scores[1, row]), asked.answer)
                for row in orders[side, :TOP].tolist()
            ]
            for side, name in enumerate(("embedded", "adapted"))
        }
        if asked.answer is not None:
            found["answer"] = [int(place) + 1 for place in places[:, asked.answer]]
        return found

    def ndcg(self, model: QueryModel) -> float:
        """NDCG@10 of the queries that are never sent."""
        made = self._material
        return answered(model.map(made.queries[made.tested]), made.items, made.tested).ndcg

    def _shown(self, row: int, other: int, score: float, answer: int | None) -> dict[str, Any]:
        one = self._material.functions[row]
        text = one.query if len(one.query) <= LONGEST else f"{one.query[:LONGEST]}…"
        return {
            "row": row,
            "name": one.name,
            "text": text,
            "other": other + 1,
            "score": score,
            "answer": row == answer,
        }
