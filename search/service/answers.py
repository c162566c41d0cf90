"""From the body of a request to that of its answer: the work of the pool's threads."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np

from kinstream.search.backends.base import Query, Space, TooLarge, Unsupported
from kinstream.search.drafts.drafts import of_queries
from kinstream.search.feedback.recorder import Actor, Given, Strange
from kinstream.search.service.clients import charge, note_space
from kinstream.search.service.desk import RETRY_SECONDS, Promised
from kinstream.search.service.metrics import ServiceMetrics
from kinstream.search.service.refusals import Refused, Why
from kinstream.search.service.requests import (
    MAX_K,
    MAX_ROWS,
    FeedbackRequest,
    GivenFeedback,
    MapRequest,
    SearchRequest,
    SimilarItemsRequest,
    SimilarRequest,
    parted,
    read,
    rows_of,
)
from kinstream.search.service.service import Service
from kinstream.search.service.traces import note_model
from kinstream.search.spaces.errors import NotReady, UnknownItem, WrongDimension
from kinstream.search.stores.base import BadFilter, BadText, BadVectors, StoreAway
from kinstream.streams.records.gate import UNADAPTED, Version
from kinstream.streams.records.values import DEFAULT_MODALITY, Vectors

#: What a space raises for a request that it does not answer.
_REFUSED = (TooLarge, Unsupported, NotReady, WrongDimension, UnknownItem, BadFilter, StoreAway)


class Answering:
    """Answers as bytes of JSON. Every method may raise `Refused`."""

    def __init__(self, service: Service, metrics: ServiceMetrics) -> None:
        self._service = service
        self._metrics = metrics

    def search(self, body: bytes) -> bytes:
        asked = read(SearchRequest, body)
        space = self._space(asked.space)
        self._check_k(asked.k)
        if asked.vectors is None and asked.texts is None:
            raise Refused(422, Why.INVALID, "Field required", place="vectors")
        if asked.explain and not space.explains:
            detail = f"the space {space.name!r} ranks by one distance, which each neighbour shows"
            raise Refused(422, Why.INVALID, detail, place="explain")
        given, own = parted(asked.vectors, space.comparable, MAX_ROWS)
        if given is None and asked.texts is None:
            place = "vectors" if asked.vectors is None else f"vectors.{DEFAULT_MODALITY}"
            raise Refused(422, Why.INVALID, "Field required", place=place)
        rows = None if given is None else self._rows(given, space)
        texts = None if asked.texts is None else self._texts(asked.texts, rows, space)
        number = len(texts or ()) if rows is None else len(rows)
        for name, table in own.items():
            if len(table) != number:
                detail = f"{len(table)} vectors, and {number} queries"
                raise Refused(422, Why.INVALID, detail, place=f"vectors.{name}")
        names = of_queries(rows, texts, own)
        actor = Actor(asked.session, asked.user)
        query = Query(names, asked.k, asked.query_id, rows, (), asked.filter, texts, asked.explain, actor)
        return self._answer(space, query._replace(own=own))

    def similar_posted(self, item: str, body: bytes) -> bytes:
        asked = read(SimilarRequest, body)
        return self.similar([item], asked)

    def similar_items(self, body: bytes) -> bytes:
        asked = read(SimilarItemsRequest, body)
        if len(asked.items) > MAX_ROWS:
            detail = f"{len(asked.items)} items; at most {MAX_ROWS} in a request"
            raise Refused(422, Why.TOO_LARGE, detail, place="items")
        return self.similar(asked.items, asked)

    def similar(self, items: Sequence[str], asked: SimilarRequest) -> bytes:
        found = self._space(asked.space)
        self._check_k(asked.k)
        names = [b"item/" + item.encode("utf-8", "surrogatepass") for item in items]
        actor = Actor(asked.session, asked.user)
        return self._answer(found, Query(names, asked.k, asked.query_id, items=items, actor=actor))

    def feedback(self, body: bytes) -> Promised:
        """Write feedback; the answer is there once the brokers have acknowledged it."""
        asked = read(FeedbackRequest, body)
        space = self._space(asked.space)
        if space.recorder is None:
            detail = f"the space {space.name!r} does not record its lists (serve.spaces.{space.name}.record)"
            raise Refused(404, Why.NOT_FOUND, detail, place="space")
        if len(asked.feedback) > MAX_ROWS:
            detail = f"{len(asked.feedback)} of them; at most {MAX_ROWS} in a request"
            raise Refused(422, Why.TOO_LARGE, detail, place="feedback")
        given = [_given(number, one) for number, one in enumerate(asked.feedback)]
        try:
            written = space.recorder.send(given)
        except Strange as error:
            raise Refused(422, Why(error.fate), str(error), place=f"feedback[{error.number}]") from None
        promised: Promised = Promised()
        reply = _written({"space": space.name, "written": len(given)})

        def settle(done: Future[None]) -> None:
            error = done.exception()
            # A client may have given up.
            if not promised.set_running_or_notify_cancel():
                return
            if error is None:
                promised.set_result(reply)
            else:
                detail = "the brokers did not acknowledge it: send it again as it is"
                promised.set_exception(Refused(503, Why.BROKERS, detail, retry_seconds=RETRY_SECONDS))

        written.add_done_callback(settle)
        return promised

    def map(self, body: bytes) -> bytes:
        asked = read(MapRequest, body)
        space = self._space(asked.space)
        rows = self._rows(asked.vectors, space)
        try:
            state, side, vectors = space.map(rows)
        except _REFUSED as error:
            raise self._refusal(error, space, None) from None
        _note(space, side.version)
        if not np.isfinite(vectors).all():
            raise Refused(422, Why.NOT_FINITE, "the mapped vectors do not fit float32")
        named = {"space": space.name, "model": side.model}
        return _written(named | state | space.withheld() | {"vectors": vectors.tolist()})

    def spaces(self) -> bytes:
        return _written({"spaces": [space.shown() for space in self._service.spaces.values()]})

    # ---- parts ------------------------------------------------------------------------------------------------------

    def _answer(self, space: Space, query: Query) -> bytes:
        charge(space.held(query))
        try:
            found = space.answer(query, partial(_note, space))
        except _REFUSED as error:
            raise self._refusal(error, space, query) from None
        self._metrics.answered(space.name, len(query.names), found)
        return _written(found.body)

    def _space(self, name: str | None) -> Space:
        spaces = self._service.spaces
        if name is None and len(spaces) > 1:
            raise Refused(422, Why.INVALID, "several spaces are served: name one", place="space")
        if name is not None and name not in spaces:
            raise Refused(404, Why.UNKNOWN_SPACE, f"no space {name!r} is served here", place="space")
        space = next(iter(spaces.values())) if name is None else spaces[name]
        note_space(space.name)
        return space

    def _check_k(self, k: int) -> None:
        if k > MAX_K:
            raise Refused(422, Why.TOO_LARGE, f"{k} neighbours; at most {MAX_K}", place="k")

    def _rows(self, vectors: Any, space: Space) -> Vectors:
        return rows_of(vectors, space.modalities, space.dimension, MAX_ROWS)

    def _texts(self, texts: Any, rows: Vectors | None, space: Space) -> list[str]:
        if not space.texts:
            raise Refused(422, Why.INVALID, f"the space {space.name!r} has no text", place="texts")
        if rows is not None and len(texts) != len(rows):
            detail = f"{len(texts)} texts and {len(rows)} vectors: each vector has one text"
            raise Refused(422, Why.INVALID, detail, place="texts")
        if len(texts) > MAX_ROWS:
            detail = f"{len(texts)} texts; at most {MAX_ROWS} in a request"
            raise Refused(422, Why.TOO_LARGE, detail, place="texts")
        return list(texts)

    def _refusal(self, error: Exception, space: Space, query: Query | None) -> Refused:
        match error:
            case TooLarge():
                return Refused(422, Why.NOT_FINITE, str(error), place=f"vectors[{error.row}]")
            case Unsupported():
                by_item = query is not None and query.rows is None and query.texts is None
                if by_item:
                    return Refused(404, Why.NOT_FOUND, str(error))
                return Refused(422, Why.INVALID, str(error), place="filter")
            case UnknownItem():
                assert query is not None
                place = None if len(query.items) == 1 else f"items[{error.row}]"
                detail = f"no item {query.items[error.row]!r} is in the catalogue of {space.name!r}"
                return Refused(404, Why.UNKNOWN_ITEM, detail, place=place)
            case WrongDimension():
                # The space was reset, or has another model, since its vectors were checked.
                return Refused(422, Why.WRONG_DIMENSION, f"the space has {error}", place="vectors")
            case BadFilter():
                vectors = query is None or query.where is None or isinstance(error, BadVectors)
                place = "texts" if isinstance(error, BadText) else "vectors" if vectors else "filter"
                return Refused(422, Why.INVALID, str(error), place=place)
            case StoreAway():
                detail = f"the store of {space.name!r} did not answer: {error}"
                return Refused(503, Why.STORE, detail, retry_seconds=RETRY_SECONDS)
        waiting = "; ".join(map(str, self._service.waiting_for())) or f"the index of {space.name!r}"
        return Refused(503, Why.NOT_READY, f"waiting for {waiting}", retry_seconds=RETRY_SECONDS)


def _given(number: int, one: GivenFeedback) -> Given:
    """Feedback as it is recorded.

    Raises
    ------
    Refused : its parts do not go together.
    """
    place = f"feedback[{number}]"
    named = [name for name in ("action", "value", "weight") if getattr(one, name) is not None]
    if one.item is not None:
        if one.outcome is not None:
            raise Refused(
                422, Why.INVALID, "an outcome is of the whole list: leave out item", place=f"{place}.item"
            )
        weight = (1.0 if one.weight is None else one.weight) * (1.0 if one.value is None else one.value)
        return Given(one.list_id, one.item, one.action, _float32(weight), one.key, one.retract)
    if named:
        raise Refused(422, Why.INVALID, f"{named[0]} is of an item: name it", place=f"{place}.{named[0]}")
    if one.outcome is None and not one.retract:
        raise Refused(422, Why.INVALID, "name an item, or an outcome of the whole list", place=place)
    return Given(one.list_id, None, None, _float32(one.outcome or 0.0), one.key, one.retract)


def _float32(value: float) -> float:
    return float(np.float32(value))


def _note(space: Space, version: Version) -> None:
    """Name a model in the trace of the request."""
    if version != UNADAPTED:
        note_model(space.name, space.learner, *version)


def _written(body: dict[str, Any]) -> bytes:
    # Columns of stores may hold values that JSON has no form for, such as dates.
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
