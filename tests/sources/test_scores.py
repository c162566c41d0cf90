"""Scores and kinds of actions come through every entry of lists, and what does not fit is refused with its place."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kinstream.producers.loads.phased_load import PhasedLoad
from kinstream.producers.sources.file_events import open_events
from kinstream.producers.sources.mapping import mapper
from kinstream.producers.sources.packing import Packing
from kinstream.streams.configuration.sources import SourceSettings
from kinstream.streams.errors import BadRecord, Reason, SettingsError, SourceError
from kinstream.streams.records.codec.codec import decode_event
from kinstream.streams.records.description import plain as json_value
from kinstream.streams.records.description import record_lines
from kinstream.streams.records.message import Message
from kinstream.streams.records.scores import Scores
from kinstream.streams.records.values import Click, ItemClick
from tests.producers.block_contents import lists_of, plain

T = 1_777_636_800_000
FIELDS: dict[str, Any] = {
    "items": "hits[*].id",
    "clicks": "clicks[*].id",
    "clicked_at": "clicks[*].at",
    "action": "clicks[*].kind",
    "time": "at",
    "list_id": "list",
    "scores": {"bm25": "hits[*].bm25", "price": "hits[*].price"},
}


def message(value: Any, offset: int = 0) -> Message:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Message("t", 0, offset, T + 600_000, None, data, (), offset - 1)


def mapped(value: Any, fields: dict[str, Any] = FIELDS, **more: Any) -> Click:
    made = mapper(SourceSettings(topic="t", kind="clicks", space="shop", fields=fields, **more))
    found = made.events(message(value)) or []
    assert len(found) == 1 and isinstance(found[0], Click)
    return found[0]


def record(**more: Any) -> dict[str, Any]:
    hits = [
        {"id": "a", "bm25": 3.5, "price": 2},
        {"id": "b", "bm25": None},
        {"id": "c", "bm25": "1.5", "price": True},
    ]
    return {
        "list": "l",
        "at": T,
        "hits": hits,
        "clicks": [{"id": "b", "at": T + 1, "kind": "purchase"}],
        **more,
    }


EXPECTED: dict[str, tuple[Any, ...]] = {"bm25": (3.5, None, 1.5), "price": (2.0, None, 1.0)}


def test_scores_of_a_list_of_objects() -> None:
    click = mapped(record())
    assert plain(click)[-1] == EXPECTED
    assert click.clicks == (ItemClick("b", T + 1, None, "purchase"),)


def test_scores_of_parallel_lists_and_a_click_is_no_kind() -> None:
    value = {
        "at": T,
        "ids": ["a", "b", "c"],
        "s": {"bm25": [3.5, None, 1.5]},
        "p": [2, "", 1],
        "on": [0, 1, 1],
    }
    fields = {"items": "ids", "clicked": "on", "action": "did", "time": "at"}
    click = mapped(
        value | {"did": [None, "click", "cited"]}, fields | {"scores": {"bm25": "s.bm25", "price": "p"}}
    )
    assert plain(click)[-1] == EXPECTED
    assert [one.action for one in click.clicks] == [None, "cited"]


def test_both_readings_of_a_list_say_the_same() -> None:
    """The fast one reads lists without kinds of actions."""
    fields = {name: path for name, path in FIELDS.items() if name != "action"}
    slow = fields | {"dwell_ms": "nothing"}
    assert plain(mapped(record(), fields)) == plain(mapped(record(), slow))


@pytest.mark.parametrize(
    ("hits", "reason", "said"),
    [
        ([{"id": "a", "bm25": "much"}], Reason.BAD_SHAPE, r"scores.bm25 \(hits\[\*\].bm25\): .*no number"),
        ([{"id": "a", "bm25": [1]}], Reason.BAD_SHAPE, "no number"),
        ([{"id": "a", "bm25": 1e39}], Reason.NOT_FINITE, "number 0 of 'bm25'"),
        ([{"id": "a", "price": T + 1}, {"id": "b", "price": T + 2}], Reason.BAD_SHAPE, "'price'"),
    ],
)
def test_what_is_no_score_refuses_the_record(hits: list[Any], reason: Reason, said: str) -> None:
    with pytest.raises(BadRecord, match=said) as error:
        mapped(record(hits=hits, clicks=[]))
    assert error.value.reason is reason


@pytest.mark.parametrize("value", [[1, 2], "1", {}])
def test_a_list_of_scores_has_a_number_for_each_item(value: Any) -> None:
    fields = {"items": "hits[*].id", "clicks": "none", "time": "at", "scores": {"bm25": "bm25"}}
    with pytest.raises(BadRecord, match=r"2 values for 3|is no list"):
        mapped(record(bm25=value), fields)


@pytest.mark.parametrize(
    "scores", ["bm25", {}, {"adapted": "a"}, {"": "a"}, {"a": "[["}, {f"s{n}": "a" for n in range(33)}]
)
def test_settings_name_each_score_and_its_path(scores: Any) -> None:
    with pytest.raises((SettingsError, ValueError), match="scores"):
        mapped(record(), FIELDS | {"scores": scores})


def test_lists_that_miss_scores_share_a_block_with_the_others() -> None:
    packing = Packing("source/1")
    lists = [mapped(record(list="l1")), mapped(record(list="l2", hits=[{"id": "b"}]))]
    assert not packing.add(lists, 0)
    (block,) = packing.flush()
    assert [plain(one)[-1] for one in lists_of(block.event)] == [EXPECTED, {}]


# ---- user behavior insights -------------------------------------------------------------------------------------


def ubi(records: list[dict[str, Any]], **more: Any) -> tuple[Any, list[Click]]:
    given: dict[str, Any] = {"topic": "ubi", "preset": "ubi", "space": "shop", **more}
    made = mapper(SourceSettings.model_validate(given))
    found: list[Any] = []
    for number, one in enumerate(records):
        found += made.events(message({"timestamp": T + number, **one}, number)) or ()
    return made, [*found, *made.held_back()]


SHOWN = {
    "query_id": "q",
    "query_response_hit_ids": ["1", "2", None],
    "query_attributes": {"bm25": [2.5, None, 1]},
}
SEEN = {
    "action_name": "impression",
    "query_id": "q",
    "event_attributes": {"object": [{"object_id": "2", "age": 4}, {"object_id": "3", "age": 5}]},
}
SCORED = {"scores": {"bm25": "query_attributes.bm25", "age": "event_attributes.object[*].age"}}


def action(name: str, item: str) -> dict[str, Any]:
    return {"action_name": name, "query_id": "q", "event_attributes": {"object": {"object_id": item}}}


def test_queries_and_impressions_of_ubi_bring_scores() -> None:
    _, (click,) = ubi(
        [SHOWN, SEEN, {**SEEN, "event_attributes": {"object": {"object_id": "2"}}}], fields=SCORED
    )
    assert click.items == ("1", "2", "3")
    assert plain(click)[-1] == {"bm25": (2.5, None, None), "age": (None, 4.0, 5.0)}


def test_the_name_of_an_action_of_ubi_is_its_kind() -> None:
    actions = ["click", "Add_To_Cart", "purchase"]
    records = [
        SHOWN,
        action("click", "1"),
        action("add_to_cart", "1"),
        action("PURCHASE", "2"),
        action("view", "2"),
    ]
    _, (click,) = ubi(records, actions=actions)
    assert [(one.item, one.action) for one in click.clicks] == [
        ("1", None),
        ("1", "add_to_cart"),
        ("2", "purchase"),
    ]
    assert click.scores is None


def test_a_state_of_ubi_holds_scores_and_kinds() -> None:
    made, (click,) = ubi([SHOWN, SEEN, action("purchase", "3")], fields=SCORED, actions=["purchase"])
    again, _ = ubi([], fields=SCORED, actions=["purchase"])
    again.restore(made.state())
    (other,) = again.held_back()
    assert plain(other) == plain(click) and other.clicks[0].action == "purchase"
    assert again.state() == made.state()
    # Of other settings, lists have other scores.
    other_names, _ = ubi([], fields={"scores": {"age": "age"}})
    other_names.inherit(made.state())
    (other,) = other_names.held_back()
    assert plain(other)[-1] == {"age": (None, 4.0, 5.0)}


def test_a_state_without_scores_is_what_it_was() -> None:
    made, _ = ubi([SHOWN, action("click", "1")])
    (one,) = json.loads(made.state()["open_lists"])
    assert "scores" not in one and one["clicks"] == [["1", T + 1]]


def test_a_bad_score_changes_no_list() -> None:
    made, _ = ubi([SHOWN], fields=SCORED)
    before = made.state()["open_lists"]
    for bad in ([1], [1, 2, "much"], [1, 2, 1e39]):
        more = {"query_response_hit_ids": ["7", "8", "9"], "query_attributes": {"bm25": bad}}
        with pytest.raises(BadRecord, match="bm25"):
            made.events(message({"timestamp": T, **SHOWN, **more}, 1))
        assert made.state()["open_lists"] == before


# ---- files ------------------------------------------------------------------------------------------------------


def sent(name: Path, given_: dict[str, str] | None = None, source: Any = None) -> list[Click]:
    events = open_events(str(name), "clicks", "shop", None if source else given_, source=source)
    return [one for block in PhasedLoad("clicks", [events], "shop").blocks(17) for one in lists_of(block)]


ROWS = [
    {"list": "l", "item": "a", "on": 0, "at": T, "bm25": 3.5, "price": 2.0, "did": ""},
    {"list": "l", "item": "b", "on": 1, "at": T, "bm25": None, "price": None, "did": "purchase"},
    {"list": "l", "item": "c", "on": 0, "at": T, "bm25": 1.5, "price": 1.0, "did": ""},
]
READING = {"list_id": "list", "clicked": "on", "time": "at", "action": "did"}


@pytest.mark.parametrize(
    "scores", [{"scores": "bm25,price"}, {"scores.bm25": "bm25", "scores.price": "pri*"}]
)
@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
def test_one_impression_a_row(tmp_path: Path, kind: str, scores: dict[str, str]) -> None:
    name = tmp_path / f"log.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), name)
    elif kind == "csv":
        with name.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ROWS[0])
            writer.writeheader()
            writer.writerows(ROWS)
    else:
        name.write_text("\n".join(map(json.dumps, ROWS)), encoding="utf-8")
    if "scores.price" in scores:
        scores = scores | {"scores.price": "price"}
    (click,) = sent(name, READING | scores)
    assert plain(click)[-1] == EXPECTED
    assert click.clicks == (ItemClick("b", T, None, "purchase"),)


def test_one_list_a_row(tmp_path: Path) -> None:
    name = tmp_path / "log.csv"
    name.write_text("items,clicks,did,time,s\na|b|c,b,purchase,1777636800000,3.5||1.5\n", encoding="utf-8")
    (click,) = sent(name, {"action": "did", "scores.bm25": "s"})
    assert plain(click)[-1] == {"bm25": (3.5, None, 1.5)} and click.clicks[0].action == "purchase"


def test_list_columns_of_parquet(tmp_path: Path) -> None:
    name = tmp_path / "log.parquet"
    row = {"items": ["a", "b", "c"], "clicks": ["b"], "did": ["cited"], "time": T, "bm25": [3.5, None, 1.5]}
    objects = [{"id": "a", "price": 2.0}, {"id": "b", "price": float("nan")}, {"id": "c", "price": 1.0}]
    pq.write_table(pa.Table.from_pylist([row | {"hits": objects}]), name)
    (click,) = sent(name, {"action": "did", "scores.bm25": "bm25", "scores.price": "hits[*].price"})
    assert plain(click)[-1] == EXPECTED and click.clicks[0].action == "cited"


def test_the_row_of_a_bad_score_is_named(tmp_path: Path) -> None:
    name = tmp_path / "log.csv"
    name.write_text("item,clicked,time,s\na,1,1777636800,1\nb,0,1777636800,much\n", encoding="utf-8")
    with pytest.raises(SourceError, match=r"scores\.bm25.*'much' is no number"):
        sent(name, {"scores.bm25": "s"})


def test_files_of_events_have_all_scores(tmp_path: Path) -> None:
    """The second line has a name that the first one lacks."""
    lines = [
        {"list_id": "l1", "items": ["a"], "clicks": [{"item": "a", "time_ms": T}], "shown_at_ms": T},
        {
            "list_id": "l2",
            "items": ["a", "b"],
            "clicks": [{"item": "b", "time_ms": T, "action": "purchase"}],
            "shown_at_ms": T,
            "scores": {"bm25": [1, None]},
        },
        {
            "list_id": "l3",
            "items": ["a"],
            "clicks": [],
            "shown_at_ms": T,
            "scores": {"price": [7], "bm25": [2]},
        },
    ]
    name = tmp_path / "log.jsonl"
    name.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    found = sent(name)
    assert [plain(one)[-1] for one in found] == [{}, {"bm25": (1.0, None)}, {"bm25": (2.0,), "price": (7.0,)}]
    assert [one.action for click in found for one in click.clicks] == [None, "purchase"]


def test_a_trial_shows_numbers() -> None:
    lines = [*record_lines(mapped(record()))]
    assert "  scores: {bm25: [3.5, None, 1.5], price: [2.0, None, 1.0]}" in lines
    assert f"  clicks: [ItemClick(item=b, time_ms={T + 1}, action=purchase)]" in lines
    assert json_value(mapped(record()))["scores"] == {"bm25": [3.5, None, 1.5], "price": [2.0, None, 1.0]}


def test_clicks_that_are_no_list_have_no_kinds(tmp_path: Path) -> None:
    line = {"items": ["a"], "clicks": [{"item": "a", "time_ms": T}], "shown_at_ms": T}
    name = tmp_path / "log.jsonl"
    name.write_text("\n".join(map(json.dumps, [line, line | {"clicks": 3}])), encoding="utf-8")
    assert [len(one.clicks) for one in sent(name)] == [1, 0]


# ---- the same list through every entry --------------------------------------------------------------------------

AVRO = {
    "type": "record",
    "name": "Shown",
    "fields": [
        {"name": "list", "type": "string"},
        {"name": "at", "type": "long"},
        {
            "name": "hits",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Hit",
                    "fields": [
                        {"name": "id", "type": "string"},
                        {"name": "bm25", "type": ["null", "double"]},
                        {"name": "price", "type": ["null", "double"]},
                    ],
                },
            },
        },
        {
            "name": "clicks",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Act",
                    "fields": [
                        {"name": "id", "type": "string"},
                        {"name": "at", "type": "long"},
                        {"name": "kind", "type": ["null", "string"]},
                    ],
                },
            },
        },
    ],
}
NUMBERS = st.none() | st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(NUMBERS, NUMBERS, st.sampled_from([None, "", "purchase", "cited"])), min_size=1, max_size=5
    )
)
def test_a_list_is_the_same_through_every_entry(
    tmp_path_factory: pytest.TempPathFactory, items: list[tuple[Any, Any, Any]]
) -> None:
    """`""` stands for an item that was clicked without a kind."""
    names = [f"i{n}" for n in range(len(items))]
    hits = [{"id": n, "bm25": b, "price": p} for n, (b, p, _) in zip(names, items, strict=True)]
    clicks: list[dict[str, Any]] = [
        {"id": n, "at": T, "kind": k or None}
        for n, (_, _, k) in zip(names, items, strict=True)
        if k is not None
    ]
    value = {"list": "l", "at": T, "hits": hits, "clicks": clicks}
    columns = {name: [one[name] for one in hits] for name in ("bm25", "price")}
    expected = Click(
        "shop",
        "l",
        tuple(names),
        tuple(range(len(names))),
        tuple(ItemClick(one["id"], T, None, one["kind"]) for one in clicks),
        T,
        scores=Scores.of(columns),
    )
    event = {
        "kind": "click",
        "space": "shop",
        "list_id": "l",
        "items": names,
        "clicks": [
            {"item": one["id"], "time_ms": T} | ({"action": one["kind"]} if one["kind"] else {})
            for one in clicks
        ],
        "shown_at_ms": T,
        "scores": columns,
    }
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(AVRO), value)
    folder = tmp_path_factory.mktemp("entry")
    (folder / "7.avsc").write_text(json.dumps(AVRO), encoding="utf-8")
    rows = [
        {"list": "l", "item": n, "on": int(k is not None), "at": T, "bm25": b, "price": p, "did": k}
        for n, (b, p, k) in zip(names, items, strict=True)
    ]
    with (folder / "log.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    (folder / "log.jsonl").write_text(json.dumps(event), encoding="utf-8")
    framed = b"\0" + (7).to_bytes(4, "big") + data.getvalue()
    found = {
        "json": decode_event(json.dumps(event).encode()),
        "mapped": mapped(value),
        "avro": mapped(framed, format="avro", schemas={"7": str(folder / "7.avsc")}),
        "rows": sent(folder / "log.csv", READING | {"scores": "bm25,price"})[0],
        "lines": sent(folder / "log.jsonl")[0],
    }
    for entry, one in found.items():
        assert isinstance(one, Click)
        assert plain(one) == plain(expected), entry
        assert one.scores is None or one.scores.values.dtype == np.float32
