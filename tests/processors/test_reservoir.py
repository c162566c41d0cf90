"""What a reservoir holds and what is picked from it follow the law that its docstring states."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chisquare

from kinstream.processors.base.draws import below, below_each, sample_draws
from kinstream.processors.samples.reservoir import Reservoir
from kinstream.processors.samples.reservoir_kernels import (
    ANCHOR,
    ANY,
    CLASS_ERASED,
    FIRST_OF_CLASS,
    FOUND,
    MATE,
    NO_CLASS,
    ONE_CLASS,
    OTHERS,
    OWN,
)
from kinstream.streams.checkpoints.state_bytes import from_bytes, to_bytes
from kinstream.streams.records.values import Table
from tests.processors.reservoir_reference import PlainReservoir

WANTS = {"any": ANY, "own": OWN, "others": OTHERS, "anchor": ANCHOR, "mate": MATE}
WHY = {
    FIRST_OF_CLASS: "first-of-class",
    CLASS_ERASED: "class-erased",
    ONE_CLASS: "one-class",
    NO_CLASS: "no-class",
}
#: Seeds of a law; with p > 1e-4 one in ten thousand such tests would fail by chance, and these seeds do not.
SEEDS = 2000


def tables(first: int, n: int) -> tuple[Table, ...]:
    """Vectors that tell the number of their sample, in two modalities."""
    numbers = np.arange(first, first + n, dtype=np.float32)
    return Table("x", np.repeat(numbers[:, None], 3, axis=1)), Table("y", -numbers[:, None])


def feed(
    reservoir: Reservoir,
    labels: Sequence[Any],
    wants: Sequence[str] | NDArray[np.int8],
    seed: int = 0,
    named: bool = True,
) -> list[list[int | str]]:
    """The picks of a block of samples as numbers of samples, or why there is none."""
    n, first = len(labels), reservoir.samples
    asked = (
        wants
        if isinstance(wants, np.ndarray)
        else np.tile(np.array([WANTS[w] for w in wants], np.int8), (n, 1))
    )
    draws = sample_draws("test", seed, "toys", first, n, 1 + 2 * asked.shape[1])
    picks = reservoir.walk(labels, draws, asked)
    block = tables(first, n)
    found = picks.fates == FOUND
    distinct = np.unique(picks.references[found])
    x, y = reservoir.tables(block, distinct)
    assert x.vectors[:, 0].tolist() == (-y.vectors[:, 0]).tolist()
    told = dict(zip(distinct.tolist(), x.vectors[:, 0].astype(int).tolist(), strict=True))
    reservoir.settle(block, [f"n{first + row}" for row in range(n)] if named else None)
    return [
        [
            told[int(picks.references[row, pick])] if found[row, pick] else WHY[int(picks.fates[row, pick])]
            for pick in range(asked.shape[1])
        ]
        for row in range(n)
    ]


def held(reservoir: Reservoir) -> list[int]:
    """Numbers of the samples that are held."""
    return sorted(np.asarray(reservoir.state()["vectors.x"])[:, 0].astype(int).tolist())


LABELS = st.lists(st.sampled_from("aaaabbcdefgh"), min_size=1, max_size=80)
PICKS = st.sampled_from(
    [["any"], ["own", "others"], ["anchor", "mate", "others"], ["any", "others", "own"], []]
)


@given(
    LABELS,
    PICKS,
    st.integers(1, 5),
    st.integers(1, 6),
    st.integers(0, 99),
    st.lists(st.integers(1, 20), min_size=1, max_size=6),
    st.booleans(),
)
def test_every_pick_is_that_of_a_plain_walk(
    labels: list[str],
    wants: list[str],
    rows: int,
    max_classes: int,
    seed: int,
    cuts: list[int],
    erasing: bool,
) -> None:
    """In any blocks, restored before each, and with erasures in between."""
    if "anchor" in wants:
        rows = max(rows, 2)
    plain, reservoir = PlainReservoir(rows, max_classes), Reservoir(rows, max_classes)
    erase = np.random.default_rng(seed)
    start = 0
    for cut in [*cuts, len(labels)]:
        block = labels[start : start + cut]
        if not block:
            break
        draws = sample_draws("test", seed, "toys", start, len(block), 1 + 2 * len(wants)).tolist()
        expected = [plain.step(label, draw, wants) for label, draw in zip(block, draws, strict=True)]
        assert feed(reservoir, block, wants, seed) == expected
        start += len(block)
        if erasing:
            gone = set(erase.integers(0, start, 3).tolist())
            assert reservoir.erase([f"n{n}" for n in gone]) == plain.erase(gone)
        state = reservoir.state()
        reservoir = Reservoir(rows, max_classes)
        reservoir.restore(from_bytes(to_bytes(state)))
        assert to_bytes(reservoir.state()) == to_bytes(state)
        assert held(reservoir) == sorted(n for one in plain.slots for n in one.held)
        assert reservoir.forgotten == plain.forgotten


# ---- laws -------------------------------------------------------------------------------------------------------


def uniform(numbers: Sequence[Any], over: Sequence[Any]) -> bool:
    """Whether draws are uniform over these, by chi-square."""
    counts = Counter(numbers)
    assert set(counts) <= set(over)
    return bool(chisquare([counts[one] for one in over]).pvalue > 1e-4)


def last_picks(
    labels: Sequence[str],
    wants: Sequence[str],
    rows: int,
    between: Callable[[Reservoir], None] = lambda r: None,
) -> list[list[int | str]]:
    """What the last sample picks, under many seeds."""
    made = []
    for seed in range(SEEDS):
        reservoir = Reservoir(rows, 100)
        feed(reservoir, labels[:-1], [], seed)
        between(reservoir)
        made += feed(reservoir, labels[-1:], wants, seed)
    return made


#: 14 of a, 5 of b, 3 of c: one class that is far beyond its reservoir, and one within it.
UNEQUAL = [*"abacaabaacaabaabaabaac", "a"]
AT = {label: [n for n, other in enumerate(UNEQUAL[:-1]) if other == label] for label in "abc"}


@pytest.mark.parametrize("rows", [1, 3, 4])
def test_a_pick_is_uniform_over_all_earlier_samples_of_all_classes(rows: int) -> None:
    """Not over the rows held: three classes of 14, 5 and 3 samples hold as many each."""
    found = [pick for (pick,) in last_picks(UNEQUAL, ["any"], rows)]
    assert uniform(found, range(22))


@pytest.mark.parametrize("rows", [1, 3])
def test_positives_and_negatives_are_uniform_over_earlier_samples(rows: int) -> None:
    found = last_picks(UNEQUAL, ["own", "others"], rows)
    assert uniform([own for own, _ in found], AT["a"])
    assert uniform([other for _, other in found], [*AT["b"], *AT["c"]])


def test_anchors_are_uniform_over_classes_and_positives_over_the_others_of_theirs() -> None:
    found = last_picks(UNEQUAL, ["anchor", "mate", "others"], 3)
    assert uniform([UNEQUAL[int(anchor)] for anchor, _, _ in found], "abc")
    for label, samples in AT.items():
        mine = [(a, m, o) for a, m, o in found if a in samples]
        pairs = [(a, m) for a in samples for m in samples if a != m]
        if label != "a":
            assert uniform([(a, m) for a, m, _ in mine], pairs)
        assert uniform([a for a, _, _ in mine], samples)
        assert uniform([m for _, m, _ in mine], samples)
        assert uniform([o for _, _, o in mine], [n for n in range(22) if n not in samples])


def test_each_sample_is_held_with_the_same_probability() -> None:
    sets = Counter[tuple[int, ...]]()
    for seed in range(SEEDS):
        reservoir = Reservoir(2, 1)
        feed(reservoir, "a" * 6, [], seed)
        sets[tuple(held(reservoir))] += 1
    # Every one of the 15 sets of two, too.
    assert len(sets) == 15
    assert chisquare(list(sets.values())).pvalue > 1e-4


def test_what_is_held_after_an_erasure_is_a_uniform_sample_of_the_rest() -> None:
    """Whether or not the erased samples were held; and the free places are not given to the newest at once."""
    sizes, members, entered = Counter[int](), Counter[int](), 0
    for seed in range(SEEDS):
        reservoir = Reservoir(3, 1)
        feed(reservoir, "a" * 9, [], seed)
        gone = reservoir.erase(["n0", "n4", "n8"])
        assert gone == 3 - reservoir.held
        sizes[reservoir.held] += 1
        members.update(held(reservoir))
        feed(reservoir, "a", [], seed)
        entered += 9 in held(reservoir)
    assert set(members) == {1, 2, 3, 5, 6, 7}
    assert chisquare(list(members.values())).pvalue > 1e-4
    # Of 9 samples 3 are held; of the 6 that are left, so many are among them (hypergeometric).
    expected = np.array([1, 18, 45, 20]) / 84 * SEEDS
    assert chisquare([sizes[n] for n in range(4)], expected).pvalue > 1e-4
    assert chisquare([entered, SEEDS - entered], [SEEDS * 0.3, SEEDS * 0.7]).pvalue > 1e-4


def test_classes_with_erased_samples_weigh_what_is_left_of_them() -> None:
    """4 of 5 samples of b are erased while all are held: b has 1 sample against 14 of a and 3 of c."""

    def erase(reservoir: Reservoir) -> None:
        reservoir.erase([f"n{n}" for n in AT["b"][1:]])

    found = [pick for (pick,) in last_picks(UNEQUAL, ["any"], 5, erase)]
    assert uniform(found, [*AT["a"], AT["b"][0], *AT["c"]])


def test_a_class_that_lost_half_its_rows_weighs_half_of_what_was_seen() -> None:
    reservoir = Reservoir(4, 10)
    feed(reservoir, "a" * 1000, [])
    assert reservoir.erase([f"n{n}" for n in held(reservoir)[:2]]) == 2
    feed(reservoir, "b" * 4, [])
    # 500 of a against 4 of b.
    picks = [pick for seed in range(300) for pick in _many(reservoir, seed)]
    share = sum(pick >= 1000 for pick in picks) / len(picks)
    assert abs(share - 4 / 504) < 0.002


def _many(reservoir: Reservoir, seed: int) -> list[int]:
    """A hundred picks of one sample, from a copy of the reservoir."""
    copy = Reservoir(reservoir.rows, reservoir.max_classes)
    copy.restore(reservoir.state())
    return [int(pick) for pick in feed(copy, ["c"], ["any"] * 100, seed)[0]]


# ---- bounds -----------------------------------------------------------------------------------------------------


def test_no_class_holds_more_than_its_rows_and_no_more_classes_are_remembered_than_asked_for() -> None:
    reservoir = Reservoir(4, 7)
    draw = np.random.default_rng(0)
    for _ in range(60):
        feed(reservoir, [f"c{k}" for k in draw.integers(0, 50, 40)], ["any"])
        assert len(np.asarray(reservoir.state()["seen"])) <= 7
        assert np.asarray(reservoir.state()["held"]).max() <= 4
        assert reservoir.held == len(held(reservoir)) <= len(reservoir._vectors["x"]) <= 4 * 7
    assert reservoir.forgotten > 100


def test_the_class_that_was_silent_the_longest_is_forgotten() -> None:
    reservoir = Reservoir(4, 3)
    feed(reservoir, "abcab", [])
    assert feed(reservoir, "da", ["own"])[0] == ["first-of-class"]
    assert set("".join(json.loads(str(reservoir.state()["classes"])))) == set("abd")
    # It begins anew.
    assert feed(reservoir, "c", ["own"]) == [["first-of-class"]]
    assert reservoir.forgotten == 2


def test_a_class_that_comes_and_goes_within_a_block_leaves_nothing() -> None:
    reservoir = Reservoir(1, 1)
    assert feed(reservoir, "abac", ["own", "any"]) == [
        ["first-of-class", "no-class"],
        ["first-of-class", 0],
        ["first-of-class", 1],
        ["first-of-class", 2],
    ]
    assert (held(reservoir), reservoir.forgotten) == ([3], 3)


def test_an_erased_sample_leaves_no_vector_behind() -> None:
    reservoir = Reservoir(3, 4)
    feed(reservoir, "abcabcabcabcd", [])
    kept = held(reservoir)
    assert reservoir.erase([f"n{n}" for n in kept[:5]] + ["unheard of"]) == 5
    assert held(reservoir) == kept[5:]
    store = reservoir._vectors["x"]
    assert set(store[:, 0].astype(int).tolist()) <= {0, *kept[5:]}
    assert reservoir.erase([f"n{n}" for n in kept]) == len(kept) - 5
    assert feed(reservoir, "ad", ["own", "any"])[0] == ["class-erased", "no-class"]


def test_samples_without_a_name_are_not_erased() -> None:
    reservoir = Reservoir(3, 4)
    feed(reservoir, "ab", [], named=False)
    assert reservoir.erase(["n0"]) == 0
    assert "keys" not in reservoir.state()
    feed(reservoir, "ab", [])
    assert reservoir.erase(["n0", "n2"]) == 1
    assert held(reservoir) == [0, 1, 3]
    # A name goes with its sample.
    full = Reservoir(1, 1)
    feed(full, "a", [])
    while held(full) == [0]:
        feed(full, "a", [], named=False)
    assert full.erase(["n0"]) == 0


# ---- draws ------------------------------------------------------------------------------------------------------


def test_the_draws_of_a_sample_do_not_depend_on_its_block() -> None:
    together = sample_draws("a", 1, "s", 0, 50, 5)
    assert together.shape == (50, 8)
    for first, count in ((0, 1), (7, 20), (49, 1)):
        apart = sample_draws("a", 1, "s", first, count, 5)
        assert (apart == together[first : first + count]).all()
    others = [sample_draws(*key, 0, 50, 5) for key in (("b", 1, "s"), ("a", 2, "s"), ("a", 1, "t"))]
    assert all((other != together).all() for other in others)


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(1, 2**62)), min_size=1))
def test_many_draws_below_counts_are_those_of_one(pairs: list[tuple[int, int]]) -> None:
    draws, counts = np.array([d for d, _ in pairs], np.uint64), np.array([c for _, c in pairs], np.int64)
    found = below_each(draws, counts)
    assert found.tolist() == [below(draw, count) for draw, count in pairs]
