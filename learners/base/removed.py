"""Settings that a learner had in earlier versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Removed:
    """A setting that is no longer one.

    Parameters
    ----------
    instead : what the learner does now, and what to write.
    same : of a value, and of all settings that are given: whether it is what the learner does now. Such a value is
        still read, so that generations and checkpoints that have it go on.
    """

    instead: str
    same: Callable[[Any, Mapping[str, Any]], bool]


def always(usual: object) -> Removed:
    """A setting that has one value now."""
    return Removed(f"it is always {usual}; leave it out", lambda value, _: bool(value == usual))
