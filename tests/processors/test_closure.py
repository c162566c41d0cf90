"""The closure builder holds and gives exactly what the four rules of the OAHU paper give."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinstream.processors.base.builder import Builder, Origin, Segmented
from kinstream.processors.closure.closure import Closure
from kinstream.processors.registry import create
from kinstream.streams.checkpoints.state_bytes import to_bytes
from kinstream.streams.errors import BadRecord, Reason, SettingsError
from kinstream.streams.records.codec.codec import decode, encode
from kinstream.streams.records.scores import Scores
from kinstream.streams.records.values import Click, ConstraintBlock, ItemClick, LoadPosition, Relation
from tests.processors.bounds import closure
from tests.processors.closure_reference import Reference, fixpoint, triplet_count, triplets
from tests.processors.closure_samples import (
    SPACE,
    Said,
    builder_of,
    items,
    pairs_of,
    relations,
    samples,
    tell,
    triplets_of,
    unlimited,
)

N = 8
SOURCES = st.sampled_from(["ann", "bob", "cem", None])
SAID = st.lists(
    st.tuples(st.integers(0, N - 1), st.integers(0, N - 1), st.booleans(), SOURCES).filter(
        lambda t: t[0] != t[1]
    ),
    min_size=1,
    max_size=30,
)
CUTS = st.sets(st.integers(1, 29), max_size=5)
GONE = st.dictionaries(st.integers(0, 29), st.integers(0, N - 1), max_size=2)


def cut(said: list[Said], cuts: set[int]) -> list[list[Said]]:
    edges = sorted({0, len(said), *(c for c in cuts if c < len(said))})
    return [said[low:high] for low, high in pairwise(edges)]


def holds(builder: Closure, similar: set[frozenset[int]], dissimilar: set[frozenset[int]]) -> None:
    """The builder's graph is the fixpoint."""
    for left in range(N):
        for right in range(left + 1, N):
            pair = frozenset((left, right))
            expected = 1 if pair in similar else -1 if pair in dissimilar else 0
            try:
                found = builder.explain(f"item {left}", f"item {right}")
            except SettingsError:
                assert expected == 0
                continue
            assert (0 if found is None else 1 if found.similar else -1) == expected
            if found is not None:
                chain_is_sound(found.links, left, right, expected)


def chain_is_sound(links: tuple[object, ...], left: int, right: int, sign: int) -> None:
    at = f"item {left}"
    for link in links:
        assert link.left == at  # type: ignore[attr-defined]
        at = link.right  # type: ignore[attr-defined]
    assert at == f"item {right}"
    assert sum(not link.similar for link in links) == (sign < 0)  # type: ignore[attr-defined]


def check_against_reference(builder: Closure, reference: Reference, said: list[Said], cuts: set[int]) -> None:
    fates: Counter[str] = Counter()
    offset = 1
    for block in cut(said, cuts):
        made = tell(builder, *block, offset=offset)
        expected_pairs: list[set[tuple[frozenset[int], bool]]] = []
        expected_triplets: set[tuple[int, int, int]] = set()
        count = 0
        refused = []
        for row, (left, right, alike, source) in enumerate(block):
            fate, new_pairs, new_triplets = reference.take(left, right, alike, source)
            fates[fate] += 1
            if fate == "contradiction":
                refused.append(row)
            if new_pairs:
                expected_pairs.append(new_pairs)
            expected_triplets |= new_triplets
            count += len(new_triplets)
        found = pairs_of(made.blocks)
        at = 0
        for new_pairs in expected_pairs:
            some = found[at : at + len(new_pairs)]
            assert {(pair, sign > 0) for pair, sign, *_ in some} == new_pairs
            assert [derived for *_, derived in some] == [False] + [True] * (len(some) - 1)
            assert [rule for _, _, rule, _ in some] == ["closure-seed"] + [
                "closure-similar" if sign > 0 else "closure-dissimilar" for _, sign, *_ in some[1:]
            ]
            at += len(new_pairs)
        assert at == len(found)
        made_triplets = triplets_of(made.blocks)
        assert len(made_triplets) == count
        assert set(made_triplets) == expected_triplets
        rows = [row for error in made.refused for row in error.rows or ()]
        assert rows == refused
        assert all(error.reason is Reason.CONTRADICTION for error in made.refused)
        offset += 1
    similar, dissimilar = fixpoint(reference.seeds)
    holds(builder, similar, dissimilar)
    for fate, number in fates.items():
        assert builder.counts()[fate] == number


