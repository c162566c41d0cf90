"""Logs as other people's clusters hold them: any compression, brokers' times, IPv6, many partitions and spaces."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from confluent_kafka import Producer

from kinstream.streams.kafka.clients import confluent_producer
from kinstream.streams.kafka.emitter import Emitter
from kinstream.streams.records.codec.codec import decode_event, encode
from kinstream.streams.records.values import LoadPosition, SampleBlock, Table
from kinstream.streams.topics import CATALOGUE
from tests.crash.checker import chains, read_topic
from tests.kafka.broker import KafkaBroker
from tests.support.kafka_system import KafkaSystem
from tests.support.processes import until

pytestmark = [pytest.mark.kafka, pytest.mark.long]
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS: Final = 100
SPACES: Final = 1_000
#: Of each space: two classes, twice.
ROWS: Final = 4
#: Stamps of producers whose clocks stand still. The topic has the broker's time.
LONG_AGO_MS: Final = 1_000_000_000_000
HEADERS: Final[list[Any]] = [
    ("a", None),
    ("a", b"1"),
    ("a", b""),
    ("\u00e9", b"\xff"),
    ("traceparent", b"no"),
]
_TOML: Final = """
[checkpoints]
url = "{url}"
interval_seconds = 1.0
[builders.one-pass]
kind = "one-pass"
seed = 3
[sources.shop]
topic = "foreign"
kind = "samples"
[sources.shop.fields]
space = "tenant"
vector = "v"
label = "kind"
"""


class Ipv6Broker(KafkaBroker):
    """A broker that is reached by IPv6 alone."""

    @property
    def bootstrap(self) -> str:
        return f"[::1]:{self.port}"

    def _network(self) -> str:
        return (
            super()._network().replace(f"PLAINTEXT://127.0.0.1:{self.port}", f"PLAINTEXT://[::1]:{self.port}")
        )


@pytest.fixture
def system(tmp_path: Path) -> Iterator[KafkaSystem]:
    """Topics of 100 partitions that the broker packs, and one of another system."""
    with Ipv6Broker(tmp_path / "kafka", extra={"compression.type": "zstd"}) as broker:
        broker.create_topic("foreign", message_timestamp_type="LogAppendTime", compression_type="producer")
        text = _TOML.format(url=tmp_path / "checkpoints")
        made = KafkaSystem(tmp_path, broker.bootstrap, "many", PARTITIONS, text)
        with made.cluster() as cluster:
            cluster.create(CATALOGUE, made.settings)
        yield made
        print("\n".join(made.tails()))
        made.close()


def _send(system: KafkaSystem, topic: str, values: list[bytes | None], **more: Any) -> None:
    producer = Producer({"bootstrap.servers": system.bootstrap, "linger.ms": 50, **more})
    for value in values:
        producer.produce(topic, value, None, timestamp=LONG_AGO_MS, headers=HEADERS)
        producer.poll(0)
    assert producer.flush(60) == 0


def _vector(row: int) -> list[float]:
    return [row % 2 + row / (SPACES * ROWS), 1.0, row % 7 / 7]


def test_a_thousand_spaces_of_any_compression_go_through_a_hundred_partitions(system: KafkaSystem) -> None:
    began = time.time() * 1000
    rows = list(range(SPACES * ROWS))
    wanted = {row: (f"tenant-{row % SPACES}", row // SPACES % 2) for row in rows}
    for number, codec in enumerate(CODECS):
        part = rows[number * len(rows) // len(CODECS) : (number + 1) * len(rows) // len(CODECS)]
        values = [
            json.dumps({"tenant": wanted[row][0], "v": _vector(row), "kind": wanted[row][1]}).encode()
            for row in part
        ]
        # Each codec's batches hold a record that is none.
        _send(system, "foreign", [*values, b"", None], **{"compression.type": codec})
    source = system.start("source", "worker", "source", "shop", "--create")
    builder = system.start("builder", "worker", "builder", "one-pass", "--create")
    until(lambda: len(_seen(system)) == len(rows), "every record is a row")
    found = Counter((space, label) for space, label, _ in _seen(system).values())
    assert found == Counter(wanted.values())
    # A block has the time of the newest record in it, and that is the broker's.
    assert all(began - 1_000 <= at <= time.time() * 1000 for _, _, at in _seen(system).values())
    until(lambda: builder.metric("kinstream_consumer_lag_records") == 0, "the builder is at the end")
    # All partitions come back at once.
    os.kill(builder.worker_pid(), signal.SIGKILL)
    builder.expect("serves http", times=2)
    until(lambda: builder.metric("kinstream_consumer_lag_records") == 0, "and again")
    made = chains(read_topic(system.bootstrap, system.topic("constraints"))).taken
    assert made.keys() == {("one-pass", f"tenant-{number}") for number in range(SPACES)}
    assert source.metric("kinstream_dead_letters_total", reason="undecodable") == 2 * len(CODECS)
    assert not builder.metric("kinstream_dead_letters_total")
    assert (source.stop(), builder.stop()) == (0, 0)


def _seen(system: KafkaSystem) -> dict[tuple[str, int], tuple[str, int, int]]:
    """The rows of the events by space and number: space, label, time."""
    found = {}
    for message in system.read("events"):
        block: Any = decode_event(message.value)
        first = block.load.sequence - len(block.labels) + 1
        for number, label in enumerate(block.labels.tolist(), first):
            found[block.space, number] = block.space, label, block.time_ms
    return found


BACKLOG: Final = 10**9
BLOCKS: Final = 2_200
#: A worker holds a few fetches of a megabyte, and a queue of messages: by no means the backlog.
MOST_MORE: Final = 400 * 2**20


def test_a_gigabyte_of_backlog_is_read_in_bounded_memory(kafka: KafkaBroker, tmp_path: Path) -> None:
    text = _TOML.format(url=tmp_path / "checkpoints")
    system = KafkaSystem(tmp_path, kafka.bootstrap, f"backlog-{os.getpid()}", 1, text)
    with system.cluster() as cluster:
        cluster.create(CATALOGUE, system.settings)
    try:
        # All of the same features, which pack well; one of a kind each time, so that little is made of them.
        table = Table("x", np.random.default_rng(3).random((148, 784)).astype(np.float32))
        labels = np.zeros(148, np.int64)
        # Without idempotence a request that a slow broker does not answer in time is sent again behind later ones, and
        # the blocks of a load that come late are repeats to the builder.
        emitter = Emitter(confluent_producer(system.settings.kafka) | {"compression.type": "zstd"})
        size = 0
        for number in range(BLOCKS):
            value = encode(SampleBlock("s", (table,), labels, 1_000, None, LoadPosition("l", number)))
            size += len(value)
            emitter.send(system.topic("events"), b"s", value, partition=0)
        emitter.confirm(120.0)
        emitter.close()
        assert size > BACKLOG
        builder = system.start("builder", "worker", "builder", "one-pass", "--create")
        builder.expect("serves http")
        before = _peak(builder.worker_pid())
        until(lambda: builder.metric("kinstream_consumer_lag_records") == 0, "the builder is at the end")
        # A worker whose broker is slow may have started again: it counts from where it went on.
        went_on = int(re.findall(r"partition 0: continuing at (\d+)", builder.log())[-1])
        assert builder.metric("kinstream_records_applied_total") == BLOCKS - went_on
        more = _peak(builder.worker_pid()) - before
        print(f"{more / 2**20:.0f} MiB for a backlog of {size / 2**20:.0f} MiB")
        assert more < MOST_MORE
        assert builder.stop() == 0
    finally:
        print("\n".join(system.tails()))
        system.close()


def _peak(pid: int) -> int:
    """The most memory that a process has had, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    assert found is not None
    return 1024 * int(found[1])
