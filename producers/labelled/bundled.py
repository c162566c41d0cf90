"""The small data sets of scikit-learn, which need no download."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kinstream.producers.files.selection import Selection
from kinstream.streams.errors import SourceError
from kinstream.streams.records.values import DEFAULT_MODALITY

if TYPE_CHECKING:
    from kinstream.producers.labelled.array_source import ArraySource

#: Names of the data sets of scikit-learn.
BUNDLED: Final = ("breast_cancer", "digits", "iris", "wine")
BUNDLED_PREFIX: Final = "sklearn:"


def open_bundled(name: str, selection: Selection) -> ArraySource:
    """Open one of `BUNDLED`.

    Raises
    ------
    SourceError : columns are selected; there is nothing to select from.
    """
    from sklearn import datasets

    from kinstream.producers.labelled.array_source import from_arrays

    place = BUNDLED_PREFIX + name
    if (selection.features, selection.label, selection.ids) != (None, None, None):
        raise SourceError(f"{place}: its features and labels are fixed; leave out the selection of columns")
    loaded: Any = getattr(datasets, f"load_{name}")()
    X, y = np.ascontiguousarray(loaded.data, np.float64), np.ascontiguousarray(loaded.target, np.int64)
    digest = hashlib.sha256(f"{name} {X.shape} {selection.label_type}".encode() + X.tobytes() + y.tobytes())
    return from_arrays(
        {DEFAULT_MODALITY: X},
        y,
        identity=digest.hexdigest(),
        label_type=selection.label_type,
        place=place,
        names={DEFAULT_MODALITY: [str(feature) for feature in loaded.feature_names]},
    )
