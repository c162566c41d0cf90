"""Orders and decisions of the gate as Avro bodies."""

from __future__ import annotations

from typing import Any, Final

from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.checks import check_space, finite_float, text
from kinstream.streams.records.gate import UNADAPTED, GateDecision, GateOrder, Order, Verdict, Version

MAX_NOTE: Final = 400
_MAX_CHECKS: Final = 32
_VERSIONS: Final = ("serving", "before", "challenger", "floor")
_COUNTS: Final = ("partition", "offset", "impressions", "wins", "losses", "ties")


def order_out(r: GateOrder) -> dict[str, Any]:
    return {
        "space": r.space,
        "order": r.order.value,
        "time_ms": r.time_ms,
        "version": _version_out(r.version),
        "note": r.note,
    }


def order_in(b: dict[str, Any]) -> GateOrder:
    order, version = Order(b["order"]), version_in(b["version"])
    if order is Order.PIN and version is None:
        raise BadRecord(Reason.BAD_SHAPE, "an order to pin names the model")
    if order in (Order.ROLLBACK, Order.RESUME) and version is not None:
        raise BadRecord(Reason.BAD_SHAPE, f"an order to {order.value} names no model")
    note = text(b["note"], "the note", MAX_NOTE)
    return GateOrder(check_space(b["space"]), order, b["time_ms"], version, note)


def decision_out(r: GateDecision) -> dict[str, Any]:
    body = {name: getattr(r, name) for name in GateDecision.__dataclass_fields__}
    versions = {name: _version_out(body[name]) for name in _VERSIONS}
    return body | versions | {"verdict": r.verdict.value, "checks": dict(sorted(r.checks.items()))}


def decision_in(b: dict[str, Any]) -> GateDecision:
    check_space(b["space"])
    text(b["topic"], "topic")
    text(b["reason"], "reason", MAX_NOTE)
    if b["generation"] < 1 or b["epoch"] < 0 or b["number"] < 1 or min(b[name] for name in _COUNTS) < 0:
        raise BadRecord(Reason.BAD_SHAPE, "a decision with a negative number")
    if len(b["checks"]) > _MAX_CHECKS:
        raise BadRecord(Reason.BAD_SHAPE, f"a decision with {len(b['checks'])} checks")
    versions = {name: version_in(b[name]) for name in _VERSIONS}
    floats = {name: finite_float(b[name], name) for name in ("log_e_for", "log_e_against")}
    checks = {text(name, "a check", 100): finite_float(value, name) for name, value in b["checks"].items()}
    return GateDecision(**b | versions | floats | {"verdict": Verdict(b["verdict"]), "checks": checks})


def _version_out(version: Version | None) -> dict[str, int] | None:
    return None if version is None else version._asdict()


def version_in(body: dict[str, int] | None) -> Version | None:
    if body is None:
        return None
    found = Version(**body)
    if found != UNADAPTED and (found.generation < 1 or found.epoch < 0 or found.step < 0):
        raise BadRecord(Reason.BAD_SHAPE, "a model with a negative number")
    return found
