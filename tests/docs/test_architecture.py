"""The walks through the code name files that exist, few enough to read."""

from __future__ import annotations

import pkgutil
import re

import pytest

import kinstream
from tests.docs.pages import ROOT, prose, rows

PAGE = ROOT / "docs" / "architecture.md"


@pytest.mark.parametrize(
    ("heading", "most"), [("The walk of a click list", 30), ("The walk of a restore", 20)]
)
def test_a_walk_names_few_files_that_exist(heading: str, most: int) -> None:
    steps = [(int(number), path.strip("`")) for number, path, _ in rows(PAGE, heading)]
    assert [number for number, _ in steps] == list(range(1, len(steps) + 1))
    assert 5 < len(steps) <= most
    assert len({path for _, path in steps}) == len(steps)
    for _, path in steps:
        assert (ROOT / path).is_file(), path


def test_every_file_that_the_page_names_exists() -> None:
    named = re.findall(r"`([a-z_]+/[a-z_/]+(?:\.py)?)`", prose(PAGE))
    assert len(named) > 30
    for path in named:
        assert (ROOT / path).exists(), path


def test_the_packages_are_those_of_the_import_name() -> None:
    listed = {row[0].strip("`") for row in rows(PAGE, "The packages")}
    assert listed == {module.name for module in pkgutil.iter_modules(kinstream.__path__)}
