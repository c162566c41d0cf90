"""A file that is not what its name says, or in another encoding, is refused with what it is, without a traceback."""

from __future__ import annotations

import gzip
import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinstream.producers.files.selection import Selection
from kinstream.producers.items.source import open_items
from kinstream.producers.labelled.hold_out import read_all
from kinstream.producers.labelled.sources import open_source
from kinstream.producers.sources.file_events import open_events
from kinstream.streams.encodings import not_utf8
from kinstream.streams.errors import SettingsError, SourceError
from kinstream.streams.settings import load

TEXT = "left,right,similar,label\n1,2,1,3\n2,3,1,4\n"
LINE = '{"left": "a", "right": "b", "similar": 1}\n'
WIDE = ["utf-16", "utf-16-le", "utf-16-be", "utf-32"]
Opening = Callable[[str], Any]
OPENINGS: dict[str, Opening] = {
    "labelled": open_source,
    "items": open_items,
    "clicks": lambda name: open_events(name, "clicks", "s"),
    "relations": lambda name: open_events(name, "relations", "s"),
}
each = pytest.mark.parametrize("opening", OPENINGS.values(), ids=OPENINGS)


def write(folder: Path, name: str, data: bytes) -> str:
    (folder / name).write_bytes(data)
    return str(folder / name)


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npz(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def zipped(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


# ---- encodings --------------------------------------------------------------------------------------------------


@each
@pytest.mark.parametrize("encoding", WIDE)
@pytest.mark.parametrize("packed", [False, True])
def test_other_encodings_are_named(tmp_path: Path, opening: Opening, encoding: str, packed: bool) -> None:
    kinds = {"csv": TEXT} | (
        {"jsonl": LINE} if opening in (OPENINGS["clicks"], OPENINGS["relations"]) else {}
    )
    for kind, text in kinds.items():
        data = text.encode(encoding)
        name = f"rows.{kind}{'.gz' * packed}"
        with pytest.raises(SourceError, match=rf"text in {encoding[:6].upper()}; write it in UTF-8: iconv"):
            opening(write(tmp_path, name, gzip.compress(data) if packed else data))


def test_a_mark_before_utf8_changes_nothing(tmp_path: Path) -> None:
    for name, text in (("rows.csv", TEXT), ("rows.jsonl", LINE)):
        open_events(write(tmp_path, name, text.encode("utf-8-sig")), "relations", "s")
    batch = read_all(open_source(write(tmp_path, "rows.csv", TEXT.encode("utf-8-sig"))))
    assert list(batch.labels) == [3, 4]


@pytest.mark.parametrize("encoding", WIDE)
def test_settings_in_other_encodings(tmp_path: Path, encoding: str) -> None:
    told = f"text in {encoding[:6].upper()}; write it in UTF-8"
    with pytest.raises(SettingsError, match=told):
        load(write(tmp_path, "kinstream.toml", "[topics]\npartitions = 3\n".encode(encoding)))


def test_settings_may_begin_with_a_mark(tmp_path: Path) -> None:
    text = "[topics]\npartitions = 3\n".encode("utf-8-sig")
    assert load(write(tmp_path, "kinstream.toml", text)).topics.partitions == 3


@given(st.text(max_size=40))
def test_utf8_is_never_taken_for_something_else(text: str) -> None:
    data = text.encode()
    if "\0" not in text and not text.startswith(("PK\x03\x04", "PAR1")):
        assert not_utf8(data) is None


# ---- files that are something else ------------------------------------------------------------------------------

X, Y = np.ones((4, 2)), np.arange(4)
DAMAGED = bytearray(npz(X=np.random.default_rng(0).random((400, 9)), y=np.arange(400)))
OTHERS: dict[str, tuple[str, bytes, str]] = {
    "npy": ("rows.npz", npy(X), r"an array of numpy \(\.npy\); numpy\.savez"),
    "empty": ("rows.npz", b"", "no zip archive"),
    "pickle": ("rows.npz", pickle.dumps({"X": 1}), "no zip archive"),
    "cut": ("rows.npz", bytes(DAMAGED[:900]), "cut off or damaged"),
    "csv as npz": ("rows.npz", TEXT.encode(), "no zip archive"),
    "gzip as csv": ("rows.csv", gzip.compress(TEXT.encode()), "compressed with gzip"),
    "npz as csv": ("rows.csv", npz(X=X, y=Y), r"a zip archive, as \.xlsx and \.npz are"),
    "parquet as csv": ("rows.csv", b"PAR1" + bytes(40), "it is Parquet"),
    "csv as gzip": ("rows.csv.gz", TEXT.encode(), "[Nn]ot a gzipped file"),
    "csv as parquet": ("rows.parquet", TEXT.encode(), "not a parquet file"),
}


@each
@pytest.mark.parametrize(("name", "data", "told"), OTHERS.values(), ids=OTHERS)
def test_what_a_file_is_instead_is_named(
    tmp_path: Path, opening: Opening, name: str, data: bytes, told: str
) -> None:
    with pytest.raises(SourceError, match=told):
        opening(write(tmp_path, name, data))


@pytest.mark.parametrize(
    "data",
    [
        zipped({"readme.txt": b"hello"}),
        zipped({"label": b"hello", "X": b"hello"}),
        zipped({"label.npy": b"hello", "X.npy": b"hello"}),
        npz(X=np.array([[{}]] * 4), label=Y),
        npz(X=X, label=np.array([{}, 1, 2, 3])),
        npz(X=X.astype(complex), label=Y),
        npz(X=X, label=Y.astype("M8[s]")),
        npz(X=X, label=np.zeros(4, [("a", int)])),
        npz(X=X, label=np.array(3)),
        npz(X=np.array(3), label=Y),
    ],
)
def test_archives_without_usable_arrays_are_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(SourceError, match=r"rows\.npz"):
        open_source(write(tmp_path, "rows.npz", data))
    with pytest.raises(SourceError, match=r"rows\.npz"):
        open_items(write(tmp_path, "rows.npz", data), {"id": "label"})


@given(st.integers(0, len(DAMAGED) - 1), st.binary(min_size=1, max_size=60))
def test_a_damaged_archive_is_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, at: int, junk: bytes
) -> None:
    data = bytearray(DAMAGED)
    data[at : at + len(junk)] = junk
    path = tmp_path_factory.getbasetemp() / "damaged.npz"
    path.write_bytes(bytes(data))
    try:
        open_source(str(path))
    except SourceError as error:
        assert "damaged.npz" in str(error)


def test_wide_floats_are_read(tmp_path: Path) -> None:
    data = npz(X=X.astype(np.longdouble), y=Y.astype(np.longdouble))
    assert list(read_all(open_source(write(tmp_path, "rows.npz", data))).labels) == [0, 1, 2, 3]


@each
def test_two_columns_of_one_name_are_refused(tmp_path: Path, opening: Opening) -> None:
    columns = [pa.array([1.0]), pa.array([2.0]), pa.array(["a"])]
    pq.write_table(pa.Table.from_arrays(columns, names=["a", "a", "label"]), tmp_path / "rows.parquet")
    with pytest.raises(SourceError, match="names 'a' twice"):
        opening(str(tmp_path / "rows.parquet"))
    with pytest.raises(SourceError, match="names 'a' twice"):
        opening(write(tmp_path, "rows.csv", b"a,a,label\n1,2,3\n"))
    twice = io.BytesIO()
    with zipfile.ZipFile(twice, "w") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        for _ in range(2):
            archive.writestr("a.npy", npy(X))
    with pytest.raises(SourceError, match="names 'a' twice"):
        opening(write(tmp_path, "rows.npz", twice.getvalue()))


LISTS = {"list": pa.list_, "large": pa.large_list, "view": pa.list_view, "large view": pa.large_list_view}


@pytest.mark.parametrize("of", LISTS.values(), ids=LISTS)
def test_vectors_are_read_from_lists_of_every_type(tmp_path: Path, of: Callable[[Any], Any]) -> None:
    table = pa.table({"v": pa.array([[1.0, 2.0], [3.0, 4.0]], of(pa.float32())), "label": [1, 2]})
    pq.write_table(table, tmp_path / "rows.parquet")
    batch = read_all(open_source(str(tmp_path / "rows.parquet")))
    assert batch.tables[0].vectors.tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary_view()])
def test_text_of_every_type_is_a_label_and_a_number(tmp_path: Path, kind: pa.DataType) -> None:
    words = [b"1", b"2"] if kind == pa.binary_view() else ["1", "2"]
    table = pa.table({"v": pa.array(words, kind), "label": pa.array(words, kind)})
    pq.write_table(table, tmp_path / "rows.parquet")
    batch = read_all(open_source(str(tmp_path / "rows.parquet"), Selection({"x": ["v"]})))
    assert (list(batch.labels), batch.tables[0].vectors.tolist()) == (["1", "2"], [[1.0], [2.0]])
