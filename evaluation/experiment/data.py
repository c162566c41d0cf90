"""The data of an evaluation: labelled rows in memory, or constraints that a log holds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

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

#: Treatments of missing features; see `of_arrays`.
MISSING: Final = ("refuse", "drop", "mean")


@dataclass(frozen=True)
class Rows:
    """Labelled vectors.

    Parameters
    ----------
    name : as in results.
    tables : (n, d_i) float32 by modality.
    labels : (n,) numbers of classes.
    names : of the features of all modalities, one after the other; empty if they have none.
    dropped : rows of the source that were left out because a feature was missing.
    """

    name: str
    tables: Tables
    labels: Labels
    names: tuple[str, ...] = field(default=(), kw_only=True)
    dropped: int = field(default=0, kw_only=True)

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

    @cached_property
    def missing(self) -> int:
        """Number of entries that are NaN."""
        return sum(int(np.isnan(table).sum()) for table in self.tables.values())

    def describe(self) -> dict[str, object]:
        """The facts for a result."""
        classes = len(np.unique(self.labels))
        found = {"name": self.name, "rows": len(self), "features": self.features, "classes": classes}
        notes = {"dropped": self.dropped, "missing": self.missing}
        return found | {name: count for name, count in notes.items() if count}


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


def of_arrays(
    name: str,
    X: NDArray[np.generic] | Tables,
    y: NDArray[np.generic],
    *,
    names: tuple[str, ...] = (),
    missing: str = "refuse",
) -> Rows:
    """Rows from arrays (n, d), or from one for each modality, with labels (n,) of any type.

    Parameters
    ----------
    names : see `Rows`.
    missing : one of `MISSING`: NaN is refused, its row is left out, or it stays to be replaced in each split by the
        mean of the training rows; see `kinstream.evaluation.experiment.splits.filled`.

    Raises
    ------
    SettingsError : shapes do not fit, a value is not finite, or no row is left.
    """
    if missing not in MISSING:
        raise SettingsError(f"missing must be one of {', '.join(MISSING)}, not {missing!r}")
    tables = X if isinstance(X, Mapping) else {DEFAULT_MODALITY: X}
    labels = np.asarray(y)
    found: dict[str, Vectors] = {}
    for modality, table in tables.items():
        vectors = np.ascontiguousarray(narrowed(np.asarray(table)))
        if vectors.ndim != 2 or labels.shape != (len(vectors),):
            raise SettingsError(f"{name}: {modality} has shape {vectors.shape} for labels {labels.shape}")
        bad = ~np.isfinite(vectors) if missing == "refuse" else np.isinf(vectors)
        if bad.any():
            row, column = (int(i) for i in np.argwhere(bad)[0])
            raise SettingsError(f"{name}: row {row} of {modality} is not finite in column {column}")
        if (loss := lost(np.asarray(table))) is not None:
            raise SettingsError(f"{name}: column {loss[0]} of {modality}: {loss[1]}")
        found[modality] = vectors
    kept = np.ones(len(labels), np.bool_)
    if missing == "drop":
        for vectors in found.values():
            kept &= ~np.isnan(vectors).any(axis=1)
        if not kept.any():
            raise SettingsError(
                f"{name}: a feature is missing in every row, so that --missing drop leaves none"
            )
        found = {modality: vectors[kept] for modality, vectors in found.items()}
    numbers = np.unique(labels[kept], return_inverse=True)[1].astype(np.int64)
    return Rows(name, found, numbers, names=names, dropped=int(len(kept) - kept.sum()))


def of_source(name: str, source: Source, missing: str = "refuse") -> Rows:
    """All rows of a source, in its order; `missing` as for `of_arrays`.

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
    return of_batch(name, read_all(source), names=names, missing=missing)


def of_batch(name: str, batch: Batch, *, names: tuple[str, ...] = (), missing: str = "refuse") -> Rows:
    """Rows that are in memory; `names` and `missing` as for `of_arrays`."""
    tables = {t.name: t.vectors for t in batch.tables}
    return of_arrays(name, tables, np.asarray(batch.labels), names=names, missing=missing)
