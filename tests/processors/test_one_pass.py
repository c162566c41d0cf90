"""One-pass constraints are those of the OPML paper and its released code."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinstream.processors.base.builder import Origin
from kinstream.processors.registry import create, names
from kinstream.processors.samples.one_pass import RULE, OnePass
from kinstream.streams.checkpoints.state_bytes import from_bytes, to_bytes
from kinstream.streams.errors import BadRecord, Reason, SettingsError
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.values import (
    PREFIX_RULE,
    ConstraintBlock,
    ItemBlock,
    Kind,
    LoadPosition,
    SampleBlock,
    Table,
)
from kinstream.testing.builders import digest, rows_of
from tests.processors.reference import Constraint, keyed_choice, one_pass
from tests.processors.samples import block_of, blocks_of, random_labels

LABELS = st.lists(st.integers(-3, 3), min_size=1, max_size=60)
CUTS = st.lists(st.integers(1, 59), max_size=6)


def numbers(blocks: list[ConstraintBlock]) -> list[Constraint]:
    """Constraints as numbers of samples, which stand in the first column of `block_of`'s vectors."""
    found: list[Constraint] = []
    for block in blocks:
        samples = block.tables[0].vectors[:, 0].astype(int).tolist()
        for row in block.index.tolist():
            found.append((block.kind.value, *(samples[i] for i in row)))
    return found


def build(builder: OnePass, blocks: list[SampleBlock]) -> list[Constraint]:
    return [
        c
        for offset, block in enumerate(blocks)
        for c in numbers(builder.process(block, Origin(offset)).blocks)
    ]


@given(LABELS, CUTS)
def test_official_negatives_are_those_of_the_released_code(labels: list[int], cuts: list[int]) -> None:
    builder = OnePass(negatives="official")
    assert build(builder, blocks_of(labels, cuts)) == one_pass(labels, "official")


@given(LABELS, CUTS, st.integers(0, 2**63 - 1), st.one_of(st.none(), st.text(max_size=5)))
def test_random_negatives_are_drawn_by_seed_and_place(
    labels: list[int], cuts: list[int], seed: int, load_id: str | None
) -> None:
    blocks = blocks_of(labels, cuts, load_id=load_id)
    places: list[tuple[list[str | int], int]] = [
        ([number] if load_id is None else [load_id, number], len(block.labels))
        for number, block in enumerate(blocks)
    ]
    expected = one_pass(labels, "random", keyed_choice(seed, "toys", places))
    assert build(OnePass(seed=seed), blocks) == expected


@given(LABELS, CUTS, st.sampled_from(["random", "official"]), st.booleans())
def test_every_sample_makes_one_constraint_but_the_first_of_its_class(
    labels: list[int], cuts: list[int], negatives: str, prefix_pairs: bool
) -> None:
    made = Counter(kind for kind, *_ in build(OnePass(negatives, prefix_pairs), blocks_of(labels, cuts)))
    prefix = next((i for i, label in enumerate(labels) if label != labels[0]), len(labels))
    assert made["triplet"] == len(labels) - len(set(labels)) - (prefix - 1)
    assert made["pair"] == (prefix - 1 if prefix_pairs else 0)


@given(st.lists(st.sampled_from(["ball", "car"]), min_size=1, max_size=60), CUTS)
def test_both_rules_coincide_for_two_classes(labels: list[str], cuts: list[int]) -> None:
    blocks = blocks_of(labels, cuts)
    assert build(OnePass("random"), blocks) == build(OnePass("official"), blocks)


@given(LABELS, CUTS)
def test_triplets_hold_two_samples_of_one_class_and_one_of_another(
    labels: list[int], cuts: list[int]
) -> None:
    for kind, *samples in build(OnePass(), blocks_of(labels, cuts)):
        of = [labels[s] for s in samples]
        assert of[0] == of[1]
        if kind == "triplet":
            assert of[2] != of[0]
            assert samples[0] > max(samples[1:])


def test_random_negatives_are_uniform_over_the_other_classes() -> None:
    labels = [*range(6), *([2] * 5000)]
    made = build(OnePass(), blocks_of(labels, range(100, 5000, 100), load_id="load"))
    counts = Counter(labels[c[3]] for c in made if len(c) == 4)
    assert set(counts) == {0, 1, 3, 4, 5}
    assert sum((n - 1000) ** 2 / 1000 for n in counts.values()) < 18.5  # chi-square, 4 degrees, p = 0.001


