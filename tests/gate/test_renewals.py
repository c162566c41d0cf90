"""Challengers are renewed as the learner moves on, while the gate is killed on a real Kafka; and again in a replay."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from kinstream.search.drafts.drafts import drafts_of
from kinstream.streams.records.codec.codec import decode_decision, encode
from kinstream.streams.records.gate import UNADAPTED, GateDecision, Version
from kinstream.streams.records.values import Click, ItemClick
from tests.faults import conftest as faults
from tests.faults.conftest import MakeSystem
from tests.faults.processes import System
from tests.gate.gates import SECRET
from tests.gate.test_kills import decided, has_another_worker, replayed
from tests.kafka.broker import KafkaBroker
from tests.support.processes import until

systems = faults.make_system
SECTION: dict[str, Any] = {"min_learned": 0, "min_sessions": 20, "per_item": 0, "burst_minutes": 0}
LEFT, RIGHT = ["a", "b", "c"], ["d", "e", "f"]
RENEWALS = 2
#: Lists that come back at a time.
AT_ONCE = 5


class Site:
    """A service that drafts with the challenger of the newest decision, while its learner has twice the steps."""

    def __init__(self, system: System) -> None:
        self.system = system
        self._drafts = drafts_of(system.settings, "docs")
        self._users = 0

    def decisions(self) -> list[GateDecision]:
        return [decode_decision(value) for value in dict(decided(self.system.read("models"))).values()]

    def shown(self) -> None:
        """Some lists come back, with a click on an item of one side."""
        made = [one for one in self.decisions() if one.challenger is not None]
        challenger = made[-1].challenger if made else Version(1, 0, 100)
        assert challenger is not None
        newest = Version(1, 0, 2 * challenger.step)
        records = []
        for number in range(AT_ONCE):
            shown = self._drafts.shown((UNADAPTED, LEFT), (challenger, RIGHT), 6, newest)
            # Three of five prefer the challenger: drawn at random, clicks now and then end a comparison for good.
            side = LEFT if number % 2 else RIGHT
            clicked = (ItemClick(next(one for one in shown.items if one in side), 5),)
            user, self._users = f"u{self._users}", self._users + 1
            places = tuple(range(len(shown.items)))
            record = Click("docs", shown.list_id, shown.items, places, clicked, 5, None, user)
            records.append(("docs", encode(record)))
        self.system.send(records)


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_renewals_are_the_same_when_the_gate_is_killed_and_in_a_replay(
    kafka: KafkaBroker, systems: MakeSystem, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KINSTREAM_GATE_KEY", SECRET)
    system = systems(kafka, gate__docs=SECTION)
    site, kills = Site(system), 0
    gate = system.start("gate", "worker", "gate", "--create")
    while sum("moved on" in one.reason for one in site.decisions()) < 2 * RENEWALS:
        for _ in range(6):
            site.shown()
        # In the middle of its work, perhaps between a decision and the checkpoint that covers it.
        killed = gate.child()
        if killed is not None:
            os.kill(killed.pid, signal.SIGKILL)
            kills += 1
            until(lambda: has_another_worker(gate, killed.pid), "another worker")  # noqa: B023
        until(lambda: gate.ready(), "it is ready again")
        assert kills < 60
    home = {p: end for p, end in system.ends("events").items() if end}
    system.wait_for("gate", home)
    assert gate.stop() == 0 and kills >= RENEWALS

    found = list(decided(system.read("models")))
    once = dict(found)
    # What came twice is the same record.
    assert all(once[identity] == value for identity, value in found)
    decisions = [decode_decision(value) for value in once.values()]
    assert [one.number for one in decisions] == list(range(1, len(decisions) + 1))
    assert [one.verdict.value for one in decisions[:5]] == [
        "challenge",
        "hold",
        "challenge",
        "hold",
        "challenge",
    ]
    renewed = [one.challenger for one in decisions if one.challenger is not None]
    assert renewed[: RENEWALS + 1] == [Version(1, 0, 100 * 2**n) for n in range(RENEWALS + 1)]
    assert {one.serving for one in decisions} == {UNADAPTED}
    assert replayed(system, tmp_path / "again") == once
