"""What no longer fits the birth record is refused with status 3, and the commands that the refusal names resolve it."""

from __future__ import annotations

import re

import pytest
from confluent_kafka.cimpl import NewPartitions

from kinstream.streams.agents.generations.birth import read_birth
from kinstream.streams.topics import partition_of
from tests.faults.conftest import MakeSystem
from tests.faults.processes import System
from tests.faults.reference import blocks
from tests.kafka.broker import KafkaBroker
from tests.support.processes import Process, until

BUILDER = "builder-one-pass"
LEARNER = "learner-opml"


def served(system: System, application: str = BUILDER, count: int = 10) -> System:
    """A system that has worked and ended in order."""
    workers = [system.worker(BUILDER, "--create")]
    if application == LEARNER:
        workers.append(system.worker(LEARNER, "--create"))
    system.send([*blocks("a", count), *blocks("d", count)])
    system.settle(upto=application)
    assert [worker.stop() for worker in workers] == [0] * len(workers)
    return system


def refused(process: Process, *said: str) -> str:
    """Wait for the refusal; its text."""
    assert process.status() == 3, process.log()
    for pattern in said:
        assert process.said(pattern), pattern
    assert not process.said("Traceback")
    return process.log()


def origins(system: System, role: str, generation: int, partition: int = 0) -> list[int]:
    """The input offsets of which that generation has put outputs into a topic."""
    found = set()
    for message in system.read(role):
        said = {name: (value or b"").decode() for name, value in message.headers}
        place, offset, _ = said["kinstream-origin"].rsplit("/", 2)
        if said["kinstream-generation"] == str(generation) and place.endswith(f"/{partition}"):
            found.add(int(offset))
    return sorted(found)


@pytest.mark.kafka
@pytest.mark.long
def test_changed_hyper_parameters_are_refused_until_a_new_generation_begins_where_the_old_one_ends(
    make_system: MakeSystem, kafka: KafkaBroker
) -> None:
    system = served(make_system(kafka), LEARNER)
    before = system.ends("constraints")
    system.configure(learners__opml__gamma=0.5)
    text = refused(
        system.worker(LEARNER),
        r"learner-opml generation 1 does not match its birth record",
        r"setting learners.opml.gamma: was 0.01, is 0.5",
        r"restore the old settings",
    )
    assert "`kinstream worker learner opml --new-generation`" in text
    system.configure(learners__opml__gamma=0.01)
    old = system.worker(LEARNER)
    old.expect(r"learner-opml generation 1 serves")
    old.until_ready()
    assert old.stop() == 0
    system.configure(learners__opml__gamma=0.5)
    learner = system.begin_generation(LEARNER)
    birth = read_birth(str(system.root), LEARNER, 2)
    assert birth is not None
    assert birth.start_offsets == before
    builder = system.worker(BUILDER)
    system.send(blocks("a", 5, start=10))
    system.settle()
    assert origins(system, "outcomes", 2) == list(range(before[0], system.ends("constraints")[0]))
    assert [learner.stop(), builder.stop()] == [0, 0]


