"""Labelled rows of NPZ files: X and y, or one array for each modality."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

from kinstream.producers.files.columns import Columns, choose
from kinstream.producers.files.npz import as_column, default_features, opened, read
from kinstream.producers.files.numbers import Where
from kinstream.producers.files.selection import Selection
from kinstream.producers.files.tables import file_digest
from kinstream.producers.files.text import names
from kinstream.producers.labelled.array_source import ArraySource, from_arrays
from kinstream.producers.labelled.batch import entries
from kinstream.streams.errors import SourceError


def open_npz(path: Path, selection: Selection) -> ArraySource:
    """Open an NPZ file of labelled rows. Without a selection of features, the array is the one named X (or
    x, or data).

    Raises
    ------
    SourceError : the file, or one of its arrays, cannot be used.
    """
    with opened(path) as file:
        columns = _choose(str(path), list(file.files), selection)
        arrays = {name: read(file, name, path) for name in columns.all()}
    features = {modality: arrays[names[0]] for modality, names in columns.features}
    ids = None
    if columns.ids is not None:
        where = Where(str(path), columns.ids)
        ids = names(as_column(arrays[columns.ids], where), where, typed=True)
    described = json.dumps([columns.features, columns.label, columns.ids, "auto"])
    identity = hashlib.sha256(f"{file_digest(path)} {described}".encode()).hexdigest()
    return from_arrays(
        features,
        arrays[columns.label],
        identity=identity,
        ids=ids,
        place=str(path),
        label=columns.label,
        names={
            modality: entries(found[0], math.prod(arrays[found[0]].shape[1:]))
            for modality, found in columns.features
        },
    )


def _choose(place: str, names: list[str], selection: Selection) -> Columns:
    columns = choose(place, names, selection, default_features(names))
    for modality, found in columns.features:
        if len(found) != 1:
            raise SourceError(f"{place}: modality {modality!r} is one array, not {', '.join(found)}")
    return columns
