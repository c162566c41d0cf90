"""Catalogues, lists, relations and simulations are loads as labelled rows are: fixed blocks, each counted once."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kinstream.producers.files import csv as csv_module
from kinstream.producers.files import npz as npz_module
from kinstream.producers.files import parquet as parquet_module
from kinstream.producers.items.categories import Hashed, OneHot
from kinstream.producers.items.source import open_items
from kinstream.producers.labelled.array_source import from_arrays
from kinstream.producers.labelled.load import BlockSettings, LabelledLoad
from kinstream.producers.labelled.sources import open_source
from kinstream.producers.loads import record_rows, sender
from kinstream.producers.loads.blocks import BEGINNING
from kinstream.producers.loads.phased_load import PhasedLoad
from kinstream.producers.loads.progress import ProgressFolder
from kinstream.producers.loads.sender import produce
from kinstream.producers.simulated import load as simulated_module
from kinstream.producers.simulated.load import simulated_load, simulator_of
from kinstream.producers.simulated.settings import Simulation
from kinstream.producers.sources.file_events import open_events
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.codec.codec import decode_event, encode
from kinstream.streams.records.values import ClickBlock, ItemBlock, RelationBlock
from kinstream.streams.topics import partition_of
from tests.producers.killed_producer import LOG, TOPIC, Killed, KilledSink
from tests.support.memory_log import MemoryLog, MemorySink

ROWS = 47
SHOWN = 1_767_225_600_000


def catalogue(folder: Path, kind: str) -> Path:
    """Items with a number, a category and, in every seventh row, a delete; some names come twice."""
    numbers = [float(n) for n in range(ROWS)]
    ids = [f"item {n % 40}" for n in range(ROWS)]
    kinds = [f"kind {n % 3}" for n in range(ROWS)]
    gone = [n % 7 == 3 for n in range(ROWS)]
    path = folder / f"items.{kind}"
    if kind == "npz":
        np.savez(path, id=np.array(ids), w=np.array(numbers), kind=np.array(kinds), gone=np.array(gone))
    elif kind == "parquet":
        pq.write_table(
            pa.table({"id": ids, "w": numbers, "kind": kinds, "gone": gone}), path, row_group_size=11
        )
    else:
        lines = [f"{i},{w},{k},{int(g)}\n" for i, w, k, g in zip(ids, numbers, kinds, gone, strict=True)]
        path.write_text("id,w,kind,gone\n" + "".join(lines))
    return path


def items(folder: Path, kind: str) -> PhasedLoad:
    categories: Any = {"x": [OneHot("kind")], "h": [Hashed("kind", 5)]}
    opened = open_items(str(catalogue(folder, kind)), {"vector": "w", "deleted": "gone"}, categories)
    return PhasedLoad("items", [opened], "toys", 5)


def lists(folder: Path) -> PhasedLoad:
    lines = [
        {
            "items": [f"item {n}", f"item {n + 1}"],
            "clicks": [{"item": f"item {n}"}] * (n % 3 == 0),
            "shown_at_ms": SHOWN + n,
            "query_vector": [n, 1],
        }
        for n in range(ROWS)
    ]
    path = folder / "lists.jsonl.gz"
    path.write_bytes(gzip.compress("\n\n".join(map(json.dumps, lines)).encode(), mtime=0))
    return PhasedLoad("clicks", [open_events(str(path), "clicks", "toys")], "toys", 5)


def impressions(folder: Path) -> PhasedLoad:
    rows = [f"s{n},{m},{int(m == 1)},{SHOWN + n}\n" for n in range(ROWS) for m in range(1 + n % 4)]
    path = folder / "impressions.csv"
    path.write_text("session,item,clicked,time\n" + "".join(rows))
    return PhasedLoad("clicks", [open_events(str(path), "clicks", "toys")], "toys", 5)


def now(folder: Path) -> PhasedLoad:
    columns = {"items": [[f"i{n}", "z"] for n in range(ROWS)], "clicks": [["z"]] * ROWS}
    pq.write_table(pa.table(columns), folder / "now.parquet", row_group_size=9)
    opened = open_events(str(folder / "now.parquet"), "clicks", "toys", {"time": "@timestamp"})
    return PhasedLoad("clicks", [opened], "toys", 5)


def relations(folder: Path) -> PhasedLoad:
    path = folder / "relations.csv"
    path.write_text("left,right,similar\n" + "".join(f"{n},{n + 1},{n % 2}\n" for n in range(ROWS)))
    return PhasedLoad("relations", [open_events(str(path), "relations", "toys")], "toys", 5)


def simulated(folder: Path) -> PhasedLoad:
    X = np.arange(60.0).reshape(30, 2)
    source = from_arrays({"x": X}, np.arange(30) % 3, identity="rows")
    return simulated_load(simulator_of(source, Simulation(lists=ROWS, list_length=4)), "toys", 5)


MAKERS: dict[str, Callable[[Path], PhasedLoad]] = {
    "items csv": lambda folder: items(folder, "csv"),
    "items parquet": lambda folder: items(folder, "parquet"),
    "items npz": lambda folder: items(folder, "npz"),
    "lists": lists,
    "impressions": impressions,
    "now": now,
    "relations": relations,
    "simulated": simulated,
}
each = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that blocks and batches end at different rows."""
    monkeypatch.setattr(csv_module, "BLOCK_BYTES", 60)
    monkeypatch.setattr(parquet_module, "BATCH_ROWS", 4)
    monkeypatch.setattr(npz_module, "BATCH_ROWS", 7)
    monkeypatch.setattr(record_rows, "BATCH_ROWS", 8)
    monkeypatch.setattr(simulated_module, "BATCH_ROWS", 8)


