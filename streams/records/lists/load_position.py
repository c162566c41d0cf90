"""Where an event stands in a producer's load."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoadPosition:
    """The position of a block in a producer's load, so that a restarted load counts nothing twice."""

    load_id: str
    sequence: int
