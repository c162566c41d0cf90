"""From the body of a request to that of its answer: the work of the pool's threads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from kinstream.search.agent.drafted_search import Ask, DraftedAnswer, randomised
from kinstream.search.service.index_metrics import SearchMetrics
from kinstream.search.backends.index import SearchService, Served
from kinstream.search.drafts.drafts import of_vectors
from kinstream.search.service.clients import charge, note_space
from kinstream.search.service.desk import RETRY_SECONDS
from kinstream.search.service.refusals import Refused, Why
from kinstream.search.service.requests import read
from kinstream.search.service.traces import note_model
from kinstream.search.spaces.searcher import Answer, NotReady, Searcher, Standing, UnknownItem, WrongDimension
from kinstream.search.service.replies import (
    SearchRequest,
    SimilarItemsRequest,
    SimilarRequest,
    TransformRequest,
    rows_of,
)


class Answering:
    """Answers as bytes of JSON. Every method may raise `Refused`."""

    def __init__(self, service: SearchService, metrics: SearchMetrics) -> None:
        self._service = service
        self._limits = service.limits
        self._metrics = metrics

    def search(self, body: bytes) -> bytes:
        asked = read(SearchRequest, body)
        served = self._served(asked.space)
        self._check_k(asked.k)
        rows = rows_of(asked, served.searcher.modalities, self._limits.max_rows)
        charge(len(rows), asked.k)

        def ask(searcher: Searcher, chosen: Sequence[int] | None) -> Answer:
            return searcher.search(rows if chosen is None else rows[list(chosen)], asked.k)

        try:
            found = self._ask(served, ask, of_vectors(rows), asked.query_id, asked.k)
        except (NotReady, WrongDimension) as error:
            raise self._refusal(error, served) from None
        self._service.recall.offer(served.searcher, rows, found.answer)
        return self._answered(served, found)

    def similar_posted(self, item: str, body: bytes) -> bytes:
        asked = read(SimilarRequest, body)
        return self.similar([item], asked.space, asked.k, asked.query_id)

    def similar_items(self, body: bytes) -> bytes:
        asked = read(SimilarItemsRequest, body)
        if len(asked.items) > self._limits.max_rows:
            detail = f"{len(asked.items)} items; at most {self._limits.max_rows} in a request"
            raise Refused(422, Why.TOO_LARGE, detail, place="items")
        return self.similar(asked.items, asked.space, asked.k, asked.query_id)

    def similar(self, items: list[str], space: str | None, k: int, query_id: str | None = None) -> bytes:
        served = self._served(space)
        self._check_k(k)
        charge(len(items), k)

        def ask(searcher: Searcher, chosen: Sequence[int] | None) -> Answer:
            return searcher.similar(items if chosen is None else [items[row] for row in chosen], k)

        names = [b"item/" + item.encode("utf-8", "surrogatepass") for item in items]
        try:
            found = self._ask(served, ask, names, query_id, k)
        except UnknownItem as error:
            place = None if len(items) == 1 else f"items[{error.row}]"
            detail = f"no item {items[error.row]!r} is in the catalogue of {served.space!r}"
            raise Refused(404, Why.UNKNOWN_ITEM, detail, place=place) from None
        except (NotReady, WrongDimension) as error:
            raise self._refusal(error, served) from None
        return self._answered(served, found)

    def transform(self, body: bytes) -> bytes:
        asked = read(TransformRequest, body)
        served = self._served(asked.space)
        rows = rows_of(asked, served.searcher.modalities, self._limits.max_rows)
        try:
            image = served.searcher.transform(rows)
        except (NotReady, WrongDimension) as error:
            raise self._refusal(error, served) from None
        if not np.isfinite(image.vectors).all():
            raise Refused(422, Why.NOT_FINITE, "the mapped vectors do not fit float32")
        return _written(self._standing(served, image.standing) | {"vectors": image.vectors.tolist()})

    def spaces(self) -> bytes:
        found = []
        for served in self._service.spaces.values():
            searcher = served.searcher
            staleness = served.subscription.staleness()
            facts = {
                "ready": searcher.ready,
                "index": searcher.plan.index,
                "modalities": [{"name": name, "dimension": size} for name, size in searcher.modalities],
                "announced": str(staleness.announced),
                "behind": searcher.behind if served.drafting is None else served.behind,
            }
            if served.drafting is not None:
                facts["gate"] = served.drafting.deciding.now().named()
            found.append(self._standing(served, searcher.standing()) | facts)
        return _written({"spaces": found})

    @staticmethod
    def _ask(
        served: Served, ask: Ask, queries: Sequence[bytes], query_id: str | None, k: int
    ) -> DraftedAnswer:
        if served.drafting is None:
            found = DraftedAnswer(ask(served.searcher, None))
        else:
            found = served.drafting.search(served.searcher, ask, queries, query_id, k)
        if served.randomising is None:
            return found
        return randomised(found, served.randomising, queries, query_id, k)

    def _answered(self, served: Served, found: DraftedAnswer) -> bytes:
        """Check and count an answer, and write it; drawn lists in place of those of the serving model."""
        answer = found.answer
        _check_distances(answer)
        self._metrics.answered(served.space, answer)
        body = self._found(served, answer)
        if found.decided is not None or served.randomising is not None:
            drawn = {**found.randomised, **found.lists}
            results: list[dict[str, Any]] = body["results"]
            for row, result in enumerate(results):
                shown = drawn.get(row)
                result["list_id"] = None if shown is None else shown.list_id
                if shown is not None:
                    # A distance would show whose pick an item is, or what was swapped.
                    result["neighbours"] = [{"id": item, "squared_distance": None} for item in shown.items]
        if served.randomising is not None:
            self._metrics.randomised.labels(served.space).inc(len(found.randomised))
        if found.decided is not None:
            self._metrics.drafted.labels(served.space).inc(len(found.lists))
            candidate = None
            if found.candidate is not None:
                _note(served, found.candidate)
                candidate = _named(served, found.candidate)
            body |= {"candidate": candidate, "gate": found.decided.named()}
        return _written(body)

    # ---- parts --------------------------------------------------------------------------------------------------

    def _served(self, space: str | None) -> Served:
        spaces = self._service.spaces
        if space is None and len(spaces) > 1:
            raise Refused(422, Why.INVALID, "several spaces are served: name one", place="space")
        if space is not None and space not in spaces:
            raise Refused(404, Why.UNKNOWN_SPACE, f"no space {space!r} is served here", place="space")
        served = next(iter(spaces.values())) if space is None else spaces[space]
        note_space(served.space)
        return served

    def _check_k(self, k: int) -> None:
        if k > self._limits.max_k:
            raise Refused(422, Why.TOO_LARGE, f"{k} neighbours; at most {self._limits.max_k}", place="k")

    def _refusal(self, error: Exception, served: Served) -> Refused:
        if isinstance(error, WrongDimension):
            # The space was reset between the check of its modalities and the search.
            return Refused(422, Why.WRONG_DIMENSION, f"the catalogue has {error}", place="vectors")
        waiting = "; ".join(map(str, self._service.waiting_for())) or f"the index of {served.space!r}"
        return Refused(503, Why.NOT_READY, f"waiting for {waiting}", retry_seconds=RETRY_SECONDS)

    def _standing(self, served: Served, standing: Standing) -> dict[str, Any]:
        _note(served, standing)
        catalogue = {
            "epoch": standing.epoch,
            "items": standing.items,
            "partition": self._service.events.partition(served.space),
            "offset": standing.offset,
        }
        withheld = served.subscription.choice.withheld
        said = {} if withheld is None else {"withheld": withheld.named()}
        return {"space": served.space, "model": _named(served, standing), "catalogue": catalogue} | said

    def _found(self, served: Served, answer: Answer) -> dict[str, Any]:
        results = [
            {
                "neighbours": [
                    {"id": name, "squared_distance": far} for name, far in zip(names, distances, strict=True)
                ],
                "examined": examined,
            }
            for names, distances, examined in zip(
                answer.names, answer.distances, answer.examined.tolist(), strict=True
            )
        ]
        return self._standing(served, answer.standing) | {"results": results}


def _note(served: Served, standing: Standing) -> None:
    """Name the model in the trace of the request."""
    if standing.learned:
        note_model(served.space, served.learner, *standing.model)


def _named(served: Served, standing: Standing) -> dict[str, Any]:
    return {"learner": served.learner, **standing.model._asdict(), "learned": standing.learned}


def _check_distances(answer: Answer) -> None:
    for row, distances in enumerate(answer.distances):
        if distances and not distances[-1] < float("inf"):
            raise Refused(
                422, Why.NOT_FINITE, "its distances are too large to be numbers", place=f"vectors[{row}]"
            )


def _written(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
