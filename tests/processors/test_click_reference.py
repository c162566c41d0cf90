"""The click builder equals a slow transcription of its rules and filters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kinstream.processors.base.builder import Made, Origin
from kinstream.processors.clicks.clicks import EVICTED, RETRACTED, RULES, Clicks
from kinstream.processors.clicks.counts import FATES
from kinstream.streams.records.values import Click, Kind, LoadPosition
from tests.processors.bounds import clicks
from tests.processors.click_reference import Found, Reference
from tests.processors.click_samples import NOW, block_of, items, random_click, rows_of

KNOWN = [f"i{n}" for n in range(7)]

SETTINGS = st.fixed_dictionaries(
    {"rules": st.lists(st.sampled_from(RULES), min_size=1, unique=True)},
    optional={
        "min_dwell_ms": st.integers(0, 15),
        "vote_window_ms": st.integers(0, 200),
        "support": st.integers(1, 3),
        "co_click_support": st.integers(1, 2),
        "support_window_ms": st.integers(1, 300),
        "max_per_session": st.integers(0, 6),
        "max_clicks_per_hour": st.integers(0, 8),
        "max_clicks_per_address": st.integers(0, 8),
        "max_lists_per_day": st.integers(0, 4),
        "keep_capped": st.booleans(),
        "max_list": st.integers(3, 8),
        "max_per_list": st.integers(1, 6),
        "max_late_ms": st.integers(0, 300),
        "max_ahead_ms": st.integers(0, 50),
        "bias": st.sampled_from(["none", "weights", "fair-pairs"]),
        "bias_exponent": st.sampled_from([0.0, 0.5, 1.0, 2.0]),
        "max_weight": st.sampled_from([1.0, 3.0, 10.0]),
    },
)
#: (lists, whether they come as a block, append time, whether they stand in a load)
EVENTS = st.lists(
    st.tuples(
        st.lists(random_click(), min_size=1, max_size=4),
        st.booleans(),
        st.sampled_from([NOW, 300, 400]),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


def refused_rows(made: Made) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for error in made.refused:
        assert error.rows
        found.setdefault(error.reason.value, []).extend(error.rows)
    return {reason: sorted(rows) for reason, rows in found.items()}


def same(made: Made, found: Found) -> None:
    triplets = [row for row in rows_of([b for b in made.blocks if b.kind is Kind.TRIPLET])]
    assert [row[::2] for row in triplets] == [row[::2] for row in found.triplets]
    for row, expected in zip(triplets, found.triplets, strict=True):
        assert abs(row[1] - expected[1]) < 1e-4
    assert rows_of([b for b in made.blocks if b.kind is Kind.PAIR]) == found.pairs
    assert refused_rows(made) == {reason: sorted(rows) for reason, rows in found.refused.items()}


def adds_up(builder: Clicks) -> None:
    counts = builder.counts()
    for total, fates in FATES.items():
        assert counts[total] == sum(counts[name] for name in fates), total


def feed(
    builder: Clicks,
    reference: Reference,
    lists: Sequence[Click],
    whole: bool,
    append_ms: int,
    load: bool,
    at: int,
) -> list[tuple[Any, ...]]:
    """Give both the same; returns what was refused, as (event, lists, rows)."""
    bad = []
    groups = [list(lists)] if whole else [[one] for one in lists]
    for number, group in enumerate(groups):
        place = LoadPosition("load", 100 * at + number) if load else None
        event = block_of(group, place) if whole else with_load(group[0], place)
        made = builder.process(event, Origin(at, append_ms))
        same(made, reference.process(group, append_ms=append_ms, load=load))
        rows = sorted(row for error in made.refused for row in error.rows or ())
        bad.append((event, group, load, rows))
    return bad


def with_load(click: Click, load: LoadPosition | None) -> Click:
    return replace(click, load=load)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(EVENTS, SETTINGS, st.data())
def test_the_builder_equals_the_reference(
    events: list[tuple[list[Click], bool, int, bool]], chosen: dict[str, Any], data: st.DataObject
) -> None:
    builder, reference = clicks(**chosen), Reference(**chosen)
    builder.process(items(KNOWN), Origin(0))
    reference.known = set(KNOWN)
    bad = []
    for at, (lists, whole, append_ms, load) in enumerate(events, 1):
        bad += feed(builder, reference, lists, whole, append_ms, load, at)
        adds_up(builder)
    # Some items come, one goes, and part of what was refused is brought back.
    builder.process(items(["i7"], gone=["i1"]), Origin(90))
    reference.known = (reference.known | {"i7"}) - {"i1"}
    for event, group, load, rows in bad:
        if not rows:
            continue
        back = data.draw(st.lists(st.sampled_from(rows), min_size=1, unique=True))
        rest = tuple(row for row in rows if row not in back)
        made = builder.process(event, Origin(99, NOW, tuple(back), rest))
        same(made, reference.process(group, append_ms=NOW, load=load, rows=back, still=rest))
        adds_up(builder)
    counts = builder.counts()
    # Nothing is taken back but the item that goes.
    assert (counts.pop(EVICTED), counts.pop(RETRACTED)) == (0, 1)
    assert counts == {name: reference.counts[name] for name in counts}


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(random_click(), min_size=1, max_size=8), SETTINGS)
def test_a_block_of_lists_makes_what_the_lists_make_one_by_one(
    lists: list[Click], chosen: dict[str, Any]
) -> None:
    whole, single = clicks(**chosen), clicks(**chosen)
    for builder in (whole, single):
        builder.process(items(KNOWN), Origin(0))
    together = whole.process(block_of(lists), Origin(1, 300))
    apart = [single.process(one, Origin(1, 300)) for one in lists]
    for kind in Kind:
        assert rows_of([b for b in together.blocks if b.kind is kind]) == [
            row for made in apart for row in rows_of([b for b in made.blocks if b.kind is kind])
        ]
    assert whole.counts() == single.counts()
