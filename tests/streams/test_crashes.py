"""A crash at any place changes nothing: state, chains, de-duplicated outputs and counters equal an undisturbed run."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from kinstream.learners.agent import learner_spec
from kinstream.monitoring.agent import MetricsMachine, metrics_spec
from kinstream.processors.agent import builder_spec
from kinstream.processors.base import catalogue
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.settings import Settings
from tests.support.crashes import deduplicated, disturbed, letters
from tests.support.equal import same_states
from tests.support.join_events import events
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import CONFIG, Agent, samples, settings

SPACES = ("a", "b", "c", "d", "e")


#: The builders that join events with a catalogue, and a learner that follows both.
JOINING: dict[str, Any] = {
    "builders": {
        "clicks": {"kind": "clicks", "rules": ["click-skip-above", "co-click"], "co_click_support": 1},
        "lists": {"kind": "clicks", "rules": ["click-list"]},
        "closure": {"kind": "closure"},
    },
    "learners": {
        "opml": {"kind": "opml", "from": ["clicks"], "unranked_lists": True, "gamma": 0.01},
        "adapter": {"kind": "adapter", "from": ["lists"], "rank": 2},
    },
}
#: The builders that draw from reservoirs of samples.
RANDOM: dict[str, Any] = {
    "builders": {
        "pairs": {"kind": "random-pairs", "reservoir": 3, "targets": "reservoir", "target_sample": 20},
        "triplets": {"kind": "random-triplets", "reservoir": 3, "max_classes": 2},
        "adjacent": {"kind": "adjacent-pairs", "targets": "frozen", "target_sample": 30},
    },
    "learners": {"opml": {"kind": "opml", "from": ["triplets"], "gamma": 0.01}},
}
CONFIGS: dict[str, dict[str, Any]] = {"one-pass": {}, "random": RANDOM, "joining": JOINING}
for _config in CONFIGS.values():
    _learners = _config.setdefault("learners", CONFIG["learners"])
    _config["learners"] = {name: {**section, "held_out": 0.3} for name, section in _learners.items()}


def _fill(log: MemoryLog, config: Settings) -> None:
    joining = "clicks" in config.builders
    made = {space: events(space, 24) if joining else samples(space, 12) for space in SPACES}
    for number in range(24 if joining else 12):
        for space in SPACES:
            log.append(config.topic("events"), space.encode(), made[space][number])


def _specs(config: Settings) -> list[AgentSpec]:
    learners = [learner_spec(config, name) for name in config.learners]
    builders = [builder_spec(config, name) for name in config.builders]
    return [*builders, *learners, metrics_spec(config)]


def _totals(agent: Agent) -> dict[tuple[str, str], object]:
    totals: dict[tuple[str, str], object] = {}
    for runner in agent.runners.values():
        assert isinstance(runner.machine, MetricsMachine)
        for row in runner.machine.tallies.snapshot().rows:
            totals[row.space, row.learner] = (row.totals, row.step, row.held_out)
    return totals


def _undisturbed(root: Path, **changes: Any) -> tuple[MemoryLog, list[Agent]]:
    config = settings(**changes)
    log = MemoryLog()
    _fill(log, config)
    agents = []
    for spec in _specs(config):
        agent = Agent(spec, config, log, root)
        agent.run()
        agents.append(agent)
    return log, agents


@pytest.mark.parametrize("kind", ["one-pass", "random", pytest.param("joining", marks=pytest.mark.long)])
@pytest.mark.parametrize("seed", range(12))
def test_random_crashes_change_nothing(
    seed: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Many segments of few items.
    monkeypatch.setattr(catalogue, "_TAIL_ENTRIES", 8)
    monkeypatch.setattr(catalogue, "_LEAST_ENTRIES", 8)
    calm_log, calm = _undisturbed(tmp_path / "calm", **CONFIGS[kind])
    config = settings(**CONFIGS[kind])
    log = MemoryLog()
    _fill(log, config)
    rng = random.Random(seed)
    crashes = 0
    agents = []
    for spec in _specs(config):
        agent, number = disturbed(spec, config, log, tmp_path / "rough", rng)
        crashes += number
        agents.append(agent)
    assert crashes > 0
    for topic in ("kinstream.constraints", "kinstream.outcomes"):
        rough = deduplicated(log, topic)
        assert rough.keys() == deduplicated(calm_log, topic).keys()
    assert deduplicated(log, "kinstream.constraints") == deduplicated(calm_log, "kinstream.constraints")
    assert deduplicated(log, "kinstream.outcomes") == deduplicated(calm_log, "kinstream.outcomes")
    for mine, theirs in zip(agents[:-1], calm[:-1], strict=True):
        assert same_states(mine.states(), theirs.states())
        assert same_states(mine.judges(), theirs.judges())
        assert same_states(mine.segments(), theirs.segments())
    assert any(agent.judges() for agent in calm)
    judged = [state for agent in calm for state in agent.judges().values()]
    assert any(state.get("lists.events") for state in judged) == (kind == "joining")
    refused = [letters(some) for some in (log, calm_log)]
    assert refused[0] == refused[1]
    assert bool(refused[0]) == (kind == "joining")
    assert _totals(agents[-1]) == _totals(calm[-1])


@pytest.mark.long
def test_a_zombie_beside_its_successor_changes_nothing(tmp_path: Path) -> None:
    calm_log, calm = _undisturbed(tmp_path / "calm")
    config = settings()
    log = MemoryLog()
    _fill(log, config)
    spec = builder_spec(config, "one-pass")
    zombie = Agent(spec, config, log, tmp_path / "rough")
    for partition in zombie.runners:
        zombie.step(partition, 9)
        zombie.runners[partition].checkpoint()
        zombie.step(partition, 5)
    successor = Agent(spec, config, log, tmp_path / "rough")
    successor.run()
    for partition in zombie.runners:
        zombie.step(partition, 3)
        zombie.runners[partition].checkpoint()
    again = Agent(spec, config, log, tmp_path / "rough")
    assert same_states(again.states(), calm[0].states())
    assert deduplicated(log, "kinstream.constraints") == deduplicated(calm_log, "kinstream.constraints")
    learner = Agent(learner_spec(config, "opml"), config, log, tmp_path / "rough")
    learner.run()
    assert same_states(learner.states(), calm[1].states())
    assert sum(runner.machine.counts["duplicates"] for runner in learner.runners.values()) > 0
