"""`kinstream vectors`: the version of a space beside the newest map, and orders that the agent obeys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinstream.learners.agent import learner_spec
from kinstream.processors.agent import builder_spec
from kinstream.streams.records.codec.codec import decode_event, decode_vectors, encode
from kinstream.streams.records.values import ItemBlock, Table
from kinstream.streams.records.vectors import ItemMap, VectorBlock
from kinstream.vectors.agent import vectors_spec
from tests.cli.system import EVENTS, System, connect
from tests.support.memory_system import MemorySystem

TOML = """
[builders.one-pass]
kind = "one-pass"
seed = 3

[learners.oasis]
kind = "oasis"
from = ["one-pass"]
scaler = "unit"
publish = "always"

[checkpoints]
url = "{root}"

[vectors.digits]
learner = "oasis"
moved = 0.2
"""
OASIS = {"kind": "oasis", "from": ["one-pass"], "scaler": "unit", "publish": "always"}
ITEMS = np.random.default_rng(8).normal(size=(60, 4)).astype(np.float32)


class Embedded(System):
    """A builder, a learner with an item map, and the agent `vectors`."""

    def __init__(self, folder: Path) -> None:
        spaces: dict[str, Any] = {"digits": {"learner": "oasis", "moved": 0.2}}
        MemorySystem.__init__(self, folder / "checkpoints", learners={"oasis": OASIS}, vectors=spaces)
        self.folder = folder
        (folder / "kinstream.toml").write_text(TOML.format(root=self.root), encoding="utf-8")
        specs = [builder_spec(self.settings, "one-pass"), learner_spec(self.settings, "oasis")]
        self.agents = [self.begin(spec) for spec in (*specs, vectors_spec(self.settings))]

    def run(self) -> None:
        super().run()
        for agent in self.agents:
            # Models are announced after the checkpoint.
            agent.sink.confirm()

    def status(self) -> dict[str, Any]:
        (found,) = json.loads(self.cli("vectors", "status", "--json").stdout)
        return dict(found)

    def orders(self) -> list[ItemMap]:
        found = [decode_event(m.value) for p in (0, 1) for m in self.log.read(EVENTS, p, 0)]
        return [one for one in found if isinstance(one, ItemMap)]


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Embedded:
    found = Embedded(tmp_path)
    connect(found.log, monkeypatch)
    block = ItemBlock("digits", tuple(f"i{n}" for n in range(60)), (Table("x", ITEMS),), 5)
    found.log.append(EVENTS, b"digits", encode(block))
    return found


def test_a_version_is_ordered_once_and_again_only_when_neighbours_have_moved(system: Embedded) -> None:
    system.samples("digits", 6)
    system.run()
    before = system.status()
    assert (before["version"], before["items"], before["moved"]) == (0, 60, 1.0)
    assert "100.0 % of neighbours move" in system.cli("vectors", "watch", "--once").stdout
    system.run()
    after = system.status()
    (order,) = system.orders()
    assert after["version"] > 0 and after["moved"] == 0.0
    assert after["model"] == after["newest"] == str(order.model)
    assert system.cli("vectors", "watch", "--once").stdout == ""
    vectors = [decode_vectors(m.value) for p in (0, 1) for m in system.log.read("kinstream.vectors", p, 0)]
    rows = {
        n: x for v in vectors if isinstance(v, VectorBlock) for n, x in zip(v.ids, v.vectors, strict=True)
    }
    unit = ITEMS / np.linalg.norm(ITEMS, axis=1)[:, None]
    np.testing.assert_allclose([rows[f"i{n}"] for n in range(60)], unit @ order.item.T, atol=1e-5)
    moves, seed = False, 1
    while not moves:
        assert seed < 12
        system.samples("digits", 6, seed=seed, load=f"load-{seed}")
        system.run()
        moves, seed = system.status()["moved"] >= 0.2, seed + 1
        assert (system.cli("vectors", "watch", "--once").stdout != "") is moves
    assert len(system.orders()) == 2


def test_a_person_orders_at_any_time(system: Embedded) -> None:
    now = ("--set", "vectors.digits.moved=0", "vectors", "watch", "--once")
    assert system.cli(*now).stdout == "" and system.orders() == []
    system.samples("digits", 6)
    system.run()
    for number in (1, 2):
        assert "is ordered" in system.cli(*now).stdout
        assert len(system.orders()) == number
    system.run()
    assert system.status()["version"] > 0
