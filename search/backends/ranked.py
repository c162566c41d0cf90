"""A space of a store that says more of its items than a vector: all of it is blended into one ranking."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.ranking.blend import Blend
from kinstream.learners.ranking.remembered import Recalled
from kinstream.processors.base.id_table import name_hashes
from kinstream.search.backends.base import Neighbour, Query, TooLarge
from kinstream.search.backends.store import Ranked, StoreSpace, log
from kinstream.search.models.feed import ModelFeed
from kinstream.search.queries.model import QueryModel
from kinstream.search.stores import kinds
from kinstream.search.stores.base import Asked, Candidates, Place, RankingStore, Store
from kinstream.streams.records.values import Vectors
from kinstream.streams.settings import ServeSpaceSettings, Settings
from kinstream.streams.signals import ADAPTED, REMEMBERED, SIMILARITY, lost_weights


class RankedSpace(StoreSpace):
    """Asks the store for the best by vector and by text, and ranks them by a blend of all signals.

    The blend is the model's own, or the shares of the settings; with a learned map and no blend of its own, the adapted
    similarity has the share of the similarity. Parameters and errors are those of `StoreSpace`.
    """

    measure = "value"
    explains = True

    def __init__(
        self,
        settings: Settings,
        name: str,
        section: ServeSpaceSettings,
        models: ModelFeed | None,
        threads: int = 1,
        create: Callable[[str, Place], Store] = kinds.create,
    ) -> None:
        super().__init__(settings, name, section, models, threads, create)
        store = self._store
        assert isinstance(store, RankingStore)
        self._candidates = store.candidates
        self.texts = bool(section.text)
        self.comparable = section.signals
        self._known = section.known_signals
        #: The last blend that was looked at, and what the log says of weights that are lost.
        self._seen: Blend | None = None
        self._told: set[str] = set()
        shares = section.shares
        self._before = Blend.fixed(shares)
        self._after = Blend.fixed(
            {ADAPTED if one == SIMILARITY else one: share for one, share in shares.items()}
        )

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        pair = self.pair()
        for model in (pair.serving, pair.candidate):
            if model is not None and (lost := self._lost(model)) is not None:
                yield f"space {self.name!r}, model of {self.learner}: {lost}"

    def held(self, query: Query) -> int:
        found = (query.rows is not None) + (query.texts is not None)
        return len(query.names) * found * max(self._most, query.k)

    def _lost(self, model: QueryModel) -> str | None:
        """What is wrong where the model weighs signals that the space does not have."""
        weighed = [
            name
            for blend in (model.blend, model.known)
            if blend is not None
            for name, w in zip(blend.names, blend.weights, strict=True)
            if w
        ]
        lost = lost_weights(weighed, self._known, self.name)
        return None if lost is None else "; ".join(lost)

    def _blend(self, model: QueryModel) -> Blend:
        if not model.adapted:
            return self._before
        if model.blend is None:
            return self._after
        # Once for each model: it is made anew for each.
        if model.blend is not self._seen:
            self._seen = model.blend
            lost = self._lost(model)
            if lost is not None and lost not in self._told:
                self._told.add(lost)
                log.warning("space %r, model of %s: %s", self.name, self.learner, lost)
        return model.blend

    def _rank(self, model: QueryModel, query: Query, rows: Sequence[int], mapped: Vectors | None) -> Ranked:
        asked = [
            self._asked(model, query, row, None if mapped is None else mapped[at])
            for at, row in enumerate(rows)
        ]
        found = self._candidates(asked, max(self._most, query.k), query.where)
        blend = self._blend(model)
        hits = []
        for row, one in zip(rows, found.found, strict=True):
            recalled = None if query.rows is None else model.recall(query.rows[row])
            ranks = blend if recalled is None or model.known is None else model.known
            hits.append(self._ordered(ranks, one, query, recalled))
        return Ranked(hits, [], found.version)

    def _asked(self, model: QueryModel, query: Query, row: int, mapped: Vectors | None) -> Asked:
        """A query as the store gets it.

        Raises
        ------
        TooLarge : the model maps it to numbers that are none.
        """
        text = None if query.texts is None else query.texts[row]
        own = {name: rows[row] for name, rows in query.own.items()}
        if query.rows is None or mapped is None:
            return Asked(None, None, text, own)
        if not np.isfinite(mapped).all():
            raise TooLarge(row, "mapped numbers")
        plain = query.rows[row]
        # A vector of zeros has no cosine.
        if self._cosine and not plain.any():
            return Asked(None, None, text, own)
        learned = model.adapted and (mapped.any() or not self._cosine)
        return Asked(model.asking(plain), model.asking(mapped) if learned else None, text, own)

    def _ordered(
        self, blend: Blend, found: Candidates, query: Query, recalled: Recalled | None
    ) -> list[Neighbour]:
        """The best k, by value and then by id."""
        signals: Mapping[str, NDArray[Any]] = found.signals
        chosen: list[int] | None = None
        if recalled is not None:
            names = name_hashes(found.ids)
            signals = {**signals, REMEMBERED: recalled.rates(names)}
            chosen = [round(times) for times in recalled.times(names).tolist()]
        blended = blend(signals)
        places = np.arange(len(blended))
        if query.k < len(places):
            least = np.partition(blended, -query.k)[-query.k]
            places = np.flatnonzero(blended >= least)
        values = blended.tolist()
        order = sorted(places.tolist(), key=lambda at: (-values[at], found.ids[at]))[: query.k]
        similarity = found.signals.get(ADAPTED, found.signals.get(SIMILARITY))
        neighbours: list[Neighbour] = [
            {
                "id": found.ids[at],
                "similarity": None if similarity is None else _number(similarity[at]),
                "fields": found.fields[at],
                "value": values[at],
            }
            for at in order
        ]
        if query.explain or query.recorded:
            for one, at in zip(neighbours, order, strict=True):
                one["signals"] = _at(found.signals, at)
        if query.explain:
            terms = blend.terms(signals)
            for one, at in zip(neighbours, order, strict=True):
                one["terms"] = _at(terms, at)
                if chosen is not None:
                    one["chosen"] = chosen[at]
        return neighbours

    def _drawn(self, neighbour: Neighbour) -> Neighbour:
        # What depends on the model would show whose pick it is.
        shown = {name: one for name, one in neighbour.items() if name not in ("terms", "chosen")} | {
            "value": None,
            "similarity": None,
        }
        if "signals" in shown:
            shown["signals"] = {name: one for name, one in shown["signals"].items() if name != ADAPTED}
        return shown


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _at(signals: Mapping[str, NDArray[Any]], place: int) -> dict[str, float | None]:
    return {name: _number(values[place]) for name, values in signals.items()}
