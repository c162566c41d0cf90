"""One codec for every record kind: values to bytes and back, checked on decoding.

Sizes are checked before anything is allocated, and every number for finiteness. A failed check raises `BadRecord`; no
other error is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.checks import (
    MAX_DIMENSION,
    check_finite,
    check_space,
    finite_float,
    optional_text,
    strings,
    text,
)
from kinstream.streams.records.codec import avro
from kinstream.streams.records.codec.clicks import click_block_in, click_block_out, click_in, click_out
from kinstream.streams.records.codec.feedback import feedback_in, feedback_out
from kinstream.streams.records.codec.gate import decision_in, decision_out, order_in, order_out
from kinstream.streams.records.codec.held_out import held_out_in, held_out_out
from kinstream.streams.records.codec.json_events import read_json
from kinstream.streams.records.codec.parts import (
    array,
    load_in,
    load_out,
    round_tables,
    scores_in,
    scores_out,
    tables_in,
    tables_out,
)
from kinstream.streams.records.codec.relations import relation_block_in, relation_block_out
from kinstream.streams.records.codec.shown import shown_in, shown_out
from kinstream.streams.records.codec.updates import update_in, update_out
from kinstream.streams.records.codec.vectors import block_in, block_out, map_in, map_out
from kinstream.streams.records.gate import GateDecision, GateOrder
from kinstream.streams.records.lists.feedback import Feedback
from kinstream.streams.records.values import (
    SCALERS,
    Action,
    Click,
    ClickBlock,
    ConstraintBlock,
    Control,
    Counts,
    Declaration,
    Event,
    ItemBlock,
    Kind,
    ModelUpdate,
    ModelVersion,
    Outcome,
    Record,
    Relation,
    RelationBlock,
    SampleBlock,
)
from kinstream.streams.records.vectors import ItemMap, VectorBlock

#: It shapes outputs, so the birth record of a generation holds it.
CODEC_VERSION: Final = "avro-single-object/1"

#: Kinds that are allowed on `events`.
EVENTS: Final = (
    SampleBlock,
    ItemBlock,
    Click,
    ClickBlock,
    Relation,
    RelationBlock,
    Feedback,
    Control,
    GateOrder,
    ItemMap,
)
#: Every kind of record.
ALL: Final = (
    *EVENTS,
    ConstraintBlock,
    Outcome,
    ModelVersion,
    GateDecision,
    ModelUpdate,
    VectorBlock,
)


def encode(record: Record, *, float16: bool = False) -> bytes:
    """Encode a record in the oldest schema that holds all of it, so that old readers can read it where possible.

    Parameters
    ----------
    float16 : round vectors to float16, in tables whose numbers are not too large for it.
    """
    name = type(record).__name__
    body = _TO_BODY[name](record)
    if float16:
        round_tables(body)
    return avro.write(name, body, _version(record))


def _version(record: Record) -> int | None:
    match record:
        case ConstraintBlock():
            if record.retracted is not None or (record.lists is not None and record.lists.ids is not None):
                return 7
            if record.lists is not None and record.lists.names is not None:
                return 6
            if record.lists is not None and record.lists.worth is not None:
                return 5
            if record.scores is not None or (record.lists is not None and record.lists.scores is not None):
                return 4
            if record.lists is not None:
                return 3
            return 1 if record.events is None and record.earlier is None else 2
        case Outcome():
            counts = (record.counts, *record.by_rule.values())
            if record.held_out is not None and record.held_out.against is not None:
                return 4
            if record.held_out is not None or any(c.held_out for c in counts):
                return 3
            return 2 if any(c.split_scored or c.split_mistakes for c in counts) else 1
        case Click():
            if any(click.weight is not None for click in record.clicks):
                return 4
            if record.scores is not None or any(click.action is not None for click in record.clicks):
                return 3
            return 1 if record.address is None else 2
        case ClickBlock():
            if record.weight is not None:
                return 4
            if record.scores is not None or (record.action is not None and (record.action >= 0).any()):
                return 3
            return 1 if record.address is None else 2
        case Feedback():
            return 1 if record.load is None else 2
        case GateDecision():
            return 1 if record.floor is None else 2
        case _:
            return None


def decode(value: bytes | None, *allowed: type[Record]) -> Record:
    """Read a record of one of the `allowed` kinds.

    Raises
    ------
    BadRecord : with the reason that metrics count and one sentence of detail.
    """
    if value is None:
        raise BadRecord(Reason.UNDECODABLE, "a record without a value")
    if len(value) > avro.MAX_MESSAGE_BYTES * 2:
        raise BadRecord(Reason.TOO_LARGE, f"{len(value)} bytes")
    if not value.startswith(avro.MARKER):
        record = read_json(value)
        if not isinstance(record, allowed):
            raise BadRecord(Reason.WRONG_KIND, f"{type(record).__name__} does not belong on this topic")
        return record
    name, body = avro.read(value)
    if name not in {kind.__name__ for kind in allowed}:
        raise BadRecord(Reason.WRONG_KIND, f"{name} does not belong on this topic")
    try:
        return _FROM_BODY[name](body)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise BadRecord(Reason.BAD_SHAPE, f"{name}: {error}") from error


def decode_event(value: bytes | None) -> Event:
    """A record of `events`. Raises `BadRecord`."""
    return cast(Event, decode(value, *EVENTS))


def decode_feedback(value: bytes | None) -> Click | Feedback:
    """A record of `feedback`. Raises `BadRecord`."""
    return cast(Click | Feedback, decode(value, Click, Feedback))


def decode_constraints(value: bytes | None) -> ConstraintBlock | Control:
    """A record of `constraints`. Raises `BadRecord`."""
    return cast(ConstraintBlock | Control, decode(value, ConstraintBlock, Control))


def decode_outcome(value: bytes | None) -> Outcome | Control:
    """A record of `outcomes`. Raises `BadRecord`."""
    return cast(Outcome | Control, decode(value, Outcome, Control))


def decode_model(value: bytes | None) -> ModelVersion:
    """A record of `models`. Raises `BadRecord`."""
    return cast(ModelVersion, decode(value, ModelVersion))


def decode_decision(value: bytes | None) -> GateDecision:
    """A decision of the gate, on `models`. Raises `BadRecord`."""
    return cast(GateDecision, decode(value, GateDecision))


def decode_vectors(value: bytes | None) -> ItemMap | VectorBlock | Control:
    """A record of `vectors`. Raises `BadRecord`."""
    return cast(ItemMap | VectorBlock | Control, decode(value, ItemMap, VectorBlock, Control))


def decode_update(value: bytes | None) -> ModelUpdate:
    """A record of `updates`. Raises `BadRecord`."""
    return cast(ModelUpdate, decode(value, ModelUpdate))


# ---- events -----------------------------------------------------------------------------------------------------


def _sample_out(r: SampleBlock) -> dict[str, Any]:
    integers = isinstance(r.labels, np.ndarray)
    return {
        "space": r.space,
        "tables": tables_out(r.tables),
        "integer_labels": np.ascontiguousarray(r.labels, dtype="<i8").tobytes() if integers else None,
        "string_labels": None if integers else list(r.labels),
        "time_ms": r.time_ms,
        "ids": None if r.ids is None else list(r.ids),
        "load": load_out(r.load),
    }


def _sample_in(b: dict[str, Any]) -> SampleBlock:
    tables = tables_in(b["tables"], "samples")
    if not tables or not len(tables[0].vectors):
        raise BadRecord(Reason.EMPTY, "a sample block without rows")
    rows = len(tables[0].vectors)
    if (b["integer_labels"] is None) == (b["string_labels"] is None):
        raise BadRecord(Reason.BAD_SHAPE, "labels must be integers or strings, exactly one of them")
    labels: NDArray[np.int64] | tuple[str, ...]
    if b["integer_labels"] is not None:
        labels = array(b["integer_labels"], "<i8", rows, "labels")
    else:
        labels = strings(b["string_labels"], rows, "labels")
    ids = None if b["ids"] is None else strings(b["ids"], rows, "ids")
    return SampleBlock(check_space(b["space"]), tables, labels, b["time_ms"], ids, load_in(b["load"]))


def _item_out(r: ItemBlock) -> dict[str, Any]:
    return {
        "space": r.space,
        "ids": list(r.ids),
        "tables": tables_out(r.tables),
        "time_ms": r.time_ms,
        "tombstones": list(r.tombstones),
        "load": load_out(r.load),
    }


def _item_in(b: dict[str, Any]) -> ItemBlock:
    tables = tables_in(b["tables"], "items")
    rows = len(tables[0].vectors) if tables else 0
    if not rows and not b["tombstones"]:
        raise BadRecord(Reason.EMPTY, "an item block without items or tombstones")
    ids = strings(b["ids"], rows, "ids")
    tombstones = strings(b["tombstones"], len(b["tombstones"]), "tombstones")
    return ItemBlock(check_space(b["space"]), ids, tables, b["time_ms"], tombstones, load_in(b["load"]))


def _relation_out(r: Relation) -> dict[str, Any]:
    return {
        "space": r.space,
        "left": r.left,
        "right": r.right,
        "similar": r.similar,
        "time_ms": r.time_ms,
        "source": r.source,
        "load": load_out(r.load),
    }


def _relation_in(b: dict[str, Any]) -> Relation:
    left, right = text(b["left"], "left"), text(b["right"], "right")
    source, load = optional_text(b["source"], "the source"), load_in(b["load"])
    return Relation(check_space(b["space"]), left, right, b["similar"], b["time_ms"], source, load)


def _control_out(r: Control) -> dict[str, Any]:
    declaration = r.declaration and {
        "modalities": [{"name": name, "dimension": size} for name, size in r.declaration.modalities],
        "labels": r.declaration.labels,
        "scaler": r.declaration.scaler,
    }
    return {
        "space": r.space,
        "action": r.action.value,
        "time_ms": r.time_ms,
        "declaration": declaration,
        "epoch": r.epoch,
    }


def _control_in(b: dict[str, Any]) -> Control:
    d = b["declaration"]
    declaration = None
    if d is not None:
        if d["labels"] not in {"any", "integer", "string"}:
            raise BadRecord(Reason.BAD_SHAPE, f"label type {d['labels'][:40]!r}")
        sizes = tuple((text(m["name"], "the name of a modality"), m["dimension"]) for m in d["modalities"])
        if any(not 1 <= size <= MAX_DIMENSION for _, size in sizes) or len(dict(sizes)) < len(sizes):
            raise BadRecord(
                Reason.BAD_SHAPE, f"modalities have different names, and 1 to {MAX_DIMENSION} dimensions each"
            )
        if d["scaler"] not in (None, *SCALERS):
            raise BadRecord(Reason.BAD_SHAPE, f"scaler {d['scaler'][:40]!r}")
        declaration = Declaration(sizes, d["labels"], d["scaler"])
    return Control(check_space(b["space"]), Action(b["action"]), b["time_ms"], declaration, b["epoch"])


# ---- constraints ------------------------------------------------------------------------------------------------


def _constraints_out(r: ConstraintBlock) -> dict[str, Any]:
    unit = bool(np.all(r.weights == 1.0))
    return {
        "space": r.space,
        "kind": r.kind.value,
        "tables": tables_out(r.tables),
        "index": np.ascontiguousarray(r.index, dtype="<i4").tobytes(),
        "signs": np.ascontiguousarray(r.signs, dtype="i1").tobytes() if r.kind is Kind.PAIR else b"",
        "targets": None if r.targets is None else np.ascontiguousarray(r.targets, dtype="<f4").tobytes(),
        "weights": b"" if unit else np.ascontiguousarray(r.weights, dtype="<f4").tobytes(),
        "rules": list(r.rules),
        "rule": r.rule.tobytes(),
        "derived": np.ascontiguousarray(r.derived, dtype="u1").tobytes(),
        "time_ms": r.time_ms,
        "epoch": r.epoch,
        "events": None if r.events is None else np.ascontiguousarray(r.events, dtype="<i4").tobytes(),
        "earlier": r.earlier and r.earlier.value,
        "lists": shown_out(r.lists),
        "scores": scores_out(r.scores),
        "retracted": None if r.retracted is None else np.ascontiguousarray(r.retracted, "<u8").tobytes(),
    }


def _constraints_in(b: dict[str, Any]) -> ConstraintBlock:
    kind = Kind(b["kind"])
    arity = 2 if kind is Kind.PAIR else 3
    tables = tables_in(b["tables"], "constraints")
    if not tables or not b["index"]:
        raise BadRecord(Reason.EMPTY, "a constraint block without rows")
    check_finite(tables, "constraints")
    if len(b["index"]) % (4 * arity):
        raise BadRecord(Reason.BAD_SHAPE, f"the index of {kind.value}s has {len(b['index'])} bytes")
    index = np.frombuffer(b["index"], dtype="<i4").reshape(-1, arity)
    rows = len(index)
    if index.min() < 0 or index.max() >= len(tables[0].vectors):
        raise BadRecord(Reason.BAD_SHAPE, "an index row points outside the table")
    signs = array(b["signs"], "i1", rows, "signs") if kind is Kind.PAIR else np.zeros(rows, np.int8)
    if kind is Kind.PAIR and not np.all(np.abs(signs) == 1):
        raise BadRecord(Reason.BAD_SHAPE, "the sign of a pair is +1 or -1")
    rule = array(b["rule"], "u1", rows, "rule")
    if rule.max() >= len(b["rules"]):
        raise BadRecord(Reason.BAD_SHAPE, "a row points outside the rules")
    derived = array(b["derived"], "u1", rows, "derived")
    if derived.max() > 1:
        raise BadRecord(Reason.BAD_SHAPE, "derived is 0 or 1")
    targets = None if b["targets"] is None else array(b["targets"], "<f4", rows, "targets")
    weights = array(b["weights"], "<f4", rows, "weights") if b["weights"] else np.ones(rows, np.float32)
    if not np.isfinite(weights).all() or not (targets is None or np.isfinite(targets).all()):
        raise BadRecord(Reason.NOT_FINITE, "weights and targets must be finite")
    if b["epoch"] < 0:
        raise BadRecord(Reason.BAD_SHAPE, "a negative epoch")
    events = None if b["events"] is None else array(b["events"], "<i4", rows, "events")
    if events is not None and (events[0] < 0 or np.any(events[1:] < events[:-1])):
        raise BadRecord(Reason.BAD_SHAPE, "the numbers of events are negative or decrease")
    earlier = None if b["earlier"] is None else Kind(b["earlier"])
    if earlier is kind:
        raise BadRecord(
            Reason.BAD_SHAPE, f"earlier constraints of a block of {kind.value}s are of the other kind"
        )
    retracted = b["retracted"]
    if retracted is not None:
        retracted = array(retracted, "<u8", len(retracted) // 16 * 2, "retracted").reshape(-1, 2)
    return ConstraintBlock(
        check_space(b["space"]),
        kind,
        tables,
        index,
        signs,
        strings(b["rules"], len(b["rules"]), "rules"),
        rule,
        derived.astype(np.bool_),
        weights,
        b["time_ms"],
        b["epoch"],
        targets,
        events,
        earlier,
        shown_in(b["lists"], len(tables[0].vectors)),
        scores_in(b["scores"], rows, "scores"),
        retracted,
    )


# ---- outcomes and models ----------------------------------------------------------------------------------------


def _outcome_out(r: Outcome) -> dict[str, Any]:
    body = {name: getattr(r, name) for name in Outcome.__dataclass_fields__}
    body["held_out"] = held_out_out(r.held_out)
    body["counts"] = _counts_out(r.counts)
    body["by_rule"] = {rule: _counts_out(c) for rule, c in sorted(r.by_rule.items())}
    body["weights"] = dict(sorted(r.weights.items()))
    return body


def _counts_out(c: Counts) -> dict[str, Any]:
    return {name: getattr(c, name) for name in Counts.__dataclass_fields__}


def _counts_in(b: dict[str, Any]) -> Counts:
    if any(b[name] < 0 for name in b if name != "loss_sum"):
        raise BadRecord(Reason.BAD_SHAPE, "a negative count")
    return Counts(**{**b, "loss_sum": finite_float(b["loss_sum"], "loss_sum")})


def _outcome_in(b: dict[str, Any]) -> Outcome:
    check_space(b["space"])
    strings([*b["by_rule"], *b["weights"]], len(b["by_rule"]) + len(b["weights"]), "names")
    for name in ("learner", "emitter", "kind"):
        text(b[name], name)
    b["held_out"] = held_out_in(b["held_out"])
    b["counts"] = _counts_in(b["counts"])
    b["by_rule"] = {rule: _counts_in(c) for rule, c in b["by_rule"].items()}
    b["weights"] = {name: finite_float(w, "weight") for name, w in b["weights"].items()}
    return Outcome(**b)


def _model_out(r: ModelVersion) -> dict[str, Any]:
    return {name: getattr(r, name) for name in ModelVersion.__dataclass_fields__}


def _model_in(b: dict[str, Any]) -> ModelVersion:
    check_space(b["space"])
    for name in ("learner", "algorithm", "topic", "location", "sha256"):
        text(b[name], name)
    # A space that only a refused block has named has epoch -1.
    if b["generation"] < 1 or b["epoch"] < -1 or min(b["step"], b["partition"], b["offset"]) < 0:
        raise BadRecord(Reason.BAD_SHAPE, "a model with a negative number")
    return ModelVersion(**b)


_TO_BODY: Final[dict[str, Callable[[Any], dict[str, Any]]]] = {
    "SampleBlock": _sample_out,
    "ItemBlock": _item_out,
    "Click": click_out,
    "ClickBlock": click_block_out,
    "Feedback": feedback_out,
    "Relation": _relation_out,
    "RelationBlock": relation_block_out,
    "Control": _control_out,
    "ConstraintBlock": _constraints_out,
    "Outcome": _outcome_out,
    "ModelVersion": _model_out,
    "ModelUpdate": update_out,
    "GateOrder": order_out,
    "GateDecision": decision_out,
    "ItemMap": map_out,
    "VectorBlock": block_out,
}
_FROM_BODY: Final[dict[str, Callable[[dict[str, Any]], Record]]] = {
    "SampleBlock": _sample_in,
    "ItemBlock": _item_in,
    "Click": click_in,
    "ClickBlock": click_block_in,
    "Feedback": feedback_in,
    "Relation": _relation_in,
    "RelationBlock": relation_block_in,
    "Control": _control_in,
    "ConstraintBlock": _constraints_in,
    "Outcome": _outcome_in,
    "ModelVersion": _model_in,
    "ModelUpdate": update_in,
    "GateOrder": order_in,
    "GateDecision": decision_in,
    "ItemMap": map_in,
    "VectorBlock": block_in,
}
