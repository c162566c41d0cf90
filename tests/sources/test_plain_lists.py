"""Plain lists, read together, are what reading them value by value gives; all others are left to it."""

from __future__ import annotations

import json
import random
from typing import Any

import orjson
import pytest

from kinstream.producers.sources.lists import ClickLists
from kinstream.producers.sources.values.fields import Fields
from kinstream.producers.sources.values.foreign_record import Incoming, Together
from kinstream.producers.sources.values.paths import compile_path
from kinstream.streams.errors import BadRecord
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.message import Message
from kinstream.streams.records.values import Loaded
from tests.sources.shop import SEARCH, search
from tests.sources.test_fuzz import _mutated

#: Changes to the fields of a source, the number of its top rank, and whether its lists are plain.
CHANGES: tuple[tuple[dict[str, Any], int, bool], ...] = (
    ({}, 0, True),
    ({"positions": None}, 0, True),
    ({"time": None, "clicked_at": None}, 0, True),
    ({"time": "@timestamp", "list_id": "@key"}, 0, True),
    ({"list_id": "@key.id", "user": "payload.results[0].sku"}, 0, True),
    ({"items": "payload.results[*].sku", "clicks": "payload.results[*].sku", "clicked_at": None}, 0, True),
    ({}, -3, True),
    ({"space": "payload.query.sku", "user": "payload.results[-1].price.amount"}, 0, False),
    (
        {"items": "payload.query.filters.brand", "clicks": "payload.user.segments", "positions": None},
        0,
        False,
    ),
    ({"items": "payload.results[*].price.currency", "clicks": "payload.clicks[*].sku"}, 0, False),
    ({"query_vector": "payload.results[*].rank"}, 0, True),
    ({"dwell_ms": "payload.clicks[*].at"}, 0, False),
    ({"clicks": None, "clicked": "payload.results[*].rank", "clicked_at": None}, 0, False),
    ({}, 1, False),
)
KEYS = (None, b"k", b"\xff", b'{"id": 1}', b'{"id": "one"}', b"")
TIMES = (1_777_636_800_000, -1, 0)


def _fields(changes: dict[str, Any]) -> dict[str, str]:
    return {name: path for name, path in {**SEARCH["fields"], **changes}.items() if path is not None}


def _told(made: list[Loaded]) -> list[bytes]:
    return [encode(one) for one in made]


def _of(lists: Any, record: Incoming) -> list[bytes] | tuple[Any, ...]:
    try:
        return _told(lists(record))
    except BadRecord as error:
        return error.reason, error.detail, error.rows


@pytest.mark.parametrize("changes, first, are_plain", CHANGES)
def test_both_ways_make_the_same_lists_and_the_same_refusals(
    changes: dict[str, Any], first: int, are_plain: bool
) -> None:
    rng = random.Random(str(changes))
    lists = ClickLists(Fields("clicks", _fields(changes), ""), first)
    good = [search(number, rng) for number in range(30)]
    plain = refused = 0
    for number in range(400):
        value = rng.choice(good)
        value = _mutated(value, rng) if rng.random() < 0.8 else value
        # As the format parses it: 2**80 is a float, and two surrogates are one character.
        value = orjson.loads(json.dumps(value))
        if not isinstance(value, dict):
            continue
        log = Message("shop.search", 0, number, rng.choice(TIMES), rng.choice(KEYS), b"", (), number - 1)
        slow = _of(lists.value_by_value, Incoming(log, value))
        assert _of(lists, Incoming(log, value)) == slow
        refused += isinstance(slow, tuple)
        plain += _is_plain(lists, Incoming(log, value))
    assert refused > 30
    # Otherwise nothing was compared.
    assert plain > 30 or not are_plain


def _is_plain(lists: ClickLists, record: Incoming) -> bool:
    try:
        return lists.plain(record) is not None
    except BadRecord:
        return False


@pytest.mark.parametrize("part", range(20))
def test_paths_read_together_give_what_each_gives(part: int) -> None:
    rng = random.Random(part)
    known = (
        *SEARCH["fields"].values(),
        *(
            "@key",
            "@key.id",
            "@timestamp",
            "meta",
            "payload.results",
            "payload.results[*]",
            "payload.results[1]",
        ),
        *("payload.results[*].price.amount", "payload.results[*].price", "payload.query.filters.brand[-1]"),
        *(
            "payload",
            "payload.results[0].sku",
            "payload.query.filters.brand[*]",
            "nowhere.at.all",
            "[0]",
            "[*].id",
        ),
    )
    paths = [compile_path(text) if text else None for text in rng.choices((*known, ""), k=rng.randint(1, 12))]
    together = Together(paths)
    for number in range(30):
        value = _mutated(search(number, rng), rng)
        log = Message("shop.search", 0, number, number, b'{"id": 3}', b"", (), number - 1)
        record = Incoming(log, value)
        assert together(record) == tuple(None if path is None else record.at(path) for path in paths)
