"""The gate's key is changed, the gate is killed, and a new generation begins: real processes and a real Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kinstream.gate.values import Fate
from kinstream.search.drafts.drafts import drafts_of
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.gate import UNADAPTED
from kinstream.streams.records.values import Click, ItemClick
from kinstream.streams.settings import Settings
from tests.faults import conftest as faults
from tests.faults.conftest import MakeSystem
from tests.faults.processes import System
from tests.gate.gates import MODEL
from tests.kafka.broker import KafkaBroker
from tests.support.processes import Process, until

systems = faults.make_system
KEY, RETIRING = "KINSTREAM_GATE_KEY", "KINSTREAM_GATE_KEY_RETIRING"
OLD, NEW = "the old secret of the tests", "the new secret of the tests"
BOTH = {KEY: NEW, RETIRING: OLD}
SECTION: dict[str, Any] = {"min_learned": 0, "min_sessions": 1_000, "per_item": 0, "burst_minutes": 0}
LEFT, RIGHT = ["a", "b", "c"], ["d", "e", "f"]


class Site:
    """A service with either key, whose lists come back with a click on what the candidate alone shows."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.services = {
            key: Settings.model_validate({"gate": {"docs": SECTION, "news": SECTION}, "gate_key": key})
            for key in (OLD, NEW)
        }
        self.users = 0

    def drafted(self, key: str, number: int, space: str = "docs") -> list[tuple[str, bytes]]:
        """Lists that are shown now, and the clicks that bring them back."""
        found = []
        for _ in range(number):
            shown = drafts_of(self.services[key], space).shown((UNADAPTED, LEFT), (MODEL, RIGHT), 3)
            (first, *_) = [item for item in shown.items if item in RIGHT]
            clicked = (ItemClick(first, 5),)
            user, self.users = f"u{self.users}", self.users + 1
            places = tuple(range(len(shown.items)))
            record = Click(space, shown.list_id, shown.items, places, clicked, 5, None, user)
            found.append((space, encode(record)))
        return found

    def gate(self, *options: str, **keys: str) -> Process:
        return self.system.start("gate", "worker", "gate", *options, environment={RETIRING: "", **keys})

    def letters(self) -> list[bytes | None]:
        """Why lists were left out."""
        return [dict(one.headers)["kinstream-dead-reason"] for one in self.system.read("dead-letters")]


def counts(gate: Process, **fates: int) -> None:
    """Wait until the page shows so many lists by fate, and none of another."""
    wanted = {fate.value: float(fates.get(fate.value, 0)) for fate in Fate}

    def shown() -> dict[str, float | None]:
        return {fate: gate.metric("kinstream_gate_lists_total", fate=fate) for fate in wanted}

    until(lambda: shown() == wanted, f"the page of the gate shows {fates}", 60.0)


@pytest.mark.kafka
@pytest.mark.long
def test_no_list_is_lost_if_the_gate_is_killed_while_its_key_is_changed(
    kafka: KafkaBroker, systems: MakeSystem, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(KEY, OLD)
    monkeypatch.delenv(RETIRING, raising=False)
    # Only an orderly stop writes a checkpoint.
    system = systems(kafka, checkpoints__interval_seconds=600.0, gate__docs=SECTION, gate__news=SECTION)
    site = Site(system)
    gate = site.gate("--create", KINSTREAM_GATE_KEY=OLD)
    system.send(site.drafted(OLD, 3))
    counts(gate, won=3)
    assert gate.stop() == 0
    covered = system.checkpoints("gate")

    # The new key; decisions about its lists are in the log when the gate is killed, and in no checkpoint.
    gate = site.gate(**BOTH)
    late = site.drafted(NEW, 2) + site.drafted(OLD, 2) + site.drafted(NEW, 1, "news")
    system.send([*site.drafted(OLD, 2), *site.drafted(NEW, 2), *site.drafted(NEW, 2, "news")])
    counts(gate, won=9)
    until(lambda: any(one.key == b"news//gate" for one in system.read("models")), "it has decided")
    gate.end()
    assert system.checkpoints("gate") == covered
    until(lambda: not system.members("gate"), "its group is empty")

    # What the killed one had decided has to be decided again first, with the keys of now.
    refused = site.gate("--new-generation", **BOTH)
    assert refused.status() == 3
    assert refused.said("did not end cleanly") and refused.said("Start it once more")
    gate = site.gate(**BOTH)
    gate.until_ready()
    counts(gate, won=9)
    assert gate.stop() == 0

    # Lists that were drafted with either key before the kill come back in the new generation.
    gate = site.gate("--new-generation", **BOTH)
    gate.expect("gate: generation 2 begins")
    system.send(late)
    counts(gate, won=5)
    assert site.letters() == []
    gate.end()
    until(lambda: not system.members("gate", 2), "its group is empty")

    # Killed again, and the old key is gone: it starts, and what it cannot read any more is kept.
    gate = site.gate(KINSTREAM_GATE_KEY=NEW)
    gate.until_ready()
    counts(gate, won=3, forged=2)
    assert gate.stop() == 0
    gate = site.gate("--new-generation", KINSTREAM_GATE_KEY=NEW)
    gate.expect("gate: generation 3 begins")
    system.send(site.drafted(OLD, 1) + site.drafted(NEW, 1))
    counts(gate, won=1, forged=1)
    assert site.letters() == [b"forged-list"] * 3
    assert gate.stop() == 0
