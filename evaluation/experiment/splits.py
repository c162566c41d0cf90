"""The training rows, their order, and the test rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kinstream.evaluation.experiment.data import LabelledRows, Tables
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import ConstraintBlock, Table, Vectors

Index = NDArray[np.int64]

#: Scalers of a plan, see `Scaling`.
SCALINGS: Final = ("none", "zscore", "minmax", "one-scale")
#: A column with less variation is only centred.
_FLAT: Final = 1e-9


@dataclass(frozen=True)
class Split:
    """Row numbers of one split: `train` in the order of the stream."""

    train: Index
    test: Index


class Splitter(Protocol):
    """Cuts rows, from their labels and the number of the split alone. It can be pickled."""

    def __call__(self, data: LabelledRows, number: int) -> Split:
        """The split of that number; row numbers are in range and no row is in both parts."""

    def describe(self) -> dict[str, Any]:
        """Name and settings, for the plan."""


@dataclass(frozen=True)
class RandomHalves:
    """A random order cut in two: the first part is the stream, the rest the test rows.

    Parameters
    ----------
    test_share : of all rows, above 0 and below 1.
    seed : with the number of the split it decides the order.
    most_train, most_test : upper limits, for large sets; None for none.
    """

    test_share: float = 0.5
    seed: int = 0
    most_train: int | None = None
    most_test: int | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.test_share < 1.0:
            raise SettingsError(f"the share of test rows is above 0 and below 1, not {self.test_share!r}")

    def __call__(self, data: LabelledRows, number: int) -> Split:
        n = len(data)
        order = np.random.default_rng([self.seed, number, 2_718]).permutation(n)
        cut = n - min(max(1, round(n * self.test_share)), n - 1)
        return Split(order[:cut][: self.most_train], order[cut:][: self.most_test])

    def describe(self) -> dict[str, Any]:
        return {"name": "random", **asdict(self)}


@dataclass(frozen=True)
class InOrder:
    """Rows in their own order: each split learns from the rows before its test rows, as in a stream.

    Parameters
    ----------
    splits : number of splits. The last rows are cut into that many test parts of equal size.
    test_share : of all rows, in each test part.
    """

    splits: int = 1
    test_share: float = 0.2

    def __post_init__(self) -> None:
        if self.splits < 1 or not 0.0 < self.test_share * self.splits < 1.0:
            raise SettingsError(
                f"{self.splits} test parts in order, each {self.test_share!r} of the rows, leave nothing to learn from"
            )

    def __call__(self, data: LabelledRows, number: int) -> Split:
        n = len(data)
        size = max(1, round(n * self.test_share))
        start = n - size * (self.splits - number)
        return Split(np.arange(start), np.arange(start, start + size))

    def describe(self) -> dict[str, Any]:
        return {"name": "in-order", **asdict(self)}


@dataclass(frozen=True)
class Scaling:
    """A scaler of the whole experiment, the un-learned metrics included.

    Parameters
    ----------
    kind : "none"; "zscore" (columns of mean 0 and deviation 1, by n - 1); "minmax" (columns in [0, 1]); "one-scale"
        (columns centred, all divided by their root mean square together, as suits images).
    fitted : "train", or "all" for protocols that scale before they split.
    """

    kind: str = "none"
    fitted: str = "train"

    def __post_init__(self) -> None:
        if self.kind not in SCALINGS:
            raise SettingsError(f"scaling must be one of {', '.join(SCALINGS)}, not {self.kind!r}")
        if self.fitted not in ("train", "all"):
            raise SettingsError(f"a scaling is fitted on train or on all, not on {self.fitted!r}")

    def __call__(self, tables: Tables, train: Index) -> dict[str, Vectors]:
        """All rows of each table after the scaler."""
        if self.kind == "none":
            return dict(tables)
        return {
            name: _scaled(table, table if self.fitted == "all" else table[train], self.kind)
            for name, table in tables.items()
        }


def scaled_blocks(
    blocks: Sequence[ConstraintBlock | None], stop: int, kind: str
) -> list[ConstraintBlock | None]:
    """Recorded constraints after a scaler that is fitted to the vectors of the first `stop` blocks.

    A vector counts once for each block that it is in.
    """
    known = [block for block in blocks[:stop] if block is not None]
    if kind == "none" or not known:
        return list(blocks)
    fits = {
        table.name: np.concatenate([block.tables[at].vectors for block in known])
        for at, table in enumerate(known[0].tables)
    }
    return [
        block
        if block is None
        else replace(
            block, tables=tuple(Table(t.name, _scaled(t.vectors, fits[t.name], kind)) for t in block.tables)
        )
        for block in blocks
    ]


def _scaled(table: Vectors, fit: Vectors, kind: str) -> Vectors:
    wide, known = table.astype(np.float64), fit.astype(np.float64)
    if kind == "minmax":
        low = known.min(axis=0)
        width = known.max(axis=0) - low
        return np.asarray((wide - low) / np.where(width > _FLAT, width, 1.0), np.float32)
    mean = known.mean(axis=0)
    width = known.std(axis=0, ddof=min(1, len(known) - 1))
    if kind == "one-scale":
        width = np.sqrt(np.mean((known - mean) ** 2))
    return np.asarray((wide - mean) / np.where(width > _FLAT, width, 1.0), np.float32)
