"""User Behavior Insights as they are written: every form of a record gives the list of the usual one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kinstream.streams.agents.machine import Machine
from tests.sources.rows import rows_of_event
from tests.sources.shop import machine, message
from tests.sources.test_ubi import MINUTE, START, _event, _iso, _query

SOURCE: dict[str, Any] = {"topic": "ubi", "preset": "ubi", "space": "shop"}


def _lists(records: list[Any], source: dict[str, Any] | None = None) -> tuple[list[dict[str, Any]], Machine]:
    """The lists of records that are a millisecond apart, and the machine."""
    agent = machine(source or SOURCE)
    outputs: list[Any] = []
    end = {
        "application": "shop",
        "query_id": "end",
        "timestamp": START + 99 * MINUTE,
        "query_response_hit_ids": ["1"],
    }
    for offset, record in enumerate([*records, end]):
        at = START + 99 * MINUTE if record is end else START + 40_000 + offset
        outputs += [*agent.step(message(record, offset, time_ms=at)), *agent.flush()]
    events = [one for one in outputs if one.topic == "kinstream.events"]
    return [row for one in events for row in rows_of_event(one.value)], agent


def _camel(value: Any) -> Any:
    """The same with names in camel case."""
    if isinstance(value, list):
        return [_camel(one) for one in value]
    if not isinstance(value, dict):
        return value
    parts = {name: name.split("_") for name in value}
    return {p[0] + "".join(map(str.capitalize, p[1:])): _camel(value[name]) for name, p in parts.items()}


def _java(query: dict[str, Any]) -> list[dict[str, Any]]:
    """A query as the plugin's record is written to a pipeline: an array of one, the hits in an object of their own."""
    made = _camel(query)
    names = ("queryId", "queryResponseId", "queryResponseHitIds")
    made["queryResponse"] = {name: made[name] for name in names}
    del made["queryResponseHitIds"], made["queryResponseId"]
    return [{**made, "timestamp": START, "query": "", "queryAttributes": None}]


QUERY = _query("q", ["1", "2", "3"], START)
CLICK = _event("click", "q", "3", START + 7_000, 3)
OBJECT = CLICK["event_attributes"]["object"]


def _without(record: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != name}


