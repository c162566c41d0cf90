"""The lists behind a block of constraints, as fields of a record and back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.codec.parts import array, scores_in, scores_out
from kinstream.streams.records.held_out import JUDGED_PLACES, ShownLists

#: The largest exponent that a builder can have.
_STEEPEST = 4.0


def shown_out(lists: ShownLists | None) -> dict[str, Any] | None:
    """Fields of a record."""
    if lists is None:
        return None
    return {
        "query": np.ascontiguousarray(lists.query, dtype="<i4").tobytes(),
        "starts": np.ascontiguousarray(lists.starts, dtype="<i4").tobytes(),
        "item": np.ascontiguousarray(lists.item, dtype="<i4").tobytes(),
        "clicked": np.ascontiguousarray(lists.clicked, dtype="u1").tobytes(),
        "actor": np.ascontiguousarray(lists.actor, dtype="<u8").tobytes(),
        "exponent": lists.exponent,
        "scores": scores_out(lists.scores),
        "worth": None if lists.worth is None else np.ascontiguousarray(lists.worth, dtype="<f4").tobytes(),
        "names": None if lists.names is None else np.ascontiguousarray(lists.names, dtype="<u8").tobytes(),
        "ids": None if lists.ids is None else np.ascontiguousarray(lists.ids, dtype="<u8").tobytes(),
    }


def shown_in(body: dict[str, Any] | None, rows: int) -> ShownLists | None:
    """The inverse of `shown_out`.

    Parameters
    ----------
    rows : of the block's tables.

    Raises
    ------
    BadRecord : sizes contradict each other, a row is outside the tables, a list has no place, no click or too many
        places, or an action weighs nothing.
    """
    if body is None:
        return None
    k, t = len(body["query"]) // 4, len(body["item"]) // 4
    query = array(body["query"], "<i4", k, "the queries of lists")
    starts = array(body["starts"], "<i4", k + 1, "the starts of lists")
    item = array(body["item"], "<i4", t, "the items of lists")
    clicked = array(body["clicked"], "u1", t, "the clicks of lists")
    actor = array(body["actor"], "<u8", k, "the actors of lists")
    places = np.diff(starts)
    if not k or starts[0] != 0 or starts[-1] != t or places.min() < 1 or places.max() > JUDGED_PLACES:
        raise BadRecord(
            Reason.BAD_SHAPE, f"a list has 1 to {JUDGED_PLACES} places, one list behind the other"
        )
    if min(query.min(), item.min()) < 0 or max(query.max(), item.max()) >= rows:
        raise BadRecord(Reason.BAD_SHAPE, "a list points outside the table")
    if clicked.max() > 1 or not np.maximum.reduceat(clicked, starts[:-1]).all():
        raise BadRecord(Reason.BAD_SHAPE, "clicked is 0 or 1, and 1 somewhere in each list")
    exponent = float(body["exponent"])
    if not (math.isfinite(exponent) and 0.0 <= exponent <= _STEEPEST):
        raise BadRecord(Reason.BAD_SHAPE, f"the exponent of examination is between 0 and {_STEEPEST:g}")
    scores = scores_in(body["scores"], t, "the scores of lists")
    worth = None if body["worth"] is None else array(body["worth"], "<f4", t, "the weights of actions")
    if worth is not None and not (np.isfinite(worth).all() and (worth > 0.0).all()):
        raise BadRecord(Reason.BAD_SHAPE, "an action weighs more than 0")
    names = None if body["names"] is None else array(body["names"], "<u8", t, "the names of items in lists")
    ids = None if body["ids"] is None else array(body["ids"], "<u8", k, "the ids of lists")
    return ShownLists(
        query, starts, item, clicked.astype(np.bool_), actor, exponent, scores, worth, names, ids
    )
