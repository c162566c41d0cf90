"""NPZ files. They are read into memory."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kinstream.producers.files.columns import refuse_twice
from kinstream.producers.files.numbers import Where
from kinstream.producers.files.text import check_array
from kinstream.streams.encodings import HEAD, not_utf8
from kinstream.streams.errors import SourceError

BATCH_ROWS: Final = 8192
#: Largest array in memory. A compressed file can be a thousandth of it.
MAX_ARRAY_BYTES: Final = 4 * 2**30


class NpzFile:
    """An NPZ file as columns: an array of one dimension is a column, one of more a column of vectors.

    Raises
    ------
    SourceError : the file cannot be used.
    """

    text_is_typed: Final = True

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        with opened(path) as file:
            self.names: Final[list[str]] = list(file.files)
        self.usable: Final = default_features(self.names)
        self.indexes: Final = ()
        self.reading: Final[dict[str, Any]] = {"npz": 1}
        self._columns: dict[str, pa.Array] = {}

    def line(self, row: int) -> int | None:
        return None

    def parts(self, columns: Sequence[str], first: int) -> Iterator[pa.RecordBatch]:
        missing = [name for name in columns if name not in self._columns]
        with opened(self.path) as file:
            for name in missing:
                self._columns[name] = as_column(read(file, name, self.path), Where(str(self.path), name))
        found = [self._columns[name] for name in columns]
        rows = len(found[0])
        for name, column in zip(columns, found, strict=True):
            if len(column) != rows:
                raise SourceError(
                    f"{self.path}: array {name!r} has {len(column)} rows, and {columns[0]!r} has {rows}"
                )
        for at in range(first, rows, BATCH_ROWS):
            yield pa.RecordBatch.from_arrays([c.slice(at, BATCH_ROWS) for c in found], names=list(columns))


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The file's arrays by name, with `files` and `zip` (numpy.load). Raises SourceError."""
    try:
        if not zipfile.is_zipfile(path):
            with path.open("rb") as stream:
                what = not_utf8(stream.read(HEAD))
            is_array = what is not None and "npy" in what
            hint = "; numpy.savez(path, X=X, y=y) writes several arrays" if is_array else ""
            cut = " that is cut off or damaged" if what is not None and "zip" in what.split() else ""
            raise ValueError(f"it is {what or 'no zip archive'}{cut}{hint}")
        with np.load(path, allow_pickle=False) as file:
            refuse_twice(path, file.files)
            yield file
    except (OSError, ValueError, RuntimeError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise SourceError(f"{path}: not an NPZ file that can be read: {error}") from error


def as_column(array: NDArray[Any], where: Where) -> pa.Array:
    """An array as a column.

    Raises
    ------
    SourceError : it holds neither numbers nor text.
    """
    if array.dtype.kind not in "biufU" or not array.ndim:
        raise where.wrong(f"holds {array.dtype} of shape {array.shape}, not numbers or text")
    if array.ndim == 1 and array.dtype.kind == "U":
        # Arrow ends a text of numpy's at its first zero.
        return pa.array(array.tolist(), pa.string())
    if array.ndim == 1:
        return pa.array(array.astype(np.float64) if array.dtype.kind == "f" else array)
    if array.dtype.kind == "U" or not array.size:
        raise where.wrong(f"has shape {array.shape}; vectors are numbers, at least one in each")
    flat = array.reshape(len(array), -1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat.astype(np.float64).reshape(-1)), flat.shape[1])


def default_features(names: list[str]) -> list[str]:
    """The array of the features by default, if there is one."""
    return [name for name in names if name in ("X", "x", "data")][:1]


def read(file: Any, name: str, path: Path) -> NDArray[Any]:
    """One array of an opened file.

    Raises
    ------
    SourceError : it cannot be read, is too large, or holds Python objects or text that is not UTF-8.
    """
    try:
        _check_size(file, name, path)
        array: NDArray[Any] = file[name]
    except (ValueError, SyntaxError, MemoryError, TokenError) as error:
        raise SourceError(
            f"{path}: array {name!r} cannot be read; pickled objects are refused: {error}"
        ) from error
    # Arrow knows neither foreign byte orders nor floats of more than 64 bits.
    wide = array.dtype.kind == "f" and array.dtype.itemsize > 8
    plain = array.astype(np.float64 if wide else array.dtype.newbyteorder("="), copy=False)
    return check_array(plain, Where(str(path), name))


def _check_size(file: Any, name: str, path: Path) -> None:
    """Refuse an array by its header, before memory is allocated.

    Raises
    ------
    SourceError : it is too large.
    ValueError : the header and the compressed size disagree, or it holds Python objects.
    """
    member = name if name in file.zip.namelist() else f"{name}.npy"
    with file.zip.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, _, kind = read(stream)
        header = stream.tell()
    if kind.hasobject:
        raise ValueError("it holds Python objects")
    size = math.prod(shape) * kind.itemsize
    if size > MAX_ARRAY_BYTES:
        raise SourceError(
            f"{path}: array {name!r} takes {size / 2**30:.1f} GiB in memory; the limit is "
            f"{MAX_ARRAY_BYTES // 2**30} GiB. Write it as Parquet, which is read in parts"
        )
    if size != file.zip.getinfo(member).file_size - header:
        raise ValueError(f"its header states {size} bytes, which is not its size")