def encoded(load: PhasedLoad) -> list[bytes]:
    return [encode(block) for block in load.blocks()]


def counted(log: MemoryLog) -> list[bytes]:
    """What builders apply: blocks whose sequence is above the last one."""
    applied: list[bytes] = []
    for message in log.read(TOPIC, partition_of("toys", log.partitions), 0):
        assert message.key == b"toys"
        assert message.value is not None
        block = decode_event(message.value)
        assert isinstance(block, (ItemBlock, ClickBlock, RelationBlock))
        assert block.load is not None
        assert block.load.sequence <= len(applied)
        if block.load.sequence == len(applied):
            applied.append(message.value)
    return applied


@pytest.mark.long
@each
@pytest.mark.parametrize("kept", [True, False], ids=["progress kept", "progress lost"])
def test_a_load_killed_at_any_block_counts_every_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], PhasedLoad], kept: bool
) -> None:
    monkeypatch.setattr(sender, "CONFIRM_BYTES", 600)
    expected = encoded(make(tmp_path))
    assert len(expected) > 5
    for at in range(1, len(expected) + 1):
        for landed in (0, 1, 99):
            log = MemoryLog()
            folders = [ProgressFolder(tmp_path / f"{at}-{landed}-{n * (not kept)}", LOG) for n in range(2)]
            sink = KilledSink(log, at=at, landed=landed)
            with pytest.raises(Killed):
                produce(make(tmp_path), sink, TOPIC, folder=folders[0], now_ms=lambda: 0)
            assert counted(log) == expected[: len(counted(log))]
            load = make(tmp_path)
            summary = produce(load, MemorySink(log), TOPIC, folder=folders[1], now_ms=lambda: 0)
            assert counted(log) == expected
            assert summary.resumed_from + summary.blocks == len(expected)
            assert summary.total_rows == load.rows
            assert summary.resumed_from < at


@each
def test_blocks_do_not_depend_on_how_the_source_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], PhasedLoad]
) -> None:
    expected = encoded(make(tmp_path))
    for module, name in (
        (csv_module, "BLOCK_BYTES"),
        (parquet_module, "BATCH_ROWS"),
        (npz_module, "BATCH_ROWS"),
        (record_rows, "BATCH_ROWS"),
        (simulated_module, "BATCH_ROWS"),
    ):
        monkeypatch.setattr(module, name, 10_000)
    assert encoded(make(tmp_path)) == expected


@pytest.mark.long
@each
def test_cutting_goes_on_at_any_block(tmp_path: Path, make: Callable[[Path], PhasedLoad]) -> None:
    cuts = list(make(tmp_path).cuts(BEGINNING))
    expected = encoded(make(tmp_path))
    for number, cut in enumerate(cuts):
        load = make(tmp_path)
        rest = [
            encode(load.block(later, sequence, 0))
            for sequence, later in enumerate(load.cuts(cut.after), number + 1)
        ]
        assert rest == expected[number + 1 :]


