"""The Open Bandit impressions as they are: no query, no session, so each is a list of its own."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import Any

import pytest

from kinstream.producers.items.categories import Hashed, OneHot
from kinstream.producers.items.source import open_items
from kinstream.producers.loads.phased_load import PhasedLoad
from kinstream.producers.sources.file_events import open_events
from kinstream.streams.records.values import ClickBlock
from tests.producers.block_contents import items_of, lists_of

ITEM = {"item": "campaign,item_id"}


def opened(clicks: Path) -> Any:
    return open_events(str(clicks), "clicks", "obd", ITEM, first_position=1)


@pytest.fixture
def clicks(data_folder: Path) -> Path:
    return data_folder / "obd_clicks.csv.gz"


def test_each_impression_is_a_list_with_its_position_and_click(clicks: Path) -> None:
    load = PhasedLoad("clicks", [opened(clicks)], "obd", 1000)
    blocks = list(load.blocks())
    found = [click for block in blocks for click in lists_of(block)]
    with gzip.open(clicks, "rt", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert len(found) == len(rows) == load.rows == 40_000
    assert load.facts == {
        "impressions": 40_000,
        "clicks": 207,
        "lists_without_click": 39_793,
        "lists_without_query": 40_000,
    }
    for row, click in zip(rows, found, strict=True):
        assert click.items == (f"{row['campaign']}/{row['item_id']}",)
        assert click.positions == (int(row["position"]) - 1,)
        assert bool(click.clicks) == (row["click"] == "1")
        assert (click.session, click.user, click.query_item, click.query_vector) == (None, None, None, ())
    assert found[0].shown_at_ms == 1_574_553_663_979
    assert len({click.list_id for click in found}) == 40_000


def test_a_load_goes_on_in_the_middle_of_the_packed_file(clicks: Path) -> None:
    load = PhasedLoad("clicks", [opened(clicks)], "obd", 1000)
    cuts = list(load.cuts())
    rest = list(load.cuts(cuts[30].after))
    assert len(rest) == len(cuts) - 31
    one, other = load.block(rest[0], 31, 0), load.block(cuts[31], 31, 0)
    assert isinstance(one, ClickBlock)
    assert isinstance(other, ClickBlock)
    assert one.list_ids == other.list_ids


def test_the_catalogue_has_every_item_that_is_shown(data_folder: Path, clicks: Path) -> None:
    given = {"id": "campaign,item_id", "vector": "item_feature_0"}
    categories: Any = {"x": [OneHot("item_feature_1"), Hashed("item_feature_2", 16)]}
    items = PhasedLoad("items", [open_items(str(data_folder / "obd_items.csv"), given, categories)], "obd")
    catalogue = {name for block in items.blocks() for name in items_of(block)[0]}
    shown = {
        name
        for cut in PhasedLoad("c", [opened(clicks)], "obd").cuts()
        for c in cut.rows.entries
        for name in c.items
    }
    assert shown <= catalogue
