"""A worker that was warmed up compiles nothing while events wait."""

from __future__ import annotations

from typing import Any

import pytest
from numba.core.dispatcher import Dispatcher

from kinstream.processors import warm_up
from kinstream.processors.base.builder import Builder, Origin
from kinstream.processors.clicks.clicks import RULES
from kinstream.processors.registry import create
from kinstream.streams.records.codec.codec import decode_event
from kinstream.streams.records.values import SampleBlock
from tests.support.join_events import events
from tests.support.pipeline import samples

SETTINGS: dict[str, dict[str, Any]] = {
    "adjacent-pairs": {"targets": "reservoir", "target_sample": 10, "max_bytes": 1024},
    "clicks": {"rules": RULES, "co_click_support": 1},
    "closure": {"co_click_support": 1},
    "random-pairs": {"targets": "reservoir", "target_sample": 10, "max_classes": 2, "reservoir": 3},
    "random-triplets": {"anchors": "class", "max_classes": 3, "max_bytes": 1024},
}


def _signatures() -> dict[str, int]:
    """How many compiled forms every kernel of the builders has."""
    import importlib
    import pkgutil

    from kinstream import processors

    found = {}
    for module in pkgutil.iter_modules(processors.__path__):
        for name, value in vars(importlib.import_module(f"kinstream.processors.{module.name}")).items():
            if isinstance(value, Dispatcher):
                found[f"{value.py_func.__module__}.{name}"] = len(value.signatures)
    return found


@pytest.mark.parametrize("kind", warm_up.COMPILED)
def test_nothing_is_left_to_compile(kind: str) -> None:
    warm_up.warm_up((kind,))
    before = _signatures()
    builder: Builder = create(kind, **SETTINGS[kind])
    made = 0
    follows_samples = SampleBlock in builder.follows and kind != "closure"
    log = samples("s", 40) if follows_samples else events("s", 40)
    for offset, value in enumerate(log):
        event = decode_event(value)
        if isinstance(event, builder.follows):
            made += len(builder.process(event, Origin(offset, 5_000)).blocks)
    assert made > 5
    assert _signatures() == before
