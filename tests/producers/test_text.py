"""Text that is no UTF-8 stops at the producer, which names file, row and column before anything is sent."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kinstream.cli.commands.spaces import declaration
from kinstream.producers.files.selection import Selection
from kinstream.producers.items.source import open_items
from kinstream.producers.labelled.load import BlockSettings, LabelledLoad
from kinstream.producers.labelled.sources import open_source
from kinstream.producers.loads.item_rows import tombstones
from kinstream.producers.sources.file_events import open_events
from kinstream.streams.errors import SettingsError, SourceError

HALF = "\ud83d"


def text_column(*values: bytes) -> pa.Array:
    """A column that says it is text, whatever the bytes."""
    plain = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(values), plain.buffers())


def refused(read: Callable[[], Any], *parts: str) -> None:
    with pytest.raises(SourceError) as error:
        read()
    text = str(error.value)
    text.encode()
    assert all(part in text for part in parts), text
    assert "not valid UTF-8" in text


def labelled(path: Path, **selection: Any) -> Any:
    return open_source(str(path), Selection(**selection))


@pytest.mark.parametrize("bad", [b"\xed\xa0\xbd", b"\xc0\x80", b"caf\xe9", b"\xe2\x82"])
@pytest.mark.parametrize("packed", [False, True])
def test_csv(tmp_path: Path, bad: bytes, packed: bool) -> None:
    lines = b"".join(b"%d,2,x,name %d\n" % (n, n) for n in range(5_000))
    data = b"a,b,label,id\n" + lines + b"3,4," + bad + b",r\n5,6,y,s\n"
    path = tmp_path / ("t.csv.gz" if packed else "t.csv")
    path.write_bytes(gzip.compress(data) if packed else data)
    refused(lambda: labelled(path, ids="id"), path.name, "row 5001, column 'label'")


def test_a_csv_row_of_another_length(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b,label\n1,2,x\n1,\xe9\n")
    told = r"t\.csv: row 2: 2 columns, but others have 3; it is not valid UTF-8"
    with pytest.raises(SourceError, match=told):
        open_source(str(path))
    assert capfd.readouterr().err == ""


def test_a_csv_column_that_is_not_read_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,label,note\n1,x,\xff\n2,y,\xff\n3,\xff,z\n")
    refused(lambda: labelled(path, features={"x": ("a",)}), "row 3, column 'label'")


def test_a_csv_header(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,caf\xe9,label\n1,2,x\n2,2,y\n")
    refused(lambda: labelled(path), "header")


@pytest.mark.parametrize("listed", [False, True])
def test_parquet(tmp_path: Path, listed: bool) -> None:
    path = tmp_path / "t.parquet"
    names = text_column(*[b"x"] * 9_000, b"\xed\xa0\xbd", b"y")
    rows = len(names)
    if listed:
        items = pa.ListArray.from_arrays(list(range(rows + 1)), names)
        pq.write_table(pa.table({"items": items, "clicks": items, "shown_at": [20240101] * rows}), path)
        refused(lambda: open_events(str(path), "clicks", "s"), "t.parquet", "row 9001, column 'items'")
        return
    pq.write_table(pa.table({"a": [1.0] * rows, "label": names, "id": names}), path)
    refused(lambda: labelled(path), "t.parquet", "row 9001, column 'label'")
    refused(lambda: open_items(str(path)), "t.parquet", "row 9001, column 'id'")


def test_npz(tmp_path: Path) -> None:
    for name, label in (
        ("wide", np.array(["x", HALF, "y"])),
        ("swapped", np.array(["x", "y" + HALF, "y"]).astype(">U2")),
        ("bytes", np.array([b"x", b"\xff", b"y"])),
    ):
        path = tmp_path / f"{name}.npz"
        np.savez(path, X=np.eye(3), y=label, id=np.array(["a", "b", "c"]))
        refused(lambda path=path: labelled(path, ids="id"), path.name, "row 2, column 'y'")  # type: ignore[misc]
    path = tmp_path / "ids.npz"
    np.savez(path, X=np.eye(3), y=np.array([1, 2, 3]), id=np.array(["a", "b", "c" + HALF]))
    refused(lambda: labelled(path, ids="id"), "ids.npz", "row 3, column 'id'")


@pytest.mark.parametrize("bad", [rb"\ud83d", rb"\ude00\ud83d", b"\xed\xa0\xbd"])
def test_json_lines(tmp_path: Path, bad: bytes) -> None:
    path = tmp_path / "t.jsonl"
    good = b'{"left": "a", "right": "\\ud83d\\ude00", "similar": true, "time_ms": 1}\n'
    path.write_bytes(good + b'{"left": "a", "right": "' + bad + b'", "similar": true, "time_ms": 1}\n')
    where = "row 2" if bad.startswith(b"\xed") else "row 2: right"
    refused(lambda: open_events(str(path), "relations", "s"), "t.jsonl", where)


def test_a_field_of_a_json_line_stands_there_once(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"left": "a", "right": "b", "similar": true, "time_ms": 1, "left": "c"}\n')
    with pytest.raises(SourceError, match="row 1: the field 'left' appears twice"):
        open_events(str(path), "relations", "s")


def test_a_list_that_is_json_in_a_cell(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        'items,clicks,shown_at\n"[""a"", ""b""]",[],20240101\n"[""a"", ""\\ud83d""]",[],20240101\n'
    )
    with pytest.raises(SourceError, match=r"t\.csv: row 2: column 'items': not a JSON list"):
        open_events(str(path), "clicks", "s")


def test_names_of_the_command_line(tmp_path: Path) -> None:
    refused(lambda: tombstones(["a", "b" + HALF], 0))
    with pytest.raises(SettingsError):
        declaration(None, (f"{HALF}:3",), "any", None)
    path = tmp_path / "t.csv"
    path.write_text("a,label\n1,x\n2,y\n")
    with pytest.raises(SettingsError, match="not valid UTF-8"):
        LabelledLoad(labelled(path, features={HALF: ("a",)}), "s", BlockSettings())
    with pytest.raises(SettingsError):
        LabelledLoad(labelled(path), HALF, BlockSettings())
