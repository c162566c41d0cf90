"""A comparison finds one flipped bit, in a state or in a file, and says where."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kinstream.learners.base.one_modality import SingleModal
from kinstream.replay.log.agents import open_learner
from kinstream.replay.log.comparison import (
    Agreement,
    compare_with_checkpoints,
    foreign_versions,
    newest_checkpoints,
)
from kinstream.replay.log.guarantees import LogKind
from kinstream.replay.log.pipeline import AgentReplay
from kinstream.streams.agents.machine import Machine
from kinstream.streams.errors import CheckpointError
from tests.replay.system import CONSTRAINTS, System

TOPICS = (LogKind.EVENTS, LogKind.CONSTRAINTS)


def flip_state(machine: Machine, name: str) -> None:
    """Change the lowest bit of one entry of a learned map, as a fault of a kernel would."""
    space = machine.open(name)
    assert isinstance(space.core, SingleModal)
    state = space.core.state()
    learned = np.asarray(state["L"])
    learned[0, 0] = np.nextafter(learned[0, 0], np.inf)
    space.core.restore(state)


def home(system: System, name: str) -> int:
    return next(p for p, r in system.learners["opml"].runners.items() if name in r.machine.names())


@pytest.mark.parametrize("origin", TOPICS)
def test_one_bit_of_a_model_makes_its_space_differ_and_no_other(system: System, origin: LogKind) -> None:
    system.load(1, load="one more")
    system.builders["one-pass"].run()
    runner = system.learners["opml"].runners[home(system, "b")]
    system.learners["opml"].step(home(system, "b"))
    flip_state(runner.machine, "b")
    runner.checkpoint()
    result = system.replay(origin, "opml", compare=True)
    differing = [c for c in result.comparisons if c.verdict is Agreement.DIFFERS]
    assert [(c.agent, c.space) for c in differing] == [("learner-opml", "b")]
    if origin is LogKind.CONSTRAINTS:
        assert differing[0].detail == "differs in core.L"


def newest_file(system: System, name: str) -> Path:
    folder = system.root / "learner-opml" / "1" / f"{CONSTRAINTS}-{home(system, name)}" / "spaces"
    return max(folder.glob(f"{name}@*"))


@pytest.mark.long
@pytest.mark.parametrize("origin", TOPICS)
def test_a_flipped_bit_of_a_file_is_damage_and_the_checkpoint_before_it_is_compared(
    system: System, origin: LogKind
) -> None:
    system.load(2, load="more")
    system.run()
    path = newest_file(system, "a")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    result = system.replay(origin, "opml", compare=True)
    damaged = [c for c in result.comparisons if c.verdict is Agreement.DAMAGED]
    assert len(damaged) == 1 and path.name in damaged[0].detail
    assert {c.verdict for c in result.comparisons} == {Agreement.DAMAGED, Agreement.EQUAL}


def test_no_whole_checkpoint_at_all_is_an_error(system: System) -> None:
    path = newest_file(system, "a")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="none of 1 checkpoints can be read"):
        system.replay(LogKind.CONSTRAINTS, "opml", compare=True)


def test_machines_are_compared_where_they_stand(system: System) -> None:
    agent = open_learner(system.settings, "opml", system.cluster)
    assert agent.generation is not None
    goals = newest_checkpoints(agent.generation, (0, 1))
    replayed = AgentReplay(agent.spec, agent.place)
    for message in system.log.read(CONSTRAINTS, 0, 0):
        replayed.feed(message)
    found = {(c.partition, c.verdict) for c in compare_with_checkpoints(replayed, goals)}
    assert found == {(0, Agreement.EQUAL), (1, Agreement.ELSEWHERE)}
    assert foreign_versions(goals.values()) == []


def test_a_space_that_only_one_side_knows_differs(system: System) -> None:
    agent = open_learner(system.settings, "opml", system.cluster)
    assert agent.generation is not None
    goals = newest_checkpoints(agent.generation, (0,))
    replayed = AgentReplay(agent.spec, agent.place)
    for message in system.log.read(CONSTRAINTS, 0, 0):
        replayed.feed(message)
    replayed.machine(0).open("unheard")
    found = {
        c.space: c.detail for c in compare_with_checkpoints(replayed, goals) if c.verdict is Agreement.DIFFERS
    }
    assert found == {"unheard": "only in the replay"}


def test_an_agent_without_a_checkpoint_is_elsewhere(system: System) -> None:
    for folder in (system.root / "learner-opml" / "1").glob(f"{CONSTRAINTS}-*"):
        for manifest in folder.glob("*.manifest.json"):
            manifest.unlink()
    result = system.replay(LogKind.CONSTRAINTS, "opml", compare=True, until_checkpoint=True)
    assert {(c.verdict, c.detail) for c in result.comparisons} == {(Agreement.ELSEWHERE, "no checkpoint yet")}
    assert result.messages == 0
