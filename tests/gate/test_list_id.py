"""Ids of drafted lists: whoever has the key reads them, and nobody else learns or changes anything."""

from __future__ import annotations

import base64
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from kinstream.gate.lists.draft import SIDES, Side, team_draft
from kinstream.gate.lists.list_id import (
    MAX_ITEMS,
    PREFIX,
    Impression,
    Keys,
    list_id_of,
    mark_of,
    read,
    show,
)
from kinstream.gate.lists.randomisation import randomise
from kinstream.streams.records import randomised_id
from kinstream.streams.records.gate import UNADAPTED, Version
from kinstream.streams.records.randomised_id import DrawKind, as_text, bytes_of
from tests.gate.gates import damaged, respelled

KEYS = Keys("a secret of the tests")
NONCE = b"nonce!"
VERSIONS = st.just(UNADAPTED) | st.builds(
    Version, st.integers(1, 2**31 - 1), st.integers(0, 2**62), st.integers(0, 2**62)
)


@st.composite
def impressions(draw: st.DrawFn) -> Impression:
    n = draw(st.integers(0, MAX_ITEMS))
    shared = draw(st.booleans())
    return Impression(
        draw(st.integers(0, 2**48 - 1)),
        draw(VERSIONS),
        draw(VERSIONS),
        tuple(draw(st.lists(st.integers(0, 2**24 - 1), min_size=n, max_size=n))),
        tuple(draw(st.lists(st.sampled_from(Side if shared else SIDES), min_size=n, max_size=n))),
        frozenset(draw(st.sets(st.integers(0, n - 1)))) if n else frozenset(),
        frozenset(draw(st.sets(st.sampled_from(SIDES)))),
        shared,
    )


@pytest.mark.long
@settings(deadline=None)
@given(impressions(), st.text(min_size=1, max_size=20), st.binary(min_size=6, max_size=6))
def test_what_is_written_is_read(one: Impression, space: str, nonce: bytes) -> None:
    assert read(KEYS, space, list_id_of(KEYS, space, one, nonce)) == one


def test_an_id_of_an_earlier_version_is_read() -> None:
    """Its draft gave items that both sides wanted to the one that a coin chose."""
    keys = Keys("a secret of a deployment")
    list_id = "ki1.AAAAAAPocmFuZG9tv6CzdAlXZmXNeHKCx-3RMRLOLJ2IEu9xxlAD3TCWrLdI"
    marks = tuple(mark_of("docs", item) for item in "abcd")
    picks = (Side.CANDIDATE, Side.SERVING, Side.SERVING, Side.CANDIDATE)
    assert read(keys, "docs", list_id) == Impression(
        1_000, UNADAPTED, Version(1, 0, 500), marks, picks, frozenset({3}), frozenset(), shared=False
    )


def _shown(query: int = 0, size: int = 10) -> tuple[str, tuple[str, ...]]:
    rankings = (
        (UNADAPTED, [f"i{k}" for k in range(10)]),
        (Version(1, 0, 500), [f"i{k}" for k in range(9, -1, -1)]),
    )
    shown = show(KEYS, "docs", rankings, size, time_ms=1_700_000_000_000, nonce=query.to_bytes(6, "big"))
    return shown.list_id, shown.items


def test_any_changed_bit_another_space_and_another_key_are_detected() -> None:
    list_id, _ = _shown()
    for changed in damaged(list_id, PREFIX):
        assert read(KEYS, "docs", changed) is None, changed
    assert read(KEYS, "other", list_id) is None
    assert read(Keys("another secret of the tests"), "docs", list_id) is None
    assert read(KEYS, "docs", list_id) is not None


@settings(deadline=None, max_examples=20)
@given(impressions(), st.binary(min_size=6, max_size=6))
def test_an_id_has_one_spelling(one: Impression, nonce: bytes) -> None:
    list_id = list_id_of(KEYS, "docs", one, nonce)
    for text in respelled(list_id, PREFIX):
        assert read(KEYS, "docs", text) is None, text
    for prefix in ("", "KI1.", "ki2.", " ki1.", "ki1"):
        assert read(KEYS, "docs", prefix + list_id.removeprefix(PREFIX)) is None


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**48 - 1), st.lists(st.sampled_from("abcdefgh"), unique=True))
def test_an_id_of_a_randomised_list_is_no_id_of_a_drafted_one(nonce: int, items: list[str]) -> None:
    """Its bytes have a tag that is right, if what the tag is of begins with its own prefix."""
    for kind in DrawKind:
        shown = randomise(
            KEYS, "docs", UNADAPTED, items, 8, kind=kind, depth=4, time_ms=7, nonce=nonce.to_bytes(6)
        )
        raw = bytes_of(randomised_id.PREFIX, shown.list_id)
        assert raw is not None
        assert read(KEYS, "docs", as_text(PREFIX, randomised_id.PREFIX.encode() + raw)) is None
        assert read(KEYS, "docs", as_text(PREFIX, raw)) is None