@settings(deadline=None, max_examples=200)
@given(SAID, CUTS)
def test_it_is_the_fixpoint_of_the_four_rules(said: list[Said], cuts: set[int]) -> None:
    check_against_reference(unlimited(N), Reference(), said, cuts)


@pytest.mark.long
@settings(deadline=None, max_examples=200)
@given(SAID, CUTS, st.integers(1, 3))
def test_votes_count_by_their_net(said: list[Said], cuts: set[int], support: int) -> None:
    builder = unlimited(N, contradictions="support", support=support)
    check_against_reference(builder, Reference(support), said, cuts)


@pytest.mark.long
@settings(deadline=None, max_examples=100)
@given(SAID)
def test_triplets_are_as_many_as_the_specification_says(said: list[Said]) -> None:
    builder = unlimited(N, emit="triplets")
    reference = Reference()
    total = 0
    for number, relation in enumerate(said):
        total += len(triplets_of(tell(builder, relation, offset=number).blocks))
        reference.take(*relation[:3])
        similar, dissimilar = fixpoint(reference.seeds)
        assert total == triplet_count(similar, dissimilar, range(N)) == len(triplets(similar, dissimilar))
    assert builder.counts()["derived"] == total


@settings(deadline=None, max_examples=100)
@given(SAID, st.integers(1, 4), st.integers(1, 4), st.integers(0, 5))
def test_capped_it_gives_each_at_most_once_and_no_more_than_the_caps(
    said: list[Said], most_pairs: int, most_triplets: int, seed: int
) -> None:
    builder = builder_of(
        N, max_new_pairs=most_pairs, max_new_triplets=most_triplets, max_component=0, seed=seed
    )
    reference = Reference()
    seen_pairs: set[frozenset[int]] = set()
    seen_triplets: set[tuple[int, int, int]] = set()
    withheld = 0
    for number, relation in enumerate(said):
        made = tell(builder, relation, offset=number)
        fate, new_pairs, new_triplets = reference.take(*relation[:3])
        pairs, three = pairs_of(made.blocks), triplets_of(made.blocks)
        assert len(pairs) == min(len(new_pairs), most_pairs + 1)
        assert len(three) == min(len(new_triplets), most_triplets)
        assert {(pair, sign > 0) for pair, sign, *_ in pairs} <= new_pairs
        assert set(three) <= new_triplets
        assert len(set(three)) == len(three)
        if fate == "accepted":
            assert pairs[0][0] == frozenset(relation[:2])
        assert not seen_pairs & {pair for pair, *_ in pairs}
        assert not seen_triplets & set(three)
        seen_pairs |= {pair for pair, *_ in pairs}
        seen_triplets |= set(three)
        withheld += len(new_pairs) - len(pairs)
    assert builder.counts()["pairs-withheld"] == withheld


@settings(deadline=None, max_examples=100)
@given(SAID, GONE)
def test_an_erased_item_links_and_is_never_given_again(said: list[Said], gone: dict[int, int]) -> None:
    builder = unlimited(N)
    reference = Reference()
    for number, (left, right, alike, _) in enumerate(said):
        if number in gone:
            builder.process(items([], [gone[number]]), Origin(number))
            reference.gone.add(gone[number])
        made = tell(builder, (left, right, alike, None), offset=number)
        if reference.gone & {left, right}:
            assert [error.reason for error in made.refused] == [Reason.UNKNOWN_ITEM]
            assert not made.blocks
            continue
        _, new_pairs, new_triplets = reference.take(left, right, alike)
        assert {(pair, sign > 0) for pair, sign, *_ in pairs_of(made.blocks)} == new_pairs
        found = triplets_of(made.blocks)
        assert sorted(found) == sorted(new_triplets)


def test_an_item_that_comes_back_is_another_one() -> None:
    builder = unlimited(4)
    tell(builder, (0, 1, True, None), (1, 2, True, None))
    builder.process(items([1], []), Origin(2))
    assert builder.counts()["erased"] == 0
    builder.process(items([], [1]), Origin(3))
    builder.process(items([1]), Origin(4))
    made = tell(builder, (1, 3, True, None), (0, 3, False, None), offset=5)
    assert [pair for pair, *_ in pairs_of(made.blocks)] == [
        frozenset((1, 3)),
        frozenset((0, 3)),
        *[pair for pair, *_ in pairs_of(made.blocks)[2:]],
    ]
    assert {pair for pair, *_ in pairs_of(made.blocks)} == {
        frozenset(p) for p in ((1, 3), (0, 3), (0, 1), (2, 1), (2, 3))
    }
    found = builder.explain("item 0", "item 2")
    assert found is not None
    assert [(link.left, link.right) for link in found.links] == [("item 0", None), (None, "item 2")]


