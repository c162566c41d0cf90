"""Builders with other bounds than the ones that all have."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from kinstream.processors.clicks.clicks import Clicks
from kinstream.processors.closure.clicks import Bounds
from kinstream.processors.closure.closure import Closure

_CLICKS = frozenset(
    {
        *(
            "vote_window_ms",
            "support",
            "support_window_ms",
            "max_per_session",
            "max_list",
            "max_per_list",
            "max_ahead_ms",
        ),
        *("max_weight", "max_remembered", "max_bytes"),
    }
)
_CLOSURE = frozenset({"max_votes", "max_classes", "max_bytes"})
_OF_CLICKS = frozenset(field.name for field in fields(Bounds))


def clicks(**settings: Any) -> Clicks:
    """A click builder of settings and bounds."""
    bounds = {name: settings.pop(name) for name in _CLICKS & settings.keys()}
    return type("Clicks", (Clicks,), bounds)(**settings) if bounds else Clicks(**settings)


def closure(**settings: Any) -> Closure:
    """A closure of settings and bounds."""
    bounds = {name: settings.pop(name) for name in _CLOSURE & settings.keys()}
    of_clicks = {name: settings.pop(name) for name in _OF_CLICKS & settings.keys()}
    if of_clicks:
        bounds["click_bounds"] = replace(Closure.click_bounds, **of_clicks)
    return type("Closure", (Closure,), bounds)(**settings) if bounds else Closure(**settings)


def set_bounds(patch: pytest.MonkeyPatch, kind: str, **bounds: Any) -> None:
    """Give all builders of a kind other bounds, for a test that makes them from settings."""
    if kind == "closure":
        given = {name: bounds.pop(name) for name in _OF_CLICKS & bounds.keys()}
        patch.setattr(Closure, "click_bounds", replace(Closure.click_bounds, **given))
    for name, value in bounds.items():
        patch.setattr(Clicks if kind == "clicks" else Closure, name, value)
