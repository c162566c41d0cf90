"""Every learner passes every check."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from learners.registry import create
from tests.learners.blocks import prefix_blocks, triplet_blocks
from tests.learners.checks import CHECKS, Case, ends_the_same_in_another_process

SCALER_STATE = frozenset(
    f"scaler.{n}" for n in ("rows", "constraints", "ready", "digests", "first", "second")
)


def opml_cases() -> list[Case]:
    cases = []
    for dtype, tolerance in (("float64", 1e-9), ("float32", 2e-4)):
        for kernel in ("sequential", "blocked"):
            make = partial(create, "opml", gamma=1e-2, dtype=dtype, kernel=kernel)
            cases.append(Case(f"opml-{dtype}-{kernel}", make, triplet_blocks(1, 7), tolerance))
    for guard in ("raw", "normalise"):
        make = partial(create, "opml", gamma=1e-2, guard=guard)
        cases.append(Case(f"opml-{guard}", make, triplet_blocks(2, 3), watching=frozenset({"radius"})))
    for scaler in ("zscore", "minmax", "unit"):
        make = partial(create, "opml", gamma=1e-1, scaler=scaler, warm_up=50)
        cases.append(Case(f"opml-{scaler}", make, triplet_blocks(3, 4, scale=30.0), watching=SCALER_STATE))
    for kernel in ("sequential", "blocked"):
        make = partial(create, "copml", gamma1=1e-2, gamma2=1e-2, kernel=kernel, max_prefix_updates=30)
        blocks = prefix_blocks(4, 5) + triplet_blocks(4, 5)
        watching = frozenset({"prefix_updates"})
        cases.append(Case(f"copml-{kernel}", make, blocks, watching=watching))
    cases.append(Case("copml-pairs", partial(create, "copml"), prefix_blocks(5, 6, m=40), 1e-9, watching))
    return cases


CASES = opml_cases()


@pytest.mark.parametrize("check", CHECKS, ids=[check.__name__ for check in CHECKS])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_check(case: Case, check: Callable[[Case], None]) -> None:
    check(case)


@pytest.mark.parametrize("case", [CASES[3], CASES[6], CASES[-2]], ids=lambda case: case.name)
def test_another_process_ends_in_the_same_state(case: Case, tmp_path: Path) -> None:
    ends_the_same_in_another_process(case, tmp_path)