def test_draws_without_replacement_are_uniform() -> None:
    counts: Counter[frozenset[int]] = Counter()
    chain = [(n, n + 1, True, None) for n in range(3)] + [(n, n + 1, True, None) for n in range(4, 7)]
    for seed in range(600):
        builder = builder_of(N, emit="pairs", max_new_pairs=5, seed=seed)
        tell(builder, *chain)
        counts.update(
            pair for pair, _, _, derived in pairs_of(tell(builder, (0, 7, True, None)).blocks) if derived
        )
    assert len(counts) == 15
    # 600 draws of 5 of 15: each 200 times; chi-square of 14 degrees over the share that can vary.
    assert sum((n - 200) ** 2 / (200 * (1 - 1 / 3)) for n in counts.values()) < 36.1


def test_triplet_draws_are_uniform_over_all_kinds() -> None:
    """A merge with neighbours on either side and a shared one brings every kind of new triplet."""
    said = [
        (0, 1, True),
        (2, 3, True),
        (4, 5, True),
        (6, 7, True),
        (0, 4, False),
        (2, 6, False),
        (0, 8, False),
    ]
    said += [(2, 8, False), (8, 9, True)]
    every = unlimited(10, emit="triplets")
    before = [(left, right, alike, None) for left, right, alike in said]
    tell(every, *before)
    expected = set(triplets_of(tell(every, (1, 3, True, None)).blocks))
    counts: Counter[tuple[int, int, int]] = Counter()
    rounds, most = 1500, 10
    for seed in range(rounds):
        builder = builder_of(10, emit="triplets", max_new_triplets=most, seed=seed)
        tell(builder, *before)
        counts.update(triplets_of(tell(builder, (1, 3, True, None), offset=2).blocks))
    assert set(counts) == expected
    share = most / len(expected)
    mean = rounds * share
    spread = sum((n - mean) ** 2 / (mean * (1 - share)) for n in counts.values()) / (len(expected) - 1)
    assert 0.6 < spread < 1.5


def test_the_budget_holds_at_every_seed() -> None:
    builder = unlimited(60, budget=1.0)
    rng = np.random.default_rng(3)
    for offset in range(200):
        left, right = rng.choice(60, 2, replace=False).tolist()
        made = tell(builder, (left, right, bool(left % 3 == right % 3), None), offset=offset)
        counts = builder.counts()
        assert counts["derived"] <= counts["accepted"]
        assert (
            sum(derived for *_, derived in pairs_of(made.blocks)) + len(triplets_of(made.blocks))
            <= counts["accepted"]
        )
    assert builder.counts()["derived"] >= builder.counts()["accepted"] - 1
    none = unlimited(60, budget=0.0)
    made = tell(none, (0, 3, True, None), (3, 6, True, None))
    assert [derived for *_, derived in pairs_of(made.blocks)] == [False, False]


def test_ten_thousand_relations_merge_one_component() -> None:
    n = 10_001
    builder = builder_of(n)
    rng = np.random.default_rng(0)
    order = rng.permutation(n)
    made = tell(builder, *[(int(order[k]), int(order[rng.integers(k)]), True, None) for k in range(1, n)])
    counts = builder.counts()
    assert counts["accepted"] == 10_000
    assert counts["component-over-cap"] > 0
    assert len(pairs_of(made.blocks)) == 10_000 + counts["derived"]
    assert builder.explain("item 0", "item 9999") is not None
    # A component beyond the cap derives nothing more, but knows.
    again = tell(builder, (0, 1, True, None), (5, 9, False, None), offset=2)
    assert not again.blocks
    assert builder.counts()["known"] == 1
    assert again.refused[0].rows == (1,)


def test_contradictions_in_a_tight_loop_change_nothing() -> None:
    builder = builder_of(6)
    tell(builder, (0, 1, True, "ann"), (1, 2, True, "bob"), (2, 3, False, "cem"), offset=7)
    before = {k: v for k, v in builder.state().items() if k != "counts"}
    for offset in range(8, 108):
        made = tell(builder, *[(0, 3, True, "dan"), (0, 2, False, None)] * 50, offset=offset)
        assert not made.blocks
        assert len(made.refused) == 17
        assert sorted(row for error in made.refused for row in error.rows or ()) == list(range(100))
    assert builder.counts()["contradiction"] == 10_000
    after = {k: v for k, v in builder.state().items() if k != "counts"}
    assert all(np.array_equal(after[name], before[name]) for name in before)