@pytest.mark.kafka
@pytest.mark.long
def test_a_recreated_topic_is_refused_until_a_new_generation_reads_it_from_its_start(
    make_system: MakeSystem, kafka: KafkaBroker
) -> None:
    system = served(make_system(kafka))
    kafka.delete_topic(system.topic("events"))
    refused(
        system.worker(BUILDER), rf"topic {system.topic('events')} does not exist: kinstream topics create"
    )
    assert system.run("topics", "create")[0] == 0
    text = refused(system.worker(BUILDER), r"input topic \S+ was re-created: its id was \S+ and is \S+")
    assert "`kinstream worker builder one-pass --new-generation --from-start` reads the log again" in text
    # The new log is shorter than what the old generation has read of the other one.
    short = system.worker(BUILDER, "--new-generation")
    assert short.status() != 0
    assert short.said(r"has read \S+ partition 0 up to offset 10, and the log now ends at 0"), short.log()
    assert short.said(r"--new-generation --from-start")
    builder = system.begin_generation(BUILDER, "--from-start")
    system.send(blocks("a", 5))
    system.settle(upto=BUILDER)
    assert origins(system, "constraints", 2) == [0, 1, 2, 3, 4]
    assert builder.stop() == 0


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.parametrize("role", ["events", "constraints"])
def test_a_changed_partition_count_is_refused_until_a_new_generation_begins(
    make_system: MakeSystem, kafka: KafkaBroker, role: str
) -> None:
    system = served(make_system(kafka))
    topic = system.topic(role)
    admin = kafka.admin()
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(20)
    side = "input" if role == "events" else "output"
    text = refused(system.worker(BUILDER), rf"{side} topic {topic} had 2 partitions and has 3")
    assert "`kinstream worker builder one-pass --new-generation`" in text
    builder = system.begin_generation(BUILDER)
    at = {p: system.ends("events")[p] for p in (0, 1)}
    system.send([*blocks("a", 5, start=10), *blocks("f", 5)])
    system.settle(upto=BUILDER)
    for partition, start in at.items():
        assert origins(system, "constraints", 2, partition) == list(range(start, start + 5))
    # Where the key's hash puts it among three partitions, and not among two.
    assert (partition_of("f", 2), partition_of("f", 3)) == (1, 0)
    target = 0 if role == "constraints" else 1
    assert {message.partition for message in system.read("constraints") if message.key == b"f"} == {target}
    assert builder.stop() == 0


@pytest.mark.kafka
@pytest.mark.long
def test_another_cluster_is_refused_until_the_brokers_are_put_right(
    make_system: MakeSystem, kafka: KafkaBroker, mortal: KafkaBroker
) -> None:
    system = served(make_system(kafka))
    system.configure(mortal.bootstrap)
    system.create_topics()
    refused(
        system.worker(BUILDER),
        r"another cluster: it began on \S+, this is \S+",
        r"If this is the wrong cluster or the wrong checkpoint store, correct KAFKA_BOOTSTRAP_SERVERS",
    )
    system.configure(kafka.bootstrap)
    builder = system.worker(BUILDER)
    system.send(blocks("a", 5, start=10))
    system.settle(upto=BUILDER)
    system.check_exact(upto=BUILDER)
    assert builder.stop() == 0


@pytest.mark.kafka
@pytest.mark.long
def test_a_new_generation_waits_for_the_end_of_the_old_one_and_counts_again_only_from_the_start(
    make_system: MakeSystem, kafka: KafkaBroker
) -> None:
    system = make_system(kafka)
    builder = system.worker(BUILDER, "--create")
    system.send(blocks("a", 10))
    system.settle(upto=BUILDER)
    status, text = system.run("worker", "builder", "one-pass", "--new-generation")
    assert status != 0
    assert "builder-one-pass generation 1 still has 1 members; stop its workers first" in text
    builder.end()
    refusal = (
        r"generation 1 did not end cleanly on partition \d: it may have emitted more than its last checkpoint"
    )

    # The killed worker is a member until its session ends.
    until(lambda: not system.members(BUILDER), "the group is empty")
    text = system.run("worker", "builder", "one-pass", "--new-generation")[1]
    assert re.search(refusal, text), text
    assert read_birth(str(system.root), BUILDER, 2) is None
    # Once more, as the refusal says.
    builder = system.worker(BUILDER)
    builder.until_ready()
    assert builder.stop() == 0
    ended = system.ends("events")
    builder = system.begin_generation(BUILDER)
    birth = read_birth(str(system.root), BUILDER, 2)
    assert birth is not None
    assert birth.start_offsets == ended
    system.send(blocks("a", 5, start=10))
    system.settle(upto=BUILDER)
    assert origins(system, "constraints", 2) == [10, 11, 12, 13, 14]
    assert builder.stop() == 0
    builder = system.begin_generation(BUILDER, "--from-start", generation=3)
    system.settle(upto=BUILDER)
    assert origins(system, "constraints", 3) == list(range(15))
    assert builder.stop() == 0
