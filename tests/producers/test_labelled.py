"""A load is a fixed sequence of blocks, each counted once however often the producer is killed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kinstream.producers.labelled import array_source, shuffle
from kinstream.producers.labelled.array_source import ArraySource, from_arrays
from kinstream.producers.labelled.batch import Batch
from kinstream.producers.labelled.hold_out import Part, held_out_rows, is_held_out, streamed_rows
from kinstream.producers.labelled.load import BlockSettings, LabelledLoad
from kinstream.producers.loads import sender
from kinstream.producers.loads.blocks import BEGINNING, Cut, Cutter
from kinstream.producers.loads.pacing import Rate
from kinstream.producers.loads.progress import ProgressFolder
from kinstream.producers.loads.sender import Sent, Summary, produce
from kinstream.streams import failpoints
from kinstream.streams.errors import DeliveryError, SettingsError, SourceError
from kinstream.streams.kafka.clients import confluent_producer
from kinstream.streams.kafka.emitter import Emitter
from kinstream.streams.records.codec.codec import decode, encode
from kinstream.streams.records.values import SampleBlock
from kinstream.streams.settings import KafkaSettings
from kinstream.streams.topics import partition_of
from tests.producers.killed_producer import LOG, TOPIC, Killed, KilledSink
from tests.support.memory_log import MemoryLog, MemorySink


@dataclass
class Clock:
    """Time that only pauses move."""

    now: float = 100.0
    pauses: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def numbered(rows: int, *, dimension: int = 3, text: bool = False, ids: bool = False) -> ArraySource:
    """Rows whose first feature is their number."""
    X = np.zeros((rows, dimension))
    X[:, 0] = np.arange(rows)
    y = np.array([f"k{n % 5}" for n in range(rows)]) if text else np.arange(rows) % 5
    names = tuple(f"item {n}" for n in range(rows)) if ids else None
    return from_arrays({"x": X}, y, identity=f"{rows} {dimension} {text} {ids}", ids=names)


def load_of(rows: int = 100, load_id: str | None = None, **settings: Any) -> LabelledLoad:
    return LabelledLoad(numbered(rows), "toys", BlockSettings(**{"block_rows": 10, **settings}), load_id)


def records(log: MemoryLog) -> list[SampleBlock]:
    """What a builder finds, in the order of the log."""
    found = []
    for message in log.read(TOPIC, partition_of("toys", log.partitions), 0):
        assert message.key == b"toys"
        record = decode(message.value, SampleBlock)
        assert isinstance(record, SampleBlock)
        found.append(record)
    return found


def counted(log: MemoryLog) -> list[SampleBlock]:
    """The blocks that a builder applies: a sequence above the last one of its load."""
    last: dict[str, int] = {}
    applied = []
    for block in records(log):
        assert block.load is not None
        if block.load.sequence > last.get(block.load.load_id, -1):
            last[block.load.load_id] = block.load.sequence
            applied.append(block)
    return applied


def numbers_in(found: list[SampleBlock]) -> list[list[int]]:
    return [block.tables[0].vectors[:, 0].astype(int).tolist() for block in found]


def sent_by(load: LabelledLoad, **arguments: Any) -> tuple[list[SampleBlock], Summary]:
    log = MemoryLog()
    summary = produce(load, MemorySink(log), TOPIC, **arguments)
    return records(log), summary


# ---- blocks -----------------------------------------------------------------------------------------------------


def test_every_row_arrives_once_and_in_order() -> None:
    found, summary = sent_by(load_of(95, "my-load"), now_ms=lambda: 17)
    assert [n for block in numbers_in(found) for n in block] == list(range(95))
    assert [len(block.labels) for block in found] == [10] * 9 + [5]
    assert [b.load and (b.load.load_id, b.load.sequence) for b in found] == [
        ("my-load", n) for n in range(10)
    ]
    assert {b.time_ms for b in found} == {17}
    assert np.concatenate([np.asarray(b.labels) for b in found]).tolist() == [n % 5 for n in range(95)]
    assert (summary.rows, summary.blocks, summary.facts["classes"], summary.resumed_from) == (95, 10, 5, 0)
    assert summary.bytes == sum(len(encode(b)) for b in found)
    assert (summary.total_rows, summary.total_blocks, summary.was_complete) == (95, 10, False)


def test_string_labels_and_ids_arrive() -> None:
    load = LabelledLoad(numbered(25, text=True, ids=True), "toys", BlockSettings(block_rows=10))
    found, _ = sent_by(load)
    assert [label for b in found for label in b.labels] == [f"k{n % 5}" for n in range(25)]
    assert [name for b in found for name in b.ids or ()] == [f"item {n}" for n in range(25)]


@pytest.mark.parametrize("batch_rows", [1, 7, 10, 64, 8192])
@pytest.mark.parametrize("options", [{}, {"hold_out": 0.4}, {"shuffle_seed": 3, "repeat": 2}])
def test_blocks_do_not_depend_on_how_the_source_reads(
    monkeypatch: pytest.MonkeyPatch, batch_rows: int, options: dict[str, Any]
) -> None:
    expected = numbers_in(list(load_of(**options).blocks()))
    monkeypatch.setattr(array_source, "BATCH_ROWS", batch_rows)
    monkeypatch.setattr(shuffle, "BATCH_ROWS", batch_rows)
    assert numbers_in(list(load_of(**options).blocks())) == expected


@given(
    rows=st.integers(1, 120),
    block_rows=st.integers(1, 40),
    before=st.integers(1, 30),
    after=st.integers(1, 30),
    max_bytes=st.integers(400, 1000),
    hold_out=st.sampled_from([0.0, 0.1]),
    place=st.integers(0, 119),
)
@settings(deadline=None)
def test_cutting_goes_on_at_any_block(
    rows: int, block_rows: int, before: int, after: int, max_bytes: int, hold_out: float, place: int
) -> None:
    """Also where the source then reads in batches of another size."""
    source = numbered(rows, text=True, ids=True)
    assume(not is_held_out(hold_out, 0, 0, rows).all())
    cutter = Cutter(Part(source, hold_out, 0, held_out=False), block_rows, ("toys",), max_bytes)

    def numbers(cuts: Iterable[Cut[Batch]]) -> list[list[float]]:
        return [c.rows.tables[0].vectors[:, 0].tolist() for c in cuts]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(array_source, "BATCH_ROWS", before)
        cuts = list(cutter.turn(BEGINNING))
        place = min(place, len(cuts) - 1)
        patch.setattr(array_source, "BATCH_ROWS", after)
        start = cuts[place].after
        rest = list(cutter.turn(start)) if start.turn == 0 else []
    assert numbers(rest) == numbers(cuts[place + 1 :])
    assert len([n for block in numbers(cuts) for n in block]) == int(
        (~is_held_out(hold_out, 0, 0, rows)).sum()
    )


@given(st.integers(1, 300), st.integers(1, 3000), st.integers(1, 2), st.integers(1, 3000))
@settings(deadline=None, max_examples=40)
def test_blocks_stay_under_half_a_mebibyte(
    rows: int, dimension: int, modalities: int, label_length: int
) -> None:
    X = np.ones((rows, dimension))
    y = np.array(["k" * label_length + "é" * (n % 3) for n in range(rows)])
    features = {f"modality {m}": X for m in range(modalities)}
    source = from_arrays(features, y, identity="", ids=tuple("ö" * (n % 200) for n in range(rows)))
    found = list(LabelledLoad(source, "ß" * 200, BlockSettings(block_rows=200), "l" * 100).blocks())
    assert max(len(encode(b)) for b in found) <= 512 * 1024
    assert sum(len(b.labels) for b in found) == rows


def test_a_block_is_filled_as_far_as_it_goes() -> None:
    found = list(LabelledLoad(numbered(2000, dimension=784), "toys", BlockSettings(block_rows=2000)).blocks())
    assert all(len(encode(b)) > 512 * 1024 - 2 * 784 * 4 for b in found[:-1])


def test_a_row_that_fits_into_no_block_is_refused() -> None:
    X = np.ones((1, 70_000))
    source = from_arrays({"a": X, "b": X}, np.arange(1), identity="")
    with pytest.raises(SourceError, match="does not fit into a block"):
        list(LabelledLoad(source, "toys", BlockSettings()).cuts())


# ---- order and parts --------------------------------------------------------------------------------------------


def test_a_shuffle_is_seeded_and_another_one_at_each_turn() -> None:
    def order(**options: Any) -> list[int]:
        return [n for block in numbers_in(list(load_of(**options).blocks())) for n in block]

    one = order(shuffle_seed=1, repeat=2)
    assert order(shuffle_seed=1, repeat=2) == one
    assert sorted(one[:100]) == sorted(one[100:]) == list(range(100))
    assert one[:100] != one[100:]
    assert order(shuffle_seed=1) == one[:100]
    assert order(shuffle_seed=2) != one[:100]
    assert order() == list(range(100))


def test_a_shuffle_of_too_many_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffle, "MAX_BYTES", 1000)
    with pytest.raises(SourceError, match="holds all rows in memory"):
        load_of(shuffle_seed=1)


def test_held_out_rows_are_never_streamed() -> None:
    source = numbered(1000)
    load = LabelledLoad(
        source, "toys", BlockSettings(shuffle_seed=1, repeat=2, hold_out=0.3, hold_out_seed=5)
    )
    streamed = {n for block in numbers_in(list(load.blocks())) for n in block}
    kept = set(held_out_rows(numbered(1000), 0.3, 5).tables[0].vectors[:, 0].astype(int).tolist())
    assert streamed | kept == set(range(1000))
    assert not streamed & kept
    assert load.held_out == len(kept)
    assert 250 < len(kept) < 350
    rest = streamed_rows(numbered(1000), 0.3, 5)
    assert set(rest.tables[0].vectors[:, 0].astype(int).tolist()) == streamed
    other = held_out_rows(numbered(1000), 0.3, 6)
    assert set(other.tables[0].vectors[:, 0].astype(int).tolist()) != kept


def test_the_load_id_is_that_of_rows_space_and_block_settings() -> None:
    base = load_of()
    others = [
        load_of(101),
        load_of(block_rows=11),
        load_of(repeat=2),
        load_of(shuffle_seed=0),
        load_of(shuffle_seed=1),
        load_of(hold_out=0.1),
        load_of(hold_out=0.1, hold_out_seed=1),
        LabelledLoad(numbered(100), "others", BlockSettings(block_rows=10)),
    ]
    assert load_of().load_id == base.load_id
    assert len({base.load_id, *(o.load_id for o in others)}) == len(others) + 1


@pytest.mark.parametrize(
    ("rows", "repeat", "of_a_block"),
    [(150, 1, 150), (1_000, 300, 256), (16_384, 1, 256), (40_000, 2, 625), (300_000, 1, 2_048)],
)
def test_large_loads_have_large_blocks_by_default(rows: int, repeat: int, of_a_block: int) -> None:
    load = LabelledLoad(numbered(rows), "toys", BlockSettings(repeat=repeat))
    assert len(next(load.cuts()).rows) == of_a_block
    named = LabelledLoad(
        numbered(rows), "toys", BlockSettings(block_rows=max(256, of_a_block), repeat=repeat)
    )
    assert named.load_id == load.load_id


def test_rows_that_are_never_sent_make_no_block_larger() -> None:
    load = LabelledLoad(numbered(40_000), "toys", BlockSettings(hold_out=0.9))
    assert len(next(load.cuts()).rows) == 256


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"block_rows": 0}, "block_rows"),
        ({"repeat": 0}, "repeat"),
        ({"hold_out": 1.0}, "hold_out"),
        ({"hold_out": -0.1}, "hold_out"),
        ({"hold_out": float("nan")}, "hold_out"),
        ({"load_id": "../x"}, "load id"),
        ({"load_id": ""}, "load id"),
    ],
)
def test_bad_settings_are_refused_by_name(options: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        load_of(**options)


def test_a_space_that_cannot_be_one_is_refused() -> None:
    with pytest.raises(SettingsError, match="space"):
        LabelledLoad(numbered(1), "a\nb", BlockSettings())


# ---- resuming ---------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> ProgressFolder:
    return ProgressFolder(tmp_path / "loads", LOG)


@pytest.mark.long
@pytest.mark.parametrize("options", [{}, {"shuffle_seed": 1, "repeat": 3}, {"hold_out": 0.3, "repeat": 2}])
@pytest.mark.parametrize("kept", [True, False], ids=["progress kept", "progress lost"])
def test_a_load_killed_at_any_block_counts_every_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], kept: bool
) -> None:
    monkeypatch.setattr(sender, "CONFIRM_BYTES", 600)
    expected = numbers_in(list(load_of(60, **options).blocks()))
    resumed = False
    for at in range(1, len(expected) + 1):
        for landed in (0, 1, 99):
            log = MemoryLog()
            files = [
                ProgressFolder(tmp_path / f"{at}-{landed}-{n if not kept else 0}", LOG) for n in range(2)
            ]
            with pytest.raises(Killed):
                produce(load_of(60, **options), KilledSink(log, at=at, landed=landed), TOPIC, folder=files[0])
            assert numbers_in(counted(log)) == expected[: len(counted(log))]
            summary = produce(load_of(60, **options), MemorySink(log), TOPIC, folder=files[1])
            assert numbers_in(counted(log)) == expected
            assert summary.resumed_from + summary.blocks == len(expected)
            assert summary.total_rows == sum(map(len, expected))
            assert summary.resumed_from < at
            resumed = resumed or summary.resumed_from > 0
    assert resumed == kept


def test_a_resumed_load_begins_at_the_first_unconfirmed_block(
    folder: ProgressFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "CONFIRM_BYTES", 1)
    log = MemoryLog()
    with pytest.raises(Killed):
        produce(load_of(), KilledSink(log, at=7, landed=99), TOPIC, folder=folder)
    summary = produce(load_of(), MemorySink(log), TOPIC, folder=folder)
    assert (summary.resumed_from, summary.blocks, summary.rows, summary.total_rows) == (6, 4, 40, 100)
    assert len(records(log)) == 11


def test_a_finished_load_is_sent_again_only_by_another_folder_or_id(
    folder: ProgressFolder, tmp_path: Path
) -> None:
    log = MemoryLog()
    first = produce(load_of(), MemorySink(log), TOPIC, folder=folder)
    again = produce(load_of(), MemorySink(log), TOPIC, folder=folder)
    assert (first.was_complete, again.was_complete, again.rows, len(records(log))) == (False, True, 0, 10)
    forced = produce(load_of(), MemorySink(log), TOPIC, folder=ProgressFolder(tmp_path / "other", LOG))
    assert (forced.rows, len(records(log)), len(counted(log))) == (100, 20, 10)
    other = produce(load_of(load_id="again"), MemorySink(log), TOPIC, folder=folder)
    assert (other.rows, len(counted(log))) == (100, 20)


def kill(load: LabelledLoad, folder: ProgressFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "CONFIRM_BYTES", 1)
    with pytest.raises(Killed):
        produce(load, KilledSink(MemoryLog(), at=5), TOPIC, folder=folder)


@pytest.mark.parametrize("load_id", [None, "my-load"])
@pytest.mark.parametrize(
    "change", [{"block_rows": 20}, {"shuffle_seed": 1}, {"repeat": 2}, {"hold_out": 0.1}]
)
def test_changed_settings_are_refused(
    folder: ProgressFolder, monkeypatch: pytest.MonkeyPatch, load_id: str | None, change: dict[str, Any]
) -> None:
    kill(load_of(load_id=load_id), folder, monkeypatch)
    with pytest.raises(SettingsError, match=rf"{next(iter(change))} was .* and is .*--load-id"):
        produce(load_of(load_id=load_id, **change), MemorySink(MemoryLog()), TOPIC, folder=folder)


def test_another_load_of_the_same_rows_can_be_named(
    folder: ProgressFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill(load_of(), folder, monkeypatch)
    summary = produce(
        load_of(load_id="another", block_rows=20), MemorySink(MemoryLog()), TOPIC, folder=folder
    )
    assert summary.rows == 100


def test_other_rows_under_a_known_load_id_are_refused(
    folder: ProgressFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill(load_of(load_id="my-load"), folder, monkeypatch)
    with pytest.raises(SettingsError, match="rows was"):
        produce(load_of(101, "my-load"), MemorySink(MemoryLog()), TOPIC, folder=folder)


@pytest.mark.parametrize("change", [{"cluster": "d"}, {"topic_id": "u"}, {"topic": "other.events"}])
def test_progress_in_another_log_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, str]
) -> None:
    kill(load_of(), ProgressFolder(tmp_path, LOG), monkeypatch)
    elsewhere = ProgressFolder(tmp_path, {**LOG, **change})
    assert produce(load_of(), MemorySink(MemoryLog()), TOPIC, folder=elsewhere).resumed_from == 0


def test_a_damaged_progress_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "my-load.json").write_text("{")
    with pytest.raises(SettingsError, match="delete it"):
        produce(
            load_of(load_id="my-load"), MemorySink(MemoryLog()), TOPIC, folder=ProgressFolder(tmp_path, LOG)
        )


def test_progress_is_written_after_the_confirmation_only(
    folder: ProgressFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "CONFIRM_BYTES", 1)
    sink = MemorySink(MemoryLog(), reject=True)
    with pytest.raises(DeliveryError, match=r"rejected on purpose.*0 of 100 rows.*same command"):
        produce(load_of(), sink, TOPIC, folder=folder)
    assert produce(load_of(), MemorySink(MemoryLog()), TOPIC, folder=folder).resumed_from == 0


# ---- rate and failpoint -----------------------------------------------------------------------------------------


def test_the_rate_spreads_rows_and_changes_no_boundary() -> None:
    clock = Clock()
    found, _ = sent_by(load_of(), rate=Rate(20.0, clock), clock=clock, pause=clock.pause)
    assert numbers_in(found) == numbers_in(list(load_of().blocks()))
    assert clock.pauses == pytest.approx([0.5] * 9)


def test_before_a_long_pause_everything_is_confirmed() -> None:
    clock = Clock()
    sink = MemorySink(MemoryLog())
    seen: list[int] = []

    def pause(seconds: float) -> None:
        seen.append(len(sink.waiting))
        clock.pause(seconds)

    produce(load_of(), sink, TOPIC, rate=Rate(10.0, clock), clock=clock, pause=pause)
    assert seen == [0] * 9


def test_a_watcher_hears_of_each_block() -> None:
    heard: list[Sent] = []
    sent_by(load_of(35), watch=heard.append)
    assert [(s.rows, s.of, s.blocks) for s in heard] == [(10, 35, 1), (20, 35, 2), (30, 35, 3), (35, 35, 4)]


def test_the_failpoint_between_send_and_acknowledgement_is_passed() -> None:
    with (
        failpoints.installed("producer.after-send-before-ack=raise@3"),
        pytest.raises(RuntimeError, match=r"producer\.after-send-before-ack"),
    ):
        sent_by(load_of())


# ---- the embedded broker ----------------------------------------------------------------------------------------


def test_a_load_arrives_on_a_broker_in_the_partition_of_its_space() -> None:
    cluster = Producer({"bootstrap.servers": "x:1", "test.mock.num.brokers": 1, "log_level": 2})
    broker = next(iter(cluster.list_topics(timeout=10).brokers.values()))
    servers = f"{broker.host}:{broker.port}"
    partitions = len(cluster.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions)
    emitter = Emitter(confluent_producer(KafkaSettings(bootstrap_servers=servers)), deadline_seconds=20)
    load = load_of(500)
    try:
        summary = produce(load, emitter, TOPIC, deadline_seconds=20)
    finally:
        emitter.close()
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, partition_of("toys", partitions), 0)])
    decoded: list[SampleBlock] = []
    limit = time.monotonic() + 20
    try:
        while len(decoded) < summary.blocks and time.monotonic() < limit:
            for message in consumer.consume(100, timeout=0.5):
                record = decode(message.value(), SampleBlock)
                assert isinstance(record, SampleBlock)
                decoded.append(record)
    finally:
        consumer.close()
    assert [encode(replace(b, time_ms=0)) for b in decoded] == [encode(b) for b in load.blocks()]
    assert summary.rows == 500
