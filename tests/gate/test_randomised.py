"""Randomised lists of one model: fair draws, permutations of the ranking, and ids that only the key reads."""

from __future__ import annotations

import base64
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from kinstream.gate.lists import list_id as drafted
from kinstream.gate.lists.list_id import Keys, Shown
from kinstream.gate.lists.randomisation import Randomised, list_id_of, randomise, read
from kinstream.search.drafts.randomising import Randomising
from kinstream.streams.records.gate import UNADAPTED, Version
from kinstream.streams.records.randomised_id import (
    PLAIN_PREFIX,
    PREFIX,
    DrawKind,
    Drawn,
    as_text,
    mark_of,
    one_spelling,
    parts_of,
)
from kinstream.streams.settings import RandomiseSettings, Settings
from tests.gate.gates import KEYS, SECRET, damaged, respelled

MODEL = Version(1, 0, 500)
RANKING = tuple("abcdefgh")
DRAWS = 2_000


def drawn(kind: DrawKind, nonce: int, ranking: tuple[str, ...] = RANKING, depth: int = 10) -> Shown:
    return randomise(
        KEYS,
        "docs",
        MODEL,
        ranking,
        len(ranking),
        kind=kind,
        depth=depth,
        time_ms=1_700_000_000_000,
        nonce=nonce.to_bytes(6, "big"),
    )


def known(list_id: str) -> Randomised:
    found = read(KEYS, "docs", list_id)
    assert found is not None
    return found


def fair(count: int, of: int, probability: float) -> bool:
    return bool(stats.binomtest(count, of, probability).pvalue > 1e-4)


def moved(items: tuple[str, ...]) -> list[tuple[int, int]]:
    """The pairs of places that were exchanged, found from the list alone."""
    at = {item: place for place, item in enumerate(items)}
    pairs = [(n, at[item]) for n, item in enumerate(RANKING) if at[item] > n]
    assert all(items[upper] == RANKING[lower] for upper, lower in pairs)
    return pairs


def test_fair_pairs_exchanges_neighbours_half_of_the_time_from_the_first_place_or_the_second() -> None:
    starts: Counter[int] = Counter()
    swaps: Counter[tuple[int, int]] = Counter()
    together: Counter[bool] = Counter()
    for nonce in range(DRAWS):
        shown = drawn(DrawKind.FAIR_PAIRS, nonce)
        pairs = known(shown.list_id).drawn.pairs
        start = pairs[0][0]
        assert pairs == tuple((n, n + 1) for n in range(start, 7, 2))
        found = moved(shown.items)
        assert set(found) <= set(pairs)
        starts[start] += 1
        swaps.update(found)
        together[(pairs[0] in found) == (pairs[1] in found)] += 1
    assert set(starts) == {0, 1} and fair(starts[0], DRAWS, 0.5)
    for upper in range(7):
        assert fair(swaps[upper, upper + 1], starts[upper % 2], 0.5), upper
    # Coins of two pairs do not depend on one another.
    assert fair(together[True], DRAWS, 0.5)


def test_swaps_exchanges_the_first_place_and_each_other_one_equally_often() -> None:
    places: Counter[int] = Counter()
    swaps: Counter[int] = Counter()
    for nonce in range(DRAWS):
        shown = drawn(DrawKind.SWAPS, nonce, depth=5)
        ((upper, lower),) = known(shown.list_id).drawn.pairs
        found = moved(shown.items)
        assert upper == 0 and found in ([], [(0, lower)])
        places[lower] += 1
        swaps[lower] += len(found)
    assert set(places) == {1, 2, 3, 4}
    for lower, count in places.items():
        assert fair(count, DRAWS, 0.25) and fair(swaps[lower], count, 0.5), lower


@settings(deadline=None)
@given(
    st.sampled_from(DrawKind),
    st.lists(st.text(max_size=3), max_size=300),
    st.integers(1, 300),
    st.integers(2, 255),
    st.binary(min_size=6, max_size=6),
)
def test_a_list_is_a_permutation_of_the_ranking_and_its_id_says_which(
    kind: DrawKind, ranking: list[str], size: int, depth: int, nonce: bytes
) -> None:
    shown = randomise(KEYS, "docs", MODEL, ranking, size, kind=kind, depth=depth, time_ms=7, nonce=nonce)
    best = list(dict.fromkeys(ranking))[: min(size, 255)]
    assert sorted(shown.items) == sorted(best) and len(set(shown.items)) == len(shown.items)
    found = known(shown.list_id)
    assert (found.model, found.time_ms, found.drawn.kind) == (MODEL, 7, kind)
    assert found.drawn.marks == tuple(mark_of("docs", item) for item in shown.items)
    assert found.ranking == tuple(mark_of("docs", item) for item in best)
    again = list(shown.items)
    for (upper, lower), swapped in zip(found.drawn.pairs, found.swapped, strict=True):
        if swapped:
            again[upper], again[lower] = again[lower], again[upper]
    assert again == best
    if kind is DrawKind.SWAPS:
        assert all(lower < depth for _, lower in found.drawn.pairs)
    # Everybody can read the pairs and the marks.
    parts = parts_of(shown.list_id)
    assert parts is not None and parts.drawn == found.drawn


