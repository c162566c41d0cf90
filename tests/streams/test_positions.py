"""Offsets that hold no record: what passes them, what a checkpoint says of them, and what stays a gap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import TopicPartition
from confluent_kafka import Uuid

from kinstream.processors.agent import builder_spec
from kinstream.streams.agents.generations.birth import as_content, from_content
from kinstream.streams.agents.generations.parking import Parking
from kinstream.streams.checkpoints.state_bytes import to_bytes
from kinstream.streams.errors import GenerationMismatch, LogGap
from kinstream.streams.kafka.cluster_view import topic_id
from kinstream.streams.records.message import Message
from kinstream.streams.topics import partition_of
from kinstream.streams.worker.partition_task import Owned
from kinstream.streams.worker.partitions import Partitions
from kinstream.streams.worker.port import TP, Reading
from tests.streams.growing_system import EVENTS, GrowingSystem
from tests.streams.test_birth import birth
from tests.streams.test_ending import Host, started
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent, samples, settings

SPACE = "a"
HOME = partition_of(SPACE, 2)


@pytest.fixture
def log() -> MemoryLog:
    made = MemoryLog()
    for block in samples(SPACE, 6):
        made.append(EVENTS, SPACE.encode(), block)
    return made


def builder(log: MemoryLog, root: Path) -> Agent:
    config = settings()
    return Agent(builder_spec(config, "one-pass"), config, log, root)


def test_what_the_log_loses_before_the_position_of_a_checkpoint_is_no_gap(
    log: MemoryLog, tmp_path: Path
) -> None:
    first = builder(log, tmp_path)
    first.step(HOME)
    for _ in range(3):
        log.hole(EVENTS, HOME)
    end = log.end(EVENTS, HOME)
    assert first.runners[HOME].checkpoint(end) == end
    state = {name: to_bytes(one) for name, one in first.states().items()}
    # Every record of it is gone, and so are the markers.
    again = builder(log, tmp_path)
    assert again.runners[HOME].restore(0, end, end) == []
    assert {name: to_bytes(one) for name, one in again.states().items()} == state
    with pytest.raises(LogGap, match=f"wants offset {end}, and the log now starts at {end + 1}"):
        builder(log, tmp_path).runners[HOME].restore(0, end + 1, end + 1)


def test_a_checkpoint_is_due_when_only_the_position_has_moved(log: MemoryLog, tmp_path: Path) -> None:
    agent = builder(log, tmp_path)
    runner, host = agent.runners[HOME], Host()
    owned = Owned(
        (EVENTS, HOME),
        runner,
        host,
        Parking(str(tmp_path), "builder-one-pass", 1),
        interval_seconds=0.0,
        live_at=0,
        live=True,
        emitted_to=0,
        careful=False,
    )
    agent.step(HOME)
    committed: list[int] = []

    async def commit(place: tuple[str, int], offset: int) -> bool:
        committed.append(offset)
        # What a worker sees next: the client has passed a marker; then it stops.
        owned.closing = host.at > 0
        host.at = runner.machine.next_offset + 1
        return True

    cast(Any, host).commit = commit
    asyncio.run(owned.serve())
    assert committed == [6, 7]
    assert runner.manifest is not None
    assert runner.manifest.offset == 7
    assert not runner.dirty


@pytest.mark.parametrize(
    ("reading", "position"),
    [
        (None, 10),
        (Reading(9, 10), 10),
        (Reading(9, 12), 12),
        # The client is at a marker before a record that it has returned and nobody has applied.
        (Reading(10, 12), 10),
        (Reading(20, 21), 10),
        # An owner in between has read further than this client had.
        (Reading(3, 5), 10),
        (Reading(3, 15), 15),
    ],
)
def test_a_position_passes_only_what_holds_no_record(reading: Reading | None, position: int) -> None:
    client = SimpleNamespace(reading=lambda topic, partition: reading)
    partitions = cast(Partitions, SimpleNamespace(_client=lambda: client))
    assert Partitions.position(partitions, (EVENTS, 0), 10) == position


class State:
    """The client's state of a partition in one assignment."""

    has_valid_position = True

    def __init__(self, position: int) -> None:
        self.position = position


