"""Items with vectors, texts and numbers; and a scan of all of them, written from what stores document."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Any, Final

import numpy as np
import psycopg
from numpy.typing import NDArray
from qdrant_client import QdrantClient, models

from kinstream.search.stores.words import item_vector
from tests.opensearch.node import OpenSearchNode
from tests.support.postgres import Postgres

Floats = NDArray[np.float64]

D: Final = 8
ITEMS: Final = 400
#: What the service takes of each kind. OpenSearch takes any of those that are equal at the last place.
MOST: Final = {"pgvector": 30, "qdrant": 30, "opensearch": ITEMS}
LANGUAGES: Final = ("en", "de", "fr")
draw = np.random.default_rng(71)
X: Final = draw.normal(size=(ITEMS, D)).astype(np.float32)
VOCABULARY: Final = [f"w{n}x" for n in range(60)]
#: Words are as unequally frequent as in a language.
_FREQUENCIES: Final = np.arange(1, 61) ** -0.8 / (np.arange(1, 61) ** -0.8).sum()
TEXTS: Final = [
    " ".join(draw.choice(VOCABULARY, size=int(draw.integers(4, 36)), p=_FREQUENCIES)) for _ in range(ITEMS)
]
AGES: Final = [None if n % 7 == 0 else float(draw.integers(0, 1000)) for n in range(ITEMS)]
#: Further vectors: of as many numbers as the first, and of fewer. Some items lack them.
TITLES: Final[list[Any]] = [
    None if n % 11 == 0 else draw.normal(size=D).astype(np.float32) for n in range(ITEMS)
]
IMAGES: Final[list[Any]] = [
    None if n % 5 == 0 else draw.normal(size=D - 3).astype(np.float32) for n in range(ITEMS)
]
BESIDE: Final = {"title": TITLES, "image": IMAGES}
#: Times of each word in each text.
COUNTS: Final = np.array([[text.split().count(word) for word in VOCABULARY] for text in TEXTS])
LENGTHS: Final = COUNTS.sum(axis=1)
#: Texts of a collection of Qdrant score a little differently each, so that no two are equal at the last place.
TILT: Final = 1.0 + np.arange(ITEMS) / 1e4

SETTINGS: Final[dict[str, Any]] = {
    "signals": ["age", "title", "image"],
    "columns": ["lang"],
    "blend": {"similarity": 0.4, "text": 0.5, "age": -0.1, "title": 0.2, "image": 0.15},
}


def names(kind: str) -> list[str]:
    """The ids; Qdrant takes numbers."""
    return [str(n) if kind == "qdrant" else f"doc-{n}" for n in range(ITEMS)]


def queries(number: int, seed: int = 8) -> tuple[NDArray[np.float32], list[str]]:
    rng = np.random.default_rng(seed)
    Q = rng.normal(size=(number, D)).astype(np.float32)
    return Q, [" ".join(rng.choice(VOCABULARY, size=int(rng.integers(1, 6)))) for _ in range(number)]


def fill_postgres(server: Postgres) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(
            f"create table ranked (id text primary key, embedding vector({D}), body text, age float8, lang text,"
            f" title vector, image vector({D - 3}),"
            " words tsvector generated always as (to_tsvector('english', body)) stored)"
        )
        columns = "id, embedding, body, age, lang, title, image"
        with connection.cursor().copy(f"copy ranked ({columns}) from stdin") as copy:
            for n, name in enumerate(names("pgvector")):
                beside = [None if rows[n] is None else str(rows[n].tolist()) for rows in BESIDE.values()]
                copy.write_row((name, str(X[n].tolist()), TEXTS[n], AGES[n], LANGUAGES[n % 3], *beside))
        connection.execute("create index on ranked using gin (words)")
        connection.execute("analyze ranked")


def filled_qdrant() -> QdrantClient:
    client = QdrantClient(":memory:")
    client.create_collection(
        "ranked",
        {
            name: models.VectorParams(size=size, distance=models.Distance.COSINE)
            for name, size in (("embedding", D), ("title", D), ("image", D - 3))
        },
        sparse_vectors_config={"words": models.SparseVectorParams(modifier=models.Modifier.IDF)},
    )
    points = []
    for n in range(ITEMS):
        places, values = item_vector(TEXTS[n], float(LENGTHS.mean()))
        sparse = models.SparseVector(indices=places, values=(np.array(values) * TILT[n]).tolist())
        payload = {"lang": LANGUAGES[n % 3]} | ({} if AGES[n] is None else {"age": AGES[n]})
        vector = {"embedding": X[n].tolist(), "words": sparse, **_beside(n)}
        points.append(models.PointStruct(id=n, vector=vector, payload=payload))
    client.upsert("ranked", points)
    return client


def fill_opensearch(node: OpenSearchNode, index: str = "ranked") -> None:
    method = {"name": "hnsw", "engine": "lucene", "space_type": "cosinesimil"}
    fields = {
        "embedding": {"type": "knn_vector", "dimension": D, "method": method},
        "title": {"type": "knn_vector", "dimension": D, "method": method},
        "image": {"type": "knn_vector", "dimension": D - 3, "method": method},
        "words": {"type": "text"},
        "age": {"type": "double"},
        "lang": {"type": "keyword"},
    }
    rows = {
        name: {"embedding": X[n].tolist(), "words": TEXTS[n], "lang": LANGUAGES[n % 3], **_beside(n)}
        | ({} if AGES[n] is None else {"age": AGES[n]})
        for n, name in enumerate(names("opensearch"))
    }
    node.fill(index, fields, rows)


def _beside(n: int) -> dict[str, Any]:
    """The further vectors of an item."""
    return {name: rows[n].tolist() for name, rows in BESIDE.items() if rows[n] is not None}


# ---- the scan -------------------------------------------------------------------------------------------------------


def cosines(query: NDArray[Any], rows: Any = X) -> Floats:
    """NaN for items without a vector."""
    wide = np.array([np.full(len(query), np.nan) if row is None else row for row in rows], np.float64)
    q = np.asarray(query, np.float64)
    return np.asarray(wide @ q / np.linalg.norm(wide, axis=1) / np.linalg.norm(q))


def text_scores(kind: str, text: str) -> Floats:
    """How each item matches a text."""
    # PostgreSQL adds in the order of the words; a word that is written twice counts twice in OpenSearch alone.
    written = text.split() if kind == "opensearch" else set(text.split())
    asked = [VOCABULARY.index(word) for word in sorted(written)]
    counts = COUNTS[:, asked]
    df = (counts > 0).sum(axis=0)
    rare = np.log(1.0 + (ITEMS - df + 0.5) / (df + 0.5))
    if kind != "pgvector":
        unit = 1.2 * (0.25 + 0.75 * LENGTHS / LENGTHS.mean())
        found = (rare * counts / (counts + unit[:, None])).sum(axis=1)
        found *= 2.2 * TILT if kind == "qdrant" else 2.2
        return np.asarray(found)
    near = np.array([_ts_rank(row, n) for row, n in zip(counts, LENGTHS, strict=True)])
    return near


def _ts_rank(counts: Sequence[int], length: int) -> np.float32:
    """`ts_rank(..., 1)` of an OR of words, in the number types of PostgreSQL's source; positions weigh .1."""
    weight, found = np.float32(0.1), np.float32(0.0)
    for count in counts:
        if not count:
            continue
        sums = np.float32(0.0)
        for j in range(count):
            sums = np.float32(sums + weight / np.float32((j + 1) ** 2))
        # The largest weight is the first position's.
        found = np.float32(float(found) + float(np.float32(weight + sums - weight)) / 1.64493406685)
    found = np.float32(found / np.float32(len(counts)))
    return np.float32(float(found) / (log(length + 1) / log(2.0)))


