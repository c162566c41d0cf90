"""Open Bandit end to end: items, then all 40,000 impressions, through producers, builder and learner.

It holds single impressions without query or session, and 207 clicks. A preference needs a query and a second item of
the list, and a co-click a second click for the query in the session: so **no constraint** comes of it, under any rules,
and everything must come out as counted. What is expected is counted here from the file, with the csv module alone.
"""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinstream.processors.clicks.clicks import RULES
from kinstream.processors.clicks.counts import FATES
from kinstream.producers.items.categories import Hashed, OneHot
from kinstream.producers.items.source import open_items
from kinstream.producers.loads.phased_load import PhasedLoad
from kinstream.producers.sources.file_events import open_events
from kinstream.streams.errors import Reason
from kinstream.streams.records.message import Output
from kinstream.streams.records.values import Action, ClickBlock, Control, ItemBlock, Table
from tests.clicks.stream import (
    CONSTRAINTS,
    SPACE,
    Stream,
    builder_stream,
    constraint_blocks,
    learner_stream,
    letters,
    refusals,
)

#: 2019-12-01T00:00:00Z: the impressions are all of the week before.
NOW = 1_575_158_400_000
HOUR = 3_600_000
DAY = 24 * HOUR
USER = [f"user_feature_{n}" for n in range(4)]
GIVEN = {"id": "campaign,item_id", "vector": "item_feature_0"}


@pytest.fixture(scope="module")
def tables() -> dict[Path, list[dict[str, str]]]:
    """Files that were read, by path."""
    return {}


def impressions(folder: Path, tables: dict[Path, list[dict[str, str]]]) -> list[dict[str, str]]:
    path = folder / "obd_clicks.csv.gz"
    if path not in tables:
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            tables[path] = list(csv.DictReader(stream))
    return tables[path]


def time_ms(row: dict[str, str]) -> int:
    return int(datetime.fromisoformat(row["timestamp"]).timestamp() * 1_000_000 + 0.5) // 1000


def item_blocks(folder: Path) -> list[ItemBlock]:
    categories: Any = {"x": [OneHot("item_feature_1"), Hashed("item_feature_2", 16)]}
    load = PhasedLoad("items", [open_items(str(folder / "obd_items.csv"), GIVEN, categories)], SPACE)
    blocks = list(load.blocks(NOW - 8 * DAY))
    assert all(isinstance(block, ItemBlock) for block in blocks)
    return [block for block in blocks if isinstance(block, ItemBlock)]


def only(block: ItemBlock, campaign: str) -> ItemBlock:
    """The items of one campaign."""
    rows = [n for n, item in enumerate(block.ids) if item.startswith(campaign)]
    tables = tuple(Table(table.name, np.ascontiguousarray(table.vectors[rows])) for table in block.tables)
    # Each part is a load of its own: a repeated place in a load would count as sent twice.
    return replace(block, ids=tuple(block.ids[n] for n in rows), tables=tables, load=None)


def click_blocks(folder: Path, **columns: str) -> Iterator[ClickBlock]:
    given = {"item": "campaign,item_id", **columns}
    opened = open_events(str(folder / "obd_clicks.csv.gz"), "clicks", SPACE, given, first_position=1)
    load = PhasedLoad("clicks", [opened], SPACE)
    for block in load.blocks(NOW):
        assert isinstance(block, ClickBlock)
        yield block


def followed(builder: Stream, learner: Stream, outputs: list[Output]) -> int:
    """Hand what the builder emitted to the learner; returns how many constraints there were."""
    for output in outputs:
        if output.topic == CONSTRAINTS and output.value is not None:
            assert not letters(learner(output.value, output.headers))
    return sum(len(block) for block in constraint_blocks(outputs))


def adds_up(fates: dict[str, int]) -> bool:
    return all(
        fates.get(total, 0) == sum(fates.get(name, 0) for name in parts) for total, parts in FATES.items()
    )


