"""A worker that was warmed up compiles nothing while events wait."""

from __future__ import annotations

import pytest
from numba.core.dispatcher import Dispatcher

from processors import warm_up
from processors.base import Builder, Origin
from processors.clicks import RULES, Clicks
from processors.closure import Closure
from streams.codec import decode_event
from tests.support.join_events import events


def _signatures() -> dict[str, int]:
    """How many compiled forms every kernel of the builders has."""
    import importlib
    import pkgutil

    import processors

    found = {}
    for module in pkgutil.iter_modules(processors.__path__):
        for name, value in vars(importlib.import_module(f"processors.{module.name}")).items():
            if isinstance(value, Dispatcher):
                found[f"{value.py_func.__module__}.{name}"] = len(value.signatures)
    return found


@pytest.mark.parametrize("kind", ["clicks", "closure"])
def test_nothing_is_left_to_compile(kind: str) -> None:
    warm_up.warm_up((kind,))
    before = _signatures()
    builder: Builder = Clicks(RULES, co_click_support=1) if kind == "clicks" else Closure(co_click_support=1)
    made = 0
    for offset, value in enumerate(events("s", 40)):
        event = decode_event(value)
        if isinstance(event, builder.follows):
            made += len(builder.process(event, Origin(offset, 5_000)).blocks)
    assert made > 5
    assert _signatures() == before
