"""Blocks of relations as Avro bodies, with every index checked on decoding."""

from __future__ import annotations

from typing import Any

import numpy as np

from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.checks import check_indices, check_space, distinct_strings
from kinstream.streams.records.codec.parts import array, load_in, load_out
from kinstream.streams.records.values import RelationBlock


def relation_block_out(r: RelationBlock) -> dict[str, Any]:
    return {
        "space": r.space,
        "ids": list(r.ids),
        "left": np.ascontiguousarray(r.left, dtype="<i4").tobytes(),
        "right": np.ascontiguousarray(r.right, dtype="<i4").tobytes(),
        "similar": np.ascontiguousarray(r.similar, dtype="u1").tobytes(),
        "time_ms": np.ascontiguousarray(r.time_ms, dtype="<i8").tobytes(),
        "sources": list(r.sources),
        "source": np.ascontiguousarray(r.source, dtype="<i4").tobytes(),
        "load": load_out(r.load),
    }


def relation_block_in(b: dict[str, Any]) -> RelationBlock:
    rows = len(b["similar"])
    if not rows:
        raise BadRecord(Reason.EMPTY, "a relation block without rows")
    ids = distinct_strings(b["ids"], "ids")
    sources = distinct_strings(b["sources"], "sources")
    left, right, source = (array(b[name], "<i4", rows, name) for name in ("left", "right", "source"))
    check_indices(left, 0, len(ids), "left")
    check_indices(right, 0, len(ids), "right")
    check_indices(source, -1, len(sources), "source")
    similar = array(b["similar"], "u1", rows, "similar")
    if similar.max() > 1:
        raise BadRecord(Reason.BAD_SHAPE, "similar is 0 or 1")
    time_ms = array(b["time_ms"], "<i8", rows, "time_ms")
    return RelationBlock(
        check_space(b["space"]),
        ids,
        left,
        right,
        similar.astype(np.bool_),
        time_ms,
        sources,
        source,
        load_in(b["load"]),
    )
