"""A what-if on real topics becomes the learner's next generation, and goes on live although it is killed."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.reader import ends, read_range
from kinstream.streams.records.identity import read_identity
from kinstream.streams.settings import load
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
from = ["one-pass"]
"""
PREFIX = "promoted"
BUILDER = Agent("builder", "one-pass", "events")
LEARNER = Agent("learner", "opml", "constraints")
CHANGE = ("--set", "gamma=0.05", "--set", "scaler=minmax")


def produce(system: System, load_id: str, space: str = "digits") -> None:
    progress = ("--load-id", load_id, "--progress-folder", str(system.progress))
    options = ("--space", space, "--shuffle-seed", "1", "--block-rows", "16")
    system.run("produce", "labelled", "sklearn:digits", *options, *progress)


def reached(system: System, generation: int) -> bool:
    """Whether the learner's newest checkpoints cover all constraints, and the builder's all events."""
    if not system.settled(BUILDER):
        return False
    for partition, end in system.ends("constraints").items():
        place = f"{system.topic('constraints')}-{partition}"
        folder = system.root / LEARNER.application / str(generation) / place
        names = [p.name for p in folder.glob("*.manifest.json")] if folder.is_dir() else []
        if end and max((int(name[:20]) for name in names), default=-1) != end:
            return False
    return True


def outcomes(system: System) -> Counter[tuple[int, int, int]]:
    """How often each (partition, offset) of the constraints has an outcome of which generation."""
    settings = load(system.file)
    cluster = Cluster(settings.kafka)
    try:
        topic = system.topic("outcomes")
        found: Counter[tuple[int, int, int]] = Counter()
        for message in read_range(settings.kafka, topic, ends(cluster, topic)):
            identity = read_identity(message.headers)
            found[identity.partition, identity.position.offset, identity.position.generation] += 1
        return found
    finally:
        cluster.close()


def replayed(system: System, *arguments: str) -> Any:
    return json.loads(system.run("replay", "--learner", "opml", *arguments, "--json"))


def digests(result: Any, name: str = "learners") -> dict[str, str]:
    return {row["space"]: row["digest"] for row in result[name]}


@pytest.mark.kafka
def test_a_promoted_what_if_goes_on_live_without_a_gap(kafka: KafkaBroker, tmp_path: Path) -> None:
    system = System(tmp_path / "system", kafka.bootstrap, PREFIX, 2, SETTINGS)
    folder = str(tmp_path / "what-if")
    with running(system):
        system.run("topics", "create")
        _, learner = (system.start_worker(agent) for agent in (BUILDER, LEARNER))
        produce(system, "first")
        produce(system, "other", "shop")
        until(lambda: reached(system, 1), "the first generation at the end of the constraints")

        # Beside the running learner: what the other settings would have made of the same constraints.
        told = replayed(system, *CHANGE, "--save", folder)
        assert {row["space"] for row in told["comparisons"]} == {"digits", "shop"}
        for row in told["comparisons"]:
            assert row["recorded"]["scored"] == row["what_if"]["scored"] == row["certain"] > 1000
            assert row["test"]["difference"] != 0
            assert not any(row["unmatched"].values())

        with pytest.raises(RuntimeError, match=r"(?s)status 3: .*gamma: was 0\.05, is 0\.01"):
            system.run("models", "promote", folder, "--learner", "opml")
        text = system.file.read_text()
        system.file.write_text(text.replace("gamma = 0.01", 'gamma = 0.05\nscaler = "minmax"'))
        with pytest.raises(RuntimeError, match=r"status 3: .*still has 1 members"):
            system.run("models", "promote", folder, "--learner", "opml")
        assert learner.stop(60.0) == 0
        promoted: list[str] = []

        def done() -> bool:
            # A member that has gone without a word is one until its session ends.
            try:
                promoted.append(system.run("models", "promote", folder, "--learner", "opml", "--json"))
            except RuntimeError as error:
                if "still has" not in str(error):
                    raise
            return bool(promoted)

        until(done, "the model is promoted")
        made = json.loads(promoted[0])
        assert (made["before"], made["generation"]) == (1, 2)
        assert all((row["counted_again"], row["never_counted"]) == (0, 0) for row in made["partitions"])

        # Live under the new generation, killed while it works, and once more.
        before = outcomes(system)
        offsets = {row["partition"]: row["offset"] for row in made["partitions"]}
        learner = system.start_worker(LEARNER)
        until(lambda: bool(re.search("generation 2 serves", learner.log())), "the new generation")
        produce(system, "second")
        system.kill_worker(learner, at_work=True)
        produce(system, "third", "shop")
        until(lambda: reached(system, 2), "the second generation at the end of the constraints")
        assert learner.stop(60.0) == 0

        # Each constraint has an outcome of one generation: of the old one before the offset, then of the new one.
        found = outcomes(system)
        assert all(offset < offsets[p] for p, offset, _ in before)
        assert {key for key in found if key[2] == 1} == set(before)
        new = {(p, offset) for p, offset, generation in found if generation == 2}
        assert new and all(offset >= offsets[p] for p, offset in new)
        live = replayed(system, "--compare")
        assert {c["verdict"] for c in live["comparisons"]} == {"equal"}
        assert live["bit_identical"]["learners"] == ["opml"]
        assert live["input"]["learner-opml"]["applied"] == len(new) + len({key[:2] for key in before})

        # The same as the new settings from the first constraint on.
        whole = replayed(system, "--start", "0")
        assert digests(whole) == digests(live) != digests(told, "models")
        assert not system.faults()
