"""What is left to `make test-long` is there; of every learner but those of `LONG_KINDS`, `make test` keeps a case."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from kinstream.learners.registry import names
from kinstream.testing.learners import Case
from tests.learners.cases import all_cases
from tests.selection import LONG, LONG_KINDS, OVER_CASES, is_long, mark

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("one", [*LONG, OVER_CASES])
def test_every_entry_is_a_folder_a_file_or_a_test(one: str) -> None:
    path, _, test = one.partition("::")
    assert (ROOT / path).is_dir() if one.endswith("/") else (ROOT / path).is_file()
    assert re.search(rf"^def {test}", (ROOT / path).read_text(), re.MULTILINE) if test else True


def test_names_are_compared_whole() -> None:
    assert is_long("tests/deploy/monitoring/test_rules.py::test_a_rule[x]")
    assert is_long("tests/faults/test_log.py::test_this")
    assert not is_long("tests/faults/test_log_lines.py::test_this")
    assert not is_long("tests/deployed/test_log.py::test_this")


def test_cases_are_known_by_their_names() -> None:
    assert is_long("tests/learners/test_checks.py::test_check[oahu:torch-float64-weights]")
    assert is_long("tests/learners/test_oahu.py::test_it_learns[torch-1]")
    assert is_long("tests/processors/test_checks.py::test_builder_of_samples[one-pass-memory_is_bounded]")
    assert not is_long("tests/security/test_no_code_from_data.py::test_found[torch.load(path)]")
    assert not is_long("tests/cli/test_up.py::test_it_needs_no_torch")


class Item:
    """As much of a test of pytest's as the selection reads."""

    def __init__(self, case: Case) -> None:
        self.nodeid = f"{OVER_CASES}[{case.name}-check]"
        self.callspec = SimpleNamespace(params={"case": case})
        self.markers: list[str] = []

    def add_marker(self, name: str) -> None:
        self.markers.append(name)


def test_learners_whose_tests_are_long_are_learners() -> None:
    assert set(LONG_KINDS) < set(names())
    assert is_long("tests/learners/test_checks.py::test_check[mdml:length-stays_bounded]")
    assert is_long("tests/search/test_model.py::test_it_transforms_and_scores[mdml]")
    assert not is_long("tests/learners/test_checks.py::test_check[lda:length-stays_bounded]")


def test_of_every_other_learner_one_case_stays() -> None:
    items = [Item(case) for case in all_cases() for _ in range(2)]
    mark(cast("list[pytest.Item]", items))
    kept = {item.nodeid for item in items if not item.markers}
    assert sorted(name.partition("[")[2].partition(":")[0] for name in kept) == sorted(
        set(names()) - set(LONG_KINDS)
    )
    assert {item.nodeid for item in items if item.markers} & kept == set()
