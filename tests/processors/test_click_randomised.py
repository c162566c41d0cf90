"""Preferences of randomised lists: only within pairs that were drawn, and unbiased where naive ones are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from kinstream.gate.lists.list_id import Shown
from kinstream.gate.lists.randomisation import randomise, read
from kinstream.processors.base.builder import Origin
from kinstream.processors.clicks.clicks import Clicks
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.gate import Version
from kinstream.streams.records.randomised_id import DrawKind
from kinstream.streams.records.values import LIST_RULE, Click
from tests.gate.gates import KEYS, drafted, respelled
from tests.processors.click_samples import NOW, block_of, preferring, rows_of, shown, told, with_items

RANKING = ("i1", "i2", "i3", "i4", "i5")
SPACE = shown("a", RANKING).space


def ready(**settings: object) -> Clicks:
    return with_items(preferring(**{"bias": "randomised", **settings}))


def drawn(nonce: int, kind: DrawKind = DrawKind.FAIR_PAIRS, space: str = SPACE) -> Shown:
    head = nonce.to_bytes(6, "big")
    return randomise(KEYS, space, Version(1, 0, 5), RANKING, 5, kind=kind, depth=5, time_ms=1, nonce=head)


def pairs_of(one: Shown) -> tuple[tuple[int, int], ...]:
    found = read(KEYS, SPACE, one.list_id)
    assert found is not None
    return found.drawn.pairs


def stated(click: Click, **settings: object) -> list[tuple[str, str]]:
    """The preferences of one list, as (preferred, other)."""
    made = told(ready(**settings).process(click, Origin(offset=1, append_ms=NOW)))
    return [(winner, other) for _, winner, other in made]


@pytest.mark.parametrize("prefix", ["ki1.", "ki2."])
@pytest.mark.parametrize("bias", ["none", "randomised"])
def test_other_spellings_of_an_id_are_no_further_lists(prefix: str, bias: str) -> None:
    list_id = drawn(1).list_id if prefix == "ki2." else drafted(1, space=SPACE)
    others = sorted(
        text
        for text in respelled(list_id, prefix)
        if text.isascii() and "%" not in text and prefix * 2 not in text
    )
    builder = with_items(preferring(bias=bias))
    for offset, text in enumerate((list_id, *others), 10):
        made = told(
            builder.process(shown(text, RANKING, [("i3", 1)], user="u"), Origin(offset, append_ms=NOW))
        )
        assert offset == 10 or not made
    counts = builder.counts()
    assert (counts["duplicate-list"], counts["lists"]) == (len(others), len(others) + 1)


@pytest.mark.parametrize("kind", DrawKind)
def test_only_a_click_on_the_lower_item_of_a_drawn_pair_states_a_preference(kind: DrawKind) -> None:
    for nonce in range(8):
        one = drawn(nonce, kind)
        uppers = {lower: upper for upper, lower in pairs_of(one)}
        for place, item in enumerate(one.items):
            found = stated(shown(one.list_id, one.items, [(item, 1)]))
            assert found == ([(item, one.items[uppers[place]])] if place in uppers else [])
        # A click on both says nothing about the two.
        for lower, upper in uppers.items():
            both = [(one.items[upper], 1), (one.items[lower], 2)]
            assert (one.items[lower], one.items[upper]) not in stated(shown(one.list_id, one.items, both))


def test_lists_without_an_id_or_with_a_broken_one_state_nothing_and_are_counted() -> None:
    one = drawn(1)
    for list_id in (
        "q-17",
        "ki1." + one.list_id[4:],
        one.list_id[:30],
        "ki2.",
        "ki2.!",
        drawn(1, space="b").list_id,
    ):
        builder = ready()
        click = shown(list_id, one.items, [(one.items[4], 1)])
        assert builder.process(click, Origin(offset=1, append_ms=NOW)).blocks == []
        counts = builder.counts()
        assert counts["preferences"] == counts["not-fair-pair"] == 4


def test_a_pair_that_came_back_otherwise_than_it_was_shown_states_nothing() -> None:
    one = next(one for one in map(drawn, range(20)) if pairs_of(one)[0] == (0, 1))
    a, b, c, d, e = one.items
    fair = {(b, a), (d, c)}
    clicks = [(b, 1), (d, 2)]

    def found(items: Sequence[str], positions: Sequence[int] | None = None) -> set[tuple[str, str]]:
        more = {} if positions is None else {"positions": list(positions)}
        return set(stated(shown(one.list_id, list(items), clicks, **more)))  # type: ignore[arg-type]

    assert found(one.items) == fair
    # An item above all, a part of the list, and positions that begin at 1 change nothing within the pairs.
    assert found(["i6", *one.items]) == fair
    assert found([a, b, c, d]) == fair
    assert found(one.items, range(1, 6)) == fair
    # An item between the two, the other order, and a gap end a pair.
    assert found([a, e, b, c, d]) == {(d, c)}
    assert found([b, a, c, d, e]) == {(d, c)}
    assert found(one.items, [0, 2, 3, 4, 5]) == {(d, c)}


def test_preferences_of_fair_pairs_are_unbiased_and_naive_ones_are_not() -> None:
    """Users look at place k with probability 1/k, and click what they look at with the relevance of the item.

    With the pair (a, b) at places (k, k + 1), each order with probability 1/2, b is preferred over a with probability
    r_b / (k + 1) (1 - r_a / k) / 2. So b wins more often exactly if r_b > r_a (Radlinski and Joachims 2006).
    """
    relevance = dict(zip(RANKING, (0.5, 0.5, 0.2, 0.6, 0.6), strict=True))
    count, draw = 12_000, np.random.default_rng(3)
    naive, fair = with_items(preferring(vote_window_ms=0)), ready(vote_window_ms=0)
    totals: dict[str, Counter[tuple[str, str]]] = {"naive": Counter(), "fair": Counter()}
    lists: dict[str, list[Click]] = {"naive": [], "fair": []}
    for nonce in range(count):
        one = drawn(nonce)
        for name, items, list_id in (("naive", RANKING, f"l{nonce}"), ("fair", one.items, one.list_id)):
            chances = [relevance[item] / (place + 1) for place, item in enumerate(items)]
            clicked = [item for item, p in zip(items, chances, strict=True) if draw.random() < p]
            if clicked:
                lists[name].append(shown(list_id, items, [(item, 1) for item in clicked]))
    for name, builder in (("naive", naive), ("fair", fair)):
        made = builder.process(block_of(lists[name]), Origin(offset=1, append_ms=NOW))
        assert all(weight == 1 for _, weight, _ in rows_of(made.blocks))
        totals[name].update((winner, other) for _, winner, other in told(made))
    for k, (a, b) in enumerate(pairwise(RANKING), 1):
        # A pair is drawn if the pairs begin at its parity: with probability 1/2.
        for winner, loser in ((a, b), (b, a)):
            chance = relevance[winner] / (k + 1) * (1 - relevance[loser] / k) / 4
            spread = (count * chance * (1 - chance)) ** 0.5
            assert abs(totals["fair"][winner, loser] - count * chance) < 4 * spread, (winner, loser)
        net = totals["fair"][b, a] - totals["fair"][a, b]
        wanted = count * (relevance[b] - relevance[a]) / (k + 1) / 4
        assert abs(net - wanted) < 4 * (totals["fair"][b, a] + totals["fair"][a, b]) ** 0.5
        # The rules alone prefer the lower one, whatever its relevance is.
        assert totals["naive"][a, b] == 0 < totals["naive"][b, a]
    assert set(totals["fair"]) == {
        pair for n in range(4) for pair in (RANKING[n : n + 2], RANKING[n : n + 2][::-1])
    }


def test_a_block_of_lists_is_read_as_single_lists_are() -> None:
    lists = []
    for nonce in range(30):
        one = drawn(nonce, DrawKind(nonce % 2))
        lists.append(shown(one.list_id, one.items, [(one.items[nonce % 5], 1)], user=f"u{nonce}"))
    whole = told(ready().process(block_of(lists), Origin(offset=1, append_ms=NOW)))
    single = ready()
    assert whole == [
        row
        for click in lists
        for row in told(single.process(replace(click), Origin(offset=1, append_ms=NOW)))
    ]
    assert whole


def test_whole_lists_are_refused() -> None:
    with pytest.raises(SettingsError, match="bias randomised compares two items"):
        Clicks(rules=(LIST_RULE,), bias="randomised")
