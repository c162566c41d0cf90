"""Replays of real topics, beside real agents of which two were killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.crash.processes import Agent, System, running
from tests.kafka.broker import KafkaBroker
from tests.support.processes import until

SETTINGS = """
[checkpoints]
interval_seconds = 0.5
[builders.one-pass]
kind = "one-pass"
[learners.opml]
kind = "opml"
gamma = 0.01
scaler = "minmax"
from = ["one-pass"]
"""
TWO = """
[checkpoints]
interval_seconds = 0.5
[builders.first]
kind = "one-pass"
[builders.second]
kind = "random-triplets"
seed = 5
[learners.opml]
kind = "opml"
gamma = 0.01
from = ["first"]
[learners.oasis]
kind = "oasis"
from = ["second"]
"""
BUILDER = Agent("builder", "one-pass", "events")
LEARNER = Agent("learner", "opml", "constraints")
LOAD = ("sklearn:digits", "--space", "digits", "--shuffle-seed", "1", "--block-rows", "16")


def replayed(system: System, *arguments: str) -> Any:
    """The result of a replay; status 1 of a comparison is an error."""
    return json.loads(system.run("replay", *arguments, "--json"))


def verdicts(result: Any) -> set[tuple[str, str]]:
    return {(c["agent"], c["verdict"]) for c in result["comparisons"]}


@pytest.mark.long
@pytest.mark.kafka
def test_replays_equal_agents_that_were_killed_and_still_run(kafka: KafkaBroker, tmp_path: Path) -> None:
    system = System(tmp_path / "system", kafka.bootstrap, "replayed", 3, SETTINGS)
    with running(system):
        system.run("topics", "create")
        builder, learner = (system.start_worker(agent) for agent in (BUILDER, LEARNER))
        until(
            lambda: max(system.offsets(BUILDER).values()) >= -1 and builder.child() is not None, "a builder"
        )
        for seed in ("1", "2"):
            options = ("--load-id", f"load-{seed}", "--progress-folder", str(system.progress))
            system.run("produce", "labelled", *LOAD, *options)
            until(lambda: max(system.ends("constraints").values()) > 0, "constraints")
            system.kill_worker(builder, at_work=True)
            system.kill_worker(learner, at_work=True)
        until(lambda: max(system.offsets(LEARNER).values()) > 0, "a checkpoint of the learner")
        alive = replayed(system, "--from", "constraints", "--until-checkpoint", "--compare")
        assert verdicts(alive) >= {("learner-opml", "equal")}
        until(lambda: system.settled(BUILDER) and system.settled(LEARNER), "checkpoints at the ends")
        before = {role: system.ends(role) for role in ("events", "constraints", "outcomes", "dead-letters")}
        of_events = replayed(system, "--from", "events", "--compare")
        of_constraints = replayed(system, "--from", "constraints", "--compare")
        assert ("builder-one-pass", "equal") in verdicts(of_events)
        assert ("learner-opml", "equal") in verdicts(of_events) & verdicts(of_constraints)
        assert of_events["learners"] == of_constraints["learners"]
        assert of_events["bit_identical"] == {"builders": ["one-pass"], "learners": ["opml"]}
        after = {role: system.ends(role) for role in before}
        assert after == before
        assert not [group for group in _groups(kafka) if group in ("kinstream-reader", "kinstream-questions")]
        assert not system.faults()


@pytest.mark.kafka
def test_two_builders_each_followed_by_a_learner_of_its_own(kafka: KafkaBroker, tmp_path: Path) -> None:
    """As README shows it, while the agents run and have checkpoints at different places, and once all is read."""
    builders = [Agent("builder", name, "events") for name in ("first", "second")]
    learners = [Agent("learner", name, "constraints") for name in ("opml", "oasis")]
    system = System(tmp_path / "system", kafka.bootstrap, "two-replayed", 2, TWO)
    readme = ("--from", "events", "--until-checkpoint", "--compare")
    with running(system):
        system.run("topics", "create")
        for agent in (*builders, *learners):
            system.start_worker(agent)
        for space in ("digits", "other"):
            load = ("sklearn:digits", "--space", space, "--shuffle-seed", "1", "--block-rows", "16")
            system.run("produce", "labelled", *load, "--progress-folder", str(system.progress))
        for agent in (*builders, *learners):
            until(
                lambda agent=agent: max(system.offsets(agent).values()) > 0,  # type: ignore[misc]
                f"a checkpoint of {agent.name}",
            )
        alive = replayed(system, *readme)
        assert verdicts(alive) <= {(agent.application, "equal") for agent in (*builders, *learners)}
        until(lambda: all(map(system.settled, (*builders, *learners))), "checkpoints at the ends")
        settled = replayed(system, *readme)
        assert verdicts(settled) == {(agent.application, "equal") for agent in (*builders, *learners)}
        compared = {(c["agent"], c["space"]) for c in settled["comparisons"]}
        assert {(agent.application, s) for agent in learners for s in ("digits", "other")} <= compared
        assert settled["bit_identical"]["learners"] == ["opml", "oasis"]
        assert not system.faults()


def _groups(kafka: KafkaBroker) -> list[str]:
    """Consumer groups that the broker knows."""
    admin = kafka.admin()  # Held until the future is done.
    return [group.group_id for group in admin.list_consumer_groups().result(20).valid]