def test_a_contradiction_names_both_provenances() -> None:
    builder = builder_of(6)
    tell(builder, (0, 1, True, "ann"), offset=7)
    tell(builder, (1, 2, False, "bob"), offset=8)
    (error,) = tell(builder, (2, 0, True, "cem"), offset=9).refused
    assert error.reason is Reason.CONTRADICTION
    assert error.detail == (
        "items 'item 2' and 'item 0' are stated to be similar (relation, offset 9 row 0, source 'cem', "
        "1970-01-01T00:00:00Z), against 'item 1' and 'item 2' dissimilar (relation, offset 8 row 0, source 'bob', "
        "1970-01-01T00:00:00Z); 'item 0' and 'item 1' similar (relation, offset 7 row 0, source 'ann', "
        "1970-01-01T00:00:00Z)"
    )


@pytest.mark.parametrize("pair", [(0, 2), (2, 0), (1, 2), (2, 1)])
def test_of_two_dissimilar_relations_that_became_one_the_older_is_named(pair: tuple[int, int]) -> None:
    for first, second in ((0, 1), (1, 0)):
        builder = builder_of(3)
        tell(builder, (first, 2, False, None), offset=11)
        tell(builder, (second, 2, False, None), offset=12)
        tell(builder, (0, 1, True, None), offset=13)
        (error,) = tell(builder, (*pair, True, None), offset=14).refused
        assert "offset 11" in error.detail
        assert "offset 12" not in error.detail


def test_a_relation_of_an_item_with_itself_and_one_of_an_unknown_item_are_refused_by_row() -> None:
    builder = builder_of(3)
    made = tell(builder, (0, 1, True, None), (2, 2, True, None), (1, 9, True, None), (1, 2, False, None))
    assert [(e.reason, e.rows) for e in made.refused] == [
        (Reason.BAD_SHAPE, (1,)),
        (Reason.UNKNOWN_ITEM, (2,)),
    ]
    assert builder.counts()["accepted"] == 2


def test_a_redrive_takes_its_rows_alone() -> None:
    builder = builder_of(3)
    block = relations([(0, 1, True, None), (1, 9, True, None), (2, 8, True, None)])
    assert builder.process(block, Origin(1)).refused[0].rows == (1, 2)
    builder.process(items([9]), Origin(2))
    made = builder.process(block, Origin(3, rows=(1, 2)))
    assert {pair for pair, *_ in pairs_of(made.blocks)} == {frozenset((1, 9)), frozenset((0, 9))}
    assert [(e.reason, e.rows) for e in made.refused] == [(Reason.UNKNOWN_ITEM, (2,))]
    assert builder.counts()["known"] == 0


def test_a_single_relation_is_a_block_of_one() -> None:
    one, other = builder_of(3), builder_of(3)
    single = Relation(SPACE, "item 0", "item 1", True, 100, "ann")
    made = one.process(single, Origin(4)).blocks
    assert [encode(b) for b in made] == [encode(b) for b in tell(other, (0, 1, True, "ann"), offset=4).blocks]
    itself = one.process(Relation(SPACE, "item 0", "item 0", True, 100), Origin(5))
    assert itself.refused[0].reason is Reason.BAD_SHAPE


def test_the_draws_follow_the_place_in_the_load_and_not_the_offset() -> None:
    def made(load: LoadPosition | None, offset: int, seed: int = 0) -> list[bytes]:
        builder = builder_of(40, max_new_pairs=5, max_new_triplets=5, seed=seed)
        said: list[Said] = [(n, n + 1, n % 10 != 9, None) for n in range(39)]
        return [encode(b) for b in builder.process(relations(said, load), Origin(offset)).blocks]

    assert made(LoadPosition("a", 3), 1) == made(LoadPosition("a", 3), 9)
    assert made(None, 1) != made(None, 9)
    assert made(None, 1) != made(None, 1, seed=1)


# ---- labels -----------------------------------------------------------------------------------------------------


