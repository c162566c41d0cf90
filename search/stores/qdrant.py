"""Qdrant, through its official client.

A filter is Qdrant's own, as its documentation writes it in JSON. Qdrant has no snapshot that a request could name, so
answers have no version of the store.
"""

from __future__ import annotations

import math
import threading
from typing import Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from pydantic import ValidationError
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

from kinstream.search.stores.base import BadFilter, Hit, Place, StoreAway, StoreHits, no_options
from kinstream.streams.configuration.services import COSINE, INNER
from kinstream.streams.records.values import Vectors
from kinstream.streams.secrets import hide

_DISTANCES: Final = {COSINE: models.Distance.COSINE, INNER: models.Distance.DOT}


class Qdrant:
    """A collection of dense vectors.

    Parameters
    ----------
    place : `connection` is the URL of the server, with an API key as its password (`https://:KEY@HOST:6333`), or the
        folder of the client's local mode; `columns` are keys of the payload. Options: `vector`, the name of the vectors
        in a collection with several; `exact`, to search without an index.

    Raises
    ------
    SettingsError : an option is unknown.
    """

    def __init__(self, place: Place) -> None:
        no_options(place, "vector", "exact")
        self._place = place
        self._vector: str | None = place.options.get("vector")
        self._exact = bool(place.options.get("exact", False))
        self._payload: Any = list(place.columns) if place.columns else False
        self._client: QdrantClient | None = None
        self._lock = threading.Lock()

    def check(self) -> int | None:
        vectors = self._ask(
            lambda client: client.get_collection(self._place.collection)
        ).config.params.vectors
        if isinstance(vectors, dict):
            vectors = vectors.get(self._vector or "")
        if vectors is None:
            raise StoreAway(f"{self._place.collection} has no vectors called {self._vector or ''!r}")
        if vectors.distance is not _DISTANCES[self._place.distance]:
            raise StoreAway(
                f"{self._place.collection} compares by {vectors.distance.value}, and the settings say "
                f"distance = {self._place.distance!r}"
            )
        return int(vectors.size)

    def search(self, queries: Vectors, k: int, where: Any) -> StoreHits:
        rule = _filter(where)
        requests = [
            models.QueryRequest(
                query=row,
                using=self._vector,
                filter=rule,
                limit=k,
                params=models.SearchParams(exact=self._exact),
                with_payload=self._payload,
            )
            for row in queries.tolist()
        ]
        found = self._ask(lambda client: client.query_batch_points(self._place.collection, requests))
        hits = [
            [
                Hit(
                    str(one.id),
                    float(one.score),
                    {name: (one.payload or {}).get(name) for name in self._place.columns},
                )
                for one in answer.points
            ]
            for answer in found
        ]
        return StoreHits(hits, None)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    # ---- parts ------------------------------------------------------------------------------------------------------

    def _ask(self, request: Any) -> Any:
        """What a request to the server returns.

        Raises
        ------
        BadFilter : the server refuses the request.
        StoreAway : for any other reason.
        """
        try:
            with self._lock:
                self._client = self._client or connected(self._place)
            return request(self._client)
        except UnexpectedResponse as error:
            text = hide(
                f"{error.status_code} {error.reason_phrase}: {error.content.decode(errors='replace')[:200]}"
            )
            if error.status_code in (400, 422):
                raise BadFilter(text) from None
            raise StoreAway(text) from None
        except ResponseHandlingException as error:
            raise StoreAway(hide(f"{self._place.collection}: {error.source}")) from None
        # The client's local mode has errors of its own, and so has its start.
        except (ApiException, OSError, RuntimeError, ValueError) as error:
            raise StoreAway(hide(f"{self._place.collection}: {error}")) from None


def connected(place: Place) -> QdrantClient:
    """A client of the server or the folder of a place."""
    if "://" not in place.connection:
        return QdrantClient(path=place.connection, force_disable_check_same_thread=True)
    parts = urlsplit(place.connection)
    host = parts.netloc.rpartition("@")[2]
    key = unquote(parts.password) if parts.password else None
    url = urlunsplit(parts._replace(netloc=host))
    # The server's own limit is in whole seconds.
    return QdrantClient(url=url, api_key=key, timeout=math.ceil(place.seconds), check_compatibility=False)


def _filter(where: Any) -> models.Filter | None:
    if where is None:
        return None
    try:
        return models.Filter.model_validate(where)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise BadFilter(f"not a filter of Qdrant: {place}: {first['msg']}") from None
