"""From the body of a request to that of its answer: the work of the pool's threads."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from kinstream.search.drafts.drafts import Drafts, of_vectors
from kinstream.search.drafts.randomising import Randomising
from kinstream.search.service.gateway_metrics import GatewayMetrics
from kinstream.search.queries.query_pair import ModelPair
from kinstream.search.gateway.requests import MapRequest, SearchRequest
from kinstream.search.service.gateway_service import GatewayService
from kinstream.search.backends.store import Answer, GatewaySpace
from kinstream.search.queries.model import QueryModel
from kinstream.search.service.clients import charge, note_space
from kinstream.search.service.desk import RETRY_SECONDS
from kinstream.search.service.refusals import Refused, Why
from kinstream.search.service.requests import checked, read
from kinstream.search.service.traces import note_model
from kinstream.search.stores.base import BadFilter, BadVectors, Hit, StoreAway
from kinstream.streams.records.gate import UNADAPTED, Version
from kinstream.streams.records.values import Vectors


class Answering:
    """Answers as bytes of JSON. Every method may raise `Refused`."""

    def __init__(self, service: GatewayService, metrics: GatewayMetrics) -> None:
        self._service = service
        self._limits = service.limits
        self._metrics = metrics

    def search(self, body: bytes) -> bytes:
        asked = read(SearchRequest, body)
        space = self._space(asked.space)
        if asked.k > self._limits.max_k:
            raise Refused(
                422, Why.TOO_LARGE, f"{asked.k} neighbours; at most {self._limits.max_k}", place="k"
            )
        # Once: everything in the answer comes from these models.
        pair = space.pair()
        _note(space, pair.serving)
        queries = self._queries(asked, space, pair.serving)
        charge(len(queries), asked.k)
        rows = []
        if space.drafts is not None and pair.candidate is not None and pair.candidate.takes(queries):
            rows = space.drafts.rows(of_vectors(queries), asked.query_id, asked.k)
        try:
            answer = space.search(pair, queries, rows, asked.k, asked.filter)
        except BadFilter as error:
            vectors = asked.filter is None or isinstance(error, BadVectors)
            place = "vectors" if vectors else "filter"
            raise Refused(422, Why.INVALID, str(error), place=place) from None
        except StoreAway as error:
            detail = f"the store of {space.name!r} did not answer: {error}"
            raise Refused(503, Why.STORE, detail, retry_seconds=RETRY_SECONDS) from None
        self._metrics.queries.labels(space.name).inc(len(queries))
        results: list[dict[str, Any]] = []
        for row, hits in enumerate(answer.hits):
            if any(math.isinf(hit.similarity) for hit in hits):
                detail = "its similarities are too large to be numbers"
                raise Refused(422, Why.NOT_FINITE, detail, place=f"vectors[{row}]")
            # A vector of zeros has no cosine.
            known = [hit._asdict() for hit in hits if not math.isnan(hit.similarity)]
            results.append({"neighbours": known})
        named: dict[str, Any] = {"space": space.name, "model": _named(pair.serving)} | _withheld(space)
        if space.drafts is not None or space.randomising is not None:
            lists = self._randomised(space, pair, answer.hits, of_vectors(queries), asked)
            drafts = self._drafted(space, pair, answer, asked.k)
            lists |= drafts
            results = [lists.get(row, result | {"list_id": None}) for row, result in enumerate(results)]
        for result in results:
            if len(result["neighbours"]) < asked.k:
                result["fewer"] = "filter" if asked.filter else "store"
        if space.drafts is not None:
            other = pair.candidate if drafts else None
            if other is not None:
                _note(space, other)
            named |= {"candidate": None if other is None else _named(other), "gate": _gate(pair)}
        return _written(named | {"store": _store(space, answer.version), "results": results})

    def map(self, body: bytes) -> bytes:
        asked = read(MapRequest, body)
        space = self._space(asked.space)
        model = space.model
        _note(space, model)
        mapped = model.map(self._queries(asked, space, model))
        if not np.isfinite(mapped).all():
            raise Refused(422, Why.NOT_FINITE, "the mapped vectors do not fit float32")
        named: dict[str, Any] = {"space": space.name, "model": _named(model)} | _withheld(space)
        return _written(named | {"vectors": mapped.tolist()})

    def spaces(self) -> bytes:
        found = []
        for space in self._service.spaces.values():
            staleness, pair = space.staleness(), space.pair()
            found.append(
                {
                    "space": space.name,
                    "model": _named(pair.serving),
                    "store": _store(space, None),
                    "ready": space.ready,
                    "dimension": space.dimension,
                    "announced": None if staleness is None else str(staleness.announced),
                    "behind": space.behind,
                }
                | ({} if space.gated is None else {"gate": _gate(pair)})
                | _withheld(space)
            )
        return _written({"spaces": found})

    # ---- randomised and drafted lists ---------------------------------------------------------------------------

    def _drafted(
        self, space: GatewaySpace, pair: ModelPair, answer: Answer, k: int
    ) -> dict[int, dict[str, Any]]:
        """The drafted results, by the number of the query; counted."""
        if space.drafts is None:
            return {}
        made = {
            row: drafted(space.drafts, pair, answer.hits[row], candidate, k)
            for row, candidate in answer.candidates.items()
        }
        found = {row: one for row, one in made.items() if one is not None}
        self._metrics.drafted.labels(space.name).inc(len(found))
        return found

    def _randomised(
        self,
        space: GatewaySpace,
        pair: ModelPair,
        hits: list[list[Hit]],
        names: list[bytes],
        asked: SearchRequest,
    ) -> dict[int, dict[str, Any]]:
        """The randomised results, by the number of the query; counted."""
        if space.randomising is None:
            return {}
        rows = space.randomising.rows(names, asked.query_id, asked.k)
        self._metrics.randomised.labels(space.name).inc(len(rows))
        return {row: randomised(space.randomising, pair.serving, hits[row], asked.k) for row in rows}

    # ---- parts ------------------------------------------------------------------------------------------------------

    def _space(self, name: str | None) -> GatewaySpace:
        spaces = self._service.spaces
        if name is None and len(spaces) > 1:
            raise Refused(422, Why.INVALID, "several spaces are served: name one", place="space")
        if name is not None and name not in spaces:
            raise Refused(404, Why.UNKNOWN_SPACE, f"no space {name!r} is served here", place="space")
        space = next(iter(spaces.values())) if name is None else spaces[name]
        note_space(space.name)
        if not space.loaded:
            waiting = "; ".join(map(str, self._service.waiting_for()))
            raise Refused(503, Why.NOT_READY, f"waiting for {waiting}", retry_seconds=RETRY_SECONDS)
        return space

    def _queries(self, asked: MapRequest, space: GatewaySpace, model: QueryModel) -> Vectors:
        rows: Any = asked.vectors
        if isinstance(rows, dict):
            raise Refused(422, Why.INVALID, "must be a vector or a list of vectors", place="vectors")
        size = space.dimension if model.dimension is None else model.dimension
        return checked(rows, size, "vectors", self._limits.max_rows, "the space")


def _note(space: GatewaySpace, model: QueryModel) -> None:
    """Name the model in the trace of the request."""
    if model.adapted:
        note_model(space.name, model.learner, *model.name)


def _named(model: QueryModel) -> dict[str, Any]:
    named = {"learner": model.learner, **model.name._asdict()}
    return named | {"digest": model.digest, "adapted": model.adapted}


def _withheld(space: GatewaySpace) -> dict[str, Any]:
    """That the learner withholds its newest model, if it does."""
    withheld = None if space.subscription is None else space.subscription.choice.withheld
    return {} if withheld is None else {"withheld": withheld.named()}


def drafted(
    drafts: Drafts, pair: ModelPair, serving: list[Hit], candidate: list[Hit], k: int
) -> dict[str, Any] | None:
    """A drafted result; None if the candidate's similarities are too large.

    A similarity would show whose pick an item is. An item that both have found is shown as the serving model has found
    it.
    """
    assert pair.candidate is not None and pair.decided is not None
    if any(math.isinf(hit.similarity) for hit in candidate):
        return None
    ranked = [[hit.id for hit in hits if not math.isnan(hit.similarity)] for hits in (serving, candidate)]
    names = (pair.decided.version, Version(*pair.candidate.name))
    newest = pair.decided.newest
    shown = drafts.shown((names[0], ranked[0]), (names[1], ranked[1]), k, newest)
    fields = {hit.id: hit for hit in (*candidate, *serving)}
    items = [fields[item]._asdict() | {"similarity": None} for item in shown.items]
    return {"neighbours": items, "list_id": shown.list_id}


def randomised(randomising: Randomising, model: QueryModel, hits: list[Hit], k: int) -> dict[str, Any]:
    """A randomised result. A similarity would show what was swapped."""
    version = Version(*model.name) if model.adapted else UNADAPTED
    shown = randomising.shown(version, [hit.id for hit in hits if not math.isnan(hit.similarity)], k)
    fields = {hit.id: hit for hit in reversed(hits)}
    items = [fields[item]._asdict() | {"similarity": None} for item in shown.items]
    return {"neighbours": items, "list_id": shown.list_id}


def _gate(pair: ModelPair) -> dict[str, Any]:
    assert pair.decided is not None
    # A model of another dimension than the store is missing, too.
    return pair.decided.named() | {"missing": pair.missing}


def _store(space: GatewaySpace, version: str | None) -> dict[str, Any]:
    return {"kind": space.kind, "collection": space.collection, "version": version}


def _written(body: dict[str, Any]) -> bytes:
    # Columns may hold values that JSON has no form for, such as dates.
    try:
        text = json.dumps(body, ensure_ascii=False, allow_nan=False, default=str, separators=(",", ":"))
    except ValueError:
        return _written(_finite(body))
    return text.encode()


def _finite(value: Any) -> Any:
    """The same without numbers that JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
