"""The harness itself: a killed broker keeps its log, and a frozen proxy is frozen and not broken."""

from __future__ import annotations

import socket
import threading
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException, Producer, TopicPartition

from tests.kafka.broker import KafkaBroker
from tests.kafka.proxy import GROUP, FreezingProxy
from tests.support import processes

until = partial(processes.until, seconds=60.0)


def client(bootstrap: str, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap, "log_level": 0, "error_cb": lambda error: None, **more}


def send(bootstrap: str, topic: str, *values: bytes) -> None:
    producer = Producer(client(bootstrap))
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(20) == 0


def bounds(broker: KafkaBroker, topic: str) -> tuple[int, int]:
    consumer = Consumer(client(broker.bootstrap, **{"group.id": "bounds"}))
    found: list[tuple[int, int]] = []

    def answered() -> bool:
        # A broker that has just started leads its partitions a moment later.
        try:
            found.append(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10))
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:
                raise
        return bool(found)

    try:
        until(answered)
    finally:
        consumer.close()
    return found[0]


@pytest.mark.kafka
def test_a_killed_broker_keeps_its_log_ports_and_cluster(own_kafka: KafkaBroker) -> None:
    own_kafka.create_topic("kept")
    cluster = own_kafka.admin().list_topics(timeout=5).cluster_id
    send(own_kafka.bootstrap, "kept", b"one")
    own_kafka.kill()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", own_kafka.port))
    own_kafka.start()
    assert bounds(own_kafka, "kept") == (0, 1)
    own_kafka.restart()
    assert bounds(own_kafka, "kept") == (0, 1)
    assert own_kafka.admin().list_topics(timeout=5).cluster_id == cluster


@pytest.mark.kafka
def test_a_paused_broker_answers_nothing_and_goes_on_where_it_was(own_kafka: KafkaBroker) -> None:
    own_kafka.create_topic("paused")
    producer = Producer(client(own_kafka.bootstrap))
    own_kafka.pause()
    producer.produce("paused", b"value")
    assert producer.flush(0.5) == 1
    own_kafka.resume()
    assert producer.flush(20) == 0


@pytest.mark.kafka
def test_a_log_loses_its_beginning_by_deletion_and_by_retention(kafka: KafkaBroker) -> None:
    kafka.create_topic("harness.short", segment_bytes="1048576", retention_bytes="1048576")
    send(kafka.bootstrap, "harness.short", *[bytes(100_000)] * 3)
    kafka.delete_records_before("harness.short", 0, 2)
    assert bounds(kafka, "harness.short") == (2, 3)
    send(kafka.bootstrap, "harness.short", *[bytes(100_000)] * 40)
    until(lambda: bounds(kafka, "harness.short")[0] > 10)
    kafka.delete_topic("harness.short")
    kafka.create_topic("harness.short")
    assert bounds(kafka, "harness.short") == (0, 0)


@pytest.mark.kafka
def test_a_client_stays_on_the_proxy_and_waits_while_it_is_frozen(
    proxied_kafka: tuple[KafkaBroker, FreezingProxy],
) -> None:
    broker, proxy = proxied_kafka
    broker.create_topic("proxied")
    producer = Producer(client(proxy.bootstrap))
    assert {one.port for one in producer.list_topics(timeout=10).brokers.values()} == {proxy.port}
    proxy.freeze()
    producer.produce("proxied", b"value")
    assert producer.flush(0.5) == 1
    assert bounds(broker, "proxied") == (0, 0)
    proxy.thaw()
    assert producer.flush(20) == 0
    proxy.cut()
    producer.produce("proxied", b"value")
    assert producer.flush(20) == 0
    assert bounds(broker, "proxied") == (0, 2)


@pytest.mark.kafka
def test_the_coordinator_can_be_frozen_alone(proxied_kafka: tuple[KafkaBroker, FreezingProxy]) -> None:
    broker, proxy = proxied_kafka
    broker.create_topic("coordinated")
    timing = {"session.timeout.ms": 1500, "heartbeat.interval.ms": 300, "auto.offset.reset": "earliest"}
    consumer = Consumer(client(proxy.bootstrap, **{"group.id": "watched", **timing}))
    try:
        consumer.subscribe(["coordinated"])
        until(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()))
        proxy.freeze(GROUP)
        admin = broker.admin()

        def abandoned() -> bool:
            group = admin.describe_consumer_groups(["watched"])["watched"].result(10)
            return bool(group.state == ConsumerGroupState.EMPTY)

        until(abandoned)
        send(proxy.bootstrap, "coordinated", b"value")
    finally:
        proxy.thaw()
        consumer.close()


def test_a_frozen_proxy_forwards_nothing_until_it_is_thawed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, FreezingProxy(server.getsockname()[1]) as proxy:
        threading.Thread(target=lambda: server.accept()[0].sendall(b"hello"), daemon=True).start()
        proxy.freeze()
        with socket.create_connection(("127.0.0.1", proxy.port)) as one:
            one.settimeout(0.2)
            with pytest.raises(TimeoutError):
                one.recv(5)
            proxy.thaw()
            one.settimeout(5)
            assert one.recv(5) == b"hello"
