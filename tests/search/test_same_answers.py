"""Every answer is the one that was recorded: of our own index, and of a store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.search.answer_scenes import answers

pytestmark = pytest.mark.long
RECORDED = Path(__file__).with_name("answers.json")


def same(found: Any, wanted: Any, place: str) -> None:
    """Numbers may differ by rounding."""
    if isinstance(wanted, dict):
        assert isinstance(found, dict) and found.keys() == wanted.keys(), (
            f"{place}: {found} in place of {wanted}"
        )
        for name, one in wanted.items():
            same(found[name], one, f"{place}.{name}")
    elif isinstance(wanted, list):
        assert isinstance(found, list) and len(found) == len(wanted), f"{place}: {found} in place of {wanted}"
        for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
            same(one, other, f"{place}[{number}]")
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=1e-5, abs=1e-5), place
    else:
        assert found == wanted, f"{place}: {found!r} in place of {wanted!r}"


def test_every_answer_is_the_recorded_one() -> None:
    recorded, found = json.loads(RECORDED.read_text(encoding="utf-8")), answers()
    assert list(found) == list(recorded)
    for scene, wanted in recorded.items():
        for one, other in zip(found[scene], wanted, strict=True):
            same(one, other, f"{scene}: {other['request']}")
