"""The data of an evaluation: labelled rows in memory, or constraints that a log holds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kinstream.producers.labelled.batch import Batch, Source
from kinstream.producers.labelled.hold_out import read_all
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.foreign.narrowing import lost, narrowed
from kinstream.streams.records.values import DEFAULT_MODALITY, ConstraintBlock, Vectors

Labels = NDArray[np.int64]
Tables = Mapping[str, Vectors]


@dataclass(frozen=True)
class LabelledRows:
    """Labelled vectors.

    Parameters
    ----------
    name : as in results.
    tables : (n, d_i) float32 by modality.
    labels : (n,) numbers of classes.
    names : of the features of all modalities, one after the other; empty if they have none.
    """

    name: str
    tables: Tables
    labels: Labels
    names: tuple[str, ...] = field(default=(), kw_only=True)

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


Data = LabelledRows | Recorded


def of_arrays(
    name: str,
    X: NDArray[np.generic] | Tables,
    y: NDArray[np.generic],
    *,
    names: tuple[str, ...] = (),
) -> LabelledRows:
    """Rows from arrays (n, d), or from one for each modality, with labels (n,) of any type.

    Parameters
    ----------
    names : see `LabelledRows`.

    Raises
    ------
    SettingsError : shapes do not fit, or a value is not finite.
    """
    tables = X if isinstance(X, Mapping) else {DEFAULT_MODALITY: X}
    labels = np.asarray(y)
    found: dict[str, Vectors] = {}
    for modality, table in tables.items():
        vectors = np.ascontiguousarray(narrowed(np.asarray(table)))
        if vectors.ndim != 2 or labels.shape != (len(vectors),):
            raise SettingsError(f"{name}: {modality} has shape {vectors.shape} for labels {labels.shape}")
        bad = ~np.isfinite(vectors)
        if bad.any():
            row, column = (int(i) for i in np.argwhere(bad)[0])
            raise SettingsError(f"{name}: row {row} of {modality} is not finite in column {column}")
        if (loss := lost(np.asarray(table))) is not None:
            raise SettingsError(f"{name}: column {loss[0]} of {modality}: {loss[1]}")
        found[modality] = vectors
    numbers = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    return LabelledRows(name, found, numbers, names=names)


def of_source(name: str, source: Source) -> LabelledRows:
    """All rows of a source, in its order.

    Raises
    ------
    kinstream.streams.errors.SourceError : they cannot be read.
    """
    layout = source.layout
    several = len(layout.modalities) > 1
    names = tuple(
        f"{modality}.{name}" if several else name
        for (modality, _), names in zip(layout.modalities, layout.features, strict=False)
        for name in names
    )
    return of_batch(name, read_all(source), names=names)


def of_batch(name: str, batch: Batch, *, names: tuple[str, ...] = ()) -> LabelledRows:
    """Rows that are in memory; `names` as for `of_arrays`."""
    tables = {t.name: t.vectors for t in batch.tables}
    return of_arrays(name, tables, np.asarray(batch.labels), names=names)
