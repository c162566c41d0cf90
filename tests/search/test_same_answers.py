"""The service answers what the query agent and the gateway answered, which it has replaced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.search.answer_scenes import answers

pytestmark = pytest.mark.long
RECORDED = Path(__file__).with_name("answers.json")


def wanted(scene: str, recorded: dict[str, Any]) -> dict[str, Any]:
    """A recorded answer with the differences that are meant."""
    found: dict[str, Any] = json.loads(json.dumps(recorded))
    request, answer = found["request"], found["answer"]
    if request in ("GET /healthz", "GET /readyz"):
        # It has one name, and says of its threads too whether they run.
        answer["agent"] = "serve"
        threads = {"name": "threads", "ok": True, "value": True, "limit": True}
        answer["checks"].insert(1, threads)
    elif scene.startswith("store") and "/similar" in request:
        # Every space has every route: why this one has no answer is said.
        answer["detail"] = "the store of 'docs' is asked by vector, not by item"
    elif scene.startswith("index") and answer.get("place") == "filter":
        # The schema has filters, since stores take them.
        made = '"filter": [1]' in request
        answer["detail"] = (
            "Input should be a valid dictionary" if made else "the index of 'shop' takes no filter"
        )
    elif '"vectors": null' in request and answer.get("place") == "vectors":
        # With texts they may be left out, so null is as good as nothing.
        answer["detail"] = "Field required"
    if isinstance(answer, dict) and isinstance(answer.get("detail"), str):
        # Scores are narrowed as vectors are.
        answer["detail"] = answer["detail"].replace("vectors are float32", "numbers are float32")
    return found


def same(found: Any, wanted: Any, place: str) -> None:
    """Numbers may differ by rounding."""
    if isinstance(wanted, dict):
        assert isinstance(found, dict) and found.keys() == wanted.keys(), f"{place}: {found} for {wanted}"
        for name, one in wanted.items():
            same(found[name], one, f"{place}.{name}")
    elif isinstance(wanted, list):
        assert isinstance(found, list) and len(found) == len(wanted), f"{place}: {found} for {wanted}"
        for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
            same(one, other, f"{place}[{number}]")
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=1e-5, abs=1e-5), place
    else:
        assert found == wanted, f"{place}: {found!r} for {wanted!r}"


def test_every_answer_is_the_recorded_one() -> None:
    recorded, found = json.loads(RECORDED.read_text(encoding="utf-8")), answers()
    assert list(found) == list(recorded)
    for scene, rows in recorded.items():
        for one, other in zip(found[scene], rows, strict=True):
            same(one, wanted(scene, other), f"{scene}: {other['request']}")
