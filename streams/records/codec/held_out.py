"""The verdicts on held-out events in an outcome, as fields of a record and back."""

from __future__ import annotations

from typing import Any

from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.checks import finite_float
from kinstream.streams.records.held_out import METRICS, UNLEARNED, HeldOut, HeldOutSums


def held_out_out(found: HeldOut | None) -> dict[str, Any] | None:
    """Fields of a record."""
    if found is None:
        return None
    return {
        "block": _sums_out(found.block),
        "events": found.events,
        "window": _sums_out(found.window),
        "judged": found.judged,
        "queries": found.queries,
        "against": found.against,
    }


def held_out_in(body: dict[str, Any] | None) -> HeldOut | None:
    """The inverse of `held_out_out`.

    Raises
    ------
    BadRecord : unknown metrics, numbers that are not finite, negative or contradict each other.
    """
    if body is None:
        return None
    block, window, events = _sums_in(body["block"]), _sums_in(body["window"]), body["events"]
    against, queries = body["against"], body["queries"]
    # Records of earlier versions count whole events.
    judged = body["judged"] if against is not None else round(block.weight)
    most = events * (1.0 + 1e-9)
    if not 1 <= judged <= events or not (block.weight <= most and window.weight <= most):
        raise BadRecord(Reason.BAD_SHAPE, f"{events} held-out events contradict their sums")
    if queries is not None and not 0 <= queries <= events:
        raise BadRecord(Reason.BAD_SHAPE, f"{queries} different queries of {events} lists")
    if against is not None:
        against = finite_float(against, "an e-value")
    return HeldOut(block, events, window, judged, queries, against)


def _sums_out(sums: HeldOutSums) -> dict[str, Any]:
    return {
        "weight": sums.weight,
        "squared_weight": sums.squared_weight,
        "losses": {name: sums.losses[name] for name in METRICS},
        "squares": {name: sums.squares[name] for name in UNLEARNED},
    }


def _sums_in(body: dict[str, Any]) -> HeldOutSums:
    for name, wanted in (("losses", METRICS), ("squares", UNLEARNED)):
        if body[name].keys() != set(wanted):
            raise BadRecord(Reason.BAD_SHAPE, f"{name} of held-out events are those of {', '.join(wanted)}")
    weight = finite_float(body["weight"], "weight")
    squared = finite_float(body["squared_weight"], "squared_weight")
    losses = {name: finite_float(body["losses"][name], "a loss") for name in METRICS}
    squares = {name: finite_float(body["squares"][name], "a square") for name in UNLEARNED}
    # Sums in another order differ by rounding.
    most = weight * (1.0 + 1e-9)
    if not 0.0 < squared <= most or any(not 0.0 <= v <= most for v in (*losses.values(), *squares.values())):
        raise BadRecord(
            Reason.BAD_SHAPE, "sums of held-out events lie between 0 and the weight of the events"
        )
    return HeldOutSums(weight, squared, losses, squares)
