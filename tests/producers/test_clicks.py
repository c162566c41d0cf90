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

from kinstream.producers.loads.click_rows import click_block, click_bytes
from kinstream.producers.loads.phased_load import PhasedLoad
from kinstream.producers.sources.file_events import open_events
from kinstream.streams.errors import KinstreamError, SourceError
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.scores import Scores
from kinstream.streams.records.values import Click, ItemClick, Table
from tests.producers.block_contents import lists_of, plain

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


NOW = {"time": "@timestamp"}


def opened(name: str, given: dict[str, str] | None = None, first: int = 0) -> Any:
    return open_events(name, "clicks", "shop", given, first_position=first)


def sent(
    name: str, given: dict[str, str] | None = None, time_ms: int = 17, first_position: int = 0
) -> list[Click]:
    load = PhasedLoad("clicks", [opened(name, given, first_position)], "shop")
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
    assert same(sent(write(tmp_path, IMPRESSIONS), {"item": "sku"}, first_position=1), EXPECTED)


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
    found = sent(write(tmp_path, text), {"query_vector.image": "q_*", "query_vector.user": "age"})
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
    found = sent(write(tmp_path, text, name), NOW, time_ms=1234)
    assert {c.shown_at_ms for c in found} | {k.time_ms for c in found for k in c.clicks} == {1234}


def test_the_summary_counts_what_is_in_the_lists(tmp_path: Path) -> None:
    found = opened(write(tmp_path, IMPRESSIONS), {"item": "sku"})
    assert found.facts == {
        "impressions": 5,
        "clicks": 2,
        "lists_without_click": 1,
        "lists_without_query": 0,
    }
    assert found.layout.rows == 2


# ---- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "item,clicked,time,session,rank\na,0,20240101,s,0\nb,0,20240101,s,0\n",
            r"row 2: positions \(impressions\[\*\].rank\): position 0 appears twice",
        ),
        (
            "item,clicked,time,session\na,0,20240101,s\na,0,20240101,s\n",
            r"row 2: items \(impressions\[\*\].item\): item 'a' appears twice",
        ),
        (
            "item,clicked,time,rank\na,0,20240101,0\nb,0,20240101,-1\n",
            r"row 2: positions \(impressions\[\*\].rank\): a position counts from the top",
        ),
        (
            "item,clicked,time,rank\na,0,20240101,first\n",
            r"row 1: positions \(impressions\[\*\].rank\): 'first' is not a whole number",
        ),
        (
            "item,clicked,time\na,0,20240101\nb,seldom,20240101\n",
            r"row 2: clicked \(impressions\[\*\].clicked\): 'seldom' is neither",
        ),
        (
            "item,clicked,time\na,0,20240101\n,0,20240101\n",
            r"row 2: items \(impressions\[\*\].item\): is missing",
        ),
        (
            "item,clicked,time\na,0,-1\n",
            r"row 1: time \(time\): the time '-1' is outside of the years 1990 to 2099",
        ),
        (
            "item,clicked,time,dwell_ms\na,1,20240101,-9\n",
            r"row 1: dwell_ms \(impressions\[\*\].dwell_ms\): a dwell time",
        ),
        (
            "list_id,item,clicked,time\nx,a,0,20240101\ny,a,0,20240101\nx,b,0,20240101\n",
            r"row 3: list_id \(list_id\): list 'x' continues after other rows",
        ),
        (
            "items,clicks,time\na|b,c,20240101\n",
            r"row 1: clicks \(clicks\): a click on 'c', which is not shown",
        ),
        ("items,clicks,time\na|b,a,20240101\n,,20240101\n", r"row 2: items \(items\): is missing"),
        ("items,clicks,time\na|b|a,a,20240101\n", r"row 1: items \(items\): item 'a' appears twice"),
        (
            "items,clicks,time,positions\na|b,a,20240101,3|3\n",
            r"row 1: positions \(positions\): position 3 appears twice",
        ),
        (
            "items,clicks,time,positions\na|b,a,20240101,3\n",
            r"row 1: positions \(positions\): 1 values for 2",
        ),
        (
            "items,clicks,time,clicked_at\na|b,a|b,20240101,20240103\n",
            r"row 1: clicked_at \(clicked_at\): 1 values for 2",
        ),
        ("items,clicks,time\na,[a,20240101\n", r"row 1: column 'clicks': not a JSON list"),
        (
            'items,clicks,time\na,"[{""id"": 1}]",20240101\n',
            r"row 1: clicks \(clicks\[\*\].item\): is missing",
        ),
        ("item,time\na,20240101\n", r"which column is clicked\? Use --field clicked=COLUMN"),
        ("item,clicked,time\n", r"there are no rows"),
    ],
)
def test_a_bad_table_is_refused_by_place(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(SourceError, match=told) as caught:
        opened(write(tmp_path, text))
    assert "log.csv" in str(caught.value)


GOOD: dict[str, Any] = {"items": ["a", "b"], "clicks": [], "shown_at_ms": T}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"positions": [1, 1]}, r"row 2: positions \(positions\): position 1 appears twice"),
        ({"positions": [1, -1]}, r"row 2: positions \(positions\): a position counts"),
        (
            {"clicks": [{"item": "c"}]},
            r"row 2: clicks \(clicks\[\*\].item\): a click on 'c', which is not shown",
        ),
        (
            {"clicks": [{"item": "a", "time_ms": -2}]},
            r"row 2: clicked_at \(clicks\[\*\].time_ms\): the time -2 is",
        ),
        (
            {"clicks": [{"item": "a", "dwell_ms": -1}]},
            r"row 2: dwell_ms \(clicks\[\*\].dwell_ms\): a dwell time",
        ),
        ({"shown_at_ms": -1}, r"row 2: time \(shown_at_ms\): the time -1 is outside"),
        ({"shown_at_ms": None}, r"row 2: time \(shown_at_ms\): is missing"),
        ({"items": []}, r"row 2: items \(items\): nothing was shown"),
        ({"space": "other"}, r"row 2: space: 'other', and the load is for 'shop'"),
        ({"query_vector": [float("nan"), 1]}, r"row 2: x \(query_vector\): number 0 is"),
        ({"query_vector": [1]}, r"row 2: a query vector of {'x': 1} numbers, but others have {'x': 2}"),
    ],
)
def test_a_bad_line_is_refused_by_place(tmp_path: Path, change: Mapping[str, Any], told: str) -> None:
    lines = [{**GOOD, "clicks": [{"item": "a", "dwell_ms": 1}], "query_vector": [1, 2]}, {**GOOD, **change}]
    with pytest.raises(SourceError, match=told) as caught:
        opened(write(tmp_path, "\n".join(map(json.dumps, lines)), "log.jsonl"))
    assert "log.jsonl" in str(caught.value)


