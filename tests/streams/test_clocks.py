"""A machine whose clock is wrong is told so, with both times: where brokers stamp records, and where it does."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from kinstream.streams.errors import ClockWrong, DeliveryError
from kinstream.streams.kafka import clocks
from kinstream.streams.kafka.clients import confluent_producer
from kinstream.streams.kafka.emitter import Emitter
from kinstream.streams.records.message import Message
from kinstream.streams.settings import KafkaSettings
from kinstream.streams.topics import CATALOGUE
from kinstream.streams.worker.worker import FOR_PEOPLE
from tests.kafka.broker import KafkaBroker

HOUR = 3_600_000
NOW = 1_790_000_000_000


@dataclass
class Delivered:
    """A record as librdkafka reports it."""

    stamped: int
    seconds: float = 0.01
    kind: int = 2

    def timestamp(self) -> tuple[int, int]:
        return self.kind, self.stamped

    def latency(self) -> float:
        return self.seconds

    def topic(self) -> str:
        return "kinstream.events"

    def partition(self) -> int:
        return 3


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "_now_ms", lambda: NOW)


@pytest.mark.parametrize(
    ("stamped", "how"),
    [
        (NOW - HOUR, "3,600 s ahead of"),
        (NOW + HOUR, "3,600 s behind"),
        (NOW - 240_000, ""),
        (NOW + 240_000, ""),
    ],
)
def test_what_a_broker_has_stamped_says_how_far_the_clocks_are_apart(stamped: int, how: str) -> None:
    found = clocks.apart(Delivered(stamped))
    assert (found is None) == (how == "")
    if found is not None:
        assert f"says 2026-09-21T14:13:20+00:00, and is {how} that of the broker" in found


def test_a_process_that_was_frozen_and_a_stamp_of_its_own_say_nothing() -> None:
    assert clocks.apart(Delivered(NOW - HOUR, seconds=3_601.0)) is None
    assert clocks.apart(Delivered(NOW - HOUR, kind=1)) is None


@pytest.mark.parametrize("hours", [-200, 0, 1])
def test_records_of_a_later_time_are_told_once(hours: int, caplog: pytest.LogCaptureFixture) -> None:
    record = Message("kinstream.events", 0, 7, NOW + hours * HOUR, b"docs", b"", (), 6)
    owned = owned_of(record)
    with caplog.at_level(logging.WARNING, "kinstream.worker"):
        for _ in range(3):
            asyncio.run(owned.put([record]))
    told = [one.message for one in caplog.records]
    assert len(told) == (1 if hours > 0 else 0)
    assert all(
        "offset 7" in text and "this machine's clock, which says 2026-09-21T14:13:20" in text for text in told
    )


def owned_of(record: Message) -> Any:
    from kinstream.streams.worker.partition_task import Owned

    class Runner:
        class machine:
            next_offset = 0

    parts: Any = {"runner": Runner, "host": None, "parking": None}
    return Owned(
        (record.topic, record.partition),
        **parts,
        interval_seconds=1.0,
        live_at=0,
        live=True,
        emitted_to=0,
        careful=False,
    )


@pytest.mark.parametrize("name", ["INVALID_TIMESTAMP", "INVALID_RECORD", ""])
def test_a_record_that_is_rejected_for_its_time_names_the_clock_and_ends_the_worker_for_people(
    name: str,
) -> None:
    emitter = Emitter({"bootstrap.servers": "127.0.0.1:9"})

    class Rejected:
        def name(self) -> str:
            return name

    emitter._fail(Rejected(), name or "the producer failed: Broker: Invalid timestamp (broker 1)")
    with pytest.raises(
        ClockWrong, match=r"The clock of this machine, which says 2026.*that of the broker"
    ) as error:
        emitter.check()
    assert isinstance(error.value, DeliveryError) and error.value.exit_status == 3
    assert ClockWrong in FOR_PEOPLE
    emitter.close(0)


def test_brokers_stamp_the_records_of_every_topic() -> None:
    assert {topic.config(1)["message.timestamp.type"] for topic in CATALOGUE} == {"LogAppendTime"}


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.parametrize("number", [1, 200])
@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"message_timestamp_before_max_ms": "1"}, ClockWrong),
        ({"message_timestamp_before_max_ms": "1", "message_timestamp_type": "LogAppendTime"}, None),
    ],
    ids=["the worker stamps", "the broker stamps"],
)
def test_a_broker_that_takes_no_stamp_of_this_machine(
    kafka: KafkaBroker,
    number: int,
    limits: Any,
    told: type[DeliveryError] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one whose clock is far from this machine's takes none."""
    monkeypatch.undo()
    topic = f"stamped-{uuid4().hex[:8]}"
    kafka.create_topic(topic, **limits)
    emitter = Emitter(confluent_producer(KafkaSettings(bootstrap_servers=kafka.bootstrap)))
    try:
        for _ in range(number):
            emitter.send(topic, b"k", b"v" * 1_000)
        emitter.confirm(30)
    except DeliveryError as error:
        assert told is not None and type(error) is told
        assert "clock of this machine" in str(error)
    else:
        assert told is None
    finally:
        emitter.close(1)
