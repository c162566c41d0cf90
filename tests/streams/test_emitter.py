"""Outputs are confirmed, in order, and after a failure nothing more is sent. On librdkafka's own mock cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kinstream.streams.errors import DeliveryError
from kinstream.streams.kafka.clients import confluent_producer
from kinstream.streams.kafka.embedded_broker import EmbeddedBroker
from kinstream.streams.kafka.emitter import Emitter
from kinstream.streams.kafka.reader import read_range
from kinstream.streams.settings import KafkaSettings, Settings, load


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


def test_the_embedded_broker_is_not_taken_for_a_wrong_clock(
    kafka: KafkaSettings, caplog: pytest.LogCaptureFixture
) -> None:
    emitter = Emitter(confluent_producer(kafka))
    emitter.send("kinstream.events", b"a", b"v")
    emitter.confirm(10)
    emitter.close()
    assert [one.message for one in caplog.records if "clock" in one.message] == []


def test_keys_land_where_our_arithmetic_says(kafka: KafkaSettings) -> None:
    from kinstream.streams.topics import partition_of

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
    emitter.send("kinstream.dead-letters", b"a", b"v")
    told = r"2 records for kinstream\.dead-letters, kinstream\.events not confirmed"
    with pytest.raises(DeliveryError, match=told):
        emitter.confirm(0.3)
    with pytest.raises(DeliveryError):
        emitter.check()
    emitter.close(0.1)


class Report:
    """What librdkafka says of a record that it could not deliver."""

    def __init__(self, name: str, partition: int | None = None) -> None:
        self._name = name
        self._partition = partition

    def name(self) -> Any:
        return self._name

    def str(self) -> Any:
        return "said by a broker"

    def fatal(self) -> bool:
        return False

    def topic(self) -> Any:
        return "kinstream.dead-letters"

    def partition(self) -> int | None:
        return self._partition


@pytest.mark.parametrize(
    ("name", "partition", "told"),
    [
        (
            "UNKNOWN_TOPIC_OR_PART",
            None,
            "topic kinstream.dead-letters does not exist: kinstream topics create",
        ),
        ("_UNKNOWN_TOPIC", None, "topic kinstream.dead-letters does not exist: kinstream topics create"),
        ("MSG_SIZE_TOO_LARGE", 3, "kinstream.dead-letters partition 3 rejected a record: said by a broker"),
        ("POLICY_VIOLATION", None, "kinstream.dead-letters rejected a record: said by a broker"),
    ],
)
def test_a_record_that_was_not_delivered_is_named_with_its_topic(
    kafka: KafkaSettings, name: str, partition: int | None, told: str
) -> None:
    emitter = Emitter(confluent_producer(kafka))
    emitter.send("kinstream.dead-letters", b"a", b"v")
    emitter._acknowledged(Report(name), Report(name, partition))
    with pytest.raises(DeliveryError, match=f"^{told}$"):
        emitter.confirm(1)
    emitter.close()
