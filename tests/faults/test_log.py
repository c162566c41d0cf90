"""Logs with holes: what retention has eaten stops the worker, what a transaction has aborted never existed."""

from __future__ import annotations

import re
import time

import pytest

from tests.faults.conftest import MakeSystem
from tests.faults.processes import continue_process, stop_process
from tests.faults.reference import blocks, expected
from tests.kafka.broker import KafkaBroker
from tests.support.kafka_system import transactional
from tests.support.processes import until

BUILDER = "builder-one-pass"
LEARNER = "learner-opml"


@pytest.mark.kafka
@pytest.mark.parametrize(
    "running",
    [
        pytest.param(False, id="at-start"),
        pytest.param(True, id="while-it-runs", marks=pytest.mark.long),
    ],
)
def test_records_that_retention_has_eaten_stop_the_worker_until_an_operator_accepts_the_gap(
    make_system: MakeSystem, kafka: KafkaBroker, running: bool
) -> None:
    system = make_system(kafka, worker__session_timeout_seconds=10.0)
    builder = system.worker(BUILDER, "--create")
    system.send(blocks("a", 10))
    system.settle(upto=BUILDER)
    child = builder.worker_pid()
    if running:
        stop_process(child)
        # A fetch that waits at the broker is answered after 1.5 s; it must not bring the records.
        time.sleep(2.5)
    else:
        assert builder.stop() == 0
    system.send(blocks("a", 10, start=10))
    events = system.read("events")
    kafka.delete_records_before(system.topic("events"), 0, 15)
    if running:
        continue_process(child)
    else:
        builder = system.worker(BUILDER)
    assert builder.status() == 3
    said = re.search(
        r"LogGap: \S+ partition 0: one-pass wants offset 10, and the log now starts at 15: up to 5 records are gone. "
        r".* To continue without them: kinstream (accept-gap one-pass --partition 0 --offset 15)",
        builder.log(),
    )
    assert said, builder.log()
    assert len(system.read("constraints")) <= 10
    status, output = system.run(*said[1].split())
    assert status == 0, output
    builder = system.worker(BUILDER)
    builder.expect(r"continuing at 15, 5 records were lost and accepted")
    system.settle(upto=BUILDER)
    kept = [event for event in events if not 10 <= event.offset < 15]
    assert system.states(BUILDER) == expected(system.settings, kept, system.folder / "kept").builder
    assert builder.stop() == 0


@pytest.mark.kafka
def test_one_start_names_what_retention_has_eaten_of_every_partition(
    make_system: MakeSystem, kafka: KafkaBroker
) -> None:
    system = make_system(kafka)
    builder = system.worker(BUILDER, "--create")
    system.send([*blocks("a", 10), *blocks("d", 10)])
    system.settle(upto=BUILDER)
    assert builder.stop() == 0
    system.send([*blocks("a", 5, start=10), *blocks("d", 5, start=10)])
    kafka.delete_records_before(system.topic("events"), 0, 12)
    kafka.delete_records_before(system.topic("events"), 1, 13)
    builder = system.worker(BUILDER)
    assert builder.status() == 3
    commands = re.findall(r"kinstream (accept-gap one-pass --partition \d --offset \d+)", builder.log())
    assert commands == [
        "accept-gap one-pass --partition 0 --offset 12",
        "accept-gap one-pass --partition 1 --offset 13",
    ]
    status, text = system.run(*commands[0].split()[:-1], "16")
    assert status == 2
    assert f"--offset 16: {system.topic('events')} partition 0 ends at 15" in text
    for command in commands:
        assert system.run(*command.split())[0] == 0
    builder = system.worker(BUILDER)
    system.settle(upto=BUILDER)
    assert builder.stop() == 0


@pytest.mark.kafka
@pytest.mark.long
def test_outputs_that_the_log_has_lost_stop_their_consumer_until_an_operator_accepts_the_gap(
    make_system: MakeSystem, kafka: KafkaBroker
) -> None:
    system = make_system(kafka)
    builder = system.worker(BUILDER, "--create")
    learner = system.worker(LEARNER, "--create")
    system.send(blocks("a", 10))
    system.settle()
    assert learner.stop() == 0
    system.send(blocks("a", 10, start=10))
    system.settle(upto=BUILDER)
    end = system.ends("constraints")[0]
    kafka.delete_records_before(system.topic("constraints"), 0, end - 3)
    learner = system.worker(LEARNER)
    assert learner.status() == 3
    said = re.search(r"kinstream (accept-gap opml --partition 0 --offset \d+)", learner.log())
    assert said, learner.log()
    assert system.run(*said[1].split())[0] == 0
    learner = system.worker(LEARNER)
    system.settle()
    assert len(system.chain("outcomes").values["opml", "a"]) == end - 7
    assert [builder.stop(), learner.stop()] == [0, 0]


@pytest.mark.kafka
@pytest.mark.long
def test_aborted_transactions_are_never_applied_and_their_markers_disturb_nothing(
    make_system: MakeSystem, kafka: KafkaBroker
) -> None:
    stall = 5.0
    system = make_system(kafka, worker__stall_seconds=stall)
    workers = [system.worker(BUILDER, "--create"), system.worker(LEARNER, "--create")]
    producer = transactional(kafka.bootstrap, system.prefix)
    for number in range(10):
        producer.begin_transaction()
        aborted = number % 3 == 0
        for space in "ad":
            for key, value in blocks(space, 3, start=3 * number, load="no" if aborted else "yes"):
                producer.produce(system.topic("events"), value, key)
        producer.flush(20)
        if aborted:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
    # The last one was aborted: the log ends with records that are never delivered, and a marker.
    events = system.read("events")
    assert len(events) == 6 * 6
    last = {p: max(e.offset for e in events if e.partition == p) + 1 for p in (0, 1)}
    # Transactions are told to be aborted before the markers are in the log.
    until(lambda: all(system.ends("events")[p] > last[p] + 1 for p in (0, 1)), "the markers are there")
    system.wait_for(BUILDER, last)
    system.settle_learner()
    system.check_exact()
    until(lambda: workers[0].metric("kinstream_consumer_lag_records") == 0, "the lag goes to zero")
    quiet_since = time.monotonic()
    until(lambda: time.monotonic() - quiet_since > 2 * stall, "a silence longer than the watchdog's patience")
    assert not any(worker.said("Stalled|starting it again|dropped on the way") for worker in workers)
    assert [worker.stop() for worker in workers] == [0, 0]
    # And from a checkpoint in front of the aborted end.
    again = system.worker(BUILDER)
    system.send(blocks("a", 3, start=30, load="yes"))
    system.wait_for(BUILDER, {0: system.ends("events")[0]})
    system.check_exact(upto=BUILDER)
    assert again.stop() == 0
