"""Scores of shown items and kinds of actions as records: the same after the trip, or refused with their place."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.codec import avro
from kinstream.streams.records.codec.codec import decode, decode_event, encode
from kinstream.streams.records.load_rows import without_first
from kinstream.streams.records.scores import LONGEST_NAME, Scores
from kinstream.streams.records.values import Click, ClickBlock, ConstraintBlock, ItemClick
from kinstream.streams.signals import MOST_NAMES
from tests.golden.write_records import FOLDER, records

GOLDEN = records()
EVENT: dict[str, Any] = {
    "kind": "click",
    "space": "s",
    "list_id": "l",
    "items": ["a", "b"],
    "clicks": [{"item": "b", "time_ms": 7}],
    "shown_at_ms": 5,
}


def read(**changes: Any) -> Click:
    found = decode_event(json.dumps(EVENT | changes).encode())
    assert isinstance(found, Click)
    return found


def test_scores_of_json_are_sorted_by_name_and_null_is_missing() -> None:
    scores = read(scores={"price": [2, None], "bm25": [3.25, -1e-3]}).scores
    assert scores is not None and scores.names == ("bm25", "price") and scores.values.dtype == np.float32
    np.testing.assert_array_equal(scores.values, np.array([[3.25, 2.0], [-1e-3, np.nan]], np.float32))


@pytest.mark.parametrize("nothing", [{}, {"scores": None}, {"scores": {}}])
def test_a_list_without_scores_is_written_as_before(nothing: dict[str, Any]) -> None:
    assert read(**nothing).scores is None
    assert encode(read(**nothing))[2:10] == avro._versions()["Click"][0][0]


@pytest.mark.parametrize(
    ("scores", "reason", "said"),
    [
        ([1, 2], Reason.BAD_SHAPE, "an object"),
        ({"bm25": 3}, Reason.BAD_SHAPE, "a list"),
        ({"bm25": [1]}, Reason.BAD_SHAPE, "1 numbers of 'bm25' for 2 items"),
        ({"bm25": [1, 2, 3]}, Reason.BAD_SHAPE, "3 numbers of 'bm25' for 2 items"),
        ({"bm25": [1, "2"]}, Reason.BAD_SHAPE, "number 1 of 'bm25' is a str"),
        ({"bm25": [True, 2]}, Reason.BAD_SHAPE, "number 0 of 'bm25' is a bool"),
        ({"a": [1, 2], "bm25": [1, float("inf")]}, Reason.NOT_FINITE, "number 1 of 'bm25'"),
        ({"bm25": [-1e39, 2]}, Reason.NOT_FINITE, "number 0 of 'bm25'"),
        ({"bm25": [10**400, 2]}, Reason.NOT_FINITE, "number 0 of 'bm25'"),
        ({"at": [1_700_000_000_001, 1_700_000_000_002]}, Reason.BAD_SHAPE, "'at'"),
        ({"": [1, 2]}, Reason.BAD_SHAPE, "printable"),
        ({"a\nb": [1, 2]}, Reason.BAD_SHAPE, "printable"),
        ({"x" * (LONGEST_NAME + 1): [1, 2]}, Reason.BAD_SHAPE, "printable"),
        ({"similarity": [1, 2]}, Reason.BAD_SHAPE, "compute"),
        ({"adapted.image": [1, 2]}, Reason.BAD_SHAPE, "compute"),
        ({f"s{n}": [1, 2] for n in range(MOST_NAMES + 1)}, Reason.BAD_SHAPE, "1 to 32 names"),
    ],
)
def test_scores_that_do_not_fit_are_refused_with_their_place(scores: Any, reason: Reason, said: str) -> None:
    with pytest.raises(BadRecord, match=said) as error:
        read(scores=scores)
    assert error.value.reason is reason


def test_an_action_has_a_kind() -> None:
    clicks = read(
        clicks=[{"item": "b", "time_ms": 7, "action": "purchase"}, {"item": "a", "time_ms": 7}]
    ).clicks
    assert clicks == (ItemClick("b", 7, None, "purchase"), ItemClick("a", 7))
    with pytest.raises(BadRecord, match="action must be a string"):
        read(clicks=[{"item": "b", "time_ms": 7, "action": 3}])


@pytest.mark.parametrize(("new", "old"), [("click-scores", 1), ("clicks-scores", 1), ("pairs-scores", 3)])
def test_what_has_no_scores_takes_the_older_schema(new: str, old: int) -> None:
    record: Any = GOLDEN[new]
    schemas = avro._versions()[type(record).__name__][: 4 if isinstance(record, ConstraintBlock) else 3]
    assert encode(record) == (FOLDER / f"{new}.avro").read_bytes()
    assert encode(record)[2:10] == schemas[-1][0]
    if isinstance(record, ConstraintBlock):
        assert record.lists is not None
        some = replace(record, scores=None)
        assert encode(some)[2:10] == schemas[-1][0]
        none: Any = replace(some, lists=replace(record.lists, scores=None))
    elif isinstance(record, ClickBlock):
        assert encode(replace(record, scores=None))[2:10] == schemas[-1][0]
        none = replace(record, scores=None, kinds=(), action=None)
    else:
        assert encode(replace(record, scores=None))[2:10] == schemas[-1][0]
        none = replace(record, scores=None, clicks=tuple(ItemClick(*c[:3]) for c in record.clicks))
    assert encode(none)[2:10] == schemas[old - 1][0]


def values(*numbers: float) -> bytes:
    return np.array(numbers, "<f4").tobytes()


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        ({"names": [], "values": b""}, Reason.BAD_SHAPE),
        ({"names": ["a"], "values": b""}, Reason.BAD_SHAPE),
        ({"names": ["a"], "values": values(1, 2, 3)}, Reason.BAD_SHAPE),
        ({"names": ["b", "a"], "values": values(1, 2, 3, 4)}, Reason.BAD_SHAPE),
        ({"names": ["a", "a"], "values": values(1, 2, 3, 4)}, Reason.BAD_SHAPE),
        ({"names": ["adapted"], "values": values(1, 2)}, Reason.BAD_SHAPE),
        ({"names": [f"{n:02}" for n in range(33)], "values": values(*range(66))}, Reason.BAD_SHAPE),
        ({"names": ["a"], "values": values(1, -np.inf)}, Reason.NOT_FINITE),
    ],
)
@pytest.mark.parametrize("name", ["click-scores", "pairs-scores"])
def test_a_lie_about_scores_is_refused(name: str, scores: dict[str, Any], reason: Reason) -> None:
    kind = type(GOLDEN[name])
    body = avro.read(encode(GOLDEN[name]))[1]
    with pytest.raises(BadRecord) as error:
        decode(avro.write(kind.__name__, body | {"scores": scores}), kind)
    assert error.value.reason is reason


@pytest.mark.parametrize(
    "worth", [values(1, 5), values(1, 5, 0), values(1, 5, -1), values(1, 5, np.nan), values(1, 5, np.inf)]
)
def test_actions_that_weigh_nothing_are_refused(worth: bytes) -> None:
    body = avro.read(encode(GOLDEN["pairs-worth"]))[1]
    lie = avro.write("ConstraintBlock", body | {"lists": body["lists"] | {"worth": worth}})
    with pytest.raises(BadRecord) as error:
        decode(lie, ConstraintBlock)
    assert error.value.reason is Reason.BAD_SHAPE


@pytest.mark.parametrize("pairs", [[0, 1], [0, -1], [1, 0], [-1, 0], [0, 0, 0, 0], [0]])
def test_kinds_of_actions_that_point_elsewhere_are_refused(pairs: list[int]) -> None:
    # What an older schema does not have is read as the text of its default.
    body = avro.read(encode(GOLDEN["clicks-scores"]))[1] | {"weight": b""}
    with pytest.raises(BadRecord, match="action"):
        decode(avro.write("ClickBlock", body | {"action": np.array(pairs, "<i4").tobytes()}), ClickBlock)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=4),
        st.lists(st.none() | st.floats() | st.integers() | st.booleans() | st.text(max_size=2)),
    )
)
def test_any_scores_are_read_or_refused_and_survive_the_trip(scores: dict[str, Any]) -> None:
    try:
        found = read(scores=scores)
    except BadRecord:
        return
    again = decode(encode(found), Click)
    assert isinstance(again, Click)
    if found.scores is None:
        assert again.scores is None and not scores
        return
    assert again.scores is not None and again.scores.names == found.scores.names == tuple(sorted(scores))
    np.testing.assert_array_equal(again.scores.values, found.scores.values)
    for column, name in enumerate(found.scores.names):
        expected = [np.nan if v is None else v for v in scores[name]]
        np.testing.assert_array_equal(found.scores.values[:, column], np.array(expected, np.float32))


def test_names_without_a_value_are_dropped() -> None:
    scores = Scores.of({"a": [None, None], "b": [1.0, None]})
    given_ = scores.given()
    assert given_ is not None and given_.names == ("b",) and given_.given() is given_
    assert scores.take(slice(1, 2)).given() is None


def test_some_rows_of_a_block_keep_their_scores() -> None:
    block = GOLDEN["pairs-scores"]
    assert isinstance(block, ConstraintBlock) and block.scores is not None
    second = block.take(np.array([False, True]))
    assert second.scores is not None and second.scores.names == block.scores.names
    np.testing.assert_array_equal(second.scores.values, block.scores.values[1:])
    alone = block.without_lists()
    assert alone.lists is None and alone.scores is block.scores


def test_a_load_that_goes_on_within_a_block_keeps_scores_and_kinds_by_their_lists() -> None:
    block = GOLDEN["clicks-scores"]
    assert isinstance(block, ClickBlock)
    block = replace(block, clicked=np.array([1, 2], np.int32), action=np.array([-1, 0], np.int32))
    block = replace(block, click_ms=np.zeros(2, np.int64), dwell_ms=np.zeros(2, np.int64))
    rest, first = without_first(block, 1)
    assert (
        isinstance(rest, ClickBlock) and rest.scores is not None and block.scores is not None and first == 2
    )
    np.testing.assert_array_equal(rest.scores.values, block.scores.values[2:])
    assert rest.action is not None and rest.action.tolist() == [0]
