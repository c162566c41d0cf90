"""NPZ files: X and y, or one array for each modality. They are read into memory."""

from __future__ import annotations

import hashlib
import json
import math
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kinstream.producers.array_source import ArraySource, from_arrays
from kinstream.producers.columns import Columns, choose
from kinstream.producers.numbers import Where
from kinstream.producers.sources import Selection
from kinstream.producers.table_source import file_digest
from kinstream.producers.text import check_array
from kinstream.streams.errors import SourceError

BATCH_ROWS: Final = 8192
#: Of one array in memory. A packed file can be a thousandth of it.
MAX_ARRAY_BYTES: Final = 4 * 2**30


def open_npz(path: Path, selection: Selection) -> ArraySource:
    """Open an NPZ file of labelled rows. Without a selection of features, the array is the one called X (or
    x, or data).

    Raises
    ------
    SourceError : the file, or one of its arrays, cannot be used.
    """
    with _opened(path) as file:
        columns = _choose(str(path), list(file.files), selection)
        arrays = {name: _read(file, name, path) for name in columns.all()}
    features = {modality: arrays[names[0]] for modality, names in columns.features}
    ids = None if columns.ids is None else tuple(str(i) for i in arrays[columns.ids].tolist())
    told = json.dumps([columns.features, columns.label, columns.ids, selection.label_type])
    identity = hashlib.sha256(f"{file_digest(path)} {told}".encode()).hexdigest()
    return from_arrays(
        features,
        arrays[columns.label],
        identity=identity,
        ids=ids,
        label_type=selection.label_type,
        place=str(path),
        label=columns.label,
    )


class NpzFile:
    """An NPZ file as columns: an array of one dimension is a column, one of more a column of vectors.

    Raises
    ------
    SourceError : the file cannot be used.
    """

    last: Final = None
    text_is_typed: Final = True

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        with _opened(path) as file:
            self.names: Final[list[str]] = list(file.files)
        self.usable: Final = _default_features(self.names)
        self.reading: Final[dict[str, Any]] = {"npz": 1}
        self._columns: dict[str, pa.Array] = {}

    def parts(self, columns: Sequence[str], first: int) -> Iterator[pa.RecordBatch]:
        missing = [name for name in columns if name not in self._columns]
        with _opened(self.path) as file:
            for name in missing:
                self._columns[name] = _column(_read(file, name, self.path), Where(str(self.path), name))
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
def _opened(path: Path) -> Iterator[Any]:
    try:
        with np.load(path, allow_pickle=False) as file:
            yield file
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise SourceError(f"{path}: not an NPZ file that can be read: {error}") from error


def _column(array: NDArray[Any], where: Where) -> pa.Array:
    if array.dtype.kind not in "biufU" or not array.ndim:
        raise where.wrong(f"holds {array.dtype} of shape {array.shape}, not numbers or text")
    if array.ndim == 1:
        return pa.array(array.astype(np.float64) if array.dtype.kind == "f" else array)
    if array.dtype.kind == "U" or not array.size:
        raise where.wrong(f"has shape {array.shape}; vectors are numbers, at least one in each")
    flat = array.reshape(len(array), -1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat.astype(np.float64).reshape(-1)), flat.shape[1])


def _default_features(names: list[str]) -> list[str]:
    return [name for name in names if name in ("X", "x", "data")][:1]


def _choose(place: str, names: list[str], selection: Selection) -> Columns:
    columns = choose(place, names, selection, _default_features(names))
    for modality, found in columns.features:
        if len(found) != 1:
            raise SourceError(f"{place}: modality {modality!r} is one array, not {', '.join(found)}")
    return columns


def _read(file: Any, name: str, path: Path) -> NDArray[Any]:
    try:
        _check_size(file, name, path)
        array: NDArray[Any] = file[name]
    except (ValueError, SyntaxError, MemoryError) as error:
        raise SourceError(
            f"{path}: array {name!r} cannot be read; pickled objects are refused: {error}"
        ) from error
    return check_array(array, Where(str(path), name))


def _check_size(file: Any, name: str, path: Path) -> None:
    """Refuse an array by what its header says, before there is room for it.

    Raises
    ------
    SourceError : it is too large.
    ValueError : the header and the packed size disagree, or it holds Python objects.
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
            f"{path}: array {name!r} takes {size / 2**30:.1f} GiB in memory; the most are "
            f"{MAX_ARRAY_BYTES // 2**30} GiB. Write it as Parquet, which is read in parts"
        )
    if size != file.zip.getinfo(member).file_size - header:
        raise ValueError(f"its header says {size} bytes, and there are others")
