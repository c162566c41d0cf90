"""The data of an evaluation: labelled rows in memory, or constraints that a log holds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kinstream.producers.labelled.batch import Batch, Source
from kinstream.producers.labelled.hold_out import read_all
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.codec.every_kind import encode
from kinstream.streams.records.values import DEFAULT_MODALITY, ConstraintBlock, Vectors

Labels = NDArray[np.int64]
Tables = Mapping[str, Vectors]


@dataclass(frozen=True)
class Rows:
    """Labelled vectors.

    Parameters
    ----------
    name : as in results.
    tables : (n, d_i) float32 by modality.
    labels : (n,) numbers of classes.
    """

    name: str
    tables: Tables
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def features(self) -> int:
        """Of all modalities together."""
        return sum(table.shape[1] for table in self.tables.values())

    @cached_property
    def digest(self) -> str:
        """sha256 of all vectors and labels: so results of other rows are not mistaken for results of these."""
        found = hashlib.sha256()
        for name, table in self.tables.items():
            found.update(f"{name} {table.shape}".encode())
            found.update(np.ascontiguousarray(table, np.float32).tobytes())
        found.update(self.labels.astype(np.int64).tobytes())
        return found.hexdigest()

    def describe(self) -> dict[str, object]:
        """The facts for a result."""
        classes = len(np.unique(self.labels))
        return {"name": self.name, "rows": len(self), "features": self.features, "classes": classes}


@dataclass(frozen=True)
class Recorded:
    """The constraints of one space as builders made them, in the order of the log.

    Parameters
    ----------
    streams : by builder. None among the blocks is a reset of the space: the learned state before it is dropped.
    scaler : declared by the space, which overrides that of a learner's settings; None for none.
    """

    name: str
    streams: Mapping[str, tuple[ConstraintBlock | None, ...]]
    scaler: str | None = None

    @cached_property
    def digest(self) -> str:
        """sha256 of all blocks."""
        found = hashlib.sha256(repr(self.scaler).encode())
        for builder, blocks in sorted(self.streams.items()):
            found.update(builder.encode())
            for block in blocks:
                found.update(b"reset" if block is None else encode(block))
        return found.hexdigest()

    def constraints(self) -> int:
        """Of all builders together."""
        return sum(len(block) for blocks in self.streams.values() for block in blocks if block is not None)

    def describe(self) -> dict[str, object]:
        """The facts for a result."""
        first = next((b for blocks in self.streams.values() for b in blocks if b is not None), None)
        features = 0 if first is None else sum(table.vectors.shape[1] for table in first.tables)
        return {"name": self.name, "rows": self.constraints(), "features": features, "classes": 0}


Data = Rows | Recorded


def of_arrays(name: str, X: NDArray[np.generic] | Tables, y: NDArray[np.generic]) -> Rows:
    """Rows from arrays (n, d), or from one for each modality, with labels (n,) of any type.

    Raises
    ------
    SettingsError : shapes do not fit, or a value is not finite.
    """
    tables = X if isinstance(X, Mapping) else {DEFAULT_MODALITY: X}
    labels = np.asarray(y)
    found: dict[str, Vectors] = {}
    for modality, table in tables.items():
        vectors = np.ascontiguousarray(table, np.float32)
        if vectors.ndim != 2 or labels.shape != (len(vectors),):
            raise SettingsError(f"{name}: {modality} has shape {vectors.shape} for labels {labels.shape}")
        if not np.isfinite(vectors).all():
            row, column = (int(i) for i in np.argwhere(~np.isfinite(vectors))[0])
            raise SettingsError(f"{name}: row {row} of {modality} is not finite in column {column}")
        found[modality] = vectors
    return Rows(name, found, np.unique(labels, return_inverse=True)[1].astype(np.int64))


def of_source(name: str, source: Source) -> Rows:
    """All rows of a source, in its order.

    Raises
    ------
    kinstream.streams.errors.SourceError : they cannot be read.
    """
    return of_batch(name, read_all(source))


def of_batch(name: str, batch: Batch) -> Rows:
    """Rows that are in memory."""
    return of_arrays(name, {t.name: t.vectors for t in batch.tables}, np.asarray(batch.labels))
