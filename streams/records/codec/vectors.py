"""Maps and vectors of re-embedded catalogues as Avro bodies."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.checks import MAX_DIMENSION, check_space, distinct_strings, text, vectors
from kinstream.streams.records.codec.gate import version_in
from kinstream.streams.records.vectors import ItemMap, Rows, VectorBlock

PRODUCTS: Final = ("cosine", "dot")
#: Larger numbers are refused, so that no product of a map and an item overflows float32.
LARGEST: Final = 1e15


def map_out(r: ItemMap) -> dict[str, Any]:
    body = {name: getattr(r, name) for name in ItemMap.__dataclass_fields__}
    return body | {"model": r.model._asdict(), "item": _bytes(r.item), "query": _bytes(r.query)}


def map_in(b: dict[str, Any]) -> ItemMap:
    check_space(b["space"])
    text(b["learner"], "learner")
    text(b["sha256"], "the digest", 64)
    model = version_in(b["model"])
    if model is None or b["product"] not in PRODUCTS:
        raise BadRecord(Reason.BAD_SHAPE, f"product {b['product'][:40]!r}")
    d, rank, first = b["dimension"], b["rank"], b["first"]
    if not 1 <= d <= MAX_DIMENSION or not 1 <= rank <= d or b["version"] < 0 or b["epoch"] < 0:
        raise BadRecord(Reason.BAD_SHAPE, f"a map of {d} features to {rank}, version {b['version']}")
    count, rest = divmod(len(b["item"]), 4 * d)
    if rest or not 1 <= count <= rank or not 0 <= first <= rank - count:
        raise BadRecord(Reason.BAD_SHAPE, f"{len(b['item'])} bytes from row {first} of {rank}")
    if len(b["query"]) not in (0, len(b["item"])):
        raise BadRecord(Reason.BAD_SHAPE, "the parts of the two maps differ in their number of rows")
    item = vectors(b["item"], count, d, "a map")
    query = vectors(b["query"], len(b["query"]) // (4 * d), d, "a map of queries")
    if not (_bounded(item) and _bounded(query)):
        raise BadRecord(Reason.NOT_FINITE, f"the numbers of a map lie between -{LARGEST:g} and {LARGEST:g}")
    return ItemMap(**b | {"model": model, "item": item, "query": query})


def block_out(r: VectorBlock) -> dict[str, Any]:
    return {
        "space": r.space,
        "version": r.version,
        "ids": list(r.ids),
        "dimension": r.vectors.shape[1],
        "vectors": _bytes(r.vectors),
        "tombstones": list(r.tombstones),
        "time_ms": r.time_ms,
        "complete": r.complete,
        "epoch": r.epoch,
    }


def block_in(b: dict[str, Any]) -> VectorBlock:
    check_space(b["space"])
    ids = distinct_strings(b["ids"], "ids")
    tombstones = distinct_strings(b["tombstones"], "tombstones")
    if not set(ids).isdisjoint(tombstones):
        raise BadRecord(Reason.BAD_SHAPE, "an item has a vector and is gone")
    if not ids and not tombstones and b["complete"] is None:
        raise BadRecord(Reason.EMPTY, "a block without vectors or tombstones")
    if b["version"] < 1 or b["epoch"] < 0 or (b["complete"] or 0) < 0:
        raise BadRecord(Reason.BAD_SHAPE, "a block with a negative number")
    found = vectors(b["vectors"], len(ids), b["dimension"], "vectors")
    if not np.isfinite(found).all():
        raise BadRecord(Reason.NOT_FINITE, "vectors must be finite")
    return VectorBlock(
        b["space"],
        b["version"],
        ids,
        found,
        tombstones,
        b["time_ms"],
        b["complete"],
        b["epoch"],
    )


def _bounded(values: Rows) -> bool:
    return bool((np.abs(values) <= LARGEST).all())


def _bytes(values: Rows) -> bytes:
    return np.ascontiguousarray(values, dtype="<f4").tobytes()
