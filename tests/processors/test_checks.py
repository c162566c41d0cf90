"""Every builder passes every check."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from processors.registry import create
from tests.processors.checks import CHECKS, Case, do_the_same_in_another_process
from tests.processors.samples import blocks_of, random_labels


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


CASES = one_pass_cases()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_builder(case: Case, check: Callable[[Case], None]) -> None:
    check(case)


@pytest.mark.parametrize("hash_seed", [0, 4711])
def test_builders_do_the_same_in_another_process(hash_seed: int) -> None:
    do_the_same_in_another_process(CASES, hash_seed)
