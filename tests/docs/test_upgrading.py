"""The page about upgrading: a gate that does not know the catalogue gets it again, and nobody else notices."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition

from kinstream.cli.main import cli
from kinstream.gate.agent import gate_spec
from kinstream.processors.agent import builder_spec
from kinstream.streams.agents.machine import Machine
from kinstream.streams.checkpoints.state_bytes import to_bytes
from tests.cli.system import EVENTS
from tests.docs.pages import ROOT, blocks
from tests.gate.gates import SECRET
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent, settings

ITEMS = 30


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Producer:
    cluster = Producer({"bootstrap.servers": "x:1", "test.mock.num.brokers": 1, "log_level": 2})
    address = next(iter(cluster.list_topics(timeout=10).brokers.values()))
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", f"{address.host}:{address.port}")
    monkeypatch.chdir(tmp_path)
    return cluster


def events(broker: Producer) -> list[Any]:
    """What is in the topic, in order; all of it is of one space."""
    address = next(iter(broker.list_topics(timeout=10).brokers.values()))
    consumer = Consumer(
        {
            "bootstrap.servers": f"{address.host}:{address.port}",
            "group.id": "test",
            "enable.partition.eof": True,
        }
    )
    found: list[Any] = []
    for partition in broker.list_topics(EVENTS, timeout=10).topics[EVENTS].partitions:
        consumer.assign([TopicPartition(EVENTS, partition, 0)])
        while True:
            record: Any = consumer.poll(10)
            if record.error():
                break
            found.append(record)
    consumer.close()
    return found


def produce(command: str) -> None:
    name, *arguments = shlex.split(command)
    assert name == "kinstream"
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output


@pytest.mark.long
def test_a_gate_that_does_not_know_the_catalogue_gets_it_again(broker: Producer, tmp_path: Path) -> None:
    (recipe,) = [
        b.text for b in blocks(ROOT / "docs" / "upgrading.md", "sh") if b.before == "<!-- test: catalogue -->"
    ]
    again = recipe.splitlines()[0]
    rows = np.random.default_rng(3).normal(size=(ITEMS, 3))
    lines = [f"sku-{n},{','.join(map(str, row))}" for n, row in enumerate(rows)]
    (tmp_path / "catalogue.csv").write_text("\n".join(["sku,a,b,c", *lines]) + "\n")
    produce(again.removesuffix(" --progress-folder again"))
    before = len(events(broker))
    produce(again)
    sent = events(broker)
    assert len(sent) == 2 * before

    config = settings(
        builders={"clicks": {"kind": "clicks"}}, learners={}, gate={"docs": {}}, gate_key=SECRET
    )
    log = MemoryLog(partitions=1)
    builder = Agent(builder_spec(config, "clicks"), config, log, tmp_path / "builder")
    for record in sent[:before]:
        log.append(EVENTS, record.key(), record.value())
    builder.run()
    known = core(builder)
    # The gate begins here.
    fresh = MemoryLog(partitions=1)
    late = Agent(gate_spec(config), config, fresh, tmp_path / "late")
    for record in sent[before:]:
        log.append(EVENTS, record.key(), record.value())
        fresh.append(EVENTS, record.key(), record.value())
    builder.run()
    late.run()
    assert core(builder) == known
    assert builder.runners[0].machine.counts["duplicates"] > 0
    gate: Any = late.runners[0].machine.find("docs")
    assert gate.core.exposure.exposed().catalogue == ITEMS


def core(agent: Agent) -> bytes:
    machine: Machine = agent.runners[0].machine
    space: Any = machine.find("docs")
    return to_bytes(space.core.state())