@each
def test_changed_blocks_are_refused_while_a_load_is_unfinished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], PhasedLoad]
) -> None:
    monkeypatch.setattr(sender, "CONFIRM_BYTES", 1)
    folder = ProgressFolder(tmp_path / "loads", LOG)
    load = make(tmp_path)
    with pytest.raises(Killed):
        produce(load, KilledSink(MemoryLog(), at=4), TOPIC, folder=folder)
    other = make(tmp_path)
    other = PhasedLoad(other.kind, other.sources, "toys", 6)
    assert other.load_id != load.load_id
    with pytest.raises(SettingsError, match=r"block_rows was 5 and is 6.*--load-id"):
        produce(other, MemorySink(MemoryLog()), TOPIC, folder=folder)
    done = produce(make(tmp_path), MemorySink(MemoryLog()), TOPIC, folder=folder)
    again = produce(make(tmp_path), MemorySink(MemoryLog()), TOPIC, folder=folder)
    another = ProgressFolder(tmp_path / "other", LOG)
    forced = produce(make(tmp_path), MemorySink(MemoryLog()), TOPIC, folder=another)
    assert (done.was_complete, again.was_complete, again.blocks) == (False, True, 0)
    assert forced.total_blocks == forced.blocks == done.total_blocks


def test_every_block_stays_under_half_a_mebibyte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_module, "BLOCK_BYTES", 100_000)
    lines = [
        {"items": [f"{n} {m} " + "ö" * 50 for m in range(500)], "clicks": [], "shown_at_ms": SHOWN}
        for n in range(40)
    ]
    path = tmp_path / "long.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    load = PhasedLoad("clicks", [open_events(str(path), "clicks", "ß" * 200)], "ß" * 200, load_id="l" * 100)
    sizes = [len(value) for value in encoded(load)]
    assert len(sizes) > 2
    assert 400 * 1024 < max(sizes) <= 512 * 1024
    rows = "".join(f"{'l' * 2000}{n},{'r' * 2000}{n},1,{'s' * 2000}{n}\n" for n in range(300))
    (tmp_path / "long.csv").write_text("left,right,similar,source\n" + rows)
    load = PhasedLoad("relations", [open_events(str(tmp_path / "long.csv"), "relations", "s")], "s", 1000)
    sizes = [len(value) for value in encoded(load)]
    assert 500 * 1024 < max(sizes) <= 512 * 1024


@pytest.mark.parametrize(
    ("space", "block_rows", "load_id", "told"),
    [("", 5, None, "space"), ("s", 0, None, "block_rows"), ("s", 5, "a b", "load id")],
)
def test_bad_settings_are_refused_by_name(
    tmp_path: Path, space: str, block_rows: int, load_id: str | None, told: str
) -> None:
    sources = relations(tmp_path).sources
    with pytest.raises(SettingsError, match=told):
        PhasedLoad("relations", sources, space, block_rows, load_id)


def test_rows_of_another_kind_are_another_load(tmp_path: Path) -> None:
    sources = relations(tmp_path).sources
    assert PhasedLoad("a", sources, "s").load_id != PhasedLoad("b", sources, "s").load_id
    assert PhasedLoad("a", sources, "s").load_id != PhasedLoad("a", sources, "t").load_id


def test_a_file_that_changes_is_another_load(tmp_path: Path) -> None:
    before = relations(tmp_path).load_id
    assert relations(tmp_path).load_id == before
    (tmp_path / "relations.csv").write_text("left,right,similar\na,b,1\n")
    assert (
        PhasedLoad(
            "relations", [open_events(str(tmp_path / "relations.csv"), "relations", "toys")], "toys"
        ).load_id
        != before
    )


# ---- labelled rows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("sklearn:digits", BlockSettings(), ("ea989cf8849c283ab6bc3d05caeea958", 8, "f399660fe519a457")),
        (
            "sklearn:digits",
            BlockSettings(shuffle_seed=1, repeat=2),
            ("76aa77a36477e16f42b229d50c3c1aab", 16, "a01134869b14b8a7"),
        ),
        (
            "sklearn:wine",
            BlockSettings(hold_out=0.3, hold_out_seed=2, block_rows=20),
            ("b82660d64dbd4bb11325fc8cddc8cfc0", 7, "cf78208e3788c5b7"),
        ),
        (
            "sklearn:iris",
            BlockSettings(block_rows=7),
            ("829967df9d1f0605bf261d79de229fb2", 22, "4b7c11e7f1ba7b7c"),
        ),
    ],
)
def test_labelled_loads_are_those_of_the_first_version(
    name: str, settings: BlockSettings, expected: tuple[str, int, str]
) -> None:
    """Other blocks under a load id that is in a log would count rows twice, or not at all."""
    load = LabelledLoad(open_source(name), "golden", settings)
    values = [encode(block) for block in load.blocks()]
    digest = hashlib.sha256(b"".join(values)).hexdigest()
    assert (load.load_id, len(values), digest[:16]) == expected
