"""Outputs are confirmed, in order, and after a failure nothing more is sent. On librdkafka's own mock cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from streams.clients import confluent_producer
from streams.embedded import EmbeddedBroker
from streams.emitter import Emitter
from streams.errors import DeliveryError
from streams.reader import read_range
from streams.settings import KafkaSettings, Settings, load


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaSettings]:
    broker = EmbeddedBroker(Settings())
    yield load(overrides={"kafka.bootstrap_servers": broker.bootstrap_servers}).kafka
    broker.close()


def test_every_record_is_confirmed_in_order(kafka: KafkaSettings) -> None:
    emitter = Emitter(confluent_producer(kafka))
    for number in range(200):
        emitter.send("kinstream.events", b"a", str(number).encode(), (("h", b"v"),), 2)
    emitter.confirm(10)
    assert emitter.unconfirmed == 0
    found = list(read_range(kafka, "kinstream.events", {2: (0, 200)}))
    assert [message.value for message in found] == [str(number).encode() for number in range(200)]
    assert found[7].headers == (("h", b"v"),) and [message.previous for message in found[:3]] == [-1, 0, 1]
    emitter.close()


def test_keys_land_where_our_arithmetic_says(kafka: KafkaSettings) -> None:
    from streams.topics import partition_of

    landed: list[tuple[int, int]] = []
    emitter = Emitter(confluent_producer(kafka), on_delivery=lambda topic, *place: landed.append(place))
    for space in ("a", "digits", "shop", "x" * 100):
        emitter.send("kinstream.events", space.encode(), b"v")
    emitter.confirm(10)
    ends = Counter(partition for partition, _ in landed)
    found = list(read_range(kafka, "kinstream.events", {p: (0, end) for p, end in ends.items()}))
    assert len(found) == 4
    assert all(partition_of((m.key or b"").decode(), 4) == m.partition for m in found)
    emitter.close()


def test_a_rejected_record_forbids_every_later_one(kafka: KafkaSettings) -> None:
    emitter = Emitter(confluent_producer(kafka))
    with pytest.raises(DeliveryError):
        emitter.send("kinstream.events", b"a", b"x" * 2_000_000, (), 0)
    with pytest.raises(DeliveryError):
        emitter.send("kinstream.events", b"a", b"later", (), 0)
    with pytest.raises(DeliveryError):
        emitter.confirm(1)
    emitter.close(0.1)


def test_brokers_that_do_not_confirm_are_a_failure_at_the_deadline() -> None:
    config = confluent_producer(KafkaSettings(bootstrap_servers="127.0.0.1:1"))
    emitter = Emitter(config, deadline_seconds=0.5)
    emitter.send("kinstream.events", b"a", b"v", (), 0)
    with pytest.raises(DeliveryError, match="not confirmed"):
        emitter.confirm(0.3)
    with pytest.raises(DeliveryError):
        emitter.check()
    emitter.close(0.1)
