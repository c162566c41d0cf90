"""Qdrant, through its official client.

A filter is Qdrant's own, as its documentation writes it in JSON. Qdrant has no snapshot that a request could name, so
answers have no version of the store. The client's local mode raises errors of any kind, and lets one client into a
folder.
"""

from __future__ import annotations

import math
import os
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from pydantic import ValidationError
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

from kinstream.search.stores.base import (
    Asked,
    BadFilter,
    BadVectors,
    Candidates,
    Hit,
    Place,
    StoreAway,
    StoreCandidates,
    StoreHits,
    no_options,
    signals_of,
)
from kinstream.search.stores.words import query_vector
from kinstream.streams.configuration.service import COSINE, INNER
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import Vectors
from kinstream.streams.secrets import hide

_DISTANCES: Final = {COSINE: models.Distance.COSINE, INNER: models.Distance.DOT}
#: Ports that a URL without one means.
_PORTS: Final = {"http": 6333, "https": 443}
#: Names and addresses of hosts.
_HOST: Final = re.compile(r"[\w.:%-]+")
#: What is meant as a server, although a folder can have such a name.
_HOST_AND_PORT: Final = re.compile(r":\d+/?$")
#: What tells a folder of the local mode from any other.
_META: Final = "meta.json"


class _Refused(Exception):
    """The request was refused: its filter or its vectors are wrong, or the collection is not what it was."""


