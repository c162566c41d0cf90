"""A topic that is re-created, deleted or given more partitions under running agents is noticed by each that uses it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any, Final

import pytest
from confluent_kafka.cimpl import NewPartitions

from kinstream.streams.records.codec.codec import decode_constraints, decode_outcome
from kinstream.streams.records.values import ConstraintBlock, Outcome
from kinstream.streams.topics import partition_of
from tests.faults.conftest import MakeSystem
from tests.faults.processes import AGENTS, System
from tests.faults.reference import blocks
from tests.kafka.broker import KafkaBroker
from tests.support.processes import Process, until

BUILDER: Final = "builder-one-pass"
LEARNER: Final = "learner-opml"
METRICS: Final = "metrics"
#: Who reads or writes which topic, and what each does with it.
USERS: Final = {
    "events": {BUILDER: "reads"},
    "constraints": {BUILDER: "writes", LEARNER: "reads"},
    "outcomes": {LEARNER: "writes", METRICS: "reads"},
    "models": {LEARNER: "writes"},
    "updates": {LEARNER: "writes"},
    "dead-letters": {BUILDER: "writes", LEARNER: "writes", METRICS: "writes"},
}


def command(application: str) -> str:
    return "kinstream worker " + " ".join(AGENTS[application])


def running(system: System) -> dict[str, Process]:
    """All agents, which have worked and have nothing left to do."""
    workers = {name: system.worker(name, "--create") for name in (BUILDER, LEARNER, METRICS)}
    system.send([*blocks("a", 6), *blocks("d", 6)])
    system.settle()
    system.wait_for(METRICS, system.ends("outcomes"))
    return workers


def recreate(system: System, kafka: KafkaBroker, role: str) -> None:
    kafka.delete_topic(system.topic(role))
    assert system.run("topics", "create")[0] == 0


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.parametrize("role", USERS)
def test_a_recreated_topic_stops_every_agent_that_uses_it(
    make_system: MakeSystem, kafka: KafkaBroker, role: str
) -> None:
    system = make_system(kafka, learners__opml__publish_updates=True)
    workers = running(system)
    recreate(system, kafka, role)
    for application, does in USERS[role].items():
        worker = workers[application]
        assert worker.status(60.0) == 3, worker.log()
        assert worker.said(rf"topic {system.topic(role)}, which {application} {does}, was re-created"), (
            worker.log()
        )
        assert worker.said(command(application))
        assert not worker.said("Traceback")
    others = [worker for application, worker in workers.items() if application not in USERS[role]]
    assert [worker.stop() for worker in others] == [0] * len(others)


@pytest.mark.kafka
@pytest.mark.long
def test_nothing_of_a_recreated_topic_gets_into_a_checkpoint(
    make_system: MakeSystem, kafka: KafkaBroker
) -> None:
    system = make_system(kafka, checkpoints__interval_seconds=2.0)
    workers = running(system)
    before = {name: system.checkpoints(name) for name in (BUILDER, LEARNER)}
    recreate(system, kafka, "constraints")
    # More than there was, at once: offsets alone would not show that it is another log.
    system.send([*blocks("a", 20, start=6), *blocks("d", 20, start=6)])
    for name in (BUILDER, LEARNER):
        assert workers[name].status(60.0) == 3, workers[name].log()
    assert {name: system.checkpoints(name) for name in (BUILDER, LEARNER)} == before
    assert workers[METRICS].stop() == 0


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("application", "role"), [(BUILDER, "dead-letters"), (LEARNER, "models"), (METRICS, "dead-letters")]
)
def test_a_topic_that_is_missing_at_the_start_is_named(
    make_system: MakeSystem, kafka: KafkaBroker, application: str, role: str
) -> None:
    system = make_system(kafka)
    kafka.delete_topic(system.topic(role))
    worker = system.worker(application, "--create")
    assert worker.status(60.0) == 3, worker.log()
    assert worker.said(f"kinstream: topic {system.topic(role)} does not exist: kinstream topics create")


@pytest.mark.kafka
@pytest.mark.long
def test_a_topic_that_goes_missing_is_named_before_anything_is_to_be_written_into_it(
    make_system: MakeSystem, kafka: KafkaBroker
) -> None:
    system = make_system(kafka)
    workers = running(system)
    kafka.delete_topic(system.topic("dead-letters"))
    for application, worker in workers.items():
        assert worker.status(60.0) == 3, worker.log()
        assert worker.said(
            f"topic {system.topic('dead-letters')}, which {application} writes, does not exist: kinstream topics create"
        ), worker.log()
    assert system.run("topics", "create")[0] == 0
    again = {name: system.worker(name) for name in (BUILDER, LEARNER, METRICS)}
    system.send([*blocks("a", 6, start=6), ("a", b"rubbish")])
    system.settle()
    system.check_exact()
    assert len(system.read("dead-letters")) == 1
    assert [worker.stop() for worker in again.values()] == [0, 0, 0]


# ---- more partitions ------------------------------------------------------------------------------------------------


def ready(worker: Process) -> tuple[int, dict[str, Any]]:
    """Status and answer of `/readyz`; 0 while nothing answers."""
    pages = [
        line.split("serves ")[1].removesuffix("/metrics")
        for line in worker.log().splitlines()
        if " serves " in line
    ]
    if not pages:
        return 0, {}
    try:
        with urllib.request.urlopen(f"{pages[-1]}/readyz", timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def failing(worker: Process) -> dict[str, str]:
    """The checks that do not hold, with what they say."""
    return {
        check["name"]: check.get("message", "") for check in ready(worker)[1]["checks"] if not check["ok"]
    }


def shows(system: System, worker: Process, role: str, number: int) -> bool:
    return worker.metric("kinstream_topic_partitions_added", topic=system.topic(role)) == number


def built(system: System) -> int:
    """Constraints in the log, each once."""
    values = [value for chain in system.chain("constraints").values.values() for value in chain]
    records = [decode_constraints(value) for value in values]
    return sum(len(record) for record in records if isinstance(record, ConstraintBlock))


def learned(system: System) -> int:
    """Constraints of which the log holds an outcome, each once for each generation."""
    values = [value for chain in system.chain("outcomes").values.values() for value in chain]
    records = [decode_outcome(value) for value in values]
    counts = [record.counts for record in records if isinstance(record, Outcome)]
    return sum(one.seen + one.rejected + one.ignored + one.held_out for one in counts)


def seen(worker: Process) -> float:
    """Constraints that the metrics agent has counted."""
    fates = ("seen", "rejected", "ignored", "held_out")
    return sum(worker.metric(f"kinstream_constraints_{fate}_total") or 0.0 for fate in fates)


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.parametrize("role", ["events", "constraints"])
def test_partitions_that_are_added_are_noticed_and_the_command_that_is_named_takes_them_into_use(
    make_system: MakeSystem, kafka: KafkaBroker, role: str
) -> None:
    system = make_system(kafka, partitions=4)
    workers = running(system)
    until(lambda: all(ready(worker)[0] == 200 for worker in workers.values()), "all are ready")
    users = [workers[application] for application in USERS[role]]
    assert all(shows(system, worker, role, 0) for worker in users)
    topic = system.topic(role)
    admin = kafka.admin()
    admin.create_partitions([NewPartitions(topic, 6)])[topic].result(20)
    until(lambda: all(ready(worker)[0] == 503 for worker in users), "all that use it are not ready", 60.0)
    until(lambda: all(shows(system, worker, role, 2) for worker in users), "the gauge says two", 60.0)
    for worker in users:
        assert set(failing(worker)) == {"topic_partitions_added"}
        message = failing(worker)["topic_partitions_added"]
        assert f"{topic} has 6 partitions, not 4" in message
        assert "kinstream topics repartition --partitions 6" in message
        assert worker.said("kinstream topics repartition --partitions 6")
    assert all(ready(worker)[0] == 200 for worker in workers.values() if worker not in users)
    # Who knows the old number is served as before, and who knows the new one waits.
    system.send(blocks("a", 4, start=6), partition=partition_of("a", 4))
    system.wait_for(BUILDER, {p: end for p, end in system.ends("events").items() if p < 4})
    system.settle_learner()
    if role == "events":
        assert partition_of("a", 6) == 4
        system.send(blocks("a", 3, start=10), partition=4)
    system.wait_for(METRICS, system.ends("outcomes"))
    assert [worker.stop() for worker in workers.values()] == [0, 0, 0]
    refused = system.worker(BUILDER)
    assert refused.status() == 3
    assert refused.said("`kinstream topics repartition --partitions 6`"), refused.log()
    until(lambda: not any(system.members(name) for name in workers), "the groups are empty")
    status, text = system.run("topics", "repartition", "--partitions", "6")
    assert status == 0, text
    system.configure(topics__partitions=6)
    again = {name: system.worker(name) for name in workers}
    system.send(blocks("a", 2, start=13))
    system.settle()
    system.wait_for(METRICS, system.ends("outcomes"))
    until(lambda: all(ready(worker)[0] == 200 for worker in again.values()), "all are ready")
    assert all(shows(system, again[application], role, 0) for application in USERS[role])
    blocks_sent = 12 + 4 + (3 if role == "events" else 0) + 2
    applied = [system.partition_state(BUILDER, p, generation=2)["count.applied"] for p in range(6)]
    assert sum(applied) == blocks_sent
    assert built(system) == learned(system) == seen(again[METRICS]) > 0
    assert [worker.stop() for worker in again.values()] == [0, 0, 0]
