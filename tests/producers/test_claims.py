"""A file may claim more than there is memory or time for: it is refused by what it says, before it is read."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from kinstream.producers.labelled.sources import open_source
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
