"""Result lists come from JSON lines and from tables in two layouts, or the row that cannot be used is named."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinstream.producers.clicks.reading import ClickReading, open_clicks
from kinstream.producers.clicks.rows import click_block, click_bytes
from kinstream.producers.loads.phased_load import PhasedLoad
from kinstream.streams.errors import KinstreamError, SettingsError, SourceError
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.values import Click, ItemClick, Table
from tests.producers.unpacked import lists_of, plain

T = 1_704_067_200_000
DAY = 86_400_000
EXPECTED = [
    Click(
        "shop",
        "l1",
        ("a", "b", "c"),
        (0, 1, 2),
        (ItemClick("b", T + 4000, 31000), ItemClick("c", T + 9000)),
        T,
        "s1",
        "u1",
        "q1",
    ),
    Click("shop", "l2", ("c", "a"), (0, 1), (), T + 60_000, "s1", None, "q2"),
]


def write(folder: Path, text: str, name: str = "log.csv") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def sent(name: str, reading: ClickReading | None = None, time_ms: int = 17) -> list[Click]:
    load = PhasedLoad("clicks", [open_clicks(name, "shop", reading or ClickReading())], "shop")
    return [found for block in load.blocks(time_ms) for found in lists_of(block)]


def same(found: list[Click], expected: list[Click]) -> bool:
    return [plain(click) for click in found] == [plain(click) for click in expected]


# ---- layouts ----------------------------------------------------------------------------------------------------


def test_json_lines_have_the_fields_of_the_event(tmp_path: Path) -> None:
    lines = [
        {
            "kind": "click",
            "space": "shop",
            "list_id": "l1",
            "items": ["a", "b", "c"],
            "positions": [0, 1, 2],
            "clicks": [
                {"item": "b", "time_ms": T + 4000, "dwell_ms": 31000},
                {"item": "c", "time_ms": T + 9000},
            ],
            "shown_at_ms": T,
            "session": "s1",
            "user": "u1",
            "query_item": "q1",
        },
        {
            "list_id": "l2",
            "items": ["c", "a"],
            "clicks": [],
            "shown_at_ms": T + 60_000,
            "session": "s1",
            "query_item": "q2",
        },
    ]
    name = write(tmp_path, "\n\n".join(map(json.dumps, lines)), "log.jsonl")
    assert same(sent(name), EXPECTED)


OBJECTS = [{"item": "b", "time_ms": T + 4000, "dwell_ms": 31000}, {"item": "c", "time_ms": T + 9000}]


def test_a_table_of_one_list_a_row_with_separators(tmp_path: Path) -> None:
    text = (
        "list_id,items,clicks,clicked_at,dwell_ms,shown_at,session,user,query\n"
        "l1,a|b|c,b|c,1704067204|1704067209,31000|,1704067200,s1,u1,q1\n"
        "l2,c|a,,,,1704067260,s1,,q2\n"
    )
    assert same(sent(write(tmp_path, text)), EXPECTED)
    assert same(sent(write(tmp_path, text.replace("|", ";")), ClickReading(separator=";")), EXPECTED)


def test_a_table_of_one_list_a_row_in_json(tmp_path: Path) -> None:
    rows = [
        ["list_id", "items", "positions", "clicks", "shown_at", "session", "user", "query"],
        ["l1", '["a", "b", "c"]', "[0, 1, 2]", json.dumps(OBJECTS), "2024-01-01T00:00:00Z", "s1", "u1", "q1"],
        ["l2", '["c", "a"]', "[0, 1]", "[]", "2024-01-01T00:01:00Z", "s1", "", "q2"],
    ]
    with (tmp_path / "log.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows(rows)
    assert same(sent(str(tmp_path / "log.csv")), EXPECTED)


def test_parquet_lists(tmp_path: Path) -> None:
    columns = {
        "list_id": ["l1", "l2"],
        "items": [["a", "b", "c"], ["c", "a"]],
        "clicks": [["b", "c"], []],
        "clicked_at": [[T + 4000, T + 9000], []],
        "dwell_ms": [[31000, None], None],
        "shown_at": pa.array([T, T + 60_000], pa.timestamp("ms", tz="Europe/Berlin")),
        "session": ["s1", "s1"],
        "user": ["u1", None],
        "query_item": ["q1", "q2"],
    }
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    assert same(sent(str(tmp_path / "log.parquet")), EXPECTED)
    table = {k: v for k, v in columns.items() if k not in ("clicked_at", "dwell_ms")}
    table["clicks"] = [OBJECTS, []]
    pq.write_table(pa.table(table), tmp_path / "log.parquet")
    assert same(sent(str(tmp_path / "log.parquet")), EXPECTED)


IMPRESSIONS = (
    "list_id,sku,rank,click,clicked_at,dwell_ms,time,session,user,query\n"
    f"l1,a,1,0,,,{T},s1,u1,q1\n"
    f"l1,b,2,1,{T + 4000},31000,{T},s1,u1,q1\n"
    f"l1,c,3,1,{T + 9000},,{T},s1,u1,q1\n"
    f"l2,c,1,0,,,{T + 60_000},s1,,q2\n"
    f"l2,a,2,0,,,{T + 60_000},s1,,q2\n"
)


def test_a_table_of_one_impression_a_row(tmp_path: Path) -> None:
    reading = ClickReading({"item": ["sku"]}, first_position=1)
    assert same(sent(write(tmp_path, IMPRESSIONS), reading), EXPECTED)


def test_without_list_ids_session_and_query_tell_lists_apart(tmp_path: Path) -> None:
    cells = ["a,1,20240101,s,q", "b,0,20240102,s,q", "a,0,20240103,s,r", "a,0,20240104,t,r"]
    text = "\n".join(["item,clicked,time,session,query", *cells, "a,0,20240105,,", "a,0,20240106,,\n"])
    found = sent(write(tmp_path, text))
    assert [(c.items, c.session, c.query_item, c.shown_at_ms) for c in found] == [
        (("a", "b"), "s", "q", T),
        (("a",), "s", "r", T + 2 * DAY),
        (("a",), "t", "r", T + 3 * DAY),
        (("a",), None, None, T + 4 * DAY),
        (("a",), None, None, T + 5 * DAY),
    ]
    assert [c.list_id.rpartition("-")[2] for c in found] == ["1", "3", "4", "5", "6"]
    assert found[0].clicks == (ItemClick("a", T),)


def test_the_query_may_be_a_vector(tmp_path: Path) -> None:
    text = "item,clicked,time,q_0,q_1,age\na,1,20240101,0.5,1,9\nb,0,20240101,0.5,1,9\na,0,20240102,2,3,9\n"
    found = sent(write(tmp_path, text), ClickReading(query_features={"image": ["q_*"], "user": ["age"]}))
    assert [c.items for c in found] == [("a", "b"), ("a",)]
    assert [[t.vectors.tolist() for t in c.query_vector] for c in found] == [
        [[[0.5, 1]], [[9]]],
        [[[2, 3]], [[9]]],
    ]
    assert [t.name for t in found[0].query_vector] == ["image", "user"]


def test_lists_with_and_without_a_vector_share_a_block(tmp_path: Path) -> None:
    lines = [
        {"items": ["a"], "clicks": [], "shown_at_ms": T, "query_vector": [1, 2]},
        {"items": ["a"], "clicks": [], "shown_at_ms": T},
        {"items": ["b"], "clicks": [{"item": "b"}], "shown_at_ms": T, "query_vector": [3, 4]},
    ]
    found = sent(write(tmp_path, "\n".join(map(json.dumps, lines)), "log.ndjson"))
    assert [[t.vectors.tolist() for t in c.query_vector] for c in found] == [[[[1, 2]]], [], [[[3, 4]]]]
    assert found[2].clicks == (ItemClick("b", T),)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log.csv", "items,clicks\na|b,b\n"),
        ("log.csv", "item,clicked\na,0\n"),
        ("log.csv", "item,clicked,time\na,1,yesterday\n"),
        ("log.jsonl", '{"items": ["a"], "clicks": [{"item": "a"}]}\n'),
    ],
)
def test_lists_may_have_the_time_of_sending(tmp_path: Path, name: str, text: str) -> None:
    found = sent(write(tmp_path, text, name), ClickReading(now=True), time_ms=1234)
    assert {c.shown_at_ms for c in found} | {k.time_ms for c in found for k in c.clicks} == {1234}


def test_the_summary_counts_what_is_in_the_lists(tmp_path: Path) -> None:
    opened = open_clicks(write(tmp_path, IMPRESSIONS), "shop", ClickReading({"item": ["sku"]}))
    assert opened.facts == {
        "impressions": 5,
        "clicks": 2,
        "lists_without_click": 1,
        "lists_without_query": 0,
    }
    assert opened.layout.rows == 2


# ---- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "item,clicked,time,session,rank\na,0,20240101,s,0\nb,0,20240101,s,0\n",
            r"row 2, column 'rank': position 0 appears twice",
        ),
        (
            "item,clicked,time,session\na,0,20240101,s\na,0,20240101,s\n",
            r"row 2, column 'item': item 'a' appears twice",
        ),
        (
            "item,clicked,time,rank\na,0,20240101,0\nb,0,20240101,-1\n",
            r"row 2, column 'rank': a position counts from the top",
        ),
        (
            "item,clicked,time,rank\na,0,20240101,first\n",
            r"row 1, column 'rank': 'first' is not a whole number",
        ),
        (
            "item,clicked,time\na,0,20240101\nb,seldom,20240101\n",
            r"row 2, column 'clicked': 'seldom' is neither",
        ),
        ("item,clicked,time\na,0,20240101\n,0,20240101\n", r"row 2, column 'item': the value is missing"),
        (
            "item,clicked,time\na,0,-1\n",
            r"row 1, column 'time': the time '-1' is outside of the years 1990 to 2099",
        ),
        ("item,clicked,time,dwell_ms\na,1,20240101,-9\n", r"row 1, column 'dwell_ms': a dwell time of -9 ms"),
        (
            "list_id,item,clicked,time\nx,a,0,20240101\ny,a,0,20240101\nx,b,0,20240101\n",
            r"row 3, column 'list_id': list 'x' continues after other rows",
        ),
        (
            "items,clicks,time\na|b,c,20240101\n",
            r"row 1, column 'clicks': a click on 'c', which is not shown",
        ),
        ("items,clicks,time\na|b,a,20240101\n,,20240101\n", r"row 2, column 'items': the list is empty"),
        ("items,clicks,time\na|b|a,a,20240101\n", r"row 1, column 'items': item 'a' appears twice"),
        (
            "items,clicks,time,positions\na|b,a,20240101,3|3\n",
            r"row 1, column 'positions': position 3 appears twice",
        ),
        (
            "items,clicks,time,positions\na|b,a,20240101,3\n",
            r"row 1, column 'positions': 1 positions for 2 items",
        ),
        (
            "items,clicks,time,clicked_at\na|b,a|b,20240101,20240103\n",
            r"row 1, column 'clicked_at': 1 values for 2 clicks",
        ),
        ("items,clicks,time\na,[a,20240101\n", r"row 1, column 'clicks': not a JSON list"),
        (
            'items,clicks,time\na,"[{""id"": 1}]",20240101\n',
            r"row 1, column 'clicks': a click is an item, or",
        ),
        ("item,time\na,20240101\n", r"which column is clicked\? Use --column clicked=COLUMN"),
        ("item,clicked,time\n", r"there are no rows"),
    ],
)
def test_a_bad_table_is_refused_by_place(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(SourceError, match=told) as caught:
        open_clicks(write(tmp_path, text), "shop")
    assert "log.csv" in str(caught.value)


GOOD: dict[str, Any] = {"items": ["a", "b"], "clicks": [], "shown_at_ms": T}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"positions": [1, 1]}, r"row 2, column 'positions': position 1 appears twice"),
        ({"positions": [1, -1]}, r"row 2: positions must be one non-negative rank"),
        ({"clicks": [{"item": "c"}]}, r"row 2, column 'clicks': a click on 'c', which is not shown"),
        ({"clicks": [{"item": "a", "time_ms": -2}]}, r"row 2: the time -2 is outside of the years"),
        ({"clicks": [{"item": "a", "time_ms": -1}]}, r"row 2: a time is negative"),
        ({"clicks": [{"item": "a", "dwell_ms": -1}]}, r"row 2, column 'dwell_ms': a dwell time of -1 ms"),
        ({"clicks": "a"}, r"row 2: clicks must be a list"),
        ({"shown_at_ms": -1}, r"row 2: a time is negative"),
        ({"shown_at_ms": None}, r"row 2: shown_at_ms must be a whole number"),
        ({"items": []}, r"row 2: a click record without shown items"),
        ({"itmes": []}, r"row 2: click: unknown field 'itmes'"),
        ({"space": "other"}, r"row 2: space 'other', and the load is for 'shop'"),
        ({"kind": "relation"}, r"row 2: .*"),
        ({"load": {"load_id": "x", "sequence": 0}}, r"row 2: has a load position"),
        ({"query_vector": [float("nan"), 1]}, r"row 2: query_vector must be finite"),
        ({"query_vector": [1]}, r"row 2: a query vector of {'x': 1} numbers, but others have {'x': 2}"),
    ],
)
def test_a_bad_line_is_refused_by_place(tmp_path: Path, change: Mapping[str, Any], told: str) -> None:
    lines = [{**GOOD, "query_vector": [1, 2]}, {**GOOD, **change}]
    with pytest.raises(SourceError, match=told) as caught:
        open_clicks(write(tmp_path, "\n".join(map(json.dumps, lines)), "log.jsonl"), "shop")
    assert "log.jsonl" in str(caught.value)


@pytest.mark.parametrize("value", ["nan", "inf", "1e300", "", "x"])
def test_a_query_vector_that_is_not_finite_is_refused(tmp_path: Path, value: str) -> None:
    reading = ClickReading(query_features={"x": ["q"]})
    with pytest.raises(SourceError, match=r"row 2, column 'q'"):
        open_clicks(
            write(tmp_path, f"item,clicked,time,q\na,0,20240101,1\na,0,20240101,{value}\n"), "shop", reading
        )


@pytest.mark.parametrize(
    ("name", "text", "reading", "error", "told"),
    [
        ("log.csv", "item,clicked\na,0\n", ClickReading(), SettingsError, "--shown-at now"),
        (
            "log.csv",
            "item,clicked,at\na,0,20240101\n",
            ClickReading({"shown_at": ["at"]}, now=True),
            SettingsError,
            "no column shown_at",
        ),
        ("log.jsonl", "{}", ClickReading({"item": ["a"]}), SettingsError, "leave --column"),
        (
            "log.jsonl",
            '{"items": ["a"], "clicks": []}',
            ClickReading(),
            SourceError,
            "row 1: shown_at_ms is missing",
        ),
        ("log.jsonl", json.dumps(GOOD), ClickReading(now=True), SourceError, "leave out --shown-at now"),
    ],
)
def test_the_time_has_to_be_said(
    tmp_path: Path, name: str, text: str, reading: ClickReading, error: type[KinstreamError], told: str
) -> None:
    with pytest.raises(error, match=told):
        open_clicks(write(tmp_path, text, name), "shop", reading)


def test_a_list_that_fits_into_no_block_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    lines = [GOOD, {**GOOD, "items": [f"item {n}" for n in range(40_000)]}]
    name = write(tmp_path, "\n".join(map(json.dumps, lines)), "log.jsonl")
    with pytest.raises(SourceError, match=r"row 2: \d+ bytes do not fit into a block"):
        PhasedLoad("clicks", [open_clicks(name, "shop")], "shop")
    lines[1]["items"] = lines[1]["items"][:10_000]
    assert len(sent(write(tmp_path, "\n".join(map(json.dumps, lines)), "log.jsonl"))[1].items) == 10_000


# ---- blocks -----------------------------------------------------------------------------------------------------

NAMES = st.text(max_size=12)


@st.composite
def a_list(draw: st.DrawFn) -> Click:
    items = tuple(draw(st.lists(NAMES, min_size=1, max_size=8, unique=True)))
    clicked = draw(st.lists(st.sampled_from(items), unique=True))
    clicks = tuple(
        ItemClick(i, draw(st.integers(0, 2**40)), draw(st.none() | st.integers(0, 2**40)))
        for i in items
        if i in clicked
    )
    vector = draw(st.none() | st.floats(-1, 1, width=32))
    query = () if vector is None else (Table("x", np.array([[vector, 0]], np.float32)),)
    positions = tuple(draw(st.permutations(range(len(items)))))
    session, user, item, address = (draw(st.none() | NAMES) for _ in range(4))
    shown = draw(st.integers(0, 2**40))
    return Click("s", draw(NAMES), items, positions, clicks, shown, session, user, item, query, None, address)


def test_an_address_comes_from_a_column_that_was_named_and_never_by_guess(tmp_path: Path) -> None:
    text = "items,clicks,shown_at,address\na|b,b,1704067200,9c1d\na|b,,1704067260,\n"
    name = write(tmp_path, text)
    assert [one.address for one in sent(name)] == [None, None]
    named = ClickReading({"address": ["address"]})
    assert [one.address for one in sent(name, named)] == ["9c1d", None]
    lines = [{"items": ["a"], "clicks": [], "shown_at_ms": T, "address": one} for one in ("9c1d", None)]
    name = write(tmp_path, "\n".join(map(json.dumps, lines)), "log.jsonl")
    assert [one.address for one in sent(name)] == ["9c1d", None]
    rows = "item,clicked,time,hash\na,1,20240101,9c1d\n"
    reading = ClickReading({"address": ["hash"]})
    assert [one.address for one in sent(write(tmp_path, rows), reading)] == ["9c1d"]


@pytest.mark.long
@given(st.lists(a_list(), min_size=1, max_size=12))
def test_a_block_holds_its_lists_and_is_no_larger_than_was_reckoned(lists: list[Click]) -> None:
    block = click_block(lists, "s", 0)
    assert same(lists_of(block), lists)
    assert len(encode(block)) <= sum(map(click_bytes, lists)) + 256 + 32
