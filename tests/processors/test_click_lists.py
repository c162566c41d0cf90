"""The rule `click-list`: a whole list as pairs of its query, whatever was clicked."""

from __future__ import annotations

import numpy as np
import pytest

from kinstream.processors.base.builder import Origin
from kinstream.processors.clicks.clicks import Clicks
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.codec.codec import decode_constraints, encode
from kinstream.streams.records.values import LIST_RULE, ConstraintBlock, Kind
from tests.processors.click_samples import NOW, block_of, preferring, shown, with_items

LIST = "i1 i2 i3 i4 i5"


def read(block: ConstraintBlock) -> list[tuple[int, str, int]]:
    """Event, item and sign of each pair."""
    events = np.arange(1, len(block) + 1) if block.events is None else block.events
    return [
        (int(event), f"i{block.tables[0].vectors[item, 0]:.0f}", int(sign))
        for event, (_, item), sign in zip(events, block.index, block.signs, strict=True)
    ]


def at_once(items: str) -> list[tuple[str, int]]:
    return [(item, 10) for item in items.split()]


def lists(*clicked: str, **settings: object) -> ConstraintBlock:
    builder = with_items(Clicks(rules=(LIST_RULE,), **settings))  # type: ignore[arg-type]
    clicks = [shown(f"l{n}", LIST, at_once(items), user=f"u{n}") for n, items in enumerate(clicked)]
    (found,) = builder.process(block_of(clicks), Origin(offset=1, append_ms=NOW)).blocks
    decoded = decode_constraints(encode(found))
    assert isinstance(decoded, ConstraintBlock) and decoded.kind is Kind.PAIR
    assert decoded.rules == (LIST_RULE,)
    return decoded


def test_a_list_is_an_event_of_what_was_clicked_and_what_was_passed_over() -> None:
    found = lists("i2 i4", "i1", "i5")
    assert read(found) == [
        *((1, item, 1) for item in ("i2", "i4")),
        *((1, item, -1) for item in ("i1", "i3")),
        (2, "i1", 1),
        (3, "i5", 1),
        *((3, item, -1) for item in ("i1", "i2", "i3", "i4")),
    ]
    # The query of a list is the first vector of each of its pairs.
    assert len({tuple(found.tables[0].vectors[row]) for row in found.index[:, 0]}) == 1


def test_a_click_on_the_first_item_is_lost_by_the_other_rules() -> None:
    builder = with_items(preferring())
    assert not builder.process(shown("l", LIST, at_once("i1")), Origin(offset=1, append_ms=NOW)).blocks
    assert read(lists("i1")) == [(1, "i1", 1)]


def test_clicks_are_weighed_by_their_place() -> None:
    found = lists("i1", "i4", bias="weights")
    # Over the mean of all weights so far: of the fourth item one for its click, and three for what it was preferred to.
    assert found.weights[found.signs > 0] == pytest.approx([1.0, 4.0 / ((1.0 + 4 * 4.0) / 5)])


def test_what_cannot_go_with_it_is_refused() -> None:
    with pytest.raises(SettingsError, match="goes with co-click alone, not with click-skip-above"):
        Clicks(rules=("click-skip-above", LIST_RULE))
    with pytest.raises(SettingsError, match="compares two items"):
        Clicks(rules=(LIST_RULE,), bias="fair-pairs")
    assert Clicks(rules=(LIST_RULE, "co-click")).emits == {Kind.PAIR}
