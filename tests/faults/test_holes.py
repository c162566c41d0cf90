"""Offsets without a record: markers and aborted records at the end of a log, and records that were compacted away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from confluent_kafka import Producer

from kinstream.streams.kafka.reader import ends, read_range
from tests.faults.conftest import MakeSystem
from tests.faults.processes import System
from tests.faults.reference import blocks, expected
from tests.kafka.broker import KafkaBroker
from tests.support.kafka_system import KafkaSystem, transactional
from tests.support.processes import Process, until

BUILDER: Final = "builder-one-pass"
GONE: Final = r"LogGap: \S+ partition 0: one-pass wants offset {}, and the log now starts at {}"
_CATALOGUE: Final = """
[checkpoints]
url = "{url}"
interval_seconds = 0.2
[worker]
session_timeout_seconds = 3.0
heartbeat_interval_seconds = 1.0
[sources.catalogue]
topic = "{topic}"
kind = "items"
space = "shop"
[sources.catalogue.fields]
id = "@key"
vector = "v"
"""


class Transactions:
    """A producer that writes sample blocks to both partitions of `events` in transactions."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._sent = 0
        self._producer = transactional(system.bootstrap, system.prefix)

    def write(self, *, commit: bool = True) -> dict[int, int]:
        """Write a transaction, and return the ends of the log, its markers included."""
        before = self._system.ends("events")
        self._producer.begin_transaction()
        for space in "ad":
            for key, value in blocks(space, 3, start=self._sent, load="yes" if commit else "no"):
                self._producer.produce(self._system.topic("events"), value, key)
        self._producer.flush(60)
        if commit:
            self._producer.commit_transaction(60)
            self._sent += 3
        else:
            self._producer.abort_transaction(60)
        wanted = {p: end + 4 for p, end in before.items()}
        until(lambda: self._system.ends("events") == wanted, "the markers are in the log")
        return wanted


def lag(system: KafkaSystem, agent: str) -> int | None:
    """What `kinstream status` says of an agent."""
    done = system.finished("status", "--json", seconds=60)
    found: dict[str, int | None] = {one["agent"]: one["behind"] for one in json.loads(done.stdout)["agents"]}
    return found[agent]


@pytest.mark.long
@pytest.mark.kafka
def test_what_a_log_without_records_has_lost_is_no_loss(make_system: MakeSystem, kafka: KafkaBroker) -> None:
    system = make_system(kafka)
    builder = system.worker(BUILDER, "--create")
    source = Transactions(system)
    source.write()
    end = source.write(commit=False)
    system.wait_for(BUILDER, end)
    until(lambda: system.committed(BUILDER, "events") == end, "the group's offsets are at the end")
    until(lambda: builder.metric("kinstream_consumer_lag_records") == 0, "the page shows no lag")
    assert lag(system, BUILDER) == 0
    read = system.read("events")
    assert builder.stop() == 0
    for partition, offset in end.items():
        kafka.delete_records_before(system.topic("events"), partition, offset)
    # Nothing was unread. It goes on there, also after a transaction of which nothing stays.
    builder = system.worker(BUILDER)
    end = source.write(commit=False)
    system.wait_for(BUILDER, end)
    assert builder.stop() == 0
    # A new generation begins after them.
    assert system.checkpoints(BUILDER)[0][-1] == end[0]
    for partition, offset in end.items():
        kafka.delete_records_before(system.topic("events"), partition, offset)
    builder = system.worker(BUILDER)
    end = source.write()
    system.wait_for(BUILDER, end)
    read += system.read("events")
    assert len(read) == 12
    assert system.states(BUILDER) == expected(system.settings, read, system.folder / "read").builder
    assert not builder.said("dropped on the way|Stalled|LogGap")
    assert builder.stop() == 0
    # Here something was: the same offsets, but nobody has seen that they hold no record.
    gone = source.write()
    kafka.delete_records_before(system.topic("events"), 0, gone[0])
    builder = system.worker(BUILDER)
    assert builder.status() == 3
    assert builder.said(GONE.format(end[0], gone[0])), builder.log()


class Catalogue(KafkaSystem):
    """A source on a compacted topic of another system."""

    def __init__(self, system: System, broker: KafkaBroker) -> None:
        self.broker = broker
        self.foreign = f"{system.prefix}.products"
        text = _CATALOGUE.format(url=system.folder / "shop", topic=self.foreign)
        super().__init__(system.folder / "shop", system.bootstrap, system.prefix, system.partitions, text)

    def create(self) -> None:
        self.broker.create_topic(
            self.foreign,
            cleanup_policy="compact",
            segment_ms="100",
            min_cleanable_dirty_ratio="0.001",
            max_compaction_lag_ms="100",
        )

    def put(self, *items: str) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for item in items:
            producer.produce(self.foreign, json.dumps({"v": [1.0, len(item)]}).encode(), item.encode())
            producer.flush(60)

    @property
    def end(self) -> int:
        with self.cluster() as cluster:
            return ends(cluster, self.foreign)[0][1]

    def held(self) -> set[int]:
        """The offsets that hold a record."""
        return {m.offset for m in read_range(self.settings.kafka, self.foreign, {0: (0, self.end)})}

    def work(self, *options: str) -> Process:
        return self.start("source", "worker", "source", "catalogue", *options)

    @contextmanager
    def settled(self, *options: str) -> Iterator[Process]:
        """A worker that reads to the end of the topic, checkpoints there, and stops."""
        worker = self.work(*options)
        worker.expect("continuing at")
        yield worker
        until(lambda: lag(self, "source-catalogue") == 0, "everything is in a checkpoint", every=0.5)
        assert worker.stop() == 0


@pytest.mark.long
@pytest.mark.kafka
def test_a_record_that_was_compacted_away_is_no_other_log(
    make_system: MakeSystem, kafka: KafkaBroker
) -> None:
    system = make_system(kafka)
    shop = Catalogue(system, kafka)
    system.processes = shop.processes
    shop.create()
    with shop.settled("--create"):
        shop.put("shoe", "hat")
    last = shop.end - 1
    # Newer versions come while it is stopped; the last record that it has read goes.
    shop.put("shoe", "hat")

    def gone() -> bool:
        shop.put("other")  # a segment that is still written to is not compacted
        return last not in shop.held()

    until(gone, "the last record that was read is compacted away", every=0.2)
    with shop.settled():
        shop.put("scarf")
    # The same name, another topic: its id says so, whatever stands at the offset.
    kafka.delete_topic(shop.foreign)
    shop.create()
    shop.put(*"abcdefgh" * 4)
    worker = shop.work()
    assert worker.status() == 3
    assert worker.said("was re-created"), worker.log()
