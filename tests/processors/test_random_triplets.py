"""Random triplets: anchor, positive and negative by the law of the reservoir."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from kinstream.processors.base.builder import Origin
from kinstream.processors.base.draws import sample_draws
from kinstream.processors.registry import create
from kinstream.processors.samples.random_triplets import FATES, RULE, RandomTriplets
from kinstream.streams.errors import BadRecord, SettingsError
from kinstream.streams.records.values import ConstraintBlock, ItemBlock, Kind, SampleBlock
from kinstream.testing.builders import digest
from tests.processors.reservoir_reference import PlainReservoir
from tests.processors.samples import block_of, blocks_of, random_labels

LABELS = st.lists(st.integers(-3, 3), min_size=1, max_size=60)
CUTS = st.lists(st.integers(1, 59), max_size=6)
Triplet = tuple[int, int, int]


def triplets_of(blocks: list[ConstraintBlock]) -> list[Triplet]:
    """(anchor, positive, negative) by the numbers of the samples."""
    found = []
    for block in blocks:
        samples = block.tables[0].vectors[:, 0].astype(int).tolist()
        found += [(samples[a], samples[p], samples[n]) for a, p, n in block.index.tolist()]
    return found


def build(builder: RandomTriplets, blocks: list[SampleBlock]) -> list[Triplet]:
    return [
        made
        for at, block in enumerate(blocks)
        for made in triplets_of(builder.process(block, Origin(at)).blocks)
    ]


def plain(
    labels: list[int], anchors: str, per_sample: int, rows: int, classes: int, seed: int
) -> tuple[list[Triplet], Counter[str]]:
    """The triplets one sample at a time, and what became of all that were wanted."""
    reservoir, made, fates = PlainReservoir(rows, classes), list[Triplet](), Counter[str]()
    wants = ["own", "others"] if anchors == "item" else ["anchor", "mate", "others"]
    each = 2 * len(wants)
    for number, label in enumerate(labels):
        (draws,) = sample_draws("random-triplets/1", seed, "toys", number, 1, 1 + each * per_sample).tolist()
        picks = reservoir.step(label, draws, wants * per_sample)
        for start in range(0, len(picks), len(wants)):
            one = picks[start : start + len(wants)]
            why = next((pick for pick in one if isinstance(pick, str)), None)
            if why is None:
                made.append((number, *one) if anchors == "item" else tuple(one))  # type: ignore[arg-type]
            fates["triplets-emitted" if why is None else why.replace("no-class", "no-anchor")] += 1
    return made, fates


@given(
    LABELS,
    CUTS,
    st.sampled_from(["item", "class"]),
    st.integers(1, 3),
    st.integers(2, 5),
    st.integers(1, 8),
    st.integers(0, 2**63 - 1),
)
def test_triplets_are_those_of_a_plain_walk(
    labels: list[int], cuts: list[int], anchors: str, per_sample: int, rows: int, classes: int, seed: int
) -> None:
    builder = RandomTriplets(anchors, per_sample, rows, classes, seed)
    expected, fates = plain(labels, anchors, per_sample, rows, classes, seed)
    assert build(builder, blocks_of(labels, cuts)) == expected
    counts = builder.counts()
    assert {name: counts[name] for name in FATES if counts[name]} == fates
    assert counts["triplets"] == len(labels) * per_sample


@pytest.mark.parametrize("anchors", ["item", "class"])
def test_triplets_hold_two_samples_of_one_class_and_one_of_another(anchors: str) -> None:
    labels = random_labels(1, 600, 9)
    made = build(RandomTriplets(anchors, 3, reservoir=4), blocks_of(labels, [100, 350]))
    assert len(made) > 1600
    for anchor, positive, negative in made:
        assert anchor != positive
        assert labels[anchor] == labels[positive] != labels[negative]


def test_every_sample_is_an_anchor_where_anchors_are_items() -> None:
    labels = random_labels(2, 300, 5)
    made = build(RandomTriplets(reservoir=2), blocks_of(labels, [100]))
    firsts = {labels.index(k) for k in set(labels)}  # type: ignore[arg-type]
    assert [anchor for anchor, *_ in made] == [n for n in range(300) if n not in firsts]
    assert all(anchor > max(others) for anchor, *others in made)


def test_positives_and_negatives_are_uniform_over_earlier_samples() -> None:
    """Negatives from classes of 12 and 3 samples, of which two each are held."""
    labels = [0, 1, 1, 2, 1, 0, 1, 1, 1, 2, 1, 1, 0, 1, 1, 2, 1, 1, 1, 0, 0]
    found = [
        build(RandomTriplets(reservoir=2, seed=seed), blocks_of(labels, [20]))[-1] for seed in range(1500)
    ]
    positives, negatives = Counter(t[1] for t in found), Counter(t[2] for t in found)
    assert sorted(positives) == [n for n in range(20) if labels[n] == 0]
    assert sorted(negatives) == [n for n in range(20) if labels[n] != 0]
    assert chisquare(list(positives.values())).pvalue > 1e-4
    assert chisquare(list(negatives.values())).pvalue > 1e-4


def test_class_anchors_are_uniform_over_classes_however_rare() -> None:
    labels = [0] * 40 + [1, 1, 2, 2, 2, 3] + [0] * 5
    found = [build(RandomTriplets("class", seed=seed), blocks_of(labels, [50]))[-1] for seed in range(1500)]
    # Class 3 has one sample.
    classes = Counter(labels[t[0]] for t in found)
    assert set(classes) == {0, 1, 2}
    assert chisquare(list(classes.values())).pvalue > 1e-4
    of_two = Counter(t[:2] for t in found if labels[t[0]] == 2)
    assert len(of_two) == 6
    assert chisquare(list(of_two.values())).pvalue > 1e-4


def test_a_block_names_its_rule() -> None:
    (block,) = RandomTriplets().process(block_of([1, 2, 1, 2]), Origin(0)).blocks
    assert (block.kind, block.rules, block.targets) == (Kind.TRIPLET, (RULE,), None)
    assert RULE == "random-triplet"
    assert block.signs.tolist() == [0, 0]
    assert RandomTriplets().emits == {Kind.TRIPLET}


def test_what_is_not_built_is_counted_with_its_reason() -> None:
    builder = RandomTriplets()
    builder.process(replace(block_of([1, 1, 2]), ids=("a", "b", "c")), Origin(0))
    builder.process(ItemBlock("toys", (), (), 0, ("c",)), Origin(1))
    builder.process(block_of([2, 2, 1]), Origin(2))
    assert _counts(builder) == {
        "triplets": 6,
        "triplets-emitted": 2,
        "first-of-class": 2,
        "one-class": 1,
        "class-erased": 1,
        "samples-erased": 1,
    }
    builder = RandomTriplets("class", max_classes=2)
    builder.process(block_of([1, 2, 1, 1, 3, 1]), Origin(0))
    # Nothing to anchor before the third sample has entered; then class 2 is forgotten for class 3.
    assert _counts(builder) == {"triplets": 6, "triplets-emitted": 3, "no-anchor": 3, "classes-forgotten": 1}


def _counts(builder: RandomTriplets) -> dict[str, int]:
    return {name: number for name, number in builder.counts().items() if number}


def test_an_erased_sample_is_in_no_later_triplet() -> None:
    labels = random_labels(3, 100, 4)
    block = replace(block_of(labels), ids=tuple(f"n{n}" for n in range(100)))
    builder = RandomTriplets("class", per_sample=20, reservoir=5)
    builder.process(block, Origin(0))
    held = np.asarray(builder.state()["reservoir.vectors.x"])[:, 0].astype(int).tolist()
    gone = held[::2]
    builder.process(ItemBlock("toys", (), (), 0, tuple(f"n{n}" for n in gone)), Origin(1))
    made = triplets_of(builder.process(block_of(labels[:20], first=100), Origin(2)).blocks)
    assert len(made) == 400
    assert not set(gone) & {sample for triplet in made for sample in triplet}


def test_a_triplet_that_is_too_large_is_refused_and_fixes_nothing() -> None:
    builder = RandomTriplets(max_bytes=1024)
    before = digest(builder.state())
    with pytest.raises(BadRecord, match="too-large: three of these vectors do not fit into 1024 bytes"):
        builder.process(block_of(["a"], sizes=(("x", 80),)), Origin(0))
    assert digest(builder.state()) == before
    assert builder.process(block_of([1, 2, 1]), Origin(1)).blocks


@pytest.mark.parametrize(
    "settings",
    [
        {"anchors": "all"},
        {"reservoir": 1, "anchors": "class"},
        {"per_sample": 0},
        {"per_sample": 1.0},
        {"reservoir": 0},
        {"max_classes": 0},
        {"seed": True},
        {"max_bytes": 2**20},
        {"targets": "frozen"},
    ],
)
def test_a_bad_setting_is_refused_by_name(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(settings))):
        create("random-triplets", **settings)
