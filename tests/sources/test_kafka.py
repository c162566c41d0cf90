"""A source on a real Kafka: SIGKILLs, redrives, the commands around it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from kinstream.processors.clicks.counts import FATES
from kinstream.streams.kafka.clients import confluent_producer
from kinstream.streams.kafka.emitter import Emitter
from kinstream.streams.kafka.reader import read_range
from kinstream.streams.settings import KafkaSettings
from kinstream.streams.topics import CATALOGUE, Topic
from tests.kafka.broker import KafkaBroker
from tests.sources.rows import numbered
from tests.sources.shop import SEARCH, meaning, search
from tests.support.kafka_system import KafkaSystem
from tests.support.processes import SECONDS, until

pytestmark = pytest.mark.kafka
PARTITIONS: Final = 2
KILLS: Final = 8
_TOML: Final = """
[checkpoints]
url = "{url}"
interval_seconds = 0.2
[worker]
session_timeout_seconds = 3.0
heartbeat_interval_seconds = 1.0
[builders.clicks]
kind = "clicks"
rules = ["co-click"]
co_click_support = 1
[sources.shop]
topic = "{topic}"
kind = "clicks"
[sources.shop.fields]
"""


class Shop(KafkaSystem):
    """Topics of Kinstream, and a topic of the shop with another number of partitions and without keys."""

    def __init__(self, folder: Path, broker: KafkaBroker) -> None:
        name = f"shop-{uuid4().hex[:8]}"
        self.foreign = f"{name}.search"
        fields = "".join(f"{name} = {json.dumps(path)}\n" for name, path in SEARCH["fields"].items())
        text = _TOML.format(url=folder / "checkpoints", topic=self.foreign) + fields
        super().__init__(folder, broker.bootstrap, name, PARTITIONS, text)
        with self.cluster() as cluster:
            cluster.create((*CATALOGUE, Topic("search", "searches", "any", -1)), self.settings)

    def send(self, values: list[bytes], emitter: Emitter | None = None) -> None:
        own = emitter or Emitter(confluent_producer(self.settings.kafka))
        for number, value in enumerate(values):
            own.send(self.foreign, None, value, (), number % PARTITIONS)
        own.confirm(SECONDS)
        if emitter is None:
            own.close()

    def lists(self) -> tuple[dict[str, dict[str, Any]], int]:
        """Every list of the events topic by its id, and how many rows came again."""
        rows, repeated = numbered(self.read("events"))
        found = [row for some in rows.values() for row in some.values()]
        assert len({row["list_id"] for row in found}) == len(found)
        return {row["list_id"]: row for row in found}, repeated


@pytest.fixture
def shop(kafka: KafkaBroker, tmp_path: Path) -> Iterator[Shop]:
    system = Shop(tmp_path, kafka)
    yield system
    print("\n".join(system.tails()))
    system.close()


def _records(number: int, seed: int) -> tuple[list[bytes], dict[str, dict[str, Any]], int]:
    """Records, a tenth of them broken; what the others mean by list; how many are broken."""
    rng = random.Random(seed)
    values: list[bytes] = []
    wanted: dict[str, dict[str, Any]] = {}
    for n in range(number):
        record = search(n, rng)
        if rng.random() < 0.1:
            values.append(json.dumps(record).encode()[: rng.randint(1, 900)])
            continue
        values.append(json.dumps(record).encode())
        wanted[record["meta"]["event_id"]] = meaning(record)
    return values, wanted, number - len(wanted)


@pytest.mark.long
def test_a_source_that_is_killed_loses_and_repeats_no_record(shop: Shop) -> None:
    values, wanted, broken = _records(12_000, 1)
    rng = random.Random(2)
    emitter = Emitter(confluent_producer(shop.settings.kafka))
    shop.send(values[:4_000], emitter)
    for kill in range(KILLS):
        # Without a supervisor, whose pauses between restarts grow.
        worker = shop.start(f"source-{kill}", "worker", "source", "shop", "--create", "--unsupervised")
        shop.send(values[4_000 + 1_000 * kill : 5_000 + 1_000 * kill], emitter)
        worker.expect("continuing at|serves")
        before = sum(shop.ends("events").values())
        # In the midst of its work, unless the machine is so fast that it is done.
        with contextlib.suppress(TimeoutError, AssertionError):
            until(lambda seen=before: sum(shop.ends("events").values()) > seen, "it works", 10)  # type: ignore[misc]
        time.sleep(rng.uniform(0.0, 0.5))
        os.kill(worker.pid, signal.SIGKILL)
        worker.status()
    emitter.close()
    worker = shop.start("source", "worker", "source", "shop")
    worker.until_ready()
    until(lambda: len(shop.lists()[0]) >= len(wanted), "everything is mapped", 120)
    found, repeated = shop.lists()
    assert found == wanted
    letters = {(dict(m.headers)["kinstream-dead-refused"], m.value) for m in shop.read("dead-letters")}
    assert len(letters) == broken
    print(f"{KILLS} kills, {repeated} rows written again")
    # A builder that reads all copies counts every list once.
    builder = shop.start("builder", "worker", "builder", "clicks", "--create")
    builder.until_ready()
    until(lambda: builder.metric("kinstream_consumer_lag_records") == 0, "the builder is at the end")
    fates = {fate: builder.metric("kinstream_evidence_total", fate=fate) for fate in FATES["lists"]}
    assert sum(filter(None, fates.values())) == len(wanted), fates
    assert worker.stop() == 0 and builder.stop() == 0


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_topic_says_who_has_set_the_times_of_its_records(kafka: KafkaBroker, kind: str) -> None:
    settings, topic = KafkaSettings(bootstrap_servers=kafka.bootstrap), f"times-{uuid4().hex[:8]}"
    # By its own time the record is older than the retention: the broker would remove it, here within half a second.
    kafka.create_topic(topic, message_timestamp_type=kind, retention_ms="-1")
    producer = Producer(confluent_producer(settings))
    producer.produce(topic, b"v", timestamp=1_777_636_800_000)
    assert producer.flush(SECONDS) == 0
    (message,) = read_range(settings, topic, {0: (0, 1)})
    assert message.appended == (kind == "LogAppendTime")
    assert (message.timestamp_ms == 1_777_636_800_000) == (kind == "CreateTime")


def test_a_record_is_refused_corrected_and_redriven(shop: Shop) -> None:
    record = search(1, random.Random(1))
    broken = json.dumps(record).replace('"ts": ', '"ts": "yesterday", "was": ')
    shop.send([broken.encode(), json.dumps(search(2, random.Random(2))).encode()])
    tried = shop.finished("sources", "try", "shop", seconds=60)
    assert tried.returncode == 1
    assert "2 records: 1 fit, 0 left out, 1 refused; 1 bad-shape" in tried.stdout
    worker = shop.start("source", "worker", "source", "shop", "--create")
    worker.until_ready()
    until(lambda: worker.metric("kinstream_dead_letters_total", reason="bad-shape") == 1, "one is refused")
    until(lambda: len(shop.lists()[0]) == 1, "the other is mapped")
    assert worker.metric("kinstream_records_applied_total") == 1
    assert worker.stop() == 0
    shop.configure(sources__shop__fields__time="meta.was")
    fixed = shop.start("source-2", "worker", "source", "shop", "--new-generation")
    fixed.expect("source-shop: generation 2 begins")
    fixed.until_ready()
    done = shop.finished("dead-letters", "redrive", "--all", "--yes", seconds=60)
    assert done.returncode == 0, done.stdout + done.stderr
    until(lambda: len(shop.lists()[0]) == 2, "it is mapped")
    assert shop.lists()[0]["e-1"] == meaning(record)
    assert fixed.stop() == 0
