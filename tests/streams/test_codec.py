"""Records survive the trip, old ones stay readable, and no bytes whatever escape as anything but `BadRecord`."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, is_dataclass, replace
from itertools import pairwise
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.codec import avro
from kinstream.streams.records.codec.codec import decode, encode
from kinstream.streams.records.codec.held_out import held_out_out
from kinstream.streams.records.gate import UNADAPTED, GateDecision, GateOrder
from kinstream.streams.records.lists.feedback import Feedback
from kinstream.streams.records.values import (
    Click,
    ClickBlock,
    ConstraintBlock,
    Control,
    ItemBlock,
    Kind,
    ModelUpdate,
    ModelVersion,
    Outcome,
    Record,
    Relation,
    RelationBlock,
    SampleBlock,
    Table,
)
from kinstream.streams.records.vectors import ItemMap, VectorBlock
from tests.golden.write_records import COUNTS, FOLDER, records
from tests.streams.test_machine import Chain, Feed, builder, learner

KINDS: tuple[type[Record], ...] = (
    SampleBlock,
    ItemBlock,
    Click,
    ClickBlock,
    Relation,
    RelationBlock,
    Control,
    Feedback,
    ConstraintBlock,
    Outcome,
    ModelVersion,
    ModelUpdate,
    GateOrder,
    GateDecision,
    ItemMap,
    VectorBlock,
)
GOLDEN = records()
#: Of a record, as its body has them.
HELD_OUT: Any = held_out_out(GOLDEN["outcome-held-out"].held_out)  # type: ignore[union-attr]
SUMS = HELD_OUT["block"]


def same(left: Any, right: Any) -> bool:
    """Equality that looks into arrays and nested records."""
    if isinstance(left, np.ndarray):
        return (
            isinstance(right, np.ndarray) and left.dtype == right.dtype and left.tobytes() == right.tobytes()
        )
    if isinstance(left, tuple):
        return isinstance(right, tuple) and len(left) == len(right) and all(map(same, left, right))
    if is_dataclass(left):
        return type(left) is type(right) and all(
            same(getattr(left, f.name), getattr(right, f.name)) for f in fields(left)
        )
    return bool(left == right)


@pytest.mark.parametrize("name", GOLDEN)
def test_a_record_survives_the_trip(name: str) -> None:
    assert same(decode(encode(GOLDEN[name]), *KINDS), GOLDEN[name])


@pytest.mark.parametrize("name", ["samples", "items", "click", "clicks", "pairs-events", "triplets"])
def test_vectors_may_be_written_as_float16_and_nothing_else_changes(name: str) -> None:
    whole: Any = GOLDEN[name]
    half: Any = decode(encode(whole, float16=True), *KINDS)
    field = {"click": "query_vector", "clicks": "query_vectors"}.get(name, "tables")
    for left, right in zip(getattr(whole, field), getattr(half, field), strict=True):
        assert right.vectors.dtype == np.float32
        np.testing.assert_array_equal(right.vectors, left.vectors.astype(np.float16).astype(np.float32))
    numbers = sum(table.vectors.size for table in getattr(whole, field))
    assert numbers and len(encode(whole)) - len(encode(whole, float16=True)) >= 2 * numbers
    assert same(replace(half, **{field: getattr(whole, field)}), whole)
    # What was rounded once is not rounded again.
    assert encode(half, float16=True) == encode(whole, float16=True)


def test_a_table_with_a_number_too_large_for_float16_stays_float32() -> None:
    table = Table("x", np.array([[70_000.0, 0.1]], np.float32))
    found = decode(encode(SampleBlock("s", (table,), ("a",), 0), float16=True), SampleBlock)
    assert same(found, SampleBlock("s", (table,), ("a",), 0))


@pytest.mark.parametrize("name", GOLDEN)
def test_records_of_version_1_stay_readable(name: str) -> None:
    assert same(decode((FOLDER / f"{name}.avro").read_bytes(), *KINDS), GOLDEN[name])


@pytest.mark.parametrize("name", ["pairs", "triplets", "outcome"])
def test_what_needs_no_newer_field_is_written_as_version_1_wrote_it(name: str) -> None:
    assert encode(GOLDEN[name]) == (FOLDER / f"{name}.avro").read_bytes()


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("triplets-lists", 3),
        ("pairs-lists", 3),
        ("pairs-scores", 4),
        ("pairs-worth", 5),
        ("pairs-names", 6),
        ("outcome-lists", 4),
        ("click-weight", 4),
        ("clicks-weight", 4),
    ],
)
def test_a_newer_field_takes_a_newer_schema(name: str, version: int) -> None:
    old, new = encode(GOLDEN[name.partition("-")[0]]), encode(GOLDEN[name])
    assert old[:2] == new[:2] == avro.MARKER
    assert old[2:10] != new[2:10] == avro._versions()[type(GOLDEN[name]).__name__][version - 1][0]


def test_split_constraints_without_held_out_ones_keep_the_second_schema() -> None:
    split = encode(GOLDEN["outcome-split"])
    assert split == (FOLDER / "outcome-split.avro").read_bytes()
    assert split[2:10] == avro._versions()["Outcome"][1][0]


def test_versions_of_a_schema_are_in_the_order_of_their_numbers() -> None:
    for name, versions in avro._versions().items():
        fields = [{f["name"] for f in schema["fields"]} for _, schema in versions]
        assert all(older <= newer for older, newer in pairwise(fields)), name
    assert {name for name, versions in avro._versions().items() if len(versions) > 1} == {
        "Click",
        "ClickBlock",
        "ConstraintBlock",
        "Feedback",
        "GateDecision",
        "Outcome",
    }


@pytest.mark.parametrize("name", ["click", "clicks", "gate-decision"])
def test_records_without_the_newer_fields_keep_the_first_schema(name: str) -> None:
    raw = (FOLDER / f"{name}.avro").read_bytes()
    record = GOLDEN[name]
    assert encode(record) == raw
    assert raw[2:10] == avro._versions()[type(record).__name__][0][0]
    newer = replace(record, floor=UNADAPTED) if isinstance(record, GateDecision) else None
    if newer is not None:
        assert encode(newer)[2:10] == avro._versions()["GateDecision"][1][0]


def test_addresses_outside_the_actors_are_refused() -> None:
    block = GOLDEN["clicks-address"]
    assert isinstance(block, ClickBlock)
    for bad in ([3, -1], [-2, 0], [0]):
        with pytest.raises(BadRecord, match="address"):
            decode(encode(replace(block, address=np.array(bad, np.int32))), ClickBlock)


def test_rows_of_a_block_keep_the_numbers_of_their_events() -> None:
    block = GOLDEN["pairs-events"]
    assert isinstance(block, ConstraintBlock)
    kept = block.take(np.array([False, True]))
    assert kept.events is not None and kept.events.tolist() == [1]
    assert kept.earlier is Kind.TRIPLET


@pytest.mark.parametrize(
    ("name", "earlier", "form", "split"),
    [
        ("triplets", None, Kind.PAIR, [False, False]),
        ("pairs-events", None, Kind.PAIR, [True, False]),
        ("pairs-events", None, Kind.TRIPLET, [True, False]),
        ("pairs-events", Kind.TRIPLET, Kind.PAIR, [True, True]),
        ("triplets-events", None, Kind.PAIR, [False, False]),
        ("triplets-events", Kind.PAIR, Kind.PAIR, [True, True]),
        ("triplets-events", Kind.PAIR, Kind.TRIPLET, [False, False]),
    ],
)
def test_a_row_is_split_where_its_learner_met_its_event_before(
    name: str, earlier: Kind | None, form: Kind, split: list[bool]
) -> None:
    block = GOLDEN[name]
    assert isinstance(block, ConstraintBlock)
    assert replace(block, earlier=earlier).split(form).tolist() == split


def test_the_fingerprint_is_that_of_the_avro_specification() -> None:
    from kinstream.streams.records.codec.avro import _schemas

    # CRC-64-AVRO of the canonical form of "int", from the specification's own test vectors.
    assert fastavro.schema.fingerprint('"int"', "CRC-64-AVRO") == "8f5c393f1ad57572"
    assert len({mark for mark, _ in _schemas()[0].values()}) == len(KINDS)


def body(name: str) -> dict[str, Any]:
    return avro.read(encode(GOLDEN[name]))[1]


def refused(name: str, **changes: Any) -> Reason:
    kind = type(GOLDEN[name]).__name__
    with pytest.raises(BadRecord) as error:
        decode(avro.write(kind, body(name) | changes), *KINDS)
    return error.value.reason


def matrix(rows: int, columns: int, data: bytes) -> list[dict[str, Any]]:
    return [{"name": "x", "rows": rows, "columns": columns, "data": data}]


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("samples", {"tables": []}, Reason.EMPTY),
        ("samples", {"tables": matrix(0, 3, b"")}, Reason.EMPTY),
        ("samples", {"tables": matrix(2**31 - 1, 2**31 - 1, b"\0" * 24)}, Reason.BAD_SHAPE),
        ("samples", {"tables": matrix(-2, -3, b"\0" * 24)}, Reason.BAD_SHAPE),
        ("samples", {"tables": matrix(3, 3, b"\0" * 24)}, Reason.BAD_SHAPE),
        ("samples", {"integer_labels": b"\0" * 8}, Reason.BAD_SHAPE),
        ("samples", {"integer_labels": None}, Reason.BAD_SHAPE),
        ("samples", {"string_labels": ["a", "b"]}, Reason.BAD_SHAPE),
        ("samples", {"space": ""}, Reason.BAD_SHAPE),
        ("samples", {"space": "x" * 300}, Reason.BAD_SHAPE),
        ("samples", {"space": "a\nb"}, Reason.BAD_SHAPE),
        ("samples", {"load": {"load_id": "l", "sequence": -1}}, Reason.BAD_SHAPE),
        ("items", {"ids": ["one"]}, Reason.BAD_SHAPE),
        ("triplets-events", {"events": b""}, Reason.BAD_SHAPE),
        ("triplets-events", {"events": b"\1\0\0\0" * 3}, Reason.BAD_SHAPE),
        ("triplets-events", {"events": np.array([2, 1], "<i4").tobytes()}, Reason.BAD_SHAPE),
        ("triplets-events", {"events": np.array([-1, 1], "<i4").tobytes()}, Reason.BAD_SHAPE),
        ("triplets-events", {"earlier": "triplet"}, Reason.BAD_SHAPE),
        ("triplets-events", {"earlier": "quartet"}, Reason.BAD_SHAPE),
        ("outcome-split", {"counts": {**asdict(COUNTS), "split_scored": -1}}, Reason.BAD_SHAPE),
        ("outcome-held-out", {"held_out": {**HELD_OUT, "events": 1}}, Reason.BAD_SHAPE),
        ("outcome-held-out", {"held_out": {**HELD_OUT, "block": {**SUMS, "weight": -1.0}}}, Reason.BAD_SHAPE),
        ("outcome-held-out", {"held_out": {**HELD_OUT, "block": {**SUMS, "losses": {}}}}, Reason.BAD_SHAPE),
        (
            "outcome-held-out",
            {"held_out": {**HELD_OUT, "block": {**SUMS, "weight": float("nan")}}},
            Reason.NOT_FINITE,
        ),
        ("click", {"positions": [0]}, Reason.BAD_SHAPE),
        ("click", {"items": [], "positions": []}, Reason.EMPTY),
        ("update", {"dtype": "float16"}, Reason.BAD_SHAPE),
        ("update", {"dimension": 2}, Reason.BAD_SHAPE),
        ("update", {"dimension": 2**31 - 1, "rank": 2**31 - 1}, Reason.BAD_SHAPE),
        ("update", {"dimension": 0}, Reason.BAD_SHAPE),
        ("update", {"rank": 4}, Reason.BAD_SHAPE),
        ("update", {"rank": 2}, Reason.BAD_SHAPE),
        ("update", {"first": -1}, Reason.BAD_SHAPE),
        ("update", {"part": 2}, Reason.BAD_SHAPE),
        ("update", {"parts": 2**31 - 1}, Reason.BAD_SHAPE),
        ("update", {"step": 90}, Reason.BAD_SHAPE),
        ("update", {"base_step": -1}, Reason.BAD_SHAPE),
        ("update", {"whole": False}, Reason.BAD_SHAPE),
        ("update", {"V": b"\0" * 24}, Reason.BAD_SHAPE),
        ("update", {"V": b"\0" * 47}, Reason.BAD_SHAPE),
        ("update", {"U": np.full(6, np.nan).tobytes()}, Reason.NOT_FINITE),
        ("update", {"V": np.full(6, np.inf).tobytes()}, Reason.NOT_FINITE),
        ("control", {"action": "explode"}, Reason.BAD_SHAPE),
        ("triplets", {"index": b""}, Reason.EMPTY),
        ("triplets", {"index": np.array([[0, 1, 4], [0, 1, 2]], "<i4").tobytes()}, Reason.BAD_SHAPE),
        ("triplets", {"index": np.array([[0, 1, -1], [0, 1, 2]], "<i4").tobytes()}, Reason.BAD_SHAPE),
        ("triplets", {"index": b"\0" * 13}, Reason.BAD_SHAPE),
        ("triplets", {"kind": "quadruplet"}, Reason.BAD_SHAPE),
        ("triplets", {"rule": b"\x00\x09"}, Reason.BAD_SHAPE),
        ("triplets", {"derived": b"\x00\x02"}, Reason.BAD_SHAPE),
        ("triplets", {"weights": np.array([1, np.nan], "<f4").tobytes()}, Reason.NOT_FINITE),
        ("triplets", {"tables": matrix(4, 3, np.full(12, np.inf, "<f4").tobytes())}, Reason.NOT_FINITE),
        ("triplets", {"epoch": -1}, Reason.BAD_SHAPE),
        ("pairs", {"signs": b"\x00\x01"}, Reason.BAD_SHAPE),
        ("outcome", {"weights": {"a": float("nan")}}, Reason.NOT_FINITE),
    ],
)
def test_a_lie_is_refused_with_its_reason(name: str, changes: dict[str, Any], reason: Reason) -> None:
    assert refused(name, **changes) is reason


def test_a_huge_declared_size_allocates_nothing() -> None:
    value = encode(GOLDEN["samples"])
    at = value.index(np.ascontiguousarray(GOLDEN["samples"].tables[0].vectors).tobytes()) - 1  # type: ignore[union-attr]
    lie = value[:at] + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f" + value[at + 1 :]
    with pytest.raises(BadRecord):
        decode(lie, SampleBlock)


def test_a_record_of_another_topic_is_the_wrong_kind() -> None:
    with pytest.raises(BadRecord) as error:
        decode(encode(GOLDEN["outcome"]), SampleBlock)
    assert error.value.reason is Reason.WRONG_KIND


# ---- JSON -------------------------------------------------------------------------------------------------------

JSON: dict[str, dict[str, Any]] = {
    "samples": {"vectors": [[0.5, 1], [2, 3]], "labels": [1, 2], "time_ms": 5},
    "items": {"ids": ["a"], "vectors": {"x": [[1, 2]], "y": [[3]]}, "tombstones": ["b"], "time_ms": 5},
    "click": {
        "list_id": "l",
        "items": ["a", "b"],
        "clicks": [{"item": "b", "time_ms": 7}],
        "shown_at_ms": 5,
        "query_vector": [1, 2],
    },
    "relation": {"left": "a", "right": "b", "similar": True, "time_ms": 5},
}


def as_json(kind: str, **changes: Any) -> bytes:
    return json.dumps({"kind": kind, "space": "s", **JSON[kind], **changes}).encode()


@pytest.mark.parametrize("kind", JSON)
def test_json_of_users_own_systems_is_accepted(kind: str) -> None:
    record = decode(as_json(kind), *KINDS)
    assert same(decode(encode(record), *KINDS), record)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("samples", {"labels": [1]}),
        ("samples", {"labels": [1, "a"]}),
        ("samples", {"labels": [1, True]}),
        ("samples", {"vectors": [[1], [1, 2]]}),
        ("samples", {"vectors": [["a"], ["b"]]}),
        ("samples", {"vectors": []}),
        ("samples", {"vectors": [[10**400], [1]]}),
        ("samples", {"colour": "red"}),
        ("samples", {"time_ms": 1.5}),
        ("samples", {"time_ms": 2**70}),
        ("items", {"ids": ["a", "b"]}),
        ("click", {"positions": [0]}),
        ("click", {"clicks": [{"item": "a"}]}),
        ("click", {"query_vector": [float("nan")]}),
        ("relation", {"similar": 1}),
        ("relation", {"left": None}),
    ],
)
def test_json_that_is_not_as_documented_is_refused(kind: str, changes: dict[str, Any]) -> None:
    with pytest.raises(BadRecord):
        decode(as_json(kind, **changes), *KINDS)


# ---- fuzz -------------------------------------------------------------------------------------------------------

SEEDS = [encode(record) for record in GOLDEN.values()] + [as_json(kind) for kind in JSON]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A good record with a few bytes changed, dropped, doubled or put in."""
    value = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, max(0, len(value) - 1)))
        match draw(st.integers(0, 4)):
            case 0:
                value[at : at + 1] = bytes([draw(st.integers(0, 255))])
            case 1:
                del value[at : at + draw(st.integers(1, 30))]
            case 2:
                value[at:at] = draw(st.binary(max_size=12))
            case 3:
                value[at:at] = b"\xff" * draw(st.integers(1, 9)) + b"\x7f"
            case _:
                value[at:at] = value[at : at + draw(st.integers(1, 40))]
    return bytes(value)