def test_labelled_samples_are_similar_in_their_class_and_dissimilar_across() -> None:
    labels = [0, 1, 0, 2, 1, 0]
    builder = unlimited(0)
    made = builder.process(samples(range(6), labels), Origin(1))
    found = pairs_of(made.blocks)
    expected = {
        (frozenset((a, b)), 1 if labels[a] == labels[b] else -1) for a, b in permutations(range(6), 2)
    }
    assert {(pair, sign) for pair, sign, *_ in found} == expected
    assert len(found) == len(expected)
    assert len(triplets_of(made.blocks)) == sum(
        labels[a] == labels[p] != labels[n] for a, p, n in permutations(range(6), 3)
    )


def test_samples_without_ids_and_labels_that_contradict() -> None:
    builder = unlimited(0)
    block = samples([0, 1, 2], ["a", "b", "a"])
    builder.process(block, Origin(1))
    again = builder.process(samples([0, 2, 1], ["a", "b", "c"]), Origin(2))
    assert [error.rows for error in again.refused] == [(1,), (2,)]
    assert builder.counts()["known"] == 1
    builder.process(replace(block, ids=None), Origin(3))
    assert builder.counts()["no-id"] == 3
    with pytest.raises(BadRecord, match="wrong-label-type"):
        builder.process(samples([5], [1]), Origin(4))


def test_classes_beyond_the_cap_are_similar_in_themselves_only() -> None:
    builder = unlimited(0, max_classes=2)
    made = builder.process(samples(range(6), [0, 1, 2, 0, 1, 2]), Origin(1))
    signs = {pair: sign for pair, sign, *_ in pairs_of(made.blocks)}
    assert signs[frozenset((2, 5))] == 1
    assert not [pair for pair, sign in signs.items() if sign < 0 and pair & {2, 5}]
    assert builder.counts()["class-over-cap"] == 1


# ---- votes ------------------------------------------------------------------------------------------------------


def test_a_reversal_makes_the_graph_anew_and_takes_nothing_back() -> None:
    builder = unlimited(4, contradictions="support", support=2)
    tell(builder, (0, 1, True, "ann"), (0, 1, True, "bob"), (1, 2, True, "ann"), (1, 2, True, "bob"))
    assert builder.explain("item 0", "item 2") is not None
    made = tell(builder, (0, 1, False, "ann"), offset=2)
    assert (made.blocks, made.refused) == ([], [])
    assert builder.explain("item 0", "item 2") is None
    assert builder.counts()["withdrawn"] == 1
    made = tell(builder, (0, 1, False, "bob"), offset=3)
    assert {(pair, sign) for pair, sign, *_ in pairs_of(made.blocks)} == {
        (frozenset((0, 1)), -1),
        (frozenset((0, 2)), -1),
    }


def test_a_source_has_one_vote_and_the_oldest_votes_are_forgotten() -> None:
    builder = unlimited(40, contradictions="support", support=2, max_votes=8)
    made = tell(builder, (0, 1, True, "ann"), (0, 1, True, "ann"), (0, 1, True, None), (0, 1, True, None))
    assert len(pairs_of(made.blocks)) == 1
    for n in range(2, 30):
        tell(builder, (n, n + 1, True, "ann"), offset=n)
    assert builder.counts()["votes-forgotten"] > 0
    assert len(np.asarray(builder.state()["graph.votes.vote"])) <= 9
    assert builder.explain("item 0", "item 1") is not None


# ---- settings and blocks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("emit", "all"),
        ("max_new_pairs", -1),
        ("max_new_triplets", 1.5),
        ("max_component", 60_000),
        ("budget", -0.5),
        ("budget", True),
        ("contradictions", "newest"),
        ("support", 0),
        ("from_labels", 1),
        ("from_co_clicks", None),
        ("co_click_support", 0),
        ("seed", -1),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(SettingsError, match=name):
        create("closure", **{name: value})


def test_it_is_a_builder_with_segments() -> None:
    builder = create("closure")
    assert isinstance(builder, Builder)
    assert isinstance(builder, Segmented)
    assert builder.algorithm == "closure/4"


def test_blocks_stay_small_and_decode() -> None:
    builder = closure(max_new_pairs=0, max_new_triplets=0, max_bytes=2048)
    builder.process(items(range(30), dimension=40), Origin(0))
    made = tell(builder, *[(n, n + 1, n != 14, None) for n in range(29)])
    assert len(made.blocks) > 10
    for block in made.blocks:
        encoded = encode(block)
        assert len(encoded) <= 2048
        assert isinstance(decode(encoded, ConstraintBlock), ConstraintBlock)
        assert sorted(set(block.index.ravel().tolist())) == list(range(len(block.tables[0].vectors)))
        assert set(block.rule.tolist()) == set(range(len(block.rules)))
    with pytest.raises(BadRecord, match="too-large"):
        builder.process(items([99], dimension=400), Origin(9))


