"""A state that `gate/7` wrote: `kinstream gate status` shows it, and a new generation of this gate goes on from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinstream.gate.core import SpaceGate
from kinstream.gate.values import Fate, Options
from kinstream.streams.checkpoints.state_bytes import from_bytes
from kinstream.streams.records.gate import UNADAPTED, GateOrder, Order, Version
from tests.gate.gates import KEYS, MODEL, back, drafted

#: A challenger serves by order, and the next one has 22 clicked lists of seven users at three addresses.
STATE = Path(__file__).parent / "gate-v7.safetensors"
NEWER = Version(1, 0, 200)
OPTIONS = Options(min_learned=0, every_minutes=0)


def test_it_is_shown_as_it_was() -> None:
    gate = SpaceGate("docs", KEYS, OPTIONS)
    gate.restore(from_bytes(STATE.read_bytes()))
    assert (gate.serving, gate.challenger, gate.stake) == (MODEL, NEWER, 1.0)
    assert (gate.evidence.wins, gate.evidence.losses, gate.impressions) == (11, 11, 27)
    assert gate.evidence.votes == pytest.approx(4.551016156462584)
    assert gate.log_e_for == pytest.approx(-2.2957952621885953) and gate.tail.learned == 50
    assert (gate.fates[Fate.WON], gate.fates[Fate.LOST], gate.fates[Fate.SHOWN]) == (14, 11, 5)
    assert [one["verdict"] for one in gate.decided] == ["challenge", "promote", "challenge"]


def test_a_new_generation_keeps_who_serves_and_compares_anew() -> None:
    gate = SpaceGate("docs", KEYS, OPTIONS)
    gate.inherit(from_bytes(STATE.read_bytes()), None)
    assert (gate.serving, gate.challenger, gate.evidence.votes) == (MODEL, None, 0.0)
    (made,) = gate.take(back(drafted(99, NEWER, MODEL, time_ms=60_000 * 40), 1, user="u"), 60_000 * 40)
    assert (made.number, made.challenger) == (4, NEWER)
    assert gate.order(GateOrder("docs", Order.ROLLBACK, 0), 60_000 * 41)[0].serving == UNADAPTED