class Subscription:
    """What the transport looks at in aiokafka's consumer."""

    def __init__(self) -> None:
        self.states = {TopicPartition(EVENTS, 0): State(50)}
        self._subscription = SimpleNamespace(
            subscription=SimpleNamespace(assignment=SimpleNamespace(state_value=self.states.get))
        )

    def assignment(self) -> set[TopicPartition]:
        return set(self.states)

    def seek(self, place: TopicPartition, offset: int) -> None:
        self.states[place].position = offset


def test_what_the_client_has_read_counts_from_the_seek_of_the_same_assignment() -> None:
    from kinstream.streams.worker.transport import ConsumerThread

    consumer, place = Subscription(), TopicPartition(EVENTS, 0)
    thread = cast(Any, ConsumerThread.__new__(ConsumerThread))
    thread._returned, thread._sought, thread._readings = {}, {}, {}
    thread._ensure_consumer = lambda: consumer

    async def run() -> AsyncIterator[Any]:
        await thread._seek_all({TP(EVENTS, 0): 10})
        thread._note_readings()
        yield thread.reading(EVENTS, 0)
        consumer.states[place].position = 12
        thread._note_readings()
        yield thread.reading(EVENTS, 0)
        # Assigned again: the client begins at the group's offset, before the worker seeks.
        consumer.states[place] = State(50)
        thread._note_readings()
        yield thread.reading(EVENTS, 0)
        await thread._seek_all({TP(EVENTS, 0): 30})
        thread._runs(place, [SimpleNamespace(**_record(31))])
        consumer.states[place].position = 33
        thread._note_readings()
        yield thread.reading(EVENTS, 0)

    async def found() -> list[Any]:
        return [one async for one in run()]

    assert asyncio.run(found()) == [(9, 10), (9, 12), (9, 12), (31, 33)]


def _record(offset: int) -> dict[str, Any]:
    return {"offset": offset, "timestamp": 1, "timestamp_type": 1, "key": b"", "value": b"", "headers": ()}


# ---- whether it is the same log ------------------------------------------------------------------------------------


def verify(system: GrowingSystem, **topics: str | None) -> None:
    generation = started(system).generation
    restored = generation.store(0).restore()
    assert restored is not None
    system.cluster.topic_ids |= cast(Any, topics)
    generation.verify_last_record(restored.manifest, system.asked, 0)


def take_last(system: GrowingSystem) -> Message:
    """Compact the last record of `events` partition 0 away."""
    return system.log.entries[EVENTS, 0].pop()


def test_the_id_of_the_topic_decides_where_the_last_record_was_compacted_away(system: GrowingSystem) -> None:
    started(system)
    take_last(system)
    verify(system)


@pytest.mark.parametrize("id", [None, "another"])
def test_without_the_same_id_a_record_that_is_gone_stays_a_refusal(
    system: GrowingSystem, id: str | None
) -> None:
    started(system)
    take_last(system)
    with pytest.raises(GenerationMismatch, match="is gone: it was compacted away, or this is another log"):
        verify(system, **{EVENTS: id})


def test_another_record_at_the_offset_is_another_log_under_any_id(system: GrowingSystem) -> None:
    started(system)
    last = take_last(system)
    system.log.entries[EVENTS, 0].append(last._replace(value=b"other"))
    with pytest.raises(GenerationMismatch, match="is not the one that was read before the checkpoint"):
        verify(system)


def test_an_id_of_zeros_is_no_id() -> None:
    assert topic_id(SimpleNamespace(topic_id=Uuid(0, 0))) is None
    assert topic_id(SimpleNamespace(topic_id=Uuid(0, 7))) == str(Uuid(0, 7))
    recorded = as_content(birth(input_topic_id=str(Uuid(0, 0))))
    assert from_content(recorded, "birth.json").input_topic_id is None