@given(st.text(max_size=200))
def test_no_text_is_an_error(text: str) -> None:
    assert read(KEYS, "docs", text) is None
    assert read(KEYS, "docs", PREFIX + text) is None


def test_a_list_of_ten_fits_a_hundred_characters() -> None:
    rankings = (
        (Version(3, 120_034, 520_000), [f"i{k}" for k in range(10)]),
        (Version(3, 120_034, 530_000), [f"j{k}" for k in range(10)]),
    )
    shown = show(KEYS, "docs", rankings, 10, time_ms=1_700_000_000_000, nonce=NONCE)
    assert len(shown.list_id) <= 100
    assert shown.list_id.isascii()
    assert set(shown.list_id[len(PREFIX) :]) <= set(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    )


def test_the_id_says_whose_pick_every_item_was_and_clicks_are_credited_by_it() -> None:
    for query in range(200):
        list_id, items = _shown(query)
        impression = read(KEYS, "docs", list_id)
        assert impression is not None
        assert impression.marks == tuple(mark_of("docs", item) for item in items)
        head = (1_700_000_000_000).to_bytes(6, "big") + query.to_bytes(6, "big")
        first, second = [f"i{k}" for k in range(10)], [f"i{k}" for k in range(9, -1, -1)]
        draft = team_draft(first, second, 10, seed=KEYS.seed, impression=f"docs/{head.hex()}")
        assert (draft.items, draft.picks) == (items, impression.picks)
        for item, pick in zip(items, impression.picks, strict=True):
            sign, ranking = (1, second) if pick is Side.CANDIDATE else (-1, first)
            credit, clicked = impression.outcome("docs", [item, "not shown"])
            assert credit == pytest.approx(sign / math.log2(2 + ranking.index(item)))
            assert clicked == frozenset({mark_of("docs", item)})
        assert impression.outcome("docs", ["not shown"]) == (0, frozenset())


def test_new_items_and_empty_rankings_are_carried() -> None:
    rankings: Any = ((UNADAPTED, ["a", "b"]), (Version(1, 0, 1), []))
    shown = show(KEYS, "docs", rankings, 5, time_ms=9, nonce=NONCE, fresh={"b", "z"})
    found = read(KEYS, "docs", shown.list_id)
    assert found is not None
    assert (found.empty, found.fresh) == (frozenset({Side.CANDIDATE}), frozenset({1}))
    assert found.picks == (Side.SERVING, Side.SERVING)


def test_ids_do_not_show_who_picks_first() -> None:
    """The bit of the first pick, encrypted, is as often 1 as 0 for either side: chi-squared over 2,000 ids."""
    places = {True: [0, 0], False: [0, 0]}
    for query in range(2_000):
        list_id, _ = _shown(query)
        text = list_id.removeprefix(PREFIX)
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        found = read(KEYS, "docs", list_id)
        assert found is not None
        # Time, nonce, flags, count; 3 and 3 bytes and one more of the step's 2: the picks begin after them.
        at = 6 + 6 + 2 + 3 + 4
        places[found.picks[0] is Side.CANDIDATE][raw[at] & 1] += 1
    assert stats.chi2_contingency([places[True], places[False]]).pvalue > 1e-4


@pytest.mark.parametrize("share", [0.0, 0.05, 0.2, 1.0])
def test_a_query_is_always_or_never_drafted_and_the_share_is_kept(share: float) -> None:
    n = 20_000
    chosen = [KEYS.chosen("docs", f"query {k}".encode(), share) for k in range(n)]
    assert chosen == [KEYS.chosen("docs", f"query {k}".encode(), share) for k in range(n)]
    assert stats.binomtest(sum(chosen), n, share).pvalue > 1e-4


def test_a_larger_share_keeps_the_queries_of_a_smaller_one() -> None:
    queries = [f"query {k}".encode() for k in range(2_000)]
    few, many = ({q for q in queries if KEYS.chosen("docs", q, share)} for share in (0.1, 0.3))
    assert few < many
