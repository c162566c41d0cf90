"""NPZ files: X and y, or one array for each modality. They are read into memory."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from producers.array_source import ArraySource, from_arrays
from producers.columns import Columns, choose
from producers.sources import Selection
from producers.table_source import file_digest
from streams.errors import SourceError


def open_npz(path: Path, selection: Selection) -> ArraySource:
    """Open an NPZ file. Without a selection of features, the array is the one called X (or x, or data).

    Raises
    ------
    SourceError : the file, or one of its arrays, cannot be used.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            columns = _choose(str(path), list(file.files), selection)
            arrays = {name: _read(file, name, path) for name in columns.all()}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise SourceError(f"{path}: not an NPZ file that can be read: {error}") from error
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


def _choose(place: str, names: list[str], selection: Selection) -> Columns:
    usable = [name for name in names if name in ("X", "x", "data")][:1]
    columns = choose(place, names, selection, usable)
    for modality, found in columns.features:
        if len(found) != 1:
            raise SourceError(f"{place}: modality {modality!r} is one array, not {', '.join(found)}")
    return columns


def _read(file: Any, name: str, path: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = file[name]
    except ValueError as error:
        raise SourceError(
            f"{path}: array {name!r} cannot be read; pickled objects are refused: {error}"
        ) from error
    return np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array