def test_the_choice_follows_the_place_in_the_load_and_not_the_offset() -> None:
    labels = random_labels(5, 200, 9)
    in_load = block_of(labels, load=LoadPosition("a", 3))
    free = block_of(labels)

    def outputs(block: SampleBlock, offset: int, seed: int = 0) -> list[bytes]:
        return [encode(b) for b in OnePass(seed=seed).process(block, Origin(offset)).blocks]

    assert outputs(in_load, 10) == outputs(in_load, 99)
    assert outputs(free, 10) != outputs(free, 99)
    others = [
        outputs(in_load, 10, seed=1),
        outputs(replace(in_load, load=LoadPosition("a", 4)), 10),
        outputs(replace(in_load, load=LoadPosition("b", 3)), 10),
    ]
    assert len({tuple(found) for found in [outputs(in_load, 10), *others]}) == 4


def test_a_block_names_its_rules_and_its_prefix_comes_first() -> None:
    pairs, triplets = OnePass().process(block_of([1, 1, 1, 2, 1]), Origin(0)).blocks
    assert (pairs.kind, pairs.rules, pairs.signs.tolist()) == (Kind.PAIR, (PREFIX_RULE,), [1, 1])
    assert (triplets.kind, triplets.rules, triplets.signs.tolist()) == (Kind.TRIPLET, (RULE,), [0])
    assert not pairs.derived.any()
    assert triplets.weights.tolist() == [1.0]


def test_a_table_holds_each_sample_once() -> None:
    blocks = blocks_of(random_labels(6, 300, 4, prefix=10), [100, 200])
    builder = OnePass()
    for offset, block in enumerate(blocks):
        for made in builder.process(block, Origin(offset)).blocks:
            samples = made.tables[0].vectors[:, 0]
            assert len(set(samples.tolist())) == len(samples)
            assert len(samples) <= len(block.labels) + 4


def test_modalities_go_through_with_the_same_row_numbers() -> None:
    sizes = (("image", 5), ("text", 2))
    labels = random_labels(7, 80, 3, prefix=4)
    builder = OnePass(negatives="official")
    made = [
        b
        for i, block in enumerate(blocks_of(labels, [30], sizes=sizes))
        for b in builder.process(block, Origin(i)).blocks
    ]
    for block in made:
        image, text = block.tables
        assert (image.name, text.name) == ("image", "text")
        assert image.vectors[:, 0].tolist() == text.vectors[:, 0].tolist()
        assert set(image.vectors[:, 1].tolist()) == {0.0}
        assert set(text.vectors[:, 1].tolist()) == {1.0}
    assert numbers(made) == one_pass(labels, "official")


def test_tables_in_another_order_are_the_same_block() -> None:
    sizes = (("image", 5), ("text", 2))
    first, second = blocks_of(random_labels(8, 40, 3), [20], sizes=sizes)
    turned = replace(second, tables=second.tables[::-1])
    made = []
    for last in (second, turned):
        builder = OnePass()
        builder.process(first, Origin(0))
        made.append([encode(b) for b in builder.process(last, Origin(1)).blocks])
    assert made[0] == made[1]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (block_of(["a", "b"]), Reason.WRONG_LABEL_TYPE),
        (block_of([1, 2], sizes=(("x", 4),)), Reason.WRONG_DIMENSION),
        (block_of([1, 2], sizes=(("y", 3),)), Reason.WRONG_DIMENSION),
        (block_of([1, 2], sizes=(("x", 3), ("y", 3))), Reason.WRONG_DIMENSION),
        (replace(block_of([1, 2]), labels=np.array([0.5, 1.0])), Reason.WRONG_LABEL_TYPE),
        (replace(block_of([1, 2]), labels=np.array([1])), Reason.BAD_SHAPE),
        (replace(block_of([1, 2]), tables=()), Reason.EMPTY),
    ],
)
def test_a_block_that_does_not_fit_leaves_the_state_untouched(bad: SampleBlock, reason: Reason) -> None:
    builder = OnePass()
    builder.process(block_of([1, 1, 2, 3]), Origin(0))
    before = digest(builder.state())
    with pytest.raises(BadRecord) as caught:
        builder.process(bad, Origin(1))
    assert caught.value.reason is reason
    assert digest(builder.state()) == before


def test_a_refused_first_block_fixes_nothing() -> None:
    builder = OnePass(max_bytes=1024)
    with pytest.raises(BadRecord, match="too-large"):
        builder.process(block_of(["a"], sizes=(("x", 500),)), Origin(0))
    assert builder.process(block_of([1, 1]), Origin(1)).blocks


@settings(deadline=None)
@given(st.integers(1, 80), st.integers(2, 6), st.integers(1, 100))
def test_split_blocks_hold_the_same_constraints_and_stay_small(n: int, classes: int, dimension: int) -> None:
    block = block_of(random_labels(n, n, classes, prefix=3), sizes=(("x", dimension),))
    whole = OnePass().process(block, Origin(0)).blocks
    split = OnePass(max_bytes=1600).process(block, Origin(0)).blocks
    assert rows_of(whole) == rows_of(split)
    assert all(len(encode(b)) <= 1600 for b in split)
    # No block could have taken the first constraint of the next one of its kind.
    size = 4 * dimension
    for one, after in pairwise(split):
        if one.kind is after.kind:
            assert len(encode(one)) + 3 * size + 14 + 300 > 1600