@pytest.mark.long
@settings(deadline=None)
@given(
    st.integers(0, 2**48 - 1),
    st.just(UNADAPTED) | st.builds(Version, st.integers(1, 9), st.integers(0, 2**62), st.integers(0, 2**62)),
    st.integers(2, 255),
    st.data(),
)
def test_what_is_written_is_read(time_ms: int, model: Version, count: int, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(DrawKind))
    place = data.draw(st.integers(0, 1) if kind is DrawKind.FAIR_PAIRS else st.integers(1, count - 1))
    marks = data.draw(st.lists(st.integers(0, 2**24 - 1), min_size=count, max_size=count))
    one = Drawn(kind, place, tuple(marks))
    swapped = tuple(data.draw(st.lists(st.booleans(), min_size=len(one.pairs), max_size=len(one.pairs))))
    whole = Randomised(time_ms, model, one, swapped)
    assert known(list_id_of(KEYS, "docs", whole, b"nonce!")) == whole


@pytest.mark.parametrize("kind", DrawKind)
def test_any_changed_bit_another_space_and_another_key_are_detected(kind: DrawKind) -> None:
    list_id = drawn(kind, 3).list_id
    for changed in damaged(list_id, PREFIX):
        assert read(KEYS, "docs", changed) is None, changed
    assert read(KEYS, "other", list_id) is None
    assert read(Keys("another secret of the tests"), "docs", list_id) is None
    # An id of one form is no id of the other form.
    assert drafted.read(KEYS, "docs", list_id) is None
    assert drafted.read(KEYS, "docs", drafted.PREFIX + list_id.removeprefix(PREFIX)) is None


@pytest.mark.parametrize("kind", DrawKind)
def test_an_id_has_one_spelling(kind: DrawKind) -> None:
    for nonce in range(40):
        list_id = drawn(kind, nonce, RANKING[: nonce % 8]).list_id
        for text in respelled(list_id, PREFIX):
            assert read(KEYS, "docs", text) is None and parts_of(text) is None, text


@pytest.mark.parametrize("prefix", [PREFIX, drafted.PREFIX, PLAIN_PREFIX])
def test_every_spelling_of_an_id_counts_as_one_list(prefix: str) -> None:
    """Whatever kind of list a service has shown: the click builder and the gate's exposure count it once."""
    for size in (12, 25, 37):
        made = as_text(prefix, bytes(range(251 - size, 251)))
        text = made.removeprefix(prefix)
        others = {text + "==", f" {text}", text[:9] + "\n" + text[9:]}
        assert {one_spelling(prefix + one) for one in others} == {made} == {one_spelling(made)}


@given(st.text(max_size=200), st.binary(max_size=60))
def test_no_text_is_an_error(text: str, raw: bytes) -> None:
    for tail in (text, base64.urlsafe_b64encode(raw).rstrip(b"=").decode()):
        assert read(KEYS, "docs", PREFIX + tail) is None
        assert parts_of(tail) is None
        parts_of(PREFIX + tail)


def test_the_id_does_not_show_what_was_swapped_or_whose_list_it_is() -> None:
    """Bits of the encrypted part are as often set for swapped pairs as for others."""
    ids = [drawn(DrawKind.SWAPS, nonce, depth=2).list_id for nonce in range(DRAWS)]
    bits = {False: 0, True: 0}
    seen = {False: 0, True: 0}
    for list_id in ids:
        parts = parts_of(list_id)
        (swapped,) = known(list_id).swapped
        assert parts is not None and len(parts.body) == 5
        bits[swapped] += parts.body[-1] & 1
        seen[swapped] += 1
    for swapped, count in seen.items():
        assert fair(bits[swapped], count, 0.5)


def test_a_list_of_ten_fits_a_hundred_characters() -> None:
    assert len(drawn(DrawKind.FAIR_PAIRS, 1, tuple("abcdefghij")).list_id) <= 100


def test_the_share_is_disjoint_from_the_drafted_one() -> None:
    section = RandomiseSettings(kind="fairpairs", share=0.3)
    randomising = Randomising("docs", KEYS, section, drafted=0.2)
    queries = [f"query {n}".encode() for n in range(5_000)]
    rows = set(randomising.rows(queries, None, 10))
    drafted = {n for n, query in enumerate(queries) if KEYS.chosen("docs", query, 0.2)}
    assert not rows & drafted
    assert fair(len(rows), len(queries), 0.3) and fair(len(drafted), len(queries), 0.2)
    assert rows == set(randomising.rows(queries, None, 10))
    # With both shares at one half, each query is one of the two.
    rest = Randomising("docs", KEYS, RandomiseSettings(kind="swaps", share=0.8), drafted=0.2)
    assert set(rest.rows(queries, None, 10)) | drafted == set(range(len(queries)))
    assert randomising.rows(queries, None, 256) == []
    by_name = [bool(randomising.rows([b"1", b"2"], f"session {n}", 10)) for n in range(2_000)]
    assert fair(sum(by_name), 2_000, 0.3)


def test_shares_of_more_than_all_queries_and_a_missing_key_are_refused() -> None:
    def read_settings(**sections: object) -> Settings:
        return Settings.model_validate(sections)

    shares = {"docs": {"kind": "swaps", "share": 0.9}}
    with pytest.raises(ValueError, match=r"randomise\.docs\.share: 0\.9 of the queries.* together at most 1"):
        read_settings(gate={"docs": {"share": 0.2}}, randomise=shares, gate_key=SECRET)
    read_settings(gate={"shop": {"share": 0.2}}, randomise=shares, gate_key=SECRET)
    with pytest.raises(ValueError, match=r"\[randomise.SPACE\] or record of a space needs a key"):
        read_settings(randomise=shares)
    with pytest.raises(ValueError, match="kind"):
        read_settings(randomise={"docs": {"kind": "plackett"}}, gate_key=SECRET)
