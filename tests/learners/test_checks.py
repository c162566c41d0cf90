"""Every learner passes every check."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kinstream.learners.registry import own_names
from kinstream.testing.learner_events import EVENT_CHECKS
from kinstream.testing.learners import CHECKS, Case, digest, ends_elsewhere, run
from tests.learners.cases import all_cases

CASES = all_cases()
#: Those that also run in other processes: the blocked ways, and what depends on the input's statistics.
ELSEWHERE = [case for case in CASES if case.elsewhere]


@pytest.mark.parametrize("check", [*CHECKS, *EVENT_CHECKS], ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_check(case: Case, check: Callable[[Case], None]) -> None:
    check(case)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    return ends_elsewhere(ELSEWHERE, tmp_path_factory.mktemp("elsewhere"))


@pytest.mark.parametrize("case", ELSEWHERE, ids=lambda case: case.name)
def test_other_processes_end_in_the_same_state(case: Case, elsewhere: list[dict[str, str]]) -> None:
    here = digest(run(case).state())
    assert [found[case.name] for found in elsewhere] == [here] * len(elsewhere)


def test_every_learner_has_a_case() -> None:
    assert {case.name.split(":")[0] for case in CASES} == set(own_names())
    assert {case.name.split(":")[0] for case in ELSEWHERE} == set(own_names())