def test_a_block_near_the_limit_is_used_as_far_as_it_goes() -> None:
    labels = random_labels(9, 600, 40)
    made = OnePass().process(block_of(labels, sizes=(("x", 784),)), Origin(0)).blocks
    sizes = [len(encode(b)) for b in made]
    assert all(size <= 512 * 1024 for size in sizes)
    assert all(size > 512 * 1024 - 3 * 784 * 4 - 500 for size in sizes[:-1])


@given(st.lists(st.text(max_size=3), min_size=1, max_size=30))
def test_string_labels_come_back_in_order(labels: list[str]) -> None:
    builder, restored = OnePass("official"), OnePass("official")
    builder.process(block_of(labels), Origin(0))
    restored.restore(from_bytes(to_bytes(builder.state())))
    again = block_of(labels[::-1], first=100)
    assert [encode(b) for b in builder.process(again, Origin(1)).blocks] == [
        encode(b) for b in restored.process(again, Origin(1)).blocks
    ]
    assert list(restored.state()["classes"]) == list(builder.state()["classes"])  # type: ignore[arg-type]


def test_classes_appear_at_any_time() -> None:
    labels = [*([1] * 5), *([2] * 5), *(k for k in range(3, 300) for _ in range(2))]
    assert build(OnePass("official"), blocks_of(labels, range(0, 600, 7))) == one_pass(labels, "official")


@pytest.mark.parametrize(
    "settings",
    [
        {"negatives": "hardest"},
        {"prefix_pairs": 1},
        {"seed": -1},
        {"seed": True},
        {"seed": 1.5},
        {"max_bytes": 10},
        {"max_bytes": 2**20},
        {"margin": 1},
    ],
)
def test_a_bad_setting_is_refused_by_name(settings: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=next(iter(settings))):
        create("one-pass", **settings)


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    assert {"clicks", "one-pass"} <= set(names())
    assert list(names()) == sorted(names())
    with pytest.raises(SettingsError, match=r"'two-pass'; known are .*one-pass"):
        create("two-pass")


# ---- erasure ------------------------------------------------------------------------------------------------


def tombstones(*ids: str) -> ItemBlock:
    return ItemBlock("s", (), (), 0, ids)


@pytest.mark.parametrize("negatives", ["random", "official"])
def test_an_erased_sample_is_neither_held_nor_used_again(negatives: str) -> None:
    block = replace(block_of([1, 2, 3, 1, 2]), ids=("a1", "b1", "c1", "a2", "b2"))
    builder = OnePass(negatives=negatives)
    builder.process(block, Origin(0))
    gone = block.tables[0].vectors[4]
    assert gone.tolist() in np.asarray(builder.state()["latest.x"]).tolist()
    builder.process(tombstones("b2", "unheard of", "a1"), Origin(1))
    assert gone.tolist() not in np.asarray(builder.state()["latest.x"]).tolist()
    restored = OnePass(negatives=negatives)
    restored.restore(from_bytes(to_bytes(builder.state())))
    later = block_of([1, 3, 2, 2, 1])
    tables = tuple(Table(t.name, t.vectors + 100) for t in later.tables)
    after = replace(later, tables=tables, ids=("a3", "c2", "b3", "b4", "a4"))
    made = builder.process(after, Origin(2)).blocks
    assert [encode(b) for b in made] == [encode(b) for b in restored.process(after, Origin(2)).blocks]
    vectors = np.concatenate([b.tables[0].vectors for b in made])
    assert not (vectors == gone).all(axis=1).any()
    # The first sample of class 2 after the erasure gives nothing, as if its class were new.
    assert sum(len(b) for b in made) == 4


def test_a_space_of_one_class_whose_sample_was_erased_gives_no_pair() -> None:
    builder = OnePass()
    builder.process(replace(block_of([1, 1]), ids=("a", "b")), Origin(0))
    builder.process(tombstones("b"), Origin(1))
    assert not builder.process(block_of([1]), Origin(2)).blocks
    assert builder.process(block_of([1]), Origin(3)).blocks


def test_a_name_is_forgotten_with_its_sample() -> None:
    builder = OnePass()
    builder.process(replace(block_of([1, 2]), ids=("a", "b")), Origin(0))
    builder.process(block_of([1]), Origin(1))
    builder.process(tombstones("a"), Origin(2))
    assert "empty" not in builder.state()
    assert builder.state()["ids"] == '[null, "b"]'
