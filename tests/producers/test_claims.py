"""A file may claim more than there is memory or time for: it is refused by what it says, before it is read."""

from __future__ import annotations

import io
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kinstream.producers.files import parquet
from kinstream.producers.files.parquet import ParquetFile
from kinstream.producers.labelled.sources import open_source
from kinstream.streams.compute import memory
from kinstream.streams.errors import SourceError


@pytest.mark.timeout(60)
@pytest.mark.parametrize("ending", [".csv", ".tsv"])
def test_a_table_of_300_000_columns_is_refused_at_once(ending: str, tmp_path: Path) -> None:
    between = "," if ending == ".csv" else "\t"
    path = tmp_path / f"wide{ending}"
    rows = [between.join(("label", *(f"f{n}" for n in range(300_000)))), between.join(["1"] * 300_001)]
    path.write_text("\n".join(rows) + "\n")
    with pytest.raises(SourceError, match="300001 columns; a CSV file may have 30000"):
        open_source(str(path))


def header(shape: tuple[int, ...], kind: str) -> bytes:
    stream = io.BytesIO()
    content = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, content)
    return stream.getvalue()


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("shape", "kind"),
    [((10**6, 10**6), "<f8"), ((10**12, 0), "<f8"), ((10**12,), "<i8"), ((2**62, 2**62), "<f4")],
)
def test_an_array_that_claims_too_much_is_refused_at_once(
    shape: tuple[int, ...], kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "claims.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", header(shape, kind))
        archive.writestr("y.npy", header(shape[:1], "<i8"))
    with pytest.raises(SourceError, match="GiB"):
        open_source(str(path))


def test_many_columns_are_summed_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"column {number}" for number in range(50_000)]
    columns = [
        SimpleNamespace(path_in_schema=name, total_uncompressed_size=4, num_values=1) for name in names
    ]
    group = SimpleNamespace(num_rows=1, num_columns=len(names), column=columns.__getitem__)
    opened = SimpleNamespace(
        num_row_groups=1,
        metadata=SimpleNamespace(row_group=lambda number: group),
        iter_batches=lambda **_: iter(()),
    )
    file = object.__new__(ParquetFile)
    monkeypatch.setattr(ParquetFile, "path", Path("wide.parquet"), raising=False)
    monkeypatch.setattr(file, "_file", lambda: opened)
    begun = time.process_time()
    # Each column among all of them takes a minute.
    assert not list(file.parts(names, 0))
    assert time.process_time() - begun < 3.0


def test_a_row_group_without_memory_for_it_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"x": np.zeros(300_000)}), path)
    file = ParquetFile(path)
    monkeypatch.setattr(memory, "memory_left", lambda: 2**20)
    with pytest.raises(SourceError, match="row group 0: 2 MiB of memory are wanted"):
        next(file.parts(["x"], 0))


def test_rows_of_many_columns_are_read_in_small_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({name: np.arange(100.0) for name in ("x", "y")}), path)
    monkeypatch.setattr(parquet, "_BATCH_VALUES", 20)
    sizes = [part.num_rows for part in ParquetFile(path).parts(["x", "y"], 5)]
    assert max(sizes) == 10
    assert sum(sizes) == 95
