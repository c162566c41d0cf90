"""Rows that are sent are the rows of the file, whatever its layout and whenever the producer is killed."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinstream.producers.files import csv as csv_module
from kinstream.producers.files import npz as npz_module
from kinstream.producers.files import parquet as parquet_module
from kinstream.producers.files.selection import Selection
from kinstream.producers.items.source import open_items
from kinstream.producers.labelled import array_source
from kinstream.producers.labelled.hold_out import is_held_out
from kinstream.producers.labelled.load import BlockSettings, LabelledLoad
from kinstream.producers.labelled.sources import open_source
from kinstream.producers.loads import record_rows, sender
from kinstream.producers.loads.phased_load import PhasedLoad
from kinstream.producers.loads.progress import ProgressFolder
from kinstream.producers.loads.sender import Load, produce
from kinstream.producers.sources.file_events import open_events
from kinstream.streams.errors import SourceError
from kinstream.streams.records.codec.codec import decode_event
from kinstream.streams.records.values import ClickBlock, ItemBlock, RelationBlock, SampleBlock
from kinstream.streams.topics import partition_of
from tests.producers.killed_producer import LOG, TOPIC, Killed, KilledSink
from tests.support.memory_log import MemoryLog, MemorySink

#: Between two rows of a text file: what no reader takes for a row.
GAPS = ("", "", "", "\n", "\n\n\n", "   \n", "\n \t \n")
SHOWN = "1767225600000"


def table(
    ends: str, gaps: list[str], last: bool, quoted: list[int], names: str, rows: list[list[str]]
) -> bytes:
    """A CSV file with gaps before its rows; the rows in `quoted` have line breaks in their first, quoted cell."""
    text = gaps[-1] + names + "\n"
    for number, row in enumerate(rows):
        cells = [f'"{row[0]}\nsecond ""line""\n\n"', *row[1:]] if number in quoted else row
        text += gaps[number % len(gaps)] + ",".join(cells) + "\n"
    return (text if last else text[:-1]).replace("\n", ends).encode()


def labelled_csv(path: Path, make: Callable[..., bytes], rows: int) -> Load[Any]:
    path.with_suffix(".csv").write_bytes(
        make("note,x,label", [[f"n{n}", str(n), f"k{n % 3}"] for n in range(rows)])
    )
    source = open_source(str(path.with_suffix(".csv")), selection_of_x())
    return LabelledLoad(source, "toys", BlockSettings(block_rows=4, hold_out=0.3, repeat=2), "load")


def selection_of_x() -> Selection:
    return Selection({"x": ["x"]})


def items_csv(path: Path, make: Callable[..., bytes], rows: int) -> Load[Any]:
    path.with_suffix(".csv").write_bytes(make("note,id,x", [[f"n{n}", f"i{n}", str(n)] for n in range(rows)]))
    return PhasedLoad(
        "items", [open_items(str(path.with_suffix(".csv")), {"vector": "x"})], "toys", 4, "load"
    )


def relations_csv(path: Path, make: Callable[..., bytes], rows: int) -> Load[Any]:
    path.with_suffix(".csv").write_bytes(
        make("note,left,right,similar", [[f"n{n}", f"a{n}", f"b{n}", "1"] for n in range(rows)])
    )
    return PhasedLoad(
        "relations", [open_events(str(path.with_suffix(".csv")), "relations", "toys")], "toys", 4, "load"
    )


def impressions_csv(path: Path, make: Callable[..., bytes], rows: int) -> Load[Any]:
    cells = [[f"n{n}", f"l{n // 3}", f"a{n}", "0", SHOWN] for n in range(rows)]
    path.with_suffix(".csv").write_bytes(make("note,list_id,item,clicked,shown_at", cells))
    return PhasedLoad(
        "clicks", [open_events(str(path.with_suffix(".csv")), "clicks", "toys")], "toys", 2, "load"
    )


def lists_jsonl(path: Path, make: Callable[..., bytes], rows: int) -> Load[Any]:
    objects = [
        [json.dumps({"items": [f"a{n}"], "clicks": [], "shown_at_ms": int(SHOWN)})] for n in range(rows)
    ]
    # The first line stands for the header that JSON lines do not have.
    path.with_suffix(".jsonl").write_bytes(make("", objects))
    return PhasedLoad(
        "clicks", [open_events(str(path.with_suffix(".jsonl")), "clicks", "toys")], "toys", 4, "load"
    )


TEXTS = (labelled_csv, items_csv, relations_csv, impressions_csv, lists_jsonl)


def labelled_parquet(path: Path, group: int, rows: int) -> Load[Any]:
    columns = {"x": [float(n) for n in range(rows)], "label": [n % 3 for n in range(rows)]}
    pq.write_table(pa.table(columns), path.with_suffix(".parquet"), row_group_size=group)
    source = open_source(str(path.with_suffix(".parquet")))
    return LabelledLoad(source, "toys", BlockSettings(block_rows=4, hold_out=0.3, repeat=2), "load")


def labelled_npz(path: Path, group: int, rows: int) -> Load[Any]:
    np.savez(path.with_suffix(".npz"), X=np.arange(float(rows)).reshape(-1, 1), y=np.arange(rows) % 3)
    source = open_source(str(path.with_suffix(".npz")))
    return LabelledLoad(source, "toys", BlockSettings(block_rows=4, shuffle_seed=group, repeat=2), "load")


def items_parquet(path: Path, group: int, rows: int) -> Load[Any]:
    columns = {"x": [float(n) for n in range(rows)], "id": [f"i{n}" for n in range(rows)]}
    pq.write_table(pa.table(columns), path.with_suffix(".parquet"), row_group_size=group)
    return PhasedLoad("items", [open_items(str(path.with_suffix(".parquet")))], "toys", 4, "load")


BINARY = (labelled_parquet, labelled_npz, items_parquet)


def rows_in(log: MemoryLog) -> list[Any]:
    """The rows that builders apply: of each sequence the first block."""
    applied: dict[int, list[Any]] = {}
    for message in log.read(TOPIC, partition_of("toys", log.partitions), 0):
        assert message.value is not None
        block = decode_event(message.value)
        assert isinstance(block, SampleBlock | ItemBlock | ClickBlock | RelationBlock)
        assert block.load is not None
        assert block.load.sequence <= len(applied), "a block is missing"
        match block:
            case SampleBlock():
                rows = block.tables[0].vectors[:, 0].tolist()
            case ItemBlock():
                rows = list(block.ids)
            case RelationBlock():
                rows = [block.ids[at] for at in block.left]
            case _:
                rows = [block.ids[at] for at in block.item]
        applied.setdefault(block.load.sequence, rows)
    return [row for sequence in sorted(applied) for row in applied[sequence]]


def expected_rows(load: Load[Any], rows: int) -> list[Any]:
    """What the file holds, by its making."""
    if isinstance(load, LabelledLoad):
        kept = ~is_held_out(load.settings.hold_out, load.settings.hold_out_seed, 0, rows)
        return sorted([float(n) for n in np.flatnonzero(kept)] * 2)
    assert isinstance(load, PhasedLoad)
    prefix = "i" if load.kind == "items" else "a"
    return sorted(f"{prefix}{n}" for n in range(rows))


def check(make: Callable[[], Load[Any]], rows: int, sizes: tuple[int, int], at: int, landed: int) -> None:
    """Kill a load at a send, and run it again with another size of what is read at a time."""
    log = MemoryLog()
    with tempfile.TemporaryDirectory() as folder:
        progress = ProgressFolder(Path(folder), LOG)

        def run(size: int, sink: MemorySink) -> None:
            # A load waits for confirmations, and saves its progress, after each block.
            with (
                patch.object(csv_module, "BLOCK_BYTES", 100 + size),
                patch.object(parquet_module, "BATCH_ROWS", size),
                patch.object(npz_module, "BATCH_ROWS", size),
                patch.object(array_source, "BATCH_ROWS", size),
                patch.object(record_rows, "BATCH_ROWS", size),
                patch.object(sender, "CONFIRM_BYTES", 1),
            ):
                produce(make(), sink, TOPIC, folder=progress, now_ms=lambda: 0)

        try:
            run(sizes[0], KilledSink(log, at=at, landed=landed))
        except Killed:
            run(sizes[1], MemorySink(log))
    found = rows_in(log)
    assert sorted(found) == expected_rows(make(), rows)


@pytest.mark.long
@pytest.mark.parametrize("kind", TEXTS, ids=lambda kind: kind.__name__)
@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 30),
    st.sampled_from(["\n", "\r\n"]),
    st.lists(st.sampled_from(GAPS), min_size=1, max_size=5),
    st.booleans(),
    st.sets(st.integers(0, 29), max_size=5),
    st.tuples(st.integers(1, 60), st.integers(1, 60)),
    st.integers(1, 12),
    st.integers(0, 3),
)
def test_text_files(
    kind: Callable[..., Load[Any]],
    rows: int,
    ends: str,
    gaps: list[str],
    last: bool,
    quoted: set[int],
    sizes: tuple[int, int],
    at: int,
    landed: int,
) -> None:
    # JSON has no line breaks in a cell.
    broken = [] if kind is lists_jsonl else sorted(quoted)

    def made(names: str, cells: list[list[str]]) -> bytes:
        return table(ends, gaps, last, broken, names, cells)

    with tempfile.TemporaryDirectory() as folder:
        check(lambda: kind(Path(folder) / "rows", made, rows), rows, sizes, at, landed)


@pytest.mark.long
@pytest.mark.parametrize("kind", BINARY, ids=lambda kind: kind.__name__)
@settings(max_examples=12, deadline=None)
@given(
    st.integers(4, 30),
    st.integers(1, 31),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.integers(1, 12),
    st.integers(0, 3),
)
def test_binary_files(
    kind: Callable[..., Load[Any]], rows: int, group: int, sizes: tuple[int, int], at: int, landed: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check(lambda: kind(Path(folder) / "rows", group, rows), rows, sizes, at, landed)


# ---- errors name the place that an editor shows -----------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("fault", ["value", "ragged", "utf-8"])
@settings(max_examples=25, deadline=None)
@given(
    st.integers(2, 20),
    st.sampled_from(["\n", "\r\n"]),
    st.lists(st.sampled_from(GAPS), min_size=1, max_size=5),
    st.sets(st.integers(0, 29), max_size=5),
    st.integers(1, 60),
    st.data(),
)
def test_errors_name_the_row_and_the_line_alike(
    fault: str, rows: int, ends: str, gaps: list[str], quoted: set[int], size: int, data: Any
) -> None:
    bad = data.draw(st.integers(0, rows - 1))
    cells = [[f"n{n}", str(n), "k"] for n in range(rows)]
    cells[bad][1:] = {"value": ["BAD", "k"], "ragged": ["BAD"], "utf-8": ["1", "BAD"]}[fault]
    text = table(ends, gaps, True, sorted(quoted), "note,x,label", cells)
    # A row begins at its line, also if it has several.
    line = text[: text.index(b"n%d" % bad if bad else b"n0", len(b"note,x,label"))].count(b"\n") + 1
    text = text.replace(b"BAD", b"\xff") if fault == "utf-8" else text
    with tempfile.TemporaryDirectory() as folder, patch.object(csv_module, "BLOCK_BYTES", 100 + size):
        path = Path(folder) / "rows.csv"
        path.write_bytes(text)
        with pytest.raises(SourceError) as caught:
            open_source(str(path), selection_of_x())
    told = str(caught.value)
    assert f"row {bad + 1}" in told
    if line == bad + 2:
        assert "(line" not in told
    else:
        assert f"row {bad + 1} (line {line})" in told


@pytest.mark.long
@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_a_line_end_within_quotes_is_whole_wherever_a_read_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    names = [f"{'x' * (row % 5)}\r\n{row}" for row in range(60)]
    rows = "".join(f'"{name}",{row},k{row % 3}{ending}' for row, name in enumerate(names))
    (tmp_path / "rows.csv").write_bytes(f"id,a,label{ending}{rows}".encode())
    for size in range(200, 230):
        monkeypatch.setattr(csv_module, "BLOCK_BYTES", size)
        source = open_source(str(tmp_path / "rows.csv"), Selection(ids="id"))
        found: list[str] = []
        while (batch := source.next_batch()) is not None:
            found += batch.ids or ()
        assert found == names
