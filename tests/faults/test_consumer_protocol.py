"""The worker as a member by Kafka's consumer protocol (KIP-848): the promises are those of the classic one.

The oracle is that of all tests of faults: states and outputs equal those of an undisturbed run in one process.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from kinstream.streams.groups import name_of
from tests.faults.conftest import MakeSystem
from tests.faults.processes import System, continue_process, patched, stop_process
from tests.faults.reference import blocks
from tests.kafka.broker import KafkaBroker
from tests.support.processes import Process, until

pytestmark = pytest.mark.kafka

SESSION_SECONDS = 3
#: By the partitioner, they lie on all of three partitions.
SPACES = ("a", "b", "c", "d", "e", "f")
#: The brokers alone decide when a member is dead, and by default only after 45 s.
PROPERTIES = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_SECONDS * 1000),
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
}
BUILDER, LEARNER = "builder-one-pass", "learner-opml"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("consumer-kafka"), extra=PROPERTIES) as made:
        yield made


@pytest.fixture
def system(broker: KafkaBroker, make_system: MakeSystem) -> System:
    return make_system(broker, partitions=3, worker__group_protocol="consumer")


def feed(system: System, count: int, start: int = 0) -> None:
    for space in SPACES:
        system.send(blocks(space, count, start=start))


def owners(system: System, application: str) -> dict[int, int]:
    """How many members of the group hold each partition, as the brokers tell it."""
    with system.cluster() as cluster:
        group = name_of(system.prefix, application, 1)
        found = cluster.admin.describe_consumer_groups([group])[group].result(20)
    assert found.type.name == "CONSUMER"
    held = [tp.partition for member in found.members for tp in member.assignment.topic_partitions]
    return {partition: held.count(partition) for partition in set(held)}


def owned(worker: Process) -> int:
    """How many partitions a worker serves, by its page."""
    return sum(series.startswith("kinstream_consumer_position{") for series in worker.metrics())


def own(workers: list[Process], partitions: int = 3) -> bool:
    """Whether the workers, by their own pages, serve every partition once and none serves all."""
    counts = [owned(worker) for worker in workers]
    return sum(counts) == partitions and all(0 < count < partitions for count in counts)


def test_a_worker_serves_without_faust_and_leaves_its_offsets_to_lag_tools(system: System) -> None:
    feed(system, 5)
    builder, learner = system.worker(BUILDER, "--create"), system.worker(LEARNER, "--create")
    system.settle()
    assert owners(system, BUILDER) == {0: 1, 1: 1, 2: 1}
    for worker in (builder, learner):
        worker.until_ready()
        loaded = [one.path for one in psutil.Process(worker.worker_pid()).memory_maps()]
        assert any("confluent_kafka" in path for path in loaded)
        assert not any("faust" in path for path in loaded)
        assert worker.stop() == 0
    system.check_exact()
    assert system.committed(BUILDER, "events") == system.ends("events")
    assert not system.members(BUILDER)
    again = system.worker(BUILDER)
    feed(system, 5, start=5)
    system.settle(upto=BUILDER)
    assert again.stop() == 0
    system.check_exact(upto=BUILDER)


def test_a_second_worker_takes_partitions_and_gives_them_back(system: System) -> None:
    first = system.worker(BUILDER, "--create")
    first.until_ready()
    feed(system, 5)
    second = system.worker(BUILDER, tag="-second")
    until(lambda: own([first, second]), "both own partitions")
    assert owners(system, BUILDER) == {0: 1, 1: 1, 2: 1}
    feed(system, 5, start=5)
    system.settle(upto=BUILDER)
    assert second.stop() == 0
    until(lambda: owned(first) == 3, "the first owns all again")
    feed(system, 5, start=10)
    system.settle(upto=BUILDER)
    assert first.stop() == 0
    system.check_exact(upto=BUILDER)
    assert not any(worker.said("CRITICAL") or worker.said("starting it again") for worker in (first, second))


def test_a_worker_without_partitions_is_ready_and_takes_over(
    broker: KafkaBroker, make_system: MakeSystem
) -> None:
    system = make_system(broker, partitions=1, worker__group_protocol="consumer")
    first = system.worker(BUILDER, "--create")
    first.until_ready()
    spare = system.worker(BUILDER, tag="-spare")
    spare.until_ready(60)
    assert not spare.said("continuing at")
    system.send(blocks("a", 5))
    assert first.stop() == 0
    system.send(blocks("a", 5, start=5))
    system.settle(upto=BUILDER)
    assert spare.stop() == 0
    system.check_exact(upto=BUILDER)


@pytest.mark.timeout(600)
def test_kills_in_a_load_change_nothing(system: System) -> None:
    draw = random.Random(1)
    workers = [
        system.worker(application, "--create", tag=f"-{number}")
        for application in (BUILDER, LEARNER)
        for number in range(2)
    ]
    for number in range(6):
        feed(system, 20, start=20 * number)
        until(lambda: all(worker.child() for worker in workers), "all workers run")
        killed = draw.choice(workers)
        child = killed.child()
        if child is not None:
            child.kill()
            killed.expect(r"the worker ended with status -9", times=1)
    system.settle()
    wanted = system.check_exact()
    assert wanted.constraint_count() > 1000
    assert {worker.stop() for worker in workers} == {0}
    assert not any(worker.said("Traceback") or worker.said("CRITICAL") for worker in workers)


def test_a_worker_that_slept_past_its_session_changes_nothing(system: System) -> None:
    workers = [system.worker(BUILDER, "--create", tag=f"-{number}") for number in range(2)]
    until(lambda: own(workers), "both own partitions")
    feed(system, 10)
    pid = workers[0].worker_pid()
    stop_process(pid)
    try:
        feed(system, 10, start=10)
        until(lambda: owned(workers[1]) == 3, "the other owns all")
        system.settle(upto=BUILDER)
    finally:
        continue_process(pid)
    until(lambda: own(workers), "both own partitions again")
    feed(system, 10, start=20)
    system.settle(upto=BUILDER)
    assert [worker.stop() for worker in workers] == [0, 0]
    system.check_exact(upto=BUILDER)


def test_records_that_are_lost_on_the_way_are_read_again(system: System, tmp_path: Path) -> None:
    environment = patched(
        tmp_path / "patch",
        """
        from kinstream.streams.worker import consumer_group

        put = consumer_group.Feed.put
        lost = []

        def _put(self, messages):
            if not lost:
                lost.extend(m for m in messages if m.offset == 4)
                messages = [m for m in messages if m.offset != 4]
            put(self, messages)

        consumer_group.Feed.put = _put
        """,
    )
    builder = system.worker(BUILDER, "--create", environment=environment)
    system.send(blocks("a", 12))
    builder.expect(r"records were dropped on the way; reading again at \d+")
    system.settle(upto=BUILDER)
    assert builder.stop() == 0
    system.check_exact(upto=BUILDER)


class OlderBroker(KafkaBroker):
    """A broker that has the classic protocol alone."""

    def _format_options(self) -> list[str]:
        return ["-f", "group.version=0"]


def test_brokers_without_the_protocol_are_refused(tmp_path: Path, make_system: MakeSystem) -> None:
    with OlderBroker(tmp_path / "older") as older:
        system = make_system(older, worker__group_protocol="consumer")
        builder = system.worker(BUILDER, "--create")
        assert builder.status() == 3
        assert builder.said(
            r'SettingsError: \[worker\] group_protocol = "consumer" needs Kafka 4\.0 or later: '
        )
        assert not builder.said("Traceback")


def test_an_outage_and_aborted_transactions_at_the_end_of_the_log(
    make_system: MakeSystem, mortal: KafkaBroker
) -> None:
    system = make_system(mortal, worker__group_protocol="consumer")
    builder = system.worker(BUILDER, "--create")
    feed(system, 5)
    system.settle(upto=BUILDER)
    child = builder.child()
    mortal.kill()
    builder.expect("No broker answers at")
    mortal.start()
    builder.expect("the brokers answer again")
    feed(system, 5, start=5)
    system.settle(upto=BUILDER)
    assert builder.child() == child
    abort(system)
    lag = "kinstream_consumer_lag_records"
    until(lambda: builder.metric(lag) == 0, "no lag is left behind transaction markers", 30)
    assert builder.stop() == 0
    system.check_exact(upto=BUILDER)


def abort(system: System) -> None:
    """Write to all partitions of `events` in a transaction that is aborted."""
    config: dict[str, Any] = {"bootstrap.servers": system.bootstrap, "transactional.id": system.prefix}
    producer = Producer(config)
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in system.ends("events"):
        producer.produce(system.topic("events"), b"never seen", partition=partition)
    producer.flush(30)
    producer.abort_transaction(30)
