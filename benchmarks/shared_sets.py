"""The public data sets that learners are compared on, by name: where each lies, how it is split and scaled.

Tables are split into two random halves, and every column z-scored, but columns that do not vary are only centred. Of
sets with several modalities all are taken, side by side. Of images 5,000 are there to learn from and 2,000 to test on;
they are centred and divided by one scale. Every scaler is fitted to the part that is learned from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import arrays

Rows = NDArray[np.float32]
Codes = NDArray[np.int64]

TABLES: Final = (
    "iris",
    "wine",
    "glass",
    "spect",
    "balance",
    "breast",
    "pima",
    "waveform",
    "sensorless_2200",
    "mfeat",
    "msrc_v1",
    "leaves100",
)
#: Name of the set to its files.
IMAGES: Final = {
    "mnist": ("mnist",),
    "cifar10_gray": ("cifar10_gray_train_a", "cifar10_gray_train_b"),
    "emnist_bymerge": ("emnist_bymerge_test",),
    "emnist_balanced_part": ("emnist_balanced_part",),
}
NAMES: Final = (*TABLES, *IMAGES)
#: Images to learn from, and to test on.
IMAGE_PARTS: Final = (5_000, 2_000)


@dataclass(frozen=True, slots=True)
class SharedSet:
    """Raw vectors (n, d) and their classes (n,), 0 and up."""

    name: str
    X: NDArray[Any]
    y: Codes

    @property
    def classes(self) -> int:
        return int(self.y.max()) + 1


@dataclass(frozen=True, slots=True)
class Split:
    """Scaled vectors to learn from and to test on, with their classes."""

    X: Rows
    y: Codes
    X_test: Rows
    y_test: Codes


def load(name: str) -> SharedSet | None:
    """One set; None where a file of it is not there."""
    parts = [arrays(file) for file in IMAGES.get(name, (name,))]
    tables, labels = [], []
    for part in parts:
        if part is None:
            return None
        names = [key for key in part if key == "X" or key.startswith("X_")]
        tables.append(np.concatenate([part[key] for key in names], axis=1))
        labels.append(part["y"])
    y = np.unique(np.concatenate(labels), return_inverse=True)[1]
    return SharedSet(name, np.concatenate(tables), y.astype(np.int64))


def loaded(names: tuple[str, ...]) -> Iterator[SharedSet | str]:
    """The sets of those names one after the other; the name alone of one that is not there."""
    for name in names:
        found = load(name)
        yield name if found is None else found


def parts(data: SharedSet, seed: int, *, inner: bool = False) -> tuple[Codes, Codes]:
    """Rows to learn from and to test on, of a random split, from the seed alone.

    Parameters
    ----------
    inner : split the training part of that split once more and leave its test part alone, for the choice of settings.
    """
    n, images = len(data.y), data.name in IMAGES
    draw = np.random.default_rng([seed, 2_718])
    learn, test = (n - n // 2, n // 2)
    if images:
        learn, test = IMAGE_PARTS
    order = draw.permutation(n)[: learn + test]
    first, last = order[:learn], order[learn:]
    if inner:
        kept = IMAGE_PARTS[0] - IMAGE_PARTS[1] if images else learn - learn // 2
        first, last = first[:kept], first[kept:]
    return first, last


def split(data: SharedSet, seed: int, *, inner: bool = False) -> Split:
    """The scaled vectors of `parts`."""
    first, last = parts(data, seed, inner=inner)
    X, X_test = scaled(data.X[first], data.X[last], one_scale=data.name in IMAGES)
    return Split(X, data.y[first], X_test, data.y[last])


def scaled(X: NDArray[Any], X_test: NDArray[Any], *, one_scale: bool) -> tuple[Rows, Rows]:
    """Both parts by the statistics of the first.

    Parameters
    ----------
    one_scale : divide all columns by the root mean square of the centred part, and not each by its own deviation.
    """
    wide = X.astype(np.float64)
    mean = wide.mean(axis=0)
    width = (wide - mean).std(axis=0)
    scale = np.sqrt(np.mean(width**2)) if one_scale else np.where(width > 1e-9, width, 1.0)
    others = X_test.astype(np.float64)
    return ((wide - mean) / scale).astype(np.float32), ((others - mean) / scale).astype(np.float32)


def triplets(y: Codes, seed: int, m: int, block: int = 256) -> Iterator[NDArray[np.int64]]:
    """Uniform random triplets (at most `block`, 3) of row numbers, m in all; fewer of them are the first of more.

    An anchor is any row whose class has another one; a positive any other row of that class; a negative any other row.
    """
    order = np.argsort(y, kind="stable")
    sizes = np.bincount(y)
    starts = np.cumsum(sizes) - sizes
    place = np.empty(len(y), np.int64)
    place[order] = np.arange(len(y))
    usable = np.flatnonzero(sizes[y] > 1)
    draw = np.random.default_rng([seed, 3_141])
    for begin in range(0, m, block):
        anchor = usable[draw.integers(0, len(usable), block)]
        size, start = sizes[y[anchor]], starts[y[anchor]]
        near = start + draw.integers(0, size - 1)
        near += near >= place[anchor]
        far = draw.integers(0, len(y) - size)
        far += np.where(far >= start, size, 0)
        yield np.column_stack([anchor, order[near], order[far]])[: m - begin]
