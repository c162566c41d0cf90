"""The settings of simulated clicks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from kinstream.streams.errors import SettingsError

#: 2025-01-01T00:00:00Z.
START_MS: Final = 1_735_689_600_000
RANKINGS: Final = ("random", "by-similarity")
MODELS: Final = ("position", "cascade")
QUERIES: Final = ("item", "vector")


@dataclass(frozen=True, slots=True)
class Simulation:
    """How lists are drawn, shown and clicked.

    Parameters
    ----------
    lists, list_length : number of lists, and of items in each.
    relevant : share of a list's items that are of the query's class, if there are enough.
    ranking : "random", or "by-similarity": by Euclidean distance to the query.
    fair_pairs : swap adjacent results with probability 1/2, see `click_models.fair_pairs`.
    model : "position": rank r (0 is the top) is examined with probability 1 / (r + 1)^bias; "cascade": the user walks
        down and stops after a click with probability `stop`.
    noise : probability of a click on an examined item of another class, and of none on one of the query's class.
    query : "item", or "vector": the query's vector, and not its name.
    users, session_lists : number of users, and of lists in a session.
    start_ms, spacing_ms : time at which the first list is shown, and between two of them.
    dwell_ms, short_dwell_ms : medians of the dwell time on relevant and on other items.
    seed : equal seeds, items and settings give equal records.

    Raises
    ------
    SettingsError : a value is out of range.
    """

    lists: int = 1000
    list_length: int = 10
    relevant: float = 0.5
    ranking: str = "random"
    fair_pairs: bool = False
    model: str = "position"
    bias: float = 1.0
    stop: float = 1.0
    noise: float = 0.1
    query: str = "item"
    users: int = 100
    session_lists: int = 5
    start_ms: int = START_MS
    spacing_ms: int = 1000
    dwell_ms: int = 30_000
    short_dwell_ms: int = 5_000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("lists", "list_length", "users", "session_lists"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("start_ms", "spacing_ms", "dwell_ms", "short_dwell_ms"):
            if getattr(self, name) < 0:
                raise SettingsError(f"{name} must be at least 0, not {getattr(self, name)}")
        for name in ("relevant", "stop", "noise"):
            if not 0 <= getattr(self, name) <= 1:
                raise SettingsError(f"{name} must be between 0 and 1, not {getattr(self, name)!r}")
        if not (math.isfinite(self.bias) and self.bias >= 0):
            raise SettingsError(f"bias must be at least 0, not {self.bias!r}")
        for name, known in (("ranking", RANKINGS), ("model", MODELS), ("query", QUERIES)):
            if getattr(self, name) not in known:
                raise SettingsError(f"{name} must be one of {', '.join(known)}, not {getattr(self, name)!r}")