@pytest.mark.parametrize("value", ["nan", "inf", "1e300", "", "x"])
def test_a_query_vector_that_is_not_finite_is_refused(tmp_path: Path, value: str) -> None:
    text = f"item,clicked,time,q,r\na,0,20240101,1,2\na,0,20240101,{value},3\n"
    with pytest.raises(SourceError, match=r"row 2: x \(q,r\): number 0 is"):
        opened(write(tmp_path, text), {"query_vector": "q,r"})


@pytest.mark.parametrize(
    ("name", "text", "given", "error", "told"),
    [
        (
            "log.csv",
            "item,clicked\na,0\n",
            {},
            SourceError,
            "--field time=@timestamp for the time of sending",
        ),
        ("log.jsonl", '{"items": ["a"], "clicks": []}', {}, SourceError, "which column is time"),
        ("log.csv", "item,clicked,at\na,0,1\n", {"item": "@key", **NOW}, SourceError, "no column '@key'"),
    ],
)
def test_the_time_has_to_be_said(
    tmp_path: Path, name: str, text: str, given: dict[str, str], error: type[KinstreamError], told: str
) -> None:
    with pytest.raises(error, match=told):
        opened(write(tmp_path, text, name), given)


def test_a_list_that_fits_into_no_block_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    lines = [GOOD, {**GOOD, "items": [f"item {n}" for n in range(40_000)]}]
    name = write(tmp_path, "\n".join(map(json.dumps, lines)), "log.jsonl")
    with pytest.raises(SourceError, match=r"row 2: \d+ bytes do not fit into a block"):
        PhasedLoad("clicks", [opened(name)], "shop")
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
    number = st.none() | st.floats(allow_nan=False, allow_infinity=False, width=32)
    column = st.lists(number, min_size=len(items), max_size=len(items))
    named = {name: draw(column) for name in ("bm25", "price")}
    kinds = st.sampled_from([None, None, "purchase", "hover"])
    clicks = tuple(one._replace(action=draw(kinds)) for one in clicks)
    scores = Scores.of(named) if draw(st.booleans()) else None
    return Click(
        "s", draw(NAMES), items, positions, clicks, shown, session, user, item, query, None, address, scores
    )


def test_an_address_comes_from_a_column_that_was_named_and_never_by_guess(tmp_path: Path) -> None:
    text = "items,clicks,shown_at,address\na|b,b,1704067200,9c1d\na|b,,1704067260,\n"
    name = write(tmp_path, text)
    assert [one.address for one in sent(name)] == [None, None]
    named = {"address": "address"}
    assert [one.address for one in sent(name, named)] == ["9c1d", None]
    lines = [{"items": ["a"], "clicks": [], "shown_at_ms": T, "address": one} for one in ("9c1d", None)]
    name = write(tmp_path, "\n".join(map(json.dumps, lines)), "log.jsonl")
    assert [one.address for one in sent(name)] == ["9c1d", None]
    rows = "item,clicked,time,hash\na,1,20240101,9c1d\n"
    reading = {"address": "hash"}
    assert [one.address for one in sent(write(tmp_path, rows), reading)] == ["9c1d"]


@pytest.mark.long
@given(st.lists(a_list(), min_size=1, max_size=12), st.booleans())
def test_a_block_holds_its_lists_and_is_no_larger_than_was_reckoned(lists: list[Click], scored: bool) -> None:
    # Of lists that are mapped alike, all have scores or none.
    lists = [one for one in lists if (one.scores is not None) is scored]
    if not lists:
        return
    block = click_block(lists, "s", 0)
    assert same(lists_of(block), lists)
    assert len(encode(block)) <= sum(map(click_bytes, lists)) + 256 + 32
