"""Adjacent pairs are those of docs/building.md."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinstream.processors.base.builder import Origin
from kinstream.processors.registry import create
from kinstream.processors.samples.adjacent_pairs import FATES, RULE, AdjacentPairs
from kinstream.streams.checkpoints.state_bytes import from_bytes, to_bytes
from kinstream.streams.errors import BadRecord, SettingsError
from kinstream.streams.records.values import ItemBlock, Kind, Table
from kinstream.testing.builders import digest
from tests.processors.samples import block_of, blocks_of, pairs_by, pairs_of, random_labels

LABELS = st.one_of(
    st.lists(st.integers(-1, 1), min_size=1, max_size=60),
    st.lists(st.sampled_from(["ball", "car", ""]), min_size=1, max_size=60),
)
CUTS = st.lists(st.integers(1, 59), max_size=6)


@given(LABELS, CUTS, st.booleans())
def test_pairs_are_those_of_neighbours(labels: list[Any], cuts: list[int], overlapping: bool) -> None:
    builder = AdjacentPairs(overlapping)
    made = pairs_by(builder, blocks_of(labels, cuts))
    firsts = range(0, len(labels) - 1, 1 if overlapping else 2)
    assert made == [(t, t + 1, 1 if labels[t] == labels[t + 1] else -1) for t in firsts]
    counts = builder.counts()
    assert sum(counts[name] for name in FATES) == counts["samples"] == len(labels)
    assert counts["pairs-emitted"] == len(made)
    assert counts["opens-pair"] == (0 if overlapping else (len(labels) - 1) // 2)


def test_a_stream_sorted_by_class_gives_similar_pairs() -> None:
    labels = np.sort(np.array(random_labels(1, 300, 3))).tolist()
    made = pairs_by(AdjacentPairs(), blocks_of(labels, [100]))
    assert [sign for *_, sign in made].count(-1) == 2


def test_a_block_names_its_rule() -> None:
    (block,) = AdjacentPairs().process(block_of([1, 2, 1, 2]), Origin(0)).blocks
    assert (block.kind, block.rules, block.targets) == (Kind.PAIR, (RULE,), None)
    assert RULE == "adjacent-pair"
    assert AdjacentPairs().emits == {Kind.PAIR}


@pytest.mark.parametrize("overlapping", [True, False])
def test_an_erased_sample_makes_no_pair(overlapping: bool) -> None:
    builder = AdjacentPairs(overlapping)
    builder.process(replace(block_of([1, 1, 2]), ids=("a", "b", "c")), Origin(0))
    builder.process(ItemBlock("toys", (), (), 0, ("a", "c")), Origin(1))
    restored = AdjacentPairs(overlapping)
    restored.restore(from_bytes(to_bytes(builder.state())))
    assert not any("waiting" in name for name in builder.state())
    after = block_of([2, 2, 1], first=3)
    made = pairs_of(builder.process(after, Origin(2)).blocks)
    assert made == ([(3, 4, 1), (4, 5, -1)] if overlapping else [(3, 4, 1)])
    assert pairs_of(restored.process(after, Origin(2)).blocks) == made
    assert builder.counts()["previous-erased"] == 1


def test_an_erased_sample_that_is_already_in_a_pair_changes_nothing() -> None:
    builder = AdjacentPairs(overlapping=False)
    builder.process(replace(block_of([1, 1]), ids=("a", "b")), Origin(0))
    before = digest(builder.state())
    builder.process(ItemBlock("toys", (), (), 0, ("a", "b")), Origin(1))
    assert digest(builder.state()) == before


def test_a_name_is_forgotten_with_its_sample() -> None:
    builder = AdjacentPairs()
    builder.process(replace(block_of([1]), ids=("a",)), Origin(0))
    builder.process(block_of([1], first=1), Origin(1))
    builder.process(ItemBlock("toys", (), (), 0, ("a",)), Origin(2))
    assert pairs_of(builder.process(block_of([1], first=2), Origin(3)).blocks) == [(1, 2, 1)]


@pytest.mark.parametrize("mode", ["frozen", "reservoir"])
@pytest.mark.parametrize("overlapping", [True, False])
def test_pairs_are_given_once_their_targets_are_known(mode: str, overlapping: bool) -> None:
    rng = np.random.default_rng(0)
    block = block_of(random_labels(2, 300, 4))
    block = replace(block, tables=(Table("x", rng.normal(size=(300, 5)).astype(np.float32)),))
    builder = AdjacentPairs(overlapping, targets=mode, target_sample=40)
    (made,) = builder.process(block, Origin(0)).blocks
    counts = builder.counts()
    assert made.targets is not None
    # 11 samples give forty distances.
    assert counts["targets-unknown"] == (10 if overlapping else 5)
    assert len(made) == counts["pairs-emitted"] == (289 if overlapping else 145)
    assert made.targets[made.signs > 0].max() < made.targets[made.signs < 0].min()


def test_targets_of_equal_percentiles_are_parted_and_counted() -> None:
    block = replace(
        block_of([1, 2] * 50), tables=(Table("x", np.tile(np.eye(2, dtype=np.float32), (50, 1))),)
    )
    builder = AdjacentPairs(targets="frozen", target_sample=20)
    (made,) = builder.process(block, Origin(0)).blocks
    assert made.targets is not None
    assert set(made.targets.tolist()) == {2.0}
    assert builder.counts()["targets-halved"] == 1


def test_a_pair_that_is_too_large_is_refused_and_fixes_nothing() -> None:
    builder = AdjacentPairs(max_bytes=1024)
    before = digest(builder.state())
    with pytest.raises(BadRecord, match="too-large: two of these vectors do not fit into 1024 bytes"):
        builder.process(block_of(["a"], sizes=(("x", 120),)), Origin(0))
    assert digest(builder.state()) == before
    assert builder.process(block_of([1, 1]), Origin(1)).blocks


@pytest.mark.parametrize(
    "settings",
    [{"overlapping": 1}, {"overlapping": "no"}, {"seed": -1}, {"max_bytes": 10}, {"reservoir": 5}],
)
def test_a_bad_setting_is_refused_by_name(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(settings))):
        create("adjacent-pairs", **settings)
