"""Foreign JSON through a source: the machine alone, and a worker on Kafka from the log to acknowledged events."""

from __future__ import annotations

import json
import os
import random
import time
from typing import Any, Final

import psutil

from benchmarks.figures import Figure
from benchmarks.system import START_SECONDS, series, system
from kinstream.producers.sources.agent import source_spec
from kinstream.streams.agents.machine import Place
from kinstream.streams.configuration.sources import SourceSettings
from kinstream.streams.records.codec.codec import decode_event
from kinstream.streams.records.gate import GateOrder
from kinstream.streams.records.load_rows import rows_of
from kinstream.streams.records.message import Message, Output
from kinstream.streams.records.values import Control
from kinstream.streams.records.vectors import ItemMap
from kinstream.streams.settings import Settings
from kinstream.streams.topics import Topic
from kinstream.streams.worker.partition_task import MOST
from tests.sources.shop import SEARCH, search

_RECORDS: Final = 2_000
_TOPIC: Final = Topic("search", "records of another system", "any", -1)
_SOURCE: Final = {**SEARCH, "topic": "kinstream.search"}
#: Later than the times in all records.
_TIME: Final = 1_777_636_800_000 + 1_000 * _RECORDS
_DRAIN_SECONDS: Final = 300.0


def figures(quick: bool) -> list[Figure]:
    """Records a second."""
    # 1.2 kB each: nested, a list of ten shown items, up to three clicks.
    records = [json.dumps(search(number, random.Random(number))).encode() for number in range(_RECORDS)]
    size = sum(map(len, records)) / len(records)
    label = f"nested JSON of {size:.0f} bytes, lists of ten"
    alone = max(_alone(records, 20_000 if quick else 100_000) for _ in range(1 if quick else 3))
    found = [Figure("sources", f"machine alone: {label}", alone, "records/s")]
    for where, pinned, required in (("worker", False, 20_000), ("worker on one core", True, None)):
        tries = [_worker(records, 100_000 if quick else 300_000, pinned) for _ in range(1 if quick else 3)]
        rate, facts = max(tries, key=lambda one: one[0])
        facts |= {"tries": [one for one, _ in tries]}
        name = f"{where}: {label}"
        found.append(Figure("sources", name, rate, "records/s", at_least=required, facts=facts))
    by_second = max(facts["records_by_cpu_second"] for _, facts in tries)
    label = "the same for each second of the worker's processor time"
    return [*found, Figure("sources", label, by_second, "records/s")]


def _alone(records: list[bytes], number: int) -> float:
    """Records a second of processor time: parsed, mapped, packed and encoded."""
    settings = Settings(sources={"shop": SourceSettings(**_SOURCE)})
    place = Place("shop", 1, "kinstream.search", 0, 1, "kinstream.events", 1, "kinstream.dead-letters")
    machine = source_spec(settings, "shop").make_machine(place, lambda name: {})
    messages = [
        Message(place.topic, 0, n, _TIME, None, records[n % _RECORDS], (), n - 1) for n in range(number)
    ]
    began = time.process_time()
    for at in range(0, number, MOST):
        for message in messages[at : at + MOST]:
            machine.step(message)
        machine.flush()
    seconds = time.process_time() - began
    assert machine.counts["applied"] == number
    return number / seconds


def _worker(records: list[bytes], number: int, pinned: bool) -> tuple[float, dict[str, Any]]:
    """Records a second of one worker over a backlog; pinned, all of its threads are on one core.

    The rate is that between the first and the last event, by the times at which the log took them.
    """
    fields = _SOURCE["fields"]
    section = {name: value for name, value in _SOURCE.items() if name != "fields"}
    with system(**{"sources.shop": section, "sources.shop.fields": fields}) as on:
        on.create((_TOPIC,))
        on.append(Output("kinstream.search", None, records[n % _RECORDS], ()) for n in range(number))
        worker = on.run("worker", "source", "shop", "--create")
        if pinned:
            psutil.Process(worker.pid).cpu_affinity([sorted(os.sched_getaffinity(0))[-1]])

        def at() -> tuple[float, float]:
            """Records mapped so far, and seconds of processor time."""
            mapped = sum(series(worker.page(), "kinstream_records_applied_total").values())
            used = psutil.Process(worker.worker_pid()).cpu_times()
            return mapped, used.user + used.system

        on.wait(lambda: at()[0] > 0, "the source works", START_SECONDS, 0.2)
        first = at()
        on.wait(lambda: at()[0] >= number, "the source drains the log", _DRAIN_SECONDS, 0.5)
        last = at()
        on.wait(worker.ready, "the source is at the end", START_SECONDS)
        worker.stop()
        made = on.read("events")
    events = [decode_event(message.value) for message in made]
    rows = sum(rows_of(event) for event in events if not isinstance(event, Control | GateOrder | ItemMap))
    assert rows == number, f"{rows} rows of {number} records"
    seconds = (made[-1].timestamp_ms - made[0].timestamp_ms) / 1000
    cpu = (last[0] - first[0]) / (last[1] - first[1])
    return number / seconds, {"events": len(made), "seconds": seconds, "records_by_cpu_second": cpu}
