"""What goes into the gate of a space and comes out of it: lists, options, decisions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from kinstream.gate.lists.evidence import Evidence
from kinstream.streams.records.gate import Verdict, Version


class Fate(StrEnum):
    """What became of a drafted list. The values are labels of metrics.

    The first three are evidence; `shown` is a list that nobody has clicked yet; the others are left out.
    """

    WON = "won"
    LOST = "lost"
    TIED = "tied"
    SHOWN = "shown"
    FORGED = "forged"
    AHEAD = "ahead"
    LATE = "late"
    OTHER_EPOCH = "other_epoch"
    OTHER_PAIR = "other_pair"
    RETIRED = "retired"
    PAUSED = "paused"
    REPEATED = "repeated"
    CAPPED_USER = "capped_user"
    CAPPED_SESSION = "capped_session"
    CAPPED_ADDRESS = "capped_address"
    CAPPED_ITEM = "capped_item"
    BURST_USER = "burst_user"
    BURST_SESSION = "burst_session"
    BURST_ADDRESS = "burst_address"
    BURST_ITEM = "burst_item"


@dataclass(frozen=True, slots=True)
class Options:
    """`[gate.SPACE]`, as far as it shapes decisions: see `kinstream.streams.settings.GateSettings`."""

    error: float = 0.05
    every_minutes: float = 30.0
    min_sessions: int = 100
    max_sessions: int = 2_000
    bought_votes: float = 10.0
    user_votes: int = 1
    address_votes: int = 1
    late_minutes: float = 60.0
    per_user: int = 30
    per_session: int = 10
    per_address: int = 60
    per_item: int = 300
    burst_minutes: float = 10.0
    min_learned: int = 300


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision, without its place in the log: see `kinstream.streams.records.gate.GateDecision`."""

    verdict: Verdict
    reason: str
    number: int
    serving: Version
    before: Version
    challenger: Version | None
    pinned: bool
    impressions: int
    evidence: Evidence
    log_e_for: float
    checks: dict[str, float]
    floor: Version


class List(NamedTuple):
    """A result list that came back with its clicks. `query` tells its query from others; None if it names none."""

    list_id: str
    clicked: tuple[str, ...]
    session: str | None
    user: str | None
    address: str | None = None
    query: int | None = None
