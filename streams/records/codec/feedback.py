"""Feedback on a list that the service has shown, as fields of a record and back."""

from __future__ import annotations

from typing import Any

from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.checks import check_space, finite_float, optional_text, text
from kinstream.streams.records.codec.parts import load_in, load_out
from kinstream.streams.records.lists.feedback import HEAVIEST, Feedback


def feedback_out(r: Feedback) -> dict[str, Any]:
    """Fields of a record."""
    return {name: getattr(r, name) for name in Feedback.__dataclass_fields__} | {"load": load_out(r.load)}


def feedback_in(b: dict[str, Any]) -> Feedback:
    """The inverse of `feedback_out`.

    Raises
    ------
    BadRecord : a name is too long, or the weight is out of range.
    """
    check_space(b["space"])
    item = optional_text(b["item"], "the item")
    most = 1.0 if item is None else HEAVIEST
    if not 0.0 <= finite_float(b["weight"], "the weight") <= most:
        raise BadRecord(Reason.BAD_SHAPE, f"the weight is between 0 and {most:g}")
    return Feedback(
        b["space"],
        text(b["list_id"], "the list id"),
        item,
        optional_text(b["action"], "the kind of an action"),
        b["weight"],
        b["time_ms"],
        text(b["key"], "the key"),
        b["retract"],
        load_in(b["load"]),
    )
