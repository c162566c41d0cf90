"""Online mistake rates from `evaluate`, from `replay` and from Prometheus, over a topic of a real Kafka."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

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
gamma = 0.001
scaler = "zscore"
held_out = 0.0
from = ["one-pass"]
[learners.oasis]
kind = "oasis"
held_out = 0.0
from = ["one-pass"]
"""
BUILDER = Agent("builder", "one-pass", "events")
LEARNERS = (Agent("learner", "opml", "constraints"), Agent("learner", "oasis", "constraints"))
METRICS = Agent("metrics", None, "outcomes")
LOAD = ("sklearn:digits", "--space", "digits", "--shuffle-seed", "1", "--block-rows", "64")
FATES = ("seen", "scored", "mistakes", "utilised", "clipped", "rejected", "degenerate", "ignored")


def shown(page: str) -> dict[str, dict[str, int]]:
    """Counts by learner and fate on a metrics page."""
    found: dict[str, dict[str, int]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.labels.get("space") == "digits" and sample.name.startswith("kinstream_constraints_"):
                fate = sample.name.removeprefix("kinstream_constraints_").removesuffix("_total")
                found.setdefault(sample.labels["learner"], {})[fate] = int(sample.value)
    return found


@pytest.mark.kafka
def test_the_three_ways_to_count_agree_exactly(kafka: KafkaBroker, tmp_path: Path) -> None:
    system = System(tmp_path / "system", kafka.bootstrap, "agreed", 2, SETTINGS)
    with running(system):
        system.run("topics", "create")
        metrics = system.start_worker(METRICS)
        for agent in (BUILDER, *LEARNERS):
            system.start_worker(agent)
        system.run("produce", "labelled", *LOAD, "--progress-folder", str(system.progress))
        for agent in (BUILDER, *LEARNERS, METRICS):
            until(
                lambda agent=agent: max(system.ends(agent.reads).values()) > 0 and system.settled(agent),  # type: ignore[misc]
                f"checkpoints of {agent.application} at the end",
            )
        page = shown(system.metrics_pages([metrics])[0])
        log = ("--from", "constraints", "--space", "digits")
        replayed = {
            row["learner"]: row for row in json.loads(system.run("replay", *log, "--json"))["learners"]
        }
        words = ("--from", "constraints:digits", "--hold-out", "0", "--jobs", "1", "--json")
        result: Any = json.loads(system.run("evaluate", *words, "--output", str(tmp_path / "evaluation")))
        counted = {cell["metric"]: cell["counts"] for cell in result["cells"]}
        for learner in ("opml", "oasis"):
            assert counted[learner]["mistakes"] > 10
            for fate in FATES:
                assert counted[learner][fate] == replayed[learner][fate] == page[learner][fate]
            assert counted[learner]["loss"] == replayed[learner]["loss_sum"]
        # The same metric learns nothing on the same constraints: what the learned ones are compared with.
        assert counted["euclidean"]["scored"] == counted["oasis"]["scored"]
        assert not system.faults()
