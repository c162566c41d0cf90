"""More partitions on a real Kafka: killed half-way, completed, and nothing lost or counted twice afterwards."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from kinstream.streams.topics import partition_of
from tests.crash.checker import chains, decode, read_topic, shown
from tests.crash.processes import Agent, System, running
from tests.kafka.broker import KafkaBroker
from tests.support.processes import SECONDS, Process, until

SETTINGS = """
[checkpoints]
interval_seconds = 0.5
[builders.one-pass]
kind = "one-pass"
[learners.opml]
kind = "opml"
gamma = 0.01
from = ["one-pass"]
"""
AGENTS = (
    Agent("builder", "one-pass", "events"),
    Agent("learner", "opml", "constraints"),
    Agent("metrics", None, "outcomes"),
)
OLD, NEW = 2, 5
#: Of these the first stays where it is, and the others move.
SPACES = ("shop", "wine", "market")


def produce(system: System, space: str, load_id: str, folder: str = "") -> None:
    progress = ("--load-id", load_id, "--progress-folder", str(system.progress / folder))
    options = ("--space", space, "--shuffle-seed", "1", "--block-rows", "16")
    system.run("produce", "labelled", "sklearn:digits", *options, *progress)


def reached(system: System, generation: int) -> bool:
    """Whether the newest checkpoints of every agent cover all of its input."""
    for agent in AGENTS:
        for partition, end in system.ends(agent.reads).items():
            place = f"{system.topic(agent.reads)}-{partition}"
            folder = system.root / agent.application / str(generation) / place
            names = [p.name for p in folder.glob("*.manifest.json")] if folder.is_dir() else []
            if end and max((int(name[:20]) for name in names), default=-1) != end:
                return False
    return True


def stop(system: System, workers: list[Process]) -> None:
    assert [worker.stop(60.0) for worker in workers] == [0] * len(workers)


@pytest.mark.kafka
@pytest.mark.long
def test_a_running_system_gets_more_partitions(kafka: KafkaBroker, tmp_path: Path) -> None:
    assert [partition_of(space, OLD) != partition_of(space, NEW) for space in SPACES] == [False, True, True]
    system = System(tmp_path / "system", kafka.bootstrap, "grown", OLD, SETTINGS)
    with running(system):
        system.run("topics", "create")
        workers = [system.start_worker(agent) for agent in AGENTS]
        for space in SPACES:
            produce(system, space, f"first-{space}")
        until(lambda: reached(system, 1), "everything is read on the old partitions")

        with pytest.raises(RuntimeError, match=r"status 3: .*still has 1 members; stop its workers first"):
            system.run("topics", "repartition", "--partitions", str(NEW))
        stop(system, workers)
        told = json.loads(
            system.run("topics", "repartition", "--partitions", str(NEW), "--dry-run", "--json")
        )
        assert [(a["agent"], a["spaces"], a["moved"]) for a in told["agents"]] == [
            ("metrics", 3, 2),
            ("learner-opml", 3, 2),
            ("builder-one-pass", 3, 2),
        ]
        assert len(system.ends("events")) == OLD

        # Killed when one topic has its partitions and the others do not.
        done = subprocess.run(
            system.command("topics", "repartition", "--partitions", str(NEW)),
            env={**os.environ, "KINSTREAM_FAILPOINTS": "repartition.after-topic=kill"},
            capture_output=True,
            check=False,
            timeout=SECONDS,
        )
        assert done.returncode == -9, done.stderr
        broken_off = system.start("refused", *AGENTS[0].command)
        assert broken_off.popen.wait(SECONDS) == 3
        assert "a repartition to 5 partitions was begun and did not end" in broken_off.log()

        system.partitions = NEW
        told = json.loads(system.run("topics", "repartition", "--partitions", str(NEW), "--json"))
        assert (told["resumed"], told["notes"]) == (True, [])
        assert all(len(system.ends(agent.reads)) == NEW for agent in AGENTS)
        again = system.run("topics", "repartition", "--partitions", str(NEW))
        assert "nothing to do" in again

        workers = [system.start_worker(agent) for agent in AGENTS]
        for space in SPACES:
            produce(system, space, f"first-{space}", "once-more")
            produce(system, space, f"second-{space}")
        until(lambda: reached(system, 2), "everything is read on the new partitions")
        counted = shown(system.metrics_pages(workers[-1:]))
        compared = json.loads(
            system.run("replay", "--learner", "opml", "--from", "constraints", "--compare", "--json")
        )
        assert {c["verdict"] for c in compared["comparisons"]} == {"equal"}
        stop(system, workers)
        check(system, kafka, counted)
        assert not [line for line in system.faults() if not line.startswith(broken_off.path.name)]


def check(system: System, kafka: KafkaBroker, counted: dict[tuple[str, str], dict[str, float]]) -> None:
    """What stands in the log, read without the code under test, is what was counted: each load once."""
    records = {role: read_topic(kafka.bootstrap, system.topic(role)) for role in ("constraints", "outcomes")}
    # The chain of a space goes from its old partition to its new one.
    taken = {
        role: chains(sorted(some, key=lambda r: int(r.headers["kinstream-generation"]))).taken
        for role, some in records.items()
    }
    for space in SPACES:
        blocks = taken["constraints"]["one-pass", space]
        made = [decode(block.record.value)[1] for block in taken["outcomes"]["opml", space]]
        assert len(made) == len(blocks)
        assert {b.record.partition for b in blocks} == {partition_of(space, n) for n in (OLD, NEW)}
        assert [b.position.generation for b in blocks] == sorted(b.position.generation for b in blocks)
        assert {b.position.generation for b in blocks} == {1, 2}
        seen = sum(body["counts"]["seen"] for body in made)
        assert counted[space, "opml"]["seen"] == seen
        # The model goes on: its last step counts the constraints of both loads.
        assert made[-1]["step"] == seen
        halves = [sum(b.position.generation == n for b in blocks) for n in (1, 2)]
        assert halves[0] == halves[1], "the load that was sent once more was counted once more"
