"""Half of a surrogate pair, as JavaScript's `slice` makes of an emoji, on a real broker."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy

from kinstream.streams.errors import Reason
from kinstream.streams.operations.letters import LetterFilter, choose
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.values import SampleBlock, Table
from tests.faults.conftest import MakeSystem
from tests.faults.poison import Poison
from tests.faults.processes import System
from tests.faults.reference import blocks
from tests.faults.test_poison import BUILDER, HEADERS, LEARNER, check, check_counters
from tests.kafka.broker import KafkaBroker
from tests.streams.test_odd_headers import Bytes
from tests.support.processes import Process

HALF = "\ud83d"
ROW = [1.0] * 8


def event(space: str, **changes: Any) -> bytes:
    """A sample as `JSON.stringify` writes it."""
    plain = {"kind": "samples", "space": space, "vectors": [ROW], "labels": ["a"], "time_ms": 5}
    return json.dumps(plain | changes).encode()


def poison() -> list[Poison]:
    """Each in a space of its own, so that the first record of a space is among them."""
    whole = encode(SampleBlock("avro", (Table("x", np.ones((1, 8), np.float32)),), ("label",), 5))
    return [
        Poison(what, space.encode(), value, Reason.UNDECODABLE)
        for what, space, value in (
            ("a modality", "m", event("m", vectors={HALF: [ROW]})),
            ("a modality of a space that has one", "a", event("a", vectors={HALF: [ROW]})),
            ("a label", "l", event("l", labels=[HALF])),
            ("an id", "i", event("i", ids=["x" + HALF])),
            ("a load id", "p", event("p", load={"load_id": HALF, "sequence": 0})),
            ("a name of a field", "f", event("f", **{HALF: 1})),
            ("bytes of half a pair", "b", event("b", labels=["?"]).replace(b"?", b"\xed\xa0\xbd")),
            ("an overlong form", "o", event("o", labels=["?"]).replace(b"?", b"\xc0\x80")),
            ("Avro", "avro", whole.replace(b"label", b"la\xed\xa0\xbd")),
        )
    ]


def _serving(system: System) -> list[Process]:
    workers = [system.worker(BUILDER, "--create"), system.worker(LEARNER, "--create")]
    for worker in workers:
        worker.until_ready()
    return workers


def _starts(worker: Process) -> int:
    return worker.log().count("starting it again")


@pytest.mark.kafka
def test_half_a_surrogate_pair_is_a_dead_letter_and_the_worker_goes_on(
    make_system: MakeSystem, kafka: KafkaBroker
) -> None:
    system = make_system(kafka)
    workers = _serving(system)
    before = [_starts(worker) for worker in workers]
    system.send(blocks("a", 3))
    sent = []
    for one in poison():
        ((partition, offset),) = system.send([(one.key, one.value)], headers=HEADERS)
        sent.append((one, partition, offset))
    # What merely looks odd is learned.
    odd = event("odd", vectors=[ROW, [2.0] * 8], labels=["\U0001f600\u202e\0", "e\u0301 [[[[{{{{"])
    system.send([("odd", odd), *blocks("a", 3, start=3)])
    system.settle()
    check(system, "events", "one-pass", sent)
    check_counters(system, workers[0], BUILDER, Counter({"undecodable": len(sent)}))
    system.check_exact()
    assert "odd" in system.states(BUILDER)
    assert [_starts(worker) for worker in workers] == before
    # The letters can be listed, and sent back: they are refused once more.
    found = choose(system.read("dead-letters"), LetterFilter(consumer="one-pass"))
    assert len(found.letters) == len(sent) and not found.unreadable
    status, output = system.run("dead-letters", "redrive", "--consumer", "one-pass", "--yes")
    assert status == 0, output
    system.settle()
    letters = choose(system.read("dead-letters"), LetterFilter(consumer="one-pass"))
    assert len(letters.letters) == 2 * len(sent)
    assert [worker.stop() for worker in workers] == [0, 0]


async def _send_raw(system: System, key: bytes, value: bytes) -> None:
    """A record as a producer in C may write it."""
    producer = AIOKafkaProducer(bootstrap_servers=system.settings.kafka.bootstrap_servers)
    await producer.start()
    try:
        batch = producer.create_batch()
        batch._builder = _DefaultRecordBatchBuilderPy(2, 0, 0, -1, -1, -1, 16_384)
        batch.append(key=key, value=value, timestamp=None, headers=[(Bytes("cafe"), b"v")])
        done = await producer.send_batch(batch, system.topic("events"), partition=0)
        await done
    finally:
        await producer.stop()


@pytest.mark.kafka
def test_a_header_whose_name_is_no_utf8_stops_no_agent(make_system: MakeSystem, kafka: KafkaBroker) -> None:
    system = make_system(kafka)
    workers = _serving(system)
    before = [_starts(worker) for worker in workers]
    system.send(blocks("a", 2))
    (_, value) = next(iter(blocks("a", 1, start=2)))
    asyncio.run(_send_raw(system, b"a", value))
    system.send(blocks("a", 2, start=3))
    system.settle()
    system.check_exact()
    (told,) = [m for m in system.read("events") if m.offset == 2 and m.partition == 0]
    assert (told.value, told.headers) == (value, ())
    assert [_starts(worker) for worker in workers] == before
    assert [worker.stop() for worker in workers] == [0, 0]