class _Folders:
    """Open folders of the local mode, with the number of their users in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, tuple[QdrantClient, int]] = {}

    def take(self, place: Place) -> QdrantClient:
        folder = os.path.realpath(place.connection)
        with self._lock:
            client, users = self._open.get(folder) or (connected(place), 0)
            self._open[folder] = client, users + 1
        return client

    def leave(self, place: Place) -> None:
        folder = os.path.realpath(place.connection)
        with self._lock:
            client, users = self._open.pop(folder)
            if users > 1:
                self._open[folder] = client, users - 1
            else:
                client.close()


_FOLDERS: Final = _Folders()


class Qdrant:
    """A collection of dense vectors, and of sparse ones for a text.

    Parameters
    ----------
    place : `connection` is the URL of the server, with an API key as its password (`https://:KEY@HOST:6333`), or the
        folder of the client's local mode, which is only read; `columns` and `signals` are keys of the payload, and the
        latter also names of further vectors; `text` names sparse vectors that `kinstream.search.stores.words` has made.
        Options: `vector`, the name of the vectors in a collection with several; `exact`, to search without an index.

    Raises
    ------
    SettingsError : an option is unknown, or the connection is neither a URL nor a folder.
    """

    def __init__(self, place: Place) -> None:
        no_options(place, "vector", "exact")
        self._local = server_of(place.connection) is None
        self._place = place
        self._vector: str | None = place.options.get("vector")
        self._exact = bool(place.options.get("exact", False))
        self._payload: Any = list(place.columns) if place.columns else False
        #: Size of the vectors of each signal that is a similarity; None before they were looked at.
        self._beside: dict[str, int] | None = None
        self._client: QdrantClient | None = None
        self._lock = threading.Lock()

    def check(self) -> int | None:
        try:
            found = self._ask(lambda client: client.get_collection(self._place.collection))
        except _Refused as error:
            raise StoreAway(str(error)) from None
        every = found.config.params.vectors
        named = every if isinstance(every, dict) else {"": every}
        vectors = named.get(self._vector or "")
        if vectors is None:
            raise StoreAway(f"{self._place.collection} has no vectors called {self._vector or ''!r}")
        beside = {name: one for name in self._place.signals if (one := named.get(name)) is not None}
        for one in (vectors, *beside.values()):
            if one.distance is not _DISTANCES[self._place.distance]:
                raise StoreAway(
                    f"{self._place.collection} compares by {one.distance.value}, and the settings say "
                    f"distance = {self._place.distance!r}"
                )
        if self._place.text and self._place.text not in (found.config.params.sparse_vectors or {}):
            raise StoreAway(f"{self._place.collection} has no sparse vectors called {self._place.text!r}")
        self._beside = {name: int(one.size) for name, one in beside.items()}
        return int(vectors.size)

    def search(self, queries: Vectors, k: int, where: Any) -> StoreHits:
        rule = _filter(where)
        requests = [
            [self._request(row, self._vector, rule, k, self._exact, self._payload)] for row in queries
        ]
        hits = [
            [
                Hit(
                    str(one.id),
                    float(one.score),
                    {name: (one.payload or {}).get(name) for name in self._place.columns},
                )
                for one in points
            ]
            for (points,) in self._answers(requests, rule, queries.shape[1])
        ]
        return StoreHits(hits, None)

    def candidates(self, asked: Sequence[Asked], n: int, where: Any) -> StoreCandidates:
        rule = _filter(where)
        if self._beside is None:
            self.check()
        sizes = self._beside or {}
        compared = [one.compared(sizes, self._place.collection) for one in asked]
        texts = [self._sparse(one.text) for one in asked]
        near = [
            [
                self._request(vector, using, rule, n, self._exact)
                for vector, using in ((one.nearest, self._vector), (text, self._place.text))
                if vector is not None
            ]
            for one, text in zip(asked, texts, strict=True)
        ]
        dimension = next((len(one.plain) for one in asked if one.plain is not None), None)
        ids = [
            list({point.id for answer in found for point in answer})
            for found in self._answers(near, rule, dimension)
        ]
        # Each signal of each candidate, and its payload.
        every: list[list[models.QueryRequest]] = []
        for one, beside, text, found in zip(asked, compared, texts, ids, strict=True):
            by_id = models.Filter(must=[models.HasIdCondition(has_id=found)])
            wanted: list[tuple[Any, str | None]] = [(one.plain, self._vector), (one.mapped, self._vector)]
            wanted += [(text, self._place.text), *((vector, name) for name, vector in beside.items())]
            scored = [
                self._request(vector, using, by_id, len(found), True)
                for vector, using in wanted
                if vector is not None
            ]
            payload = [*self._place.columns, *(set(self._place.signals) - set(sizes))] or False
            shown = models.QueryRequest(filter=by_id, limit=len(found), with_payload=payload)
            every.append([shown, *scored] if found else [])
        answers = self._answers(every, None, dimension)
        answered = zip(asked, compared, texts, answers, strict=True)
        return StoreCandidates([self._found(*one) for one in answered], None)

    def close(self) -> None:
        with self._lock:
            if self._client is None:
                return
            if self._local:
                _FOLDERS.leave(self._place)
            else:
                self._client.close()
            self._client = None

    # ---- parts ------------------------------------------------------------------------------------------------------

    def _sparse(self, text: str | None) -> models.SparseVector | None:
        """The words of a text; None without any."""
        if text is None or not self._place.text:
            return None
        places, values = query_vector(text)
        return models.SparseVector(indices=places, values=values) if places else None

    def _request(
        self,
        vector: Any,
        using: str | None,
        rule: models.Filter | None,
        limit: int,
        exact: bool,
        payload: Any = None,
    ) -> models.QueryRequest:
        return models.QueryRequest(
            query=vector if isinstance(vector, models.SparseVector) else vector.tolist(),
            using=using,
            filter=rule,
            limit=limit,
            params=models.SearchParams(exact=exact),
            with_payload=payload,
        )

    def _answers(
        self, requests: list[list[models.QueryRequest]], rule: models.Filter | None, dimension: int | None
    ) -> list[list[list[models.ScoredPoint]]]:
        """The points of each request, of all queries in one batch."""
        flat = [one for of_query in requests for one in of_query]
        if not flat:
            return [[] for _ in requests]
        try:
            found = self._ask(lambda client: client.query_batch_points(self._place.collection, flat))
        except _Refused as error:
            size = self.check()
            if dimension not in (None, size):
                detail = f"{dimension} numbers; {self._place.collection} has {size}"
                raise BadVectors(detail) from None
            raise (StoreAway if rule is None else BadFilter)(str(error)) from None
        if len(found) != len(flat):
            raise StoreAway(f"{self._place.collection}: {len(found)} answers to {len(flat)} requests")
        rest = iter(found)
        return [[next(rest).points for _ in of_query] for of_query in requests]

    def _found(
        self,
        asked: Asked,
        compared: dict[str, Vectors],
        text: models.SparseVector | None,
        answers: list[list[models.ScoredPoint]],
    ) -> Candidates:
        """The candidates of a query, from the points of each signal that it asks for."""
        shown, *scored = answers or [[]]
        rest = iter(scored)

        def scores(vector: Any) -> dict[Any, float]:
            return {} if vector is None else {point.id: point.score for point in next(rest, ())}

        plain, mapped, words = scores(asked.plain), scores(asked.mapped), scores(text)
        beside = {name: scores(vector) for name, vector in compared.items()}
        # An item that has no word of the text is not among the answers.
        texts = 1 if self._place.text else 0
        rows, fields = [], []
        for point in shown:
            payload = point.payload or {}
            numbers = [
                beside[name].get(point.id) if name in beside else _number(payload.get(name))
                for name in self._place.signals
            ]
            rows.append(
                [plain.get(point.id), mapped.get(point.id), *[words.get(point.id, 0.0)][:texts], *numbers]
            )
            fields.append({name: payload.get(name) for name in self._place.columns})
        return Candidates(
            [str(point.id) for point in shown],
            fields,
            signals_of(self._place, asked, rows, missing=(self._beside or {}).keys() - compared),
        )

    def _ask(self, request: Callable[[QdrantClient], Any]) -> Any:
        """What a request to the server returns.

        Raises
        ------
        _Refused : it understands the request, and does not take it.
        StoreAway : for any other reason.
        """
        client = self._opened()
        try:
            return request(client)
        except UnexpectedResponse as error:
            text = hide(
                f"{error.status_code} {error.reason_phrase}: {error.content.decode(errors='replace')[:200]}"
            )
            raise (_Refused if error.status_code in (400, 422) else StoreAway)(text) from None
        except ResponseHandlingException as error:
            raise StoreAway(self._told(error.source)) from None
        except (ApiException, OSError) as error:
            raise StoreAway(self._told(error)) from None
        except Exception as error:
            if not self._local and not isinstance(error, RuntimeError | ValueError):
                raise
            raise (_Refused if self._local else StoreAway)(self._told(error)) from None

    def _opened(self) -> QdrantClient:
        with self._lock:
            if self._client is not None:
                return self._client
            if not self._local:
                self._client = connected(self._place)
                return self._client
            if not os.path.isfile(os.path.join(self._place.connection, _META)):
                raise StoreAway(f"{self._place.collection}: there is no Qdrant in {self._place.connection}")
            try:
                self._client = _FOLDERS.take(self._place)
            # Damage of its files shows as any error.
            except Exception as error:
                raise StoreAway(self._told(error)) from None
            return self._client

    def _told(self, error: object) -> str:
        return hide(f"{self._place.collection}: {str(error) or type(error).__name__}")


def server_of(connection: str) -> SplitResult | None:
    """The server of a connection; None for a folder of the local mode.

    Raises
    ------
    SettingsError : it is neither; the message does not quote it, as it may hold a key.
    """
    if "://" not in connection:
        named = os.path.isdir(connection) and not _HOST_AND_PORT.search(connection)
        if named or connection.startswith(("/", "./", "../")):
            return None
        raise SettingsError(
            "connection: neither the URL of a server, such as http://HOST:6333, nor a folder: write ./FOLDER"
        )
    try:
        parts = urlsplit(connection.strip())
        host = _HOST.fullmatch(parts.hostname or "")
        if parts.scheme in _PORTS and host and parts.port != 0 and not parts.query and not parts.fragment:
            if parts.username and not parts.password:
                raise SettingsError("connection: a key is written as the password: https://:KEY@HOST:PORT")
            return parts._replace(path=parts.path.rstrip("/"))
    except ValueError:
        pass
    raise SettingsError("connection: not the URL of a server: write http://HOST:PORT or https://HOST:PORT")


def connected(place: Place) -> QdrantClient:
    """A client of the server or the folder of a place; a folder is made if it is not there."""
    parts = server_of(place.connection)
    if parts is None:
        return QdrantClient(path=place.connection, force_disable_check_same_thread=True)
    host = parts.netloc.rpartition("@")[2]
    key = unquote(parts.password) if parts.password else None
    url = urlunsplit(parts._replace(netloc=host))
    return QdrantClient(
        url=url,
        port=_PORTS[parts.scheme],
        api_key=key,
        # The server's own limit is in whole seconds.
        timeout=math.ceil(place.seconds),
        check_compatibility=False,
    )


def _number(value: Any) -> float | None:
    """A number of a payload; None for anything else."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _filter(where: Any) -> models.Filter | None:
    if where is None:
        return None
    try:
        return models.Filter.model_validate(where)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise BadFilter(f"not a filter of Qdrant: {place}: {first['msg']}") from None
