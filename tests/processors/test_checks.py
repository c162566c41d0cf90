"""Every builder passes every check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from kinstream.processors.base import catalogue
from kinstream.processors.base.builder import Heir, Segmented
from kinstream.processors.closure import item_log, seed_log
from kinstream.processors.registry import create
from kinstream.streams.checkpoints.state_bytes import from_bytes, to_bytes
from kinstream.streams.records.codec.codec import decode_event
from kinstream.streams.records.values import ConstraintBlock, ItemBlock, SampleBlock
from kinstream.testing.builders import (
    BUILDER_CHECKS,
    SAMPLE_CHECKS,
    Case,
    do_the_same_in_another_process,
    origin,
    rows_of,
    run,
)
from tests.processors import bounds
from tests.processors.samples import blocks_of, random_labels
from tests.support.join_events import events


def one_pass_cases() -> list[Case]:
    cuts = [5, 6, 7, 20, 50, 51, 90]
    plain = blocks_of(random_labels(1, 120, 5, prefix=12), cuts)
    text = blocks_of(random_labels(2, 120, 7, text=True), cuts, load_id="load")
    two = blocks_of(random_labels(3, 120, 4, prefix=3), cuts, sizes=(("image", 9), ("text", 2)))
    wide = blocks_of(random_labels(4, 60, 3, prefix=5), [30], sizes=(("x", 60),))
    return [
        Case("one-pass-random", partial(create, "one-pass", seed=7), plain),
        Case("one-pass-random-text", partial(create, "one-pass"), text),
        Case("one-pass-random-two-modalities", partial(create, "one-pass"), two),
        Case("one-pass-random-split", partial(create, "one-pass", max_bytes=2048), wide),
        Case(
            "one-pass-official", partial(create, "one-pass", negatives="official"), plain, grouping_free=True
        ),
        Case(
            "one-pass-official-text",
            partial(create, "one-pass", negatives="official"),
            text,
            grouping_free=True,
        ),
        Case(
            "one-pass-official-split",
            partial(create, "one-pass", negatives="official", max_bytes=2048),
            wide,
            grouping_free=True,
        ),
        Case(
            "one-pass-without-prefix",
            partial(create, "one-pass", negatives="official", prefix_pairs=False),
            two,
            grouping_free=True,
        ),
    ]


def random_cases() -> list[Case]:
    """Whose draws go by the number of a sample, so that no choice depends on the blocks."""
    cuts = [5, 6, 7, 20, 50, 51, 90, 130, 300]
    plain = blocks_of(random_labels(1, 320, 5, prefix=12), cuts)
    text = blocks_of(random_labels(2, 240, 7, text=True), cuts, load_id="load")
    two = blocks_of(random_labels(3, 120, 4, prefix=3), cuts, sizes=(("image", 9), ("text", 2)))
    wide = blocks_of(random_labels(4, 60, 3, prefix=5), [30], sizes=(("x", 60),))
    many = blocks_of(random_labels(5, 300, 40, text=True), cuts, sizes=(("x", 2),))
    small = {"reservoir": 6}
    cases: list[tuple[str, str, dict[str, Any], list[SampleBlock]]] = [
        ("random-pairs", "uniform", small, plain),
        ("random-pairs", "balanced", {"draw": "balanced", "similar": 0.3, "seed": 5, **small}, text),
        ("random-pairs", "several-two-modalities", {"draw": "balanced", "per_sample": 3, **small}, two),
        ("random-pairs", "split", {"max_bytes": 2048, **small}, wide),
        ("random-pairs", "forgetting", {"draw": "balanced", "max_classes": 9, "reservoir": 1}, many),
        ("random-pairs", "frozen-targets", {"targets": "frozen", "target_sample": 150, **small}, plain),
        (
            "random-pairs",
            "reservoir-targets-split",
            {"targets": "reservoir", "target_sample": 50, "max_bytes": 1024, **small},
            text,
        ),
        ("random-triplets", "item", small, text),
        ("random-triplets", "item-several-two-modalities", {"per_sample": 2, **small}, two),
        ("random-triplets", "class", {"anchors": "class", **small}, plain),
        ("random-triplets", "class-split", {"anchors": "class", "max_bytes": 2048, **small}, wide),
        ("random-triplets", "forgetting", {"max_classes": 9, "reservoir": 2, "anchors": "class"}, many),
        ("adjacent-pairs", "overlapping", {}, plain),
        ("adjacent-pairs", "disjoint-text", {"overlapping": False}, text),
        ("adjacent-pairs", "two-modalities-split", {"max_bytes": 1024}, two),
        ("adjacent-pairs", "frozen-targets", {"targets": "frozen", "target_sample": 10}, wide),
        (
            "adjacent-pairs",
            "reservoir-targets",
            {"targets": "reservoir", "target_percentiles": [0, 50]},
            plain,
        ),
    ]
    return [
        Case(f"{kind}-{name}", partial(create, kind, **arguments), blocks, grouping_free=True)
        for kind, name, arguments, blocks in cases
    ]


def erasing_cases() -> list[Case]:
    """Named samples, of which some are erased on the way, held or not."""
    made: list[SampleBlock | ItemBlock] = []
    for number, block in enumerate(blocks_of(random_labels(6, 200, 6, text=True), range(10, 200, 17))):
        ids = tuple(f"{number} {row}" for row in range(len(block.labels)))
        made.append(replace(block, ids=ids) if number % 4 else block)
        made.append(ItemBlock("toys", (), (), 0, (ids[-1], *ids[: number % 3], f"{number - 2} 1", "unknown")))
    return [
        Case(f"{kind}-erasing", partial(create, kind, **arguments), made)
        for kind, arguments in (
            ("one-pass", {}),
            ("random-pairs", {"reservoir": 4, "targets": "reservoir", "max_classes": 5}),
            ("random-triplets", {"reservoir": 4, "anchors": "class"}),
            ("adjacent-pairs", {"targets": "frozen", "target_sample": 200}),
        )
    ]


def joining_cases() -> list[Case]:
    made = [decode_event(value) for value in events("s", 28)]
    clicks = create("clicks").follows
    return [
        Case(
            "clicks",
            partial(create, "clicks", rules=["click-skip-above", "click-earlier-click"], bias="thinning"),
            [event for event in made if isinstance(event, clicks)],
        ),
        Case(
            "clicks-pairs-split",
            partial(
                bounds.clicks, rules=["co-click", "click-skip-previous"], co_click_support=1, max_bytes=1024
            ),
            [event for event in made if isinstance(event, clicks)],
        ),
        Case("closure", partial(create, "closure", co_click_support=1), made),
        Case("closure-without-caps", partial(create, "closure", max_new_pairs=0, max_new_triplets=0), made),
        Case("closure-by-votes", partial(create, "closure", contradictions="support", support=1), made),
    ]


SAMPLE_CASES = [*one_pass_cases(), *random_cases()]
CASES = [*SAMPLE_CASES, *erasing_cases(), *joining_cases()]


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, size in (
        (catalogue, "_TAIL_ENTRIES", 16),
        (catalogue, "_LEAST_ENTRIES", 16),
        (seed_log, "SEGMENT", 16),
        (item_log, "SEGMENT", 16),
    ):
        monkeypatch.setattr(module, name, size)


@pytest.mark.parametrize("check", SAMPLE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", SAMPLE_CASES, ids=lambda case: case.name)
def test_builder_of_samples(case: Case, check: Callable[[Case], None]) -> None:
    check(case)


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize("check", BUILDER_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_builder(case: Case, check: Callable[[Case], None]) -> None:
    check(case)


@pytest.mark.long
@pytest.mark.parametrize("hash_seed", [0, 4711])
def test_builders_do_the_same_in_another_process(hash_seed: int) -> None:
    do_the_same_in_another_process(CASES, hash_seed)


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize("kind", ["clicks", "closure"])
def test_a_new_generation_knows_what_the_old_one_was_told(kind: str) -> None:
    """Other settings, the same catalogue and the same relations: nothing is unknown, nothing is given twice."""
    made = [decode_event(value) for value in events("s", 48)]
    old, fresh = (
        create(kind, co_click_support=1, seed=1),
        create(kind, co_click_support=1, seed=2),
    )
    followed = [event for event in made if isinstance(event, old.follows)]
    half = len(followed) // 2
    run(old, followed[:half])
    assert isinstance(old, Segmented)
    assert isinstance(fresh, Heir)
    fresh.inherit(from_bytes(to_bytes(old.state())), old.segment)
    assert old.segments()
    for offset, event in enumerate(followed[half:], half):
        mine, theirs = fresh.process(event, origin(offset)), old.process(event, origin(offset))
        assert [(e.reason, e.rows) for e in mine.refused] == [(e.reason, e.rows) for e in theirs.refused]
        if kind == "closure":
            # The same seeds are new to both.
            assert _seeds(mine.blocks) == _seeds(theirs.blocks)
    assert sum(fresh.counts().values()) > 0


def _seeds(blocks: list[ConstraintBlock]) -> list[tuple[Any, ...]]:
    return [row for row in rows_of(blocks) if row[1] == "closure-seed"]