def best(scores: Floats, ids: Sequence[str], n: int) -> list[int]:
    return sorted(np.flatnonzero(np.isfinite(scores)).tolist(), key=lambda at: (-scores[at], ids[at]))[:n]


def scanned(
    kind: str,
    plain: NDArray[Any] | None,
    mapped: NDArray[Any] | None,
    text: str | None,
    allowed: NDArray[np.bool_] | None = None,
    shares: dict[str, float] | None = None,
    own: dict[str, NDArray[Any]] | None = None,
) -> tuple[list[int], Floats, dict[str, Floats]]:
    """The ranking of all candidates, their values, and their signals, by the settings above."""
    ids = names(kind)
    free = np.ones(ITEMS, bool) if allowed is None else allowed
    signals: dict[str, Floats] = {"age": np.array([np.nan if a is None else a for a in AGES])}
    for name, rows in BESIDE.items():
        query = plain if own is None or name not in own else own[name]
        if query is not None and len(query) == len(next(filter(lambda row: row is not None, rows))):
            signals[name] = cosines(query, rows)
    chosen: set[int] = set()
    if plain is not None:
        signals["similarity"] = cosines(plain)
        near = signals["similarity"]
        if mapped is not None:
            near = signals["adapted"] = cosines(mapped)
        chosen |= set(best(np.where(free, near, np.nan), ids, MOST[kind]))
    if text is not None:
        near = signals["text"] = text_scores(kind, text)
        chosen |= set(best(np.where(free & (near > 0), near, np.nan), ids, MOST[kind]))
    among = sorted(chosen)
    shares = SETTINGS["blend"] if shares is None else shares
    values = np.zeros(len(among))
    for name, share in shares.items():
        name = "adapted" if name == "similarity" and mapped is not None else name
        x = signals.get(name, np.full(ITEMS, np.nan))[among]
        known = np.isfinite(x)
        if known.any() and np.ptp(x[known]) > 0:
            values += np.where(known, share * (x - x[known].mean()) / np.ptp(x[known]), 0.0)
    order = sorted(range(len(among)), key=lambda at: (-values[at], ids[among[at]]))
    ranked = [among[at] for at in order]
    return ranked, values[order], {name: x[ranked] for name, x in signals.items()}
