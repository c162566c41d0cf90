"""Result lists, and blocks of them, as Avro bodies, with every index checked on decoding."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.checks import (
    check_finite,
    check_indices,
    check_space,
    distinct_strings,
    optional_text,
    strings,
    text,
)
from kinstream.streams.records.codec.parts import (
    array,
    load_in,
    load_out,
    scores_in,
    scores_out,
    tables_in,
    tables_out,
)
from kinstream.streams.records.lists.feedback import HEAVIEST
from kinstream.streams.records.values import Click, ClickBlock, ItemClick

_INT32: Final = ("session", "user", "query", "query_row", "starts", "item", "position", "clicked")
_INT64: Final = ("shown_at_ms", "click_ms", "dwell_ms")
_WEIGHS: Final = f"the weight of an action is above 0 and up to {HEAVIEST:g}"


def click_out(r: Click) -> dict[str, Any]:
    return {
        "space": r.space,
        "list_id": r.list_id,
        "items": list(r.items),
        "positions": list(r.positions),
        "clicks": [
            {
                "item": c.item,
                "time_ms": c.time_ms,
                "dwell_ms": c.dwell_ms,
                "action": c.action,
                "weight": c.weight,
            }
            for c in r.clicks
        ],
        "shown_at_ms": r.shown_at_ms,
        "session": r.session,
        "user": r.user,
        "query_item": r.query_item,
        "query_vector": tables_out(r.query_vector),
        "load": load_out(r.load),
        "address": r.address,
        "scores": scores_out(r.scores),
    }


def click_in(b: dict[str, Any]) -> Click:
    if not b["items"]:
        raise BadRecord(Reason.EMPTY, "a click record without shown items")
    if len(b["positions"]) != len(b["items"]):
        raise BadRecord(Reason.BAD_SHAPE, "positions and items differ in number")
    query = tables_in(b["query_vector"], "query vector")
    if any(len(t.vectors) != 1 for t in query):
        raise BadRecord(Reason.BAD_SHAPE, "a query vector has one row for each modality")
    check_finite(query, "query vector")
    return Click(
        check_space(b["space"]),
        text(b["list_id"], "the list id"),
        strings(b["items"], len(b["items"]), "items"),
        tuple(b["positions"]),
        tuple(
            ItemClick(
                text(c["item"], "a clicked item"),
                c["time_ms"],
                c["dwell_ms"],
                optional_text(c["action"], "the kind of an action"),
                None if c["weight"] is None else weight_of(c["weight"]),
            )
            for c in b["clicks"]
        ),
        b["shown_at_ms"],
        optional_text(b["session"], "the session"),
        optional_text(b["user"], "the user"),
        optional_text(b["query_item"], "the query item"),
        query,
        load_in(b["load"]),
        optional_text(b["address"], "the address"),
        scores_in(b["scores"], len(b["items"]), "scores"),
    )


def click_block_out(r: ClickBlock) -> dict[str, Any]:
    body: dict[str, Any] = {
        "space": r.space,
        "ids": list(r.ids),
        "list_ids": list(r.list_ids),
        "actors": list(r.actors),
        "query_vectors": tables_out(r.query_vectors),
        "load": load_out(r.load),
        "address": b"" if r.address is None else np.ascontiguousarray(r.address, dtype="<i4").tobytes(),
        "scores": scores_out(r.scores),
        "kinds": list(r.kinds),
        "action": b"" if r.action is None else _kinds_out(r.action),
        "weight": b"" if r.weight is None else np.ascontiguousarray(r.weight, dtype="<f4").tobytes(),
    }
    for names, dtype in ((_INT32, "<i4"), (_INT64, "<i8")):
        body |= {name: np.ascontiguousarray(getattr(r, name), dtype=dtype).tobytes() for name in names}
    return body


def click_block_in(b: dict[str, Any]) -> ClickBlock:
    lists, shown, clicks = len(b["list_ids"]), len(b["item"]) // 4, len(b["clicked"]) // 4
    if not lists or not shown:
        raise BadRecord(Reason.EMPTY, "a click block without lists or without impressions")
    ids = distinct_strings(b["ids"], "ids")
    actors = distinct_strings(b["actors"], "actors")
    queries = tables_in(b["query_vectors"], "query vectors")
    check_finite(queries, "query vectors")
    counts = dict.fromkeys(("session", "user", "query", "query_row", "shown_at_ms"), lists)
    counts |= {"starts": lists + 1, "item": shown, "position": shown}
    counts |= dict.fromkeys(("clicked", "click_ms", "dwell_ms"), clicks)
    columns = {name: array(b[name], "<i4", counts[name], name) for name in _INT32}
    columns |= {name: array(b[name], "<i8", counts[name], name) for name in _INT64}
    starts = columns["starts"]
    if starts[0] != 0 or starts[-1] != shown or np.any(np.diff(starts) < 1):
        raise BadRecord(Reason.BAD_SHAPE, "starts must rise from 0 to the number of impressions")
    for name, least, end in (
        ("session", -1, len(actors)),
        ("user", -1, len(actors)),
        ("query", -1, len(ids)),
        ("query_row", -1, len(queries[0].vectors) if queries else 0),
        ("item", 0, len(ids)),
        ("position", 0, 2**31 - 1),
        ("clicked", 0, shown),
    ):
        check_indices(columns[name], least, end, name)
    address = array(b["address"], "<i4", lists, "address") if b["address"] else None
    if address is not None:
        check_indices(address, -1, len(actors), "address")
    kinds = distinct_strings(b["kinds"], "kinds of actions")
    weight = array(b["weight"], "<f4", clicks, "weight") if b["weight"] else None
    if weight is not None and not ((weight > 0.0) & (weight <= HEAVIEST)).all():
        raise BadRecord(Reason.BAD_SHAPE, _WEIGHS)
    list_ids = strings(b["list_ids"], lists, "list ids")
    return ClickBlock(
        space=check_space(b["space"]),
        ids=ids,
        list_ids=list_ids,
        actors=actors,
        query_vectors=queries,
        load=load_in(b["load"]),
        address=address,
        scores=scores_in(b["scores"], shown, "scores"),
        kinds=kinds,
        action=_kinds_in(b["action"], clicks, len(kinds)) if b["action"] else None,
        weight=weight,
        **columns,
    )


def weight_of(value: float) -> float:
    """How much an action counts.

    Raises
    ------
    BadRecord : it is out of range.
    """
    if not 0.0 < value <= HEAVIEST:
        raise BadRecord(Reason.BAD_SHAPE, _WEIGHS)
    return value


def _kinds_out(action: NDArray[np.int32]) -> bytes:
    some = np.flatnonzero(action >= 0)
    return np.column_stack([some, action[some]]).astype("<i4").tobytes()


def _kinds_in(data: bytes, clicks: int, kinds: int) -> NDArray[np.int32]:
    """(k,) kinds of the clicks; -1 for those that are not named."""
    rows = array(data, "<i4", 2 * (len(data) // 8), "action").reshape(-1, 2)
    check_indices(rows[:, 0], 0, clicks, "action")
    check_indices(rows[:, 1], 0, kinds, "action")
    if np.any(np.diff(rows[:, 0]) < 1):
        raise BadRecord(Reason.BAD_SHAPE, "the clicks of action must rise")
    found = np.full(clicks, -1, np.int32)
    found[rows[:, 0]] = rows[:, 1]
    return found