def test_by_default_every_impression_is_a_list_without_query(
    data_folder: Path, tables: dict[Path, list[dict[str, str]]]
) -> None:
    rows = impressions(data_folder, tables)
    clicked = sum(row["click"] == "1" for row in rows)
    assert (len(rows), clicked) == (40_000, 207)
    builder, learner = builder_stream(NOW), learner_stream(NOW)
    outputs = builder(Control(SPACE, Action.CREATE, NOW))
    assert [output.topic for output in outputs] == [CONSTRAINTS]
    assert followed(builder, learner, outputs) == 0
    records, constraints = 1, 0
    blocks: list[ItemBlock | ClickBlock] = [*item_blocks(data_folder), *click_blocks(data_folder)]
    for block in blocks:
        outputs = builder(block)
        records += 1
        constraints += followed(builder, learner, outputs)
        assert letters(outputs) == []
    assert constraints == 0
    assert builder.fates() == {
        "lists": len(rows),
        "no-query-vector": len(rows),
        "impressions": len(rows),
        "impressions-clicked": clicked,
        "impressions-unexamined": len(rows) - clicked,
        "clicks": clicked,
        "clicks-used": clicked,
    }
    assert adds_up(builder.fates())
    assert builder.machine.dead == {}
    assert builder.machine.counts["applied"] == records - 1
    # The learner has the space from the control record, and has learned nothing.
    space = learner.machine.find(SPACE)
    assert space is not None
    assert space.step == 0
    assert (learner.machine.dead, learner.offset) == ({}, 1)


def test_every_filter_leaves_out_exactly_what_it_should(
    data_folder: Path, tables: dict[Path, list[dict[str, str]]]
) -> None:
    """All rules; users are told by their four features; one campaign is not in the catalogue at first.

    The file is four weeks one after the other (two policies, two campaigns), all of the same seven days, so that a
    limit of a day for what is late hits most of it.
    """
    rows = impressions(data_folder, tables)
    cap, late_ms = 1, DAY
    expected: Counter[str] = Counter()
    refused: list[tuple[tuple[str, ...], int, int]] = []
    watermark = -1
    in_hour: Counter[tuple[tuple[str, ...], int]] = Counter()
    for row in rows:
        click, time = int(row["click"]), time_ms(row)
        user, hour = tuple(row[name] for name in USER), time // HOUR
        expected.update({"lists": 1, "impressions": 1, "clicks": click})
        floor, watermark = watermark - late_ms, max(watermark, time)
        if time < floor:
            expected.update({"late": 1, "impressions-left-out": 1, "clicks-left-out": click})
            continue
        in_hour[user, hour] += click
        if in_hour[user, hour] > cap or in_hour[user, hour - 1] > cap:
            expected.update({"bot": 1, "impressions-left-out": 1, "clicks-left-out": click})
            continue
        expected["no-query-vector"] += 1
        if row["campaign"] == "women":
            refused.append((user, hour, click))
            expected.update({"impressions-refused": 1, "clicks-refused": click})
        else:
            kept = "impressions-clicked" if click else "impressions-unexamined"
            expected.update({kept: 1, "clicks-used": click})
    assert min(expected["late"], expected["bot"], len(refused), expected["clicks-used"]) > 0

    builder = builder_stream(
        NOW,
        rules=list(RULES),
        co_click_support=1,
        max_clicks_per_hour=cap,
        max_late_ms=late_ms,
    )
    learner = learner_stream(NOW)
    for block in item_blocks(data_folder):
        builder(only(block, "men/"))
    found, constraints = [], 0
    for clicks in click_blocks(data_folder, user=",".join(USER)):
        outputs = builder(clicks)
        constraints += followed(builder, learner, outputs)
        found += letters(outputs)
    assert constraints == 0
    assert builder.fates() == {name: n for name, n in expected.items() if n}
    assert adds_up(builder.fates())
    dead = list(zip(found, refusals(found), strict=True))
    late = [part for _, (reason, part) in dead if reason == Reason.LATE_LIST.value]
    unknown = [(letter, part) for letter, (reason, part) in dead if reason == Reason.UNKNOWN_ITEM.value]
    assert sum(len(part or ()) for part in late) == expected["late"]
    assert sum(len(part or ()) for _, part in unknown) == len(refused)
    assert builder.machine.dead == {
        Reason.UNKNOWN_ITEM.value: len(unknown),
        Reason.LATE_LIST.value: len(late),
    }
    found = [letter for letter, _ in unknown]

    # The campaign comes, and the letters are redriven. By now more voters have been found out as bots; all other lists
    # are used, and still there is nothing to learn.
    for block in item_blocks(data_folder):
        builder(only(block, "women/"))
    assert [outputs for letter in found for outputs in builder.again(letter)] == []
    assert builder.machine.counts["redriven"] == len(found)
    for user, hour, click in refused:
        expected.update({"lists": 1, "impressions": 1, "clicks": click})
        if in_hour[user, hour] > cap or in_hour[user, hour - 1] > cap:
            expected.update({"bot": 1, "impressions-left-out": 1, "clicks-left-out": click})
        else:
            kept = "impressions-clicked" if click else "impressions-unexamined"
            expected.update({"no-query-vector": 1, kept: 1, "clicks-used": click})
    assert builder.fates() == {name: n for name, n in expected.items() if n}
    assert adds_up(builder.fates())
