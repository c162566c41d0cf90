"""A learner on a real broker publishes its changes; killed and started again, it leads a replica to its own map."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kinstream.search.updates.replica import At, MapReplica
from kinstream.streams.checkpoints.state_bytes import from_bytes
from kinstream.streams.records.codec.codec import decode_model, decode_update
from kinstream.streams.records.values import ModelVersion
from tests.faults.conftest import MakeSystem
from tests.faults.processes import System
from tests.faults.reference import blocks
from tests.kafka.broker import KafkaBroker
from tests.support.processes import until

BUILDER, LEARNER = "builder-one-pass", "learner-opml"


def learned(system: System, space: str) -> tuple[At, Any]:
    """The map of the newest checkpoint of a space, and which it is."""
    state = from_bytes(system.states(LEARNER)[space])
    step = int(state["accepted"])

    def announced() -> list[ModelVersion]:
        return [
            one for one in map(decode_model, (m.value for m in system.read("models"))) if one.step == step
        ]

    # The worker announces a checkpoint once it is there.
    until(announced, f"step {step} is announced")
    return At(1, announced()[-1].epoch, step), state["L"]


@pytest.mark.kafka
def test_the_updates_of_a_killed_worker_lead_to_its_map(make_system: MakeSystem, kafka: KafkaBroker) -> None:
    system = make_system(kafka, learners__opml__publish_updates=True)
    system.worker(BUILDER, "--create")
    learner = system.worker(LEARNER, "--create")
    system.send(blocks("a", 3))
    system.settle()
    first, map_then = learned(system, "a")
    system.send(blocks("a", 6, start=3))
    learner.end()
    system.worker(LEARNER)
    system.settle()
    replica = MapReplica("a", "opml")
    replica.announce(first, map_then)
    for message in system.read("updates"):
        replica.take(decode_update(message.value))
    last, map_now = learned(system, "a")
    assert replica.at == last and last.step > first.step and not replica.behind
    assert np.linalg.norm(replica.map - map_now) <= 1e-12 * np.linalg.norm(map_now)
    assert np.linalg.norm(map_now - map_then) > 1e-3 * np.linalg.norm(map_now)
    system.check_exact()
