"""Outputs that the broker rejects or does not confirm: the worker starts again, and nothing is lost behind them."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from tests.faults.conftest import MakeSystem
from tests.faults.reference import blocks
from tests.kafka.broker import KafkaBroker
from tests.kafka.proxy import PRODUCE, FreezingProxy
from tests.support.processes import until

BUILDER = "builder-one-pass"


def largest_message(kafka: KafkaBroker, topic: str, size: int) -> None:
    """Limit the records of a topic, and wait until its broker knows: the controller answers first."""
    name = "max.message.bytes"
    entry = ConfigEntry(name, str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = kafka.admin()
    admin.incremental_alter_configs([resource])[resource].result(20)
    asked = ConfigResource(ResourceType.TOPIC, topic)
    until(
        lambda: admin.describe_configs([asked])[asked].result(20)[name].value == str(size),
        "the limit is known",
    )


@pytest.mark.kafka
def test_an_output_that_the_broker_rejects_stops_the_worker_and_nothing_behind_it_is_lost(
    make_system: MakeSystem, kafka: KafkaBroker
) -> None:
    system = make_system(kafka)
    builder = system.worker(BUILDER, "--create")
    system.send(blocks("a", 5))
    system.settle(upto=BUILDER)
    largest_message(kafka, system.topic("constraints"), 2_000)
    # The large block is rejected; the small ones behind it would pass.
    system.send([*blocks("a", 1, start=5, rows=200), *blocks("a", 20, start=6, rows=4)])
    # Which of librdkafka's two ways of telling comes first is up to its threads.
    rejected = rf"{system.topic('constraints')} partition 0 rejected a record: .*too large"
    builder.expect(
        rf"DeliveryError: ({rejected}|the producer failed permanently: .*{system.topic('constraints')})"
    )
    builder.expect(r"the worker ended with status 75; starting it again", times=2)
    assert not builder.said("Traceback")
    assert system.checkpoints(BUILDER)[0][-1] == 5
    assert len(system.read("constraints")) == 5
    assert system.committed(BUILDER, "events").get(0, 0) <= 5
    largest_message(kafka, system.topic("constraints"), 1_048_588)
    system.settle(upto=BUILDER)
    system.check_exact(upto=BUILDER)
    assert builder.stop() == 0


@pytest.mark.kafka
@pytest.mark.long
def test_a_deleted_output_topic_stops_the_worker_and_then_its_start_is_refused(
    make_system: MakeSystem, kafka: KafkaBroker
) -> None:
    system = make_system(kafka, worker__delivery_deadline_seconds=4.0)
    builder = system.worker(BUILDER, "--create")
    system.send(blocks("a", 5))
    system.settle(upto=BUILDER)
    kafka.delete_topic(system.topic("constraints"))
    system.send(blocks("a", 5, start=5))
    assert builder.status() == 3
    assert builder.said(r"DeliveryError: ")
    assert builder.said(r"the worker ended with status 75; starting it again")
    assert builder.said(
        rf"kinstream: topic {system.topic('constraints')} does not exist: kinstream topics create"
    )
    assert system.checkpoints(BUILDER)[0][-1] == 5
    assert system.run("topics", "create")[0] == 0
    builder = system.worker(BUILDER)
    assert builder.status() == 3
    assert builder.said(r"output topic \S+ was re-created")
    builder = system.begin_generation(BUILDER, "--from-start")
    system.wait_for(BUILDER, system.ends("events"))
    system.check_exact(upto=BUILDER)
    assert builder.stop() == 0


@pytest.mark.kafka
@pytest.mark.long
def test_an_output_that_is_not_confirmed_within_the_deadline_stops_the_worker_and_nothing_is_lost(
    make_system: MakeSystem, mortal: KafkaBroker, proxy: FreezingProxy
) -> None:
    system = make_system(mortal, worker__delivery_deadline_seconds=3.0)
    builder = system.worker(BUILDER, "--create", environment={"KAFKA_BOOTSTRAP_SERVERS": proxy.bootstrap})
    system.send(blocks("a", 5))
    system.settle(upto=BUILDER)
    proxy.freeze(PRODUCE)
    system.send(blocks("a", 20, start=5))
    builder.expect(r"DeliveryError: \d+ records for \S+ not confirmed (for 3 s|within the deadline)")
    builder.expect(r"the worker ended with status 75; starting it again")
    assert system.checkpoints(BUILDER)[0][-1] == 5
    proxy.thaw()
    system.settle(upto=BUILDER)
    system.check_exact(upto=BUILDER)
    assert builder.stop() == 0


@pytest.mark.kafka
@pytest.mark.long
def test_a_broker_that_stands_still_for_longer_than_the_deadline_changes_nothing(
    make_system: MakeSystem, mortal: KafkaBroker
) -> None:
    system = make_system(mortal, worker__delivery_deadline_seconds=2.0)
    workers = [system.worker(BUILDER, "--create"), system.worker("learner-opml", "--create")]
    system.send([*blocks("a", 200), *blocks("d", 200)])
    until(lambda: any(system.checkpoints(BUILDER).values()), "the stream is under way")
    mortal.pause()
    # As long as the scenario takes: past the deadline and the group's session.
    time.sleep(6.0)
    mortal.resume()
    system.send(blocks("a", 10, start=200))
    system.settle()
    system.check_exact()
    assert [worker.stop() for worker in workers] == [0, 0]
