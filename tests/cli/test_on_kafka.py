"""The operator's commands against a real Kafka: what they write is what builders and learners read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from kinstream.cli.main import cli
from kinstream.cli.shared.agents import agent_spec
from kinstream.streams.agents.generations.open_generation import open_generation
from kinstream.streams.agents.machine import Machine
from kinstream.streams.kafka.clients import confluent_producer
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.emitter import Emitter
from kinstream.streams.kafka.reader import read_range
from kinstream.streams.settings import Settings, load
from kinstream.streams.topics import partition_of
from tests.kafka.broker import KafkaBroker
from tests.support.pipeline import samples

PARTITIONS = 2
TOML = """
[topics]
prefix = "operator"
partitions = {partitions}

[builders.one-pass]
kind = "one-pass"

[learners.opml]
kind = "opml"
from = ["one-pass"]
gamma = 0.01

[checkpoints]
url = "{root}"
"""


class Operator:
    """A system whose agents run when they are told to."""

    def __init__(self, folder: Path, prefix: str = "operator") -> None:
        self.config = str(folder / "kinstream.toml")
        text = TOML.format(partitions=PARTITIONS, root=folder / "checkpoints").replace("operator", prefix)
        Path(self.config).write_text(text, "utf-8")
        self.settings: Settings = load(self.config)
        self.cluster = Cluster(self.settings.kafka)

    def cli(self, *arguments: str) -> Result:
        result = CliRunner().invoke(cli, ["--config", self.config, *arguments])
        assert result.exit_code == 0, f"{arguments}: {result.output} {result.exception!r}"
        return result

    def produce(self, space: str, load: str, number: int = 4) -> None:
        emitter = Emitter(confluent_producer(self.settings.kafka))
        for value in samples(space, number, load=load):
            emitter.send(
                self.settings.topic("events"), space.encode(), value, (), partition_of(space, PARTITIONS)
            )
        emitter.confirm()
        emitter.close()

    def run(self, role: str, name: str) -> list[Machine]:
        """Take every partition over, apply what waits, checkpoint, and go."""
        spec = agent_spec(self.settings, role, name)
        generation = open_generation(spec, self.settings, self.cluster, create=True)
        emitter = Emitter(confluent_producer(self.settings.kafka))
        machines = []
        for partition in range(PARTITIONS):
            start, stop = self.cluster.bounds(generation.birth.input_topic, partition)
            runner = generation.runner(partition, emitter)
            runner.restore(generation.birth_offset(partition), start, stop)
            runner.machine.on_owned(True)
            wanted = {partition: (runner.machine.next_offset, stop)}
            runner.work(read_range(self.settings.kafka, generation.birth.input_topic, wanted))
            runner.checkpoint()
            machines.append(runner.machine)
        emitter.confirm()
        emitter.close()
        return machines


@pytest.mark.kafka
def test_an_operators_day(kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", kafka.bootstrap)
    system = Operator(tmp_path)
    system.cli("topics", "create")
    assert system.cli("dead-letters", "list").stdout.count("\n") == 1
    assert system.cli("models", "list", "--json").stdout.strip() == "[]"

    # A space is declared, learned, paused, and what came meanwhile is brought back.
    system.cli("spaces", "create", "day", "--dimension", "4", "--scaler", "unit")
    system.produce("day", "first")
    system.run("builder", "one-pass")
    system.run("learner", "opml")
    system.cli("spaces", "pause", "day")
    system.produce("day", "second")
    system.run("builder", "one-pass")
    assert json.loads(system.cli("spaces", "list", "--json").stdout)[0]["status"] == "paused"
    letters = json.loads(system.cli("dead-letters", "list", "--json").stdout)
    assert [x["reason"] for x in letters] == ["space-paused"] * 4
    assert "SampleBlock" in system.cli("dead-letters", "show", letters[0]["place"]).stdout
    system.cli("spaces", "resume", "day")
    for _ in range(2):
        assert "sent 4" in system.cli("dead-letters", "redrive", "--all", "--yes").stdout
    machine = system.run("builder", "one-pass")[partition_of("day", PARTITIONS)]
    assert (machine.counts["redriven"], machine.counts["redrives_ignored"]) == (4, 4)
    assert "0 to send" in system.cli("dead-letters", "redrive", "--all").stdout

    # The model is announced, found, and exported with what the learner does.
    learned = system.run("learner", "opml")[partition_of("day", PARTITIONS)]
    announced = system.cli("models", "list", "--json").stdout
    assert json.loads(announced) == json.loads(system.cli("models", "list", "--json", "--checkpoints").stdout)
    assert json.loads(announced)[0]["location"] in system.cli("models", "show", "day").stdout
    file = tmp_path / "day.npz"
    system.cli("models", "export", "day", "-o", str(file))
    with np.load(file) as found:
        matrix = found["map"]
    space = learned.find("day")
    assert space is not None
    X = np.random.default_rng(1).normal(size=(8, 4))
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    np.testing.assert_allclose(unit @ matrix.T, space.core.transform(X), rtol=1e-12, atol=1e-12)  # type: ignore[union-attr]

    # Deleted, it has no model any more.
    system.cli("spaces", "delete", "day", "--yes")
    system.run("builder", "one-pass")
    system.run("learner", "opml")
    assert json.loads(system.cli("models", "list", "--json").stdout) == []
    assert json.loads(system.cli("spaces", "list", "--json").stdout)[0]["status"] == "deleted"
