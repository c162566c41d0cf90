"""Three rankings of the same items: by the embeddings, by these and BM25 half and half, and as learned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.cli.demo.search.material import Material
from kinstream.evaluation.queries.judgements import Judgements
from kinstream.evaluation.queries.measures import ranked
from kinstream.evaluation.queries.signals import HALF_AND_HALF, blended
from kinstream.processors.base.id_table import name_hashes
from kinstream.search.queries.model import QueryModel
from kinstream.streams.signals import ADAPTED, REMEMBERED, SIMILARITY, TEXT

#: Items of a ranking, and queries that the page proposes.
TOP: Final = 10
PROPOSED: Final = 5
#: Characters of a text that the page shows.
LONGEST: Final = 180
#: Held-out queries of the figure, so that a model is measured in half a second.
MEASURED: Final = 500
RANKINGS: Final = ("embedded", "hybrid", "learned")


@dataclass(frozen=True, slots=True)
class AskedQuery:
    """A query: its text, its vector, and the row of the item that answers it, if that is known."""

    text: str
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
        #: As they are streamed.
        self._names = name_hashes([str(row) for row in range(len(material.items))])
        self._known = {material.functions[row].query: row for row in material.tested.tolist()}
        self._measured = material.tested[:MEASURED]
        self._text = material.text([material.functions[row].query for row in self._measured.tolist()])

    def proposed(self) -> list[str]:
        """Held-out queries of a length that fits the page."""
        rows = (self._material.functions[row].query for row in self._material.tested.tolist())
        return [query for query in rows if 30 <= len(query) <= 70][:PROPOSED]

    def asked(self, text: str) -> AskedQuery | None:
        """A typed query; None if the embedder knows nothing of it."""
        row = self._known.get(text)
        vector = self._material.queries[row] if row is not None else self._material.embed([text])[0]
        return AskedQuery(text, vector, row) if vector.any() else None

    def has(self, rows: list[int]) -> bool:
        """Whether these are some rows of items, no more than a ranking shows."""
        return 0 < len(rows) <= TOP and all(0 <= row < len(self._material.items) for row in rows)

    def all(
        self, asked: AskedQuery, model: QueryModel, served: Mapping[int, float] | None = None
    ) -> dict[str, Any]:
        """The first items by each ranking: the place of each in the one before it, and its value as learned.

        Parameters
        ----------
        served : rows as a service shows them, best first, with their values: they are the last ranking then.
        """
        signals = self._signals(asked.vector, self._material.text([asked.text])[0], model)
        values = np.stack([signals[SIMILARITY], *self._blends(asked.vector, signals, model)])
        orders = np.argsort(-values, axis=1, kind="stable")
        if served is not None:
            rows = list(served)
            orders[2] = np.concatenate([rows, orders[2][~np.isin(orders[2], rows)]])
            values[2, rows] = list(served.values())
        places = np.empty_like(orders)
        np.put_along_axis(places, orders, np.arange(orders.shape[1])[None], axis=1)
        found: dict[str, Any] = {
            name: [
                self._shown(row, int(places[max(side - 1, 0), row]), float(values[2, row]), asked.answer)
                for row in orders[side, :TOP].tolist()
            ]
            for side, name in enumerate(RANKINGS)
        }
        if asked.answer is not None:
            found["answer"] = [int(place) + 1 for place in places[:, asked.answer]]
        return found

    def ndcg(self, model: QueryModel) -> tuple[float, float, float]:
        """NDCG@10 of queries that are never sent, by each ranking."""
        made, rows = self._material, self._measured
        values = np.empty((len(RANKINGS), len(rows), len(made.items)))
        for at, row in enumerate(rows.tolist()):
            signals = self._signals(made.queries[row], self._text[at], model)
            values[:, at] = signals[SIMILARITY], *self._blends(made.queries[row], signals, model)
        judged = Judgements(np.arange(len(rows)), rows, np.ones(len(rows)))
        first, second, third = (ranked(one.__getitem__, judged.query, judged).ndcg for one in values)
        return first, second, third

    def _signals(self, vector: NDArray[np.float32], text: NDArray[Any], model: QueryModel) -> dict[str, Any]:
        asked = [model.asking(one) for one in (vector, model.map(vector))]
        both = np.stack(asked) @ self._material.items.T
        return {SIMILARITY: both[0], ADAPTED: both[1], TEXT: text}

    def _blends(
        self, vector: NDArray[np.float32], signals: dict[str, Any], model: QueryModel
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Values of all items half and half, and as learned; -inf for those that are no candidates."""
        before = blended(HALF_AND_HALF, signals | {ADAPTED: signals[SIMILARITY]})
        blend, recalled = model.blend, model.recall(vector)
        if recalled is not None:
            blend, signals = model.known, signals | {REMEMBERED: recalled.rates(self._names)}
        return before, blended(blend or HALF_AND_HALF, signals)

    def _shown(self, row: int, other: int, score: float, answer: int | None) -> dict[str, Any]:
        one = self._material.functions[row]
        text = one.query if len(one.query) <= LONGEST else f"{one.query[:LONGEST]}…"
        return {
            "row": row,
            "name": one.name,
            "text": text,
            "other": other + 1,
            # JSON has no infinity: it is no candidate of the learned ranking.
            "score": score if np.isfinite(score) else None,
            "answer": row == answer,
        }
