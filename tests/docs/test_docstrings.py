"""Every example of a docstring prints what it says."""

from __future__ import annotations

import doctest
import re
from importlib import import_module

import pytest

from tests.support.packages import PACKAGES, ROOT

MODULES = sorted(
    ".".join(("kinstream", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if re.search(r"^ +>>> ", path.read_text(encoding="utf-8"), re.MULTILINE)
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of(name: str) -> None:
    found = doctest.testmod(import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted > 0
    assert found.failed == 0