@settings(max_examples=10_000, deadline=None)
@given(mutated())
def test_no_mutated_record_crashes_the_codec(value: bytes) -> None:
    try:
        record = decode(value, *KINDS)
    except BadRecord:
        return
    encode(record)


@settings(max_examples=1_000, deadline=None)
@given(st.lists(mutated(), min_size=1, max_size=10))
def test_no_mutated_record_crashes_a_builder(values: list[bytes]) -> None:
    feed = Feed(builder())
    letters = 0
    for value in values:
        space = _space_of(value)
        letters += sum(o.topic.endswith("dead-letters") for o in feed(value, space))
    assert sum(feed.machine.dead.values()) == letters
    assert feed.machine.next_offset == len(values)


@settings(max_examples=1_000, deadline=None)
@given(st.lists(mutated(), min_size=1, max_size=10))
def test_no_mutated_record_crashes_a_learner(values: list[bytes]) -> None:
    chain = Chain(learner())
    for number, value in enumerate(values):
        chain(number, epoch=42, value=value)
    assert chain.feed.machine.next_offset == len(values)


def _space_of(value: bytes) -> str:
    try:
        return decode(value, *KINDS).space
    except BadRecord:
        return "a"


def test_an_older_schema_is_read_with_the_defaults_of_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field that a later version adds has a default, so that records written before it stay readable."""
    old = encode(GOLDEN["relation"])
    by_name, by_fingerprint = avro._schemas()
    mark, schema = by_name["Relation"]
    newer = fastavro.parse_schema(
        {
            "type": "record",
            "name": "kinstream.v1.Relation",
            "fields": [*schema["fields"], {"name": "confidence", "type": "double", "default": 1.0}],
        },
        named_schemas={},
    )
    changed = ({**by_name, "Relation": (mark, newer)}, by_fingerprint)
    monkeypatch.setattr(avro, "_schemas", lambda: changed)
    assert avro.read(old)[1]["confidence"] == 1.0


def version(generation: int = 1, epoch: int = 0, step: int = 5) -> dict[str, int]:
    return {"generation": generation, "epoch": epoch, "step": step}


def test_an_order_names_a_model_where_it_needs_one_and_only_there() -> None:
    assert refused("gate-order", order="promot") is Reason.BAD_SHAPE
    assert refused("gate-order", version=None) is Reason.BAD_SHAPE
    assert refused("gate-order", order="rollback") is Reason.BAD_SHAPE
    assert refused("gate-order", order="resume") is Reason.BAD_SHAPE
    assert refused("gate-order", version=version(generation=0)) is Reason.BAD_SHAPE
    assert refused("gate-order", version=version(step=-1)) is Reason.BAD_SHAPE
    assert refused("gate-order", note="x" * 401) is Reason.BAD_SHAPE
    assert refused("gate-order", space="") is Reason.BAD_SHAPE


@pytest.mark.parametrize(
    "name", ["epoch", "number", "partition", "offset", "impressions", "wins", "losses", "ties"]
)
def test_a_decision_has_no_negative_number(name: str) -> None:
    assert refused("gate-decision", **{name: -1}) is Reason.BAD_SHAPE


def test_a_decision_is_finite_and_bounded() -> None:
    assert refused("gate-decision", log_e_for=float("nan")) is Reason.NOT_FINITE
    assert refused("gate-decision", checks={"coverage": float("inf")}) is Reason.NOT_FINITE
    assert refused("gate-decision", checks={str(n): 0.0 for n in range(33)}) is Reason.BAD_SHAPE
    assert refused("gate-decision", verdict="maybe") is Reason.BAD_SHAPE
    assert refused("gate-decision", serving=version(epoch=-1)) is Reason.BAD_SHAPE
