"""OpenSearch over HTTP: k-NN, full text and numeric fields, asked twice: for ids, and for every signal of these.

A filter is a part of OpenSearch's own query language. Requests have no version of the index that an answer could name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from kinstream.search.stores.base import (
    Asked,
    BadFilter,
    BadText,
    BadVectors,
    Candidates,
    Hit,
    Place,
    StoreAway,
    StoreCandidates,
    StoreHits,
    no_options,
    scaled_by_powers,
    signals_of,
)
from kinstream.search.stores.opensearch_client import Client, Refused
from kinstream.search.stores.opensearch_filters import filter_of
from kinstream.streams.configuration.service import COSINE
from kinstream.streams.records.values import Vectors

#: By distance: the space of the index, and its score as a similarity.
_SPACES: Final[dict[str, tuple[str, Callable[[float], float]]]] = {
    COSINE: ("cosinesimil", lambda score: 2.0 * score - 1.0),
    "inner-product": ("innerproduct", lambda score: score - 1.0 if score >= 1.0 else 1.0 - 1.0 / score),
}
#: Always the same copies of a shard: others may count words of deleted items.
_COPIES: Final = {"preference": "kinstream"}

#: A document as a search returns it.
_Document = dict[str, Any]


class OpenSearch:
    """An index, or an alias, with a field of the type knn_vector.

    Parameters
    ----------
    place : `connection` is the URL of the server, with user and password: `https://USER:PASSWORD@HOST:9200`;
        `collection` is the index; `text` is a field that `match` can search, `signals` are numeric fields, or
        further ones of the type knn_vector, `columns` fields of the source. Options: `vector`, the field of vectors
        ("embedding"); `exact`, to find the nearest without the index.

    Raises
    ------
    SettingsError : an option is unknown, or the connection is not the URL of a server.
    """

    def __init__(self, place: Place) -> None:
        no_options(place, "vector", "exact")
        self._place = place
        self._vector = str(place.options.get("vector", "embedding"))
        self._exact = bool(place.options.get("exact", False))
        self._space, self._similarity = _SPACES[place.distance]
        self._index = quote(place.collection, safe=",*")
        self._client = Client(place.connection, place.seconds)
        #: Dimension of each signal that is a similarity; None before they were looked at.
        self._beside: dict[str, int | None] | None = None

    def check(self) -> int | None:
        try:
            answer = self._client.ask("GET", f"/{self._index}/_mapping")
        except Refused as error:
            raise StoreAway(str(error)) from None
        try:
            sizes = {self._checked(index["mappings"].get("properties", {})) for index in answer.values()}
        except (AttributeError, KeyError, TypeError):
            raise StoreAway(f"{self._place.collection}: not a mapping of fields") from None
        if len(sizes) != 1:
            raise StoreAway(
                f"{self._place.collection} is no index, or several whose vectors differ in length"
            )
        size, beside = sizes.pop()
        self._beside = dict(beside)
        return size

    def search(self, queries: Vectors, k: int, where: Any) -> StoreHits:
        found = self.candidates([Asked(row) for row in queries], k, where).found
        return StoreHits([_best(one, k) for one in found], None)

    def candidates(self, asked: Sequence[Asked], n: int, where: Any) -> StoreCandidates:
        rule = filter_of(where)
        if self._beside is None and self._place.signals:
            self.check()
        sizes = self._beside or {}
        compared = [one.compared(sizes, self._place.collection) for one in asked]
        numbers = [name for name in self._place.signals if name not in sizes]
        dimension = next((len(one.plain) for one in asked if one.plain is not None), None)
        near = [self._near(one, n, rule) for one in asked]
        ids = [
            list(dict.fromkeys(hit["_id"] for hits in found for hit in hits))
            for found in self._searched(near, rule, dimension)
        ]
        every = [
            self._signals(one, beside, numbers, found) if found else []
            for one, beside, found in zip(asked, compared, ids, strict=True)
        ]
        answers = self._searched(every, None, dimension)
        answered = zip(asked, compared, answers, strict=True)
        return StoreCandidates([self._found(*one) for one in answered], None)

    def close(self) -> None:
        self._client.close()

    # ---- what is asked ----------------------------------------------------------------------------------------------

    def _near(self, asked: Asked, n: int, rule: Any) -> list[Any]:
        """Searches for the ids of the best by vector and by text."""
        found = []
        rules = [] if rule is None else [rule]
        if (vector := asked.nearest) is not None:
            if self._exact:
                query = self._scored(self._vector, vector, rules)
            else:
                near = {"vector": _scaled(vector)[0], "k": n} | ({} if rule is None else {"filter": rule})
                query = {"knn": {self._vector: near}}
            found.append({"query": query, "size": n, "_source": False})
        if asked.text is not None and self._place.text:
            found.append({"query": self._matched(asked.text, rules), "size": n, "_source": False})
        return found

    def _signals(
        self, asked: Asked, compared: dict[str, Vectors], numbers: list[str], ids: list[str]
    ) -> list[Any]:
        """Searches for the columns of these items, and for each signal of them."""
        these: list[Any] = [{"ids": {"values": ids}}]
        shown = {
            "query": {"bool": {"filter": these}},
            "_source": list(self._place.columns) or False,
            "docvalue_fields": numbers,
        }
        wanted = [(self._vector, asked.plain), (self._vector, asked.mapped), *compared.items()]
        queries = [
            {"query": self._scored(field, vector, these), "_source": False}
            for field, vector in wanted
            if vector is not None
        ]
        if asked.text is not None and self._place.text:
            queries.append({"query": self._matched(asked.text, these), "_source": False})
        return [{**one, "size": len(ids)} for one in (shown, *queries)]

    def _scored(self, field: str, vector: Vectors, rules: list[Any]) -> Any:
        """The query that scores all items with a vector in that field exactly."""
        params = {"field": field, "query_value": _scaled(vector)[0], "space_type": self._space}
        script = {"source": "knn_score", "lang": "knn", "params": params}
        among = {"bool": {"filter": [*rules, {"exists": {"field": field}}]}}
        return {"script_score": {"query": among, "script": script}}

    def _matched(self, text: str, rules: list[Any]) -> Any:
        return {"bool": {"must": {"match": {self._place.text: {"query": text}}}, "filter": rules}}

    # ---- what is answered -------------------------------------------------------------------------------------------

    def _searched(
        self, searches: list[list[Any]], rule: Any, dimension: int | None
    ) -> list[list[list[_Document]]]:
        """The documents of each search, of all queries in one request.

        Raises
        ------
        StoreAway, BadFilter, BadVectors, BadText
        """
        flat = [one for of_query in searches for one in of_query]
        if not flat:
            return [[] for _ in searches]
        limit = {"timeout": f"{math.ceil(1000 * self._place.seconds)}ms"}
        lines = [line for one in flat for line in (_COPIES, {**one, **limit})]
        try:
            answer = self._client.ask("POST", f"/{self._index}/_msearch", lines)
            answers = answer.get("responses")
            if not isinstance(answers, list) or len(answers) != len(flat):
                raise StoreAway(f"{self._place.collection}: not an answer to {len(flat)} searches")
            documents = iter([self._documents(one) for one in answers])
        except Refused as error:
            if error.kind == "too_many_clauses":
                raise BadText(f"it has more words than the server takes: {error}") from None
            if dimension is not None and (size := self.check()) != dimension:
                raise BadVectors(f"{dimension} numbers; {self._place.collection} has {size}") from None
            raise (StoreAway if rule is None else BadFilter)(str(error)) from None
        return [[next(documents) for _ in of_query] for of_query in searches]

    def _documents(self, answer: Any) -> list[_Document]:
        """The documents of one search, all of them."""
        if isinstance(answer, dict) and "error" in answer:
            raise Refused.of(answer)
        try:
            whole = not answer["timed_out"] and not answer["_shards"]["failed"]
            found = [one for one in answer["hits"]["hits"] if isinstance(one["_id"], str)]
        except (KeyError, TypeError):
            raise StoreAway(f"{self._place.collection}: not an answer to a search") from None
        if not whole:
            raise StoreAway(f"{self._place.collection}: not all of the index has answered in time")
        return found

    def _found(
        self, asked: Asked, compared: dict[str, Vectors], answers: list[list[_Document]]
    ) -> Candidates:
        shown, *scored = answers or [[]]
        rest = iter(scored)

        def scores(wanted: bool) -> dict[str, float]:
            return {one["_id"]: _score(one) for one in next(rest, ())} if wanted else {}

        def similar(vector: Vectors | None) -> dict[str, float]:
            return {name: self._similar(vector, score) for name, score in scores(vector is not None).items()}

        plain, mapped = similar(asked.plain), similar(asked.mapped)
        beside = {name: similar(vector) for name, vector in compared.items()}
        words = scores(asked.text is not None)
        rows, fields = [], []
        for one in shown:
            name = one["_id"]
            # An item that has no word of the text is not among the answers.
            of_text = [words.get(name, 0.0)] if self._place.text else []
            numbers = [
                beside[field].get(name) if field in beside else _only(one.get("fields", {}).get(field))
                for field in self._place.signals
            ]
            rows.append([plain.get(name), mapped.get(name), *of_text, *numbers])
            source = one.get("_source", {})
            fields.append({field: _within(source, field) for field in self._place.columns})
        return Candidates(
            [one["_id"] for one in shown],
            fields,
            signals_of(self._place, asked, rows, missing=(self._beside or {}).keys() - compared),
        )

    def _similar(self, vector: Vectors | None, score: float) -> float:
        """The similarity to a query of a document with that score."""
        found = self._similarity(score) if score > 0.0 or self._place.distance == COSINE else math.nan
        if vector is None or self._place.distance == COSINE:
            return found
        return math.ldexp(found, _scaled(vector)[1])

    def _checked(
        self, properties: Mapping[str, Any]
    ) -> tuple[int | None, tuple[tuple[str, int | None], ...]]:
        """The dimension of an index with these fields, and those of the signals that are vectors.

        Raises
        ------
        StoreAway : a field is not what the settings say.
        """
        where = self._place.collection
        found = _field(properties, self._vector)
        if found.get("type") != "knn_vector":
            raise StoreAway(f"{where}.{self._vector} is of the type {found.get('type')}, not knn_vector")
        signals = {name: _field(properties, name) for name in self._place.signals}
        beside = {name: one for name, one in signals.items() if one.get("type") == "knn_vector"}
        for one in (found, *beside.values()):
            space = one.get("method", {}).get("space_type", one.get("space_type", self._space))
            if space != self._space:
                raise StoreAway(
                    f"{where} compares by {space}, and the settings say distance = {self._place.distance!r}"
                )
        for name in (*self._place.signals, *([self._place.text] if self._place.text else [])):
            kind = _field(properties, name).get("type")
            if kind is None or (name in self._place.signals and kind in ("text", "keyword")):
                raise StoreAway(f"{where} has no {'text' if name == self._place.text else 'numbers'} {name}")
        return found.get("dimension"), tuple((name, one.get("dimension")) for name, one in beside.items())


def _scaled(vector: Vectors) -> tuple[list[float], int]:
    """A query over a power of two, and the exponent: scores keep their digits, and squares are in range."""
    scaled, exponents = scaled_by_powers(vector[None])
    return scaled[0].tolist(), int(exponents[0])


def _best(found: Candidates, k: int) -> list[Hit]:
    near = found.signals["similarity"].tolist() if found.ids else []
    hits = map(Hit, found.ids, near, found.fields)
    return sorted(hits, key=lambda hit: (-hit.similarity, hit.id))[:k]


def _score(one: _Document) -> float:
    score = one.get("_score")
    return float(score) if isinstance(score, int | float) else math.nan


def _only(values: Any) -> float | None:
    """The number of a field; None without one, or with several."""
    if not isinstance(values, list) or len(values) != 1 or isinstance(values[0], bool):
        return None
    return float(values[0]) if isinstance(values[0], int | float) else None


def _within(source: Any, path: str) -> Any:
    """A field of a source, also one within objects."""
    if not isinstance(source, Mapping):
        return None
    if path in source:
        return source[path]
    first, dot, rest = path.partition(".")
    return _within(source.get(first), rest) if dot else None


def _field(properties: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """What the mapping says of a field, also of one within objects, or of a second form of one; empty without it."""
    first, dot, rest = path.partition(".")
    found: Mapping[str, Any] = properties.get(first, {})
    if not dot:
        return found
    return _field({**found.get("properties", {}), **found.get("fields", {})}, rest)
