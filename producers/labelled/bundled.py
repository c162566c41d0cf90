"""The small data sets of scikit-learn, which need no download, and one that it generates."""

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
BUNDLED: Final = ("breast_cancer", "classification", "digits", "iris", "wine")
#: Of "classification", by `make_classification`: 40 columns in units of their own, of which six say something of the
#: class. No scaling knows which.
GENERATED: Final[dict[str, Any]] = {
    "n_samples": 2_500,
    "n_features": 40,
    "n_informative": 6,
    "n_redundant": 0,
    "n_classes": 4,
    "n_clusters_per_class": 1,
    "class_sep": 1.5,
    "shift": 0.0,
    "scale": None,
}
BUNDLED_PREFIX: Final = "sklearn:"


def open_bundled(name: str, selection: Selection) -> ArraySource:
    """Open one of `BUNDLED`.

    Raises
    ------
    SourceError : columns are selected; there is nothing to select from.
    """
    from sklearn import datasets
    from sklearn.utils import Bunch

    from kinstream.producers.labelled.array_source import from_arrays

    place = BUNDLED_PREFIX + name
    if (selection.features, selection.label, selection.ids) != (None, None, None):
        raise SourceError(f"{place}: its features and labels are fixed; leave out the selection of columns")
    if name == "classification":
        made, classes = datasets.make_classification(**GENERATED, random_state=2)
        loaded: Any = Bunch(
            data=made, target=classes, feature_names=[f"column {k}" for k in range(made.shape[1])]
        )
    else:
        loaded = getattr(datasets, f"load_{name}")()
    X, y = np.ascontiguousarray(loaded.data, np.float64), np.ascontiguousarray(loaded.target, np.int64)
    digest = hashlib.sha256(f"{name} {X.shape} auto".encode() + X.tobytes() + y.tobytes())
    return from_arrays(
        {DEFAULT_MODALITY: X},
        y,
        identity=digest.hexdigest(),
        place=place,
        names={DEFAULT_MODALITY: [str(feature) for feature in loaded.feature_names]},
    )