# ---- co-clicks --------------------------------------------------------------------------------------------------


def shown(list_id: str, session: str, clicked: list[int], time_ms: int = 1000) -> Click:
    return Click(
        SPACE,
        list_id,
        tuple(f"item {n}" for n in range(5)),
        tuple(range(5)),
        tuple(ItemClick(f"item {n}", time_ms + n) for n in clicked),
        time_ms,
        session=session,
        query_item="item 4",
    )


def test_co_clicked_items_are_similar_once_they_are_supported() -> None:
    builder = unlimited(5, co_click_support=2)
    assert not builder.process(shown("a", "ann", [0, 1]), Origin(1)).blocks
    tell(builder, (1, 2, True, None), offset=2)
    made = builder.process(shown("b", "bob", [0, 1]), Origin(3)).blocks
    assert {(pair, derived) for pair, _, _, derived in pairs_of(made)} == {
        (frozenset((0, 1)), False),
        (frozenset((0, 2)), True),
    }
    found = builder.explain("item 0", "item 2")
    assert found is not None
    assert [(link.via, link.offset) for link in found.links] == [("co-click", 3), ("relation", 2)]
    assert builder.counts()["co-click-below-support"] == 1


def test_scores_and_kinds_of_actions_change_no_co_click() -> None:
    with_scores, without = unlimited(5, co_click_support=1), unlimited(5, co_click_support=1)
    for number, session in enumerate(("ann", "bob")):
        click = shown(f"l{number}", session, [number, number + 1])
        acted = tuple(one._replace(action="purchase") for one in click.clicks)
        scored = replace(click, clicks=acted, scores=Scores.of({"bm25": [1, 2, 3, 4, None]}))
        made = with_scores.process(scored, Origin(number)).blocks
        assert made and [*map(encode, made)] == [*map(encode, without.process(click, Origin(number)).blocks)]
    assert to_bytes(with_scores.state()) == to_bytes(without.state())


def test_a_log_whose_clock_was_ahead_makes_no_later_list_late() -> None:
    builder, hour = unlimited(5, co_click_support=1), 3_600_000
    for n in range(6):
        builder.process(shown(f"ahead {n}", "zoe", [3, 4], 200 * hour), Origin(n, 200 * hour))
    made = builder.process(shown("a", "ann", [0, 1], hour), Origin(9, hour))
    assert len(made.blocks) == 1 and not made.refused and builder.counts()["late"] == 0


def test_what_a_log_whose_clock_was_ahead_has_left_counts_no_more_when_it_is_back() -> None:
    builder, hour = unlimited(5, co_click_support=2), 3_600_000
    # The second vote of right times is the second, though there was one of a wrong time.
    for n, (at, made) in enumerate(((200 * hour, 0), (hour, 0), (hour, 1))):
        found = builder.process(shown(f"l{n}", f"u{n % 2}", [0, 1], at), Origin(n, at))
        assert len(found.blocks) == made, n


def test_a_late_list_is_refused_and_taken_in_a_redrive() -> None:
    builder, day = unlimited(5, co_click_support=1), 86_400_000
    builder.process(shown("now", "zoe", [3], 20 * day), Origin(1, 20 * day))
    late = shown("late", "ann", [0, 1], 12 * day)
    (refused,) = builder.process(late, Origin(2, 20 * day)).refused
    assert refused.reason is Reason.LATE_LIST and builder.counts()["late"] == 1
    assert builder.process(late, Origin(3, 20 * day, refused.rows)).blocks


def test_a_co_click_across_lists_and_one_that_contradicts() -> None:
    builder = unlimited(5, co_click_support=1)
    tell(builder, (0, 3, False, None))
    builder.process(shown("a", "ann", [0]), Origin(2))
    made = builder.process(shown("b", "ann", [3, 2], 5000), Origin(3))
    assert {pair for pair, sign, *_ in pairs_of(made.blocks) if sign > 0} == {frozenset((0, 2))}
    # 0 with 3, and then 2 with 3, for 0 and 2 are similar by then.
    assert made.refused == []
    assert builder.counts()["co-click-contradiction"] == 2


def test_a_click_on_an_unknown_item_is_refused_by_its_row() -> None:
    builder = unlimited(4)
    made = builder.process(shown("a", "ann", [0, 4]), Origin(1))
    assert [(error.reason, error.rows) for error in made.refused] == [(Reason.UNKNOWN_ITEM, (4,))]
