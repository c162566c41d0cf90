"""`[gate.SPACE]`: how models of a space are compared by clicks."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from kinstream.streams.configuration.section import Section

#: Fewest characters of the key.
MIN_GATE_KEY: Final = 16


class GateSettings(Section):
    """`[gate.SPACE]`: how models of a space are compared by clicks, and when one is promoted.

    `share` is of the queries that get drafted lists. `error` is of all comparisons with one serving model, over all
    looks. A promotion has to stand without the best `bought_votes` votes that there can be. `user_votes` and
    `address_votes` are lists of one user and of one address that count whole in a comparison, and each further one
    counts less; 0: all count whole. The caps are lists an hour that one user, one session, one address or one item may
    decide; 0 is no limit. `burst_minutes` is the window of the rule about bursts; 0 is none. Before `min_learned`
    clicked lists there is no challenger.
    """

    share: float = Field(default=0.2, ge=0.0, le=1.0)
    error: float = Field(default=0.05, gt=0.0, lt=0.5)
    every_minutes: float = Field(default=30.0, ge=0.0, le=525_600.0)
    min_sessions: int = Field(default=100, ge=1)
    max_sessions: int = Field(default=2_000, ge=100)
    bought_votes: float = Field(default=10.0, ge=0.0)
    user_votes: int = Field(default=1, ge=0)
    address_votes: int = Field(default=1, ge=0)
    late_minutes: float = Field(default=60.0, gt=0.0, le=1_440.0)
    per_user: int = Field(default=30, ge=0)
    per_session: int = Field(default=10, ge=0)
    per_address: int = Field(default=60, ge=0)
    per_item: int = Field(default=300, ge=0)
    burst_minutes: float = Field(default=10.0, ge=0.0, le=1_440.0)
    min_learned: int = Field(default=300, ge=0)


def check_key(key: str, needed: bool) -> None:
    """Refuse a missing or a short key.

    Raises
    ------
    ValueError : it has fewer than `MIN_GATE_KEY` characters; the message does not quote it.
    """
    if (needed or key) and len(key) < MIN_GATE_KEY:
        raise ValueError(
            f"[gate.SPACE] or [randomise.SPACE] needs a key of at least {MIN_GATE_KEY} characters: set "
            "KINSTREAM_GATE_KEY, or gate_key_file to the path of a file that holds it"
        )


def check_retiring(retiring: str, key: str) -> None:
    """Refuse a key that retires and is too short, or has no successor.

    Raises
    ------
    ValueError : the message does not quote it.
    """
    if not retiring:
        return
    if len(retiring) < MIN_GATE_KEY:
        raise ValueError(f"a key has at least {MIN_GATE_KEY} characters")
    if not key:
        raise ValueError("a key retires, and gate_key names no key that ids are made with now")
    if retiring == key:
        raise ValueError("is the same key as gate_key; leave one of them out")
