"""Random pairs: every sample with earlier ones, by the law of the reservoir, with the signs that were asked for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, chisquare

from kinstream.processors.base.builder import Origin
from kinstream.processors.base.draws import sample_draws
from kinstream.processors.registry import create
from kinstream.processors.samples.random_pairs import FATES, RULE, RandomPairs
from kinstream.streams.errors import BadRecord, SettingsError
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.values import (
    ItemBlock,
    Kind,
    LoadPosition,
    Table,
)
from kinstream.testing.builders import digest
from tests.processors.reservoir_reference import PlainReservoir
from tests.processors.samples import Pair, block_of, blocks_of, pairs_by, pairs_of, random_labels

LABELS = st.lists(st.integers(-3, 3), min_size=1, max_size=60)
CUTS = st.lists(st.integers(1, 59), max_size=6)


def plain(
    labels: list[int], draw: str, similar: float, per_sample: int, rows: int, classes: int, seed: int
) -> tuple[list[Pair], Counter[str]]:
    """The pairs one sample at a time, and what became of all that were wanted."""
    reservoir, made, fates = PlainReservoir(rows, classes), list[Pair](), Counter[str]()
    for number, label in enumerate(labels):
        each = 1 + 3 * per_sample
        (draws,) = sample_draws("random-pairs/1", seed, "toys", number, 1, each).tolist()
        signs = draws[1 + 2 * per_sample : each]
        wants = ["own" if (bits >> 11) / 2**53 < similar else "others" for bits in signs]
        for other in reservoir.step(label, draws, ["any"] * per_sample if draw == "uniform" else wants):
            if isinstance(other, str):
                fates["first-sample" if other == "no-class" else other] += 1
            else:
                fates["pairs-emitted"] += 1
                made.append((other, number, 1 if labels[other] == label else -1))
    return made, fates


@given(
    LABELS,
    CUTS,
    st.sampled_from(["uniform", "balanced"]),
    st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(1, 8),
    st.integers(0, 2**63 - 1),
)
def test_pairs_are_those_of_a_plain_walk(
    labels: list[int],
    cuts: list[int],
    draw: str,
    similar: float,
    per_sample: int,
    rows: int,
    classes: int,
    seed: int,
) -> None:
    builder = RandomPairs(draw, similar, per_sample, rows, classes, seed=seed)
    expected, fates = plain(labels, draw, similar, per_sample, rows, classes, seed)
    assert pairs_by(builder, blocks_of(labels, cuts)) == expected
    counts = builder.counts()
    assert {name: counts[name] for name in FATES if counts[name]} == fates
    assert counts["pairs"] == len(labels) * per_sample


def test_the_partner_is_uniform_over_all_earlier_samples() -> None:
    """17 of one class and 4 of two others, of which two rows each are held."""
    labels = [0] * 10 + [1, 2, 1, 2] + [0] * 8
    found = Counter(
        pairs_by(RandomPairs(reservoir=2, seed=seed), blocks_of(labels, [21]))[-1][0] for seed in range(1500)
    )
    assert len(found) == 21
    assert chisquare(list(found.values())).pvalue > 1e-4


@pytest.mark.parametrize("similar", [0.0, 0.2, 0.5, 1.0])
def test_balanced_pairs_have_the_share_of_similar_ones_that_was_asked_for(similar: float) -> None:
    labels = random_labels(1, 4000, 50)
    signs = [
        s for *_, s in pairs_by(RandomPairs("balanced", similar), blocks_of(labels, range(0, 4000, 500)))
    ]
    assert len(signs) > 3800
    assert binomtest(signs.count(1), len(signs), similar).pvalue > 1e-4


def test_uniform_pairs_are_similar_once_in_as_many_as_there_are_classes() -> None:
    labels = random_labels(2, 4000, 8)
    signs = [s for *_, s in pairs_by(RandomPairs(), blocks_of(labels, [1000]))]
    assert len(signs) == 3999
    assert binomtest(signs.count(1), 3999, 1 / 8).pvalue > 1e-4


def test_no_sample_is_its_own_partner_and_partners_are_earlier() -> None:
    labels = random_labels(3, 500, 4)
    made = pairs_by(RandomPairs("balanced", per_sample=5, reservoir=3), blocks_of(labels, [100, 300]))
    assert all(one < other for one, other, _ in made)
    assert all((labels[one] == labels[other]) == (sign > 0) for one, other, sign in made)


def test_pairs_depend_on_neither_load_nor_offset_nor_blocks() -> None:
    labels = random_labels(4, 200, 5)
    expected = pairs_by(RandomPairs(), [block_of(labels)])
    assert pairs_by(RandomPairs(), blocks_of(labels, range(0, 200, 7), load_id="a")) == expected
    assert pairs_by(RandomPairs(), blocks_of(labels, range(0, 200, 9), load_id="b")) == expected
    late = RandomPairs().process(block_of(labels, load=LoadPosition("c", 9)), Origin(99)).blocks
    assert pairs_of(late) == expected
    assert pairs_by(RandomPairs(seed=1), [block_of(labels)]) != expected
    other = RandomPairs().process(block_of(labels, space="others"), Origin(0)).blocks
    assert pairs_of(other) != expected


def test_a_block_names_its_rule() -> None:
    (block,) = RandomPairs().process(block_of([1, 2, 1, 2]), Origin(0)).blocks
    assert (block.kind, block.rules, block.targets) == (Kind.PAIR, (RULE,), None)
    assert RULE == "random-pair"
    assert not block.derived.any()
    assert set(block.weights.tolist()) == {1.0}
    assert RandomPairs().emits == {Kind.PAIR}


def test_a_table_holds_each_sample_once() -> None:
    (made,) = (
        RandomPairs(per_sample=20, reservoir=2).process(block_of(random_labels(5, 60, 3)), Origin(0)).blocks
    )
    samples = made.tables[0].vectors[:, 0].tolist()
    assert len(made) == 59 * 20
    assert sorted(samples) == list(range(60))


# ---- what is not built ------------------------------------------------------------------------------------------


def test_what_is_not_built_is_counted_with_its_reason() -> None:
    builder = RandomPairs("balanced", 1.0)
    builder.process(block_of([1, 1, 2]), Origin(0))
    assert _counts(builder) == {"pairs": 3, "pairs-emitted": 1, "first-of-class": 2}
    builder = RandomPairs("balanced", 0.0)
    builder.process(block_of([1, 1, 2]), Origin(0))
    assert _counts(builder) == {"pairs": 3, "pairs-emitted": 1, "one-class": 2}
    builder = RandomPairs(per_sample=2)
    builder.process(block_of([1, 1, 2]), Origin(0))
    assert _counts(builder) == {"pairs": 6, "pairs-emitted": 4, "first-sample": 2}


def _counts(builder: RandomPairs) -> dict[str, int]:
    return {name: number for name, number in builder.counts().items() if number}


def test_an_erased_sample_is_in_no_later_pair() -> None:
    block = replace(block_of([1, 2, 1]), ids=("a", "b", "c"))
    builder = RandomPairs("balanced", 1.0, targets="reservoir", target_sample=2)
    builder.process(block, Origin(0))
    builder.process(ItemBlock("toys", (), (), 0, ("a", "c", "unknown")), Origin(1))
    for name, value in builder.state().items():
        if "vectors" in name:
            assert np.asarray(value)[:, 0].tolist() == [1.0]
    assert not builder.process(block_of([1], first=3), Origin(2)).blocks
    assert pairs_of(builder.process(block_of([1], first=4), Origin(3)).blocks) == [(3, 4, 1)]
    assert (builder.counts()["class-erased"], builder.counts()["samples-erased"]) == (1, 2)


def test_a_class_too_many_takes_the_place_of_the_most_silent_one() -> None:
    builder = RandomPairs("balanced", 1.0, max_classes=2)
    builder.process(block_of([1, 2, 1, 3]), Origin(0))
    assert builder.counts()["classes-forgotten"] == 1
    assert pairs_of(builder.process(block_of([2, 1, 3, 3], first=4), Origin(1)).blocks) == [(6, 7, 1)]
    assert builder.counts()["classes-forgotten"] == 4


def test_a_pair_that_is_too_large_is_refused_and_fixes_nothing() -> None:
    builder = RandomPairs(max_bytes=1024)
    before = digest(builder.state())
    with pytest.raises(BadRecord, match="too-large: two of these vectors do not fit into 1024 bytes"):
        builder.process(block_of(["a"], sizes=(("x", 120),)), Origin(0))
    assert digest(builder.state()) == before
    assert builder.process(block_of([1, 1]), Origin(1)).blocks


# ---- targets ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["frozen", "reservoir"])
def test_pairs_are_given_once_their_targets_are_known(mode: str) -> None:
    rng = np.random.default_rng(0)
    block = block_of(random_labels(6, 400, 4))
    block = replace(block, tables=(Table("x", rng.normal(size=(400, 5)).astype(np.float32)),))
    builder = RandomPairs("balanced", targets=mode, target_sample=100)
    (made,) = builder.process(block, Origin(0)).blocks
    counts = builder.counts()
    assert made.targets is not None
    assert made.targets.dtype == np.float32
    # 26 samples give a hundred distances; pairs without a partner have their own reason.
    none = counts["first-of-class"] + counts["one-class"]
    assert 26 - none <= counts["targets-unknown"] <= 26
    assert len(made) == counts["pairs-emitted"] == 400 - none - counts["targets-unknown"]
    similar, dissimilar = made.targets[made.signs > 0], made.targets[made.signs < 0]
    assert similar.max() < dissimilar.min()
    if mode == "frozen":
        assert len(set(similar.tolist())) == len(set(dissimilar.tolist())) == 1


def test_blocks_with_targets_stay_small() -> None:
    block = block_of(random_labels(7, 500, 4), sizes=(("x", 2),))
    builder = RandomPairs(targets="reservoir", target_sample=4, max_bytes=1024, per_sample=10, reservoir=1)
    sizes = [len(encode(made)) for made in builder.process(block, Origin(0)).blocks]
    assert max(sizes) <= 1024
    # The ten pairs of a sample stay together.
    assert min(sizes[:-1]) > 1024 - 11 * 8 - 10 * (15 + 4) - 200


@pytest.mark.parametrize(
    "settings",
    [
        {"draw": "hard"},
        {"similar": -0.1},
        {"similar": 1.5},
        {"similar": True},
        {"similar": float("nan")},
        {"per_sample": 0},
        {"per_sample": 101},
        {"reservoir": 0},
        {"reservoir": 10_001},
        {"max_classes": 0},
        {"max_classes": 100_001},
        {"seed": -1},
        {"max_bytes": 10},
        {"negatives": "random"},
    ],
)
def test_a_bad_setting_is_refused_by_name(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(settings))):
        create("random-pairs", **settings)
