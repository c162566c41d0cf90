"""Non-random splits of the papers' experiments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kinstream.evaluation.experiment.data import LabelledRows
from kinstream.evaluation.experiment.splits import Split
from kinstream.streams.errors import SettingsError


@dataclass(frozen=True)
class ColdStart:
    """Classes that begin one after the other (OPML paper, Table IV).

    The rows of each class, in random order, are cut into blocks of equal size; a stream takes the first block of every
    class, then the second of every class, and so on. Its first half is learned from, in that order, the second half is
    tested.

    Parameters
    ----------
    blocks : how many each class is cut into, by the name of the data set.
    seed : with the number of the split it decides the order within classes, and the order of classes.
    """

    blocks: Mapping[str, int]
    seed: int = 0

    def __call__(self, data: LabelledRows, number: int) -> Split:
        if data.name not in self.blocks:
            raise SettingsError(f"no number of blocks is given for the classes of {data.name}")
        draw = np.random.default_rng([self.seed, number, 4])
        classes = draw.permutation(np.unique(data.labels))
        parts = [
            np.array_split(draw.permutation(np.flatnonzero(data.labels == label)), self.blocks[data.name])
            for label in classes
        ]
        stream = np.concatenate([own[at] for at in range(self.blocks[data.name]) for own in parts])
        return Split(stream[: len(stream) // 2], stream[len(stream) // 2 :])

    def describe(self) -> dict[str, Any]:
        return {"name": "cold-start", "blocks": dict(self.blocks), "seed": self.seed}


@dataclass(frozen=True)
class Parted(LabelledRows):
    """Rows whose last ones are for testing.

    Parameters
    ----------
    test_rows : their number.
    """

    test_rows: int = 0

    @cached_property
    def digest(self) -> str:
        return f"{super().digest}, the last {self.test_rows} to test on"


@dataclass(frozen=True)
class GivenTest:
    """The test part that the data set itself has (`Parted`); the other rows in random order.

    Parameters
    ----------
    seed : with the number of the split it decides the order.
    """

    seed: int = 0

    def __call__(self, data: LabelledRows, number: int) -> Split:
        if not isinstance(data, Parted):
            raise SettingsError(f"{data.name} has no test part of its own")
        cut = len(data) - data.test_rows
        order = np.random.default_rng([self.seed, number, 5]).permutation(cut)
        return Split(order.astype(np.int64), np.arange(cut, len(data)))

    def describe(self) -> dict[str, Any]:
        return {"name": "given-test", **asdict(self)}
