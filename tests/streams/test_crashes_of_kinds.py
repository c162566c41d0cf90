"""Every learner and every builder of samples: a crash at any place leaves no trace."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from kinstream.learners import registry as learners
from kinstream.learners.agent import learner_spec
from kinstream.processors import registry as builders
from kinstream.processors.agent import builder_spec
from kinstream.streams.records.values import Kind
from kinstream.streams.settings import Settings
from tests.support.crashes import deduplicated, disturbed, letters
from tests.support.equal import same_states
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import CONFIG, Agent, samples, settings

SPACES = ("a", "b", "c")
MESSAGES = 10
#: What makes a kind learn from the first messages on.
SMALL: dict[str, Any] = {"warm_up": 8, "buffer": 24, "refit_every": 24}
SEEDS = (1, 2)


def config_of(kind: str) -> Settings:
    """Every builder of labelled samples, and one learner that follows those of which it can learn."""
    sources = {
        name: {"kind": name}
        for name in builders.names()
        if any(event.__name__ == "SampleBlock" for event in builders.create(name).follows)
        and name != "closure"
    }
    arguments = {name: value for name, value in SMALL.items() if learners.has(kind, name)}
    wanted = {learners.create(kind).form, Kind.TRIPLET}
    follows = [name for name in sources if builders.create(name).emits & wanted]
    return settings(
        builders=sources, learners={"learner": {"kind": kind, "from": follows, "held_out": 0.2, **arguments}}
    )


def filled(config: Settings, *, constraints: bool, root: Path) -> MemoryLog:
    """A log of samples, and where it is asked for of what the builders make of them."""
    log = MemoryLog()
    made = {space: samples(space, MESSAGES) for space in SPACES}
    for number in range(MESSAGES):
        for space in SPACES:
            log.append(config.topic("events"), space.encode(), made[space][number])
    if constraints:
        for name in config.builders:
            Agent(builder_spec(config, name), config, log, root).run()
    return log


@pytest.mark.parametrize("kind", learners.names())
def test_a_learner_that_crashes_ends_as_one_that_does_not(kind: str, tmp_path: Path) -> None:
    config = config_of(kind)
    spec = learner_spec(config, "learner")
    calm_log = filled(config, constraints=True, root=tmp_path / "builders")
    calm = Agent(spec, config, calm_log, tmp_path / "calm")
    calm.run()
    assert len(calm.states()) == len(SPACES)
    crashes = 0
    for seed in SEEDS:
        log = filled(config, constraints=True, root=tmp_path / f"builders {seed}")
        agent, number = disturbed(spec, config, log, tmp_path / f"rough {seed}", random.Random(seed))
        crashes += number
        assert same_states(agent.states(), calm.states())
        assert same_states(agent.judges(), calm.judges())
        assert deduplicated(log, "kinstream.outcomes") == deduplicated(calm_log, "kinstream.outcomes")
        assert letters(log) == letters(calm_log)
    assert crashes > 0


@pytest.mark.parametrize("kind", [name for name in builders.names() if name not in ("clicks", "closure")])
def test_a_builder_that_crashes_ends_as_one_that_does_not(kind: str, tmp_path: Path) -> None:
    config = Settings.model_validate({**CONFIG, "builders": {"b": {"kind": kind}}, "learners": {}})
    spec = builder_spec(config, "b")
    calm_log = filled(config, constraints=False, root=tmp_path)
    calm = Agent(spec, config, calm_log, tmp_path / "calm")
    calm.run()
    crashes = 0
    for seed in SEEDS:
        log = filled(config, constraints=False, root=tmp_path)
        agent, number = disturbed(spec, config, log, tmp_path / f"rough {seed}", random.Random(seed))
        crashes += number
        assert same_states(agent.states(), calm.states())
        assert deduplicated(log, "kinstream.constraints") == deduplicated(calm_log, "kinstream.constraints")
    assert deduplicated(calm_log, "kinstream.constraints")
    assert crashes > 0