FORMS: dict[str, tuple[Any, Any]] = {
    "arrays of one": ([QUERY], [CLICK]),
    "one array of both": ([QUERY, CLICK], []),
    "camel case": (_camel(QUERY), _camel(CLICK)),
    "the plugin's Java records": (_java(QUERY), [_camel(CLICK)]),
    "documents of an export": (
        {"_index": "ubi_queries", "_id": "7", "_score": 1.0, "_source": QUERY},
        {"_index": "ubi_events", "_id": "8", "_source": CLICK},
    ),
    "typed records of a pipeline": ({**QUERY, "type": "query"}, {**CLICK, "type": "event"}),
    "times as numbers": ({**QUERY, "timestamp": START}, {**CLICK, "timestamp": START + 7_000}),
    "times as digits": ({**QUERY, "timestamp": f"{START}"}, {**CLICK, "timestamp": f"{START + 7_000}"}),
    "times of another zone": (QUERY, {**CLICK, "timestamp": "2026-05-01T14:00:07.000+02:00"}),
    "times of a pipeline": ({**_without(QUERY, "timestamp"), "@timestamp": _iso(START)}, CLICK),
    "actions in capitals": (QUERY, {**CLICK, "action_name": "CLICK"}),
    "objects in a list": (QUERY, {**CLICK, "event_attributes": {"object": [OBJECT]}}),
    "ids in a list": (QUERY, {**CLICK, "event_attributes": {"object": {"object_id": ["3"]}}}),
    "ids as numbers": ({**QUERY, "query_response_hit_ids": [1, 2, 3]}, CLICK),
    "no position": (QUERY, {**CLICK, "event_attributes": {"object": OBJECT, "position": None}}),
    "columns of the generator": (
        QUERY,
        {**_without(CLICK, "event_attributes"), "object_id": "3", "object_id_field": "sku", "rank": 2},
    ),
    **{
        f"hits named {name}": ({**_without(QUERY, "query_response_hit_ids"), name: ["1", "2", "3"]}, CLICK)
        for name in ("query_response_object_ids", "query_response_objects_ids", "queryResponseHitIds")
    },
    **{
        f"a user named {name}": ({**_without(QUERY, "client_id"), name: "c-q"}, CLICK)
        for name in ("user_id", "clientId")
    },
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_list_of_the_usual_one(name: str) -> None:
    (wanted,), _ = _lists([QUERY, CLICK])
    assert wanted["clicks"] == [("3", START + 7_000)] and wanted["user"] == "c-q"
    (row,), agent = _lists(list(FORMS[name]))
    assert row == wanted and not agent.dead


def _impression(item: str, ordinal: int | None, **more: Any) -> dict[str, Any]:
    made = _event("impression", "q", item, START, ordinal or 0)
    if ordinal is None:
        del made["event_attributes"]["position"]
    return {**made, **more}


def _generated(item: str, rank: int) -> dict[str, Any]:
    """As the data generator writes it: a rank from 0 beside the object."""
    made = _event("impression", "q", item, START)
    made["event_attributes"] = {"object": {"object_id": item, "object_id_field": "product_id"}, "rank": rank}
    return {**made, "message_type": None, "message": None}


def _placed(item: str, position: Any) -> dict[str, Any]:
    return {"object": {"object_id": item}, "position": position}


BARE = {**_without(_without(QUERY, "query_response_hit_ids"), "query_response_id"), "query_attributes": {}}
SHOWN: dict[str, list[Any]] = {
    "ordinals from 1": [_impression(str(n), n) for n in (1, 2, 3)],
    "ordinals from 0": [_impression(str(n), n - 1) for n in (1, 2, 3)],
    "ordinals as text": [
        {**_impression(str(n), n), "event_attributes": _placed(str(n), {"ordinal": f"{n}"})}
        for n in (1, 2, 3)
    ],
    "ranks of the generator": [BARE, *(_generated(str(n), n - 1) for n in (1, 2, 3))],
    "in any order": [_impression(str(n), n) for n in (3, 1, 2)],
    "the query after them": [*(_impression(str(n), n) for n in (2, 1, 3)), BARE],
    "twice": [_impression(str(n), n) for n in (1, 2, 3, 1, 2, 3)],
    "without ordinals": [_impression(str(n), None) for n in (1, 2, 3)],
    "a plain position": [
        {**_impression(str(n), n), "event_attributes": _placed(str(n), n)} for n in (1, 2, 3)
    ],
    "in one array": [[_impression(str(n), n) for n in (1, 2, 3)]],
    "in one event": [
        {
            **_impression("1", 1),
            "event_attributes": {
                "object": [{"object_id": str(n)} for n in (1, 2, 3)],
                "position": {"ordinal": 1},
            },
        }
    ],
}


@pytest.mark.parametrize("name", SHOWN)
def test_lists_that_only_impressions_give_are_taught(name: str) -> None:
    (row,), agent = _lists([*SHOWN[name], CLICK])
    assert (row["items"], row["positions"]) == (["1", "2", "3"], [0, 1, 2])
    assert row["clicks"] == [("3", START + 7_000)] and row["user"] == "c-q" and row["session"] == "s-q"
    assert not agent.dead


def test_impressions_that_leave_ranks_out_keep_the_ranks_of_the_others() -> None:
    (row,), _ = _lists([_impression("a", 2), _impression("b", 5), _impression("c", 5)])
    assert (row["items"], row["positions"]) == (["a", "b", "c"], [1, 4, 5])


@pytest.mark.parametrize("first", [0, 1])
def test_pages_whose_impressions_count_from_their_own_top_keep_their_order(first: int) -> None:
    pages = [[_impression(f"{page}-{n}", n + first) for n in (0, 1, 2)] for page in "abc"]
    (row,), _ = _lists([*pages[0], *reversed(pages[1]), *pages[2]])
    assert row["items"] == [f"{page}-{n}" for page in "abc" for n in (0, 1, 2)]
    assert row["positions"] == list(range(9))


def test_a_query_without_hits_gives_impressions_its_vector() -> None:
    source = {**SOURCE, "fields": {"query_item": "seed"}}
    for records in (
        [{**BARE, "seed": "9"}, _impression("1", 1)],
        [_impression("1", 1), {**BARE, "seed": "9"}],
    ):
        (row,), _ = _lists(records, source)
        assert row["query_item"] == "9" and row["items"] == ["1"]


def test_a_query_that_nothing_was_shown_for_is_no_list() -> None:
    rows, agent = _lists([BARE, {**QUERY, "query_id": "none", "query_response_hit_ids": []}])
    assert not rows and agent.counts["fate.list-empty"] == 2 and not agent.dead


@pytest.mark.parametrize("second", [["4", "5"], ["1", "2", "3", "4", "5"], ["3", "4", "4", "5"]])
def test_further_pages_of_a_query_take_clicks_too(second: list[str]) -> None:
    page = {**QUERY, "timestamp": _iso(START + 1_000), "query_response_hit_ids": second}
    clicks = [CLICK, _event("click", "q", "5", START + 8_000, 5)]
    (row,), agent = _lists([QUERY, clicks[0], page, clicks[1]])
    assert row["items"] == ["1", "2", "3", "4", "5"] and row["positions"] == [0, 1, 2, 3, 4]
    assert [item for item, _ in row["clicks"]] == ["3", "5"] and row["shown_at_ms"] == START
    assert agent.counts["fate.list-continued"] == 1 and not agent.dead


def test_a_further_page_that_only_impressions_show_takes_clicks_too() -> None:
    more = [_impression("12", 12), _impression("11", 11), _event("click", "q", "12", START, 12)]
    (row,), agent = _lists([QUERY, *more])
    assert row["items"] == ["1", "2", "3", "11", "12"] and row["positions"] == [0, 1, 2, 10, 11]
    assert row["clicks"] == [("12", START)] and not agent.dead


@pytest.mark.parametrize(
    ("hits", "items", "positions"),
    [
        (["1", "1", "3"], ["1", "3"], [0, 2]),
        (["1", "3", "1", "3"], ["1", "3"], [0, 1]),
        (["1", None, "3"], ["1", "3"], [0, 2]),
        ("3", ["3"], [0]),
    ],
)
def test_a_hit_that_is_named_twice_or_without_an_id_loses_no_list(
    hits: Any, items: list[str], positions: list[int]
) -> None:
    (row,), agent = _lists([{**QUERY, "query_response_hit_ids": hits}, CLICK])
    assert (row["items"], row["positions"]) == (items, positions)
    assert row["clicks"] == [("3", START + 7_000)] and not agent.dead


@pytest.mark.parametrize("query", [None, "", "missing"])
def test_a_click_without_a_query_is_counted_and_no_letter(query: str | None) -> None:
    click = _without(CLICK, "query_id") if query == "missing" else {**CLICK, "query_id": query}
    rows, agent = _lists([click])
    assert not rows and not agent.dead and agent.counts["fate.click-without-query"] == 1


def test_lines_of_a_bulk_request_are_counted_and_no_letters() -> None:
    lines: list[Any] = [{"index": {"_index": "ubi_queries", "_id": "1"}}, QUERY, {"create": {}}, CLICK]
    (row,), agent = _lists(lines)
    assert len(row["clicks"]) == 1 and not agent.dead and agent.counts["fate.bulk-line"] == 2


def test_applications_may_be_spaces() -> None:
    source = {**_without(SOURCE, "space"), "fields": {"space": "application"}}
    rows, _ = _lists([{**_impression("1", 1), "application": "books"}], source)
    assert [row["space"] for row in rows] == ["books"]


def test_records_of_an_array_are_taken_together_or_not_at_all() -> None:
    rng = random.Random(3)
    good = [QUERY, CLICK, _impression("7", 7), {**QUERY, "query_id": "r"}, _event("click", "r", "1", START)]
    for bad in (
        _event("click", "q", "9", START),
        {"neither": 1},
        7,
        _event("click", "unheard-of", "1", START),
    ):
        array: list[Any] = [*good]
        array.insert(rng.randrange(1, len(array)), bad)
        agent = machine(SOURCE)
        agent.step(message({**QUERY, "query_id": "r", "query_response_hit_ids": ["1", "8"]}))
        before = {name: str(value) for name, value in agent.partition_state().items() if "mapper." in name}
        assert len(agent.step(message(array, 1))) == agent.dead.total() == 1
        after = {name: str(value) for name, value in agent.partition_state().items() if "mapper." in name}
        assert after == before
        assert not agent.step(message(good, 2)) and agent.dead.total() == 1


def test_a_record_in_an_array_is_followed_by_itself() -> None:
    source = {**SOURCE, "when": {"application": "shop"}}
    rows, agent = _lists(
        [[{**QUERY, "application": "other"}], [QUERY, {**BARE, "application": "other"}], []], source
    )
    assert [row["list_id"] for row in rows] == ["q"] and agent.counts["not_followed"] == 2
