"""`[gate.SPACE]`: how models of a space are compared by clicks."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from kinstream.streams.configuration.section import Section

#: Fewest characters of the key.
MIN_GATE_KEY: Final = 16


class GateSettings(Section):
    """`[gate.SPACE]`: how models of a space are compared by clicks, and when one is promoted."""

    share: float = Field(default=0.2, ge=0.0, le=1.0)
    """share of the queries that get a drafted list; services read it, the gate does not"""
    error: float = Field(default=0.05, gt=0.0, lt=0.5)
    """highest probability of a wrong decision about a model that is as good as the serving one: four fifths for
    promoting it, over all looks and comparisons with one serving model; one fifth for retiring it, in each comparison;
    below 0.5"""
    every_minutes: float = Field(default=30.0, ge=0.0, le=525_600.0)
    """pause after a comparison; a challenger without lists for so long is given up"""
    min_sessions: int = Field(default=100, ge=1)
    """lists, [by user](gate.md#clicks-that-cannot-be-bought), before a comparison may end"""
    max_sessions: int = Field(default=2_000, ge=100)
    """such lists at which it ends without a winner, or sooner if none is likely"""
    bought_votes: float = Field(default=10.0, ge=0.0)
    """a challenger must win even without the most that so many votes, [which may be
    bought](gate.md#clicks-that-cannot-be-bought), can add"""
    user_votes: int = Field(default=1, ge=0)
    """lists of one user (or session without a user) that count whole; the n-th counts (`user_votes` / n)²; 0: all count
    whole"""
    address_votes: int = Field(default=1, ge=0)
    """the same, of one [address](gate.md#addresses)"""
    late_minutes: float = Field(default=60.0, gt=0.0, le=1_440.0)
    """later clicks are left out, and [kept](gate.md#what-was-left-out)"""
    per_user: int = Field(default=30, ge=0)
    """lists an hour of one user that count; 0: no limit"""
    per_session: int = Field(default=10, ge=0)
    """the same, of one session"""
    per_address: int = Field(default=60, ge=0)
    """the same, of one [address](gate.md#addresses)"""
    per_item: int = Field(default=300, ge=0)
    """the same, with a click on one item"""
    burst_minutes: float = Field(default=10.0, ge=0.0, le=1_440.0)
    """window of the rule about [bursts](gate.md#clicks-that-cannot-be-bought); 0: no such rule"""
    min_learned: int = Field(default=300, ge=0)
    """clicked lists before [the first challenger](gate.md#which-model-challenges)"""


def check_key(key: str, needed: bool) -> None:
    """Refuse a missing or a short key.

    Raises
    ------
    ValueError : it has fewer than `MIN_GATE_KEY` characters; the message does not quote it.
    """
    if (needed or key) and len(key) < MIN_GATE_KEY:
        raise ValueError(
            f"[gate.SPACE], [randomise.SPACE] or record of a space needs a key of at least {MIN_GATE_KEY} characters: "
            "set KINSTREAM_GATE_KEY, or gate_key_file to the path of a file that holds it"
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
