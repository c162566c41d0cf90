"""An index together with the one version of a metric that it measures by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np

from search import frozen
from search.frozen import Found, FrozenIndex, Mapped
from search.items import Modalities, Slots, features
from search.model import Model
from streams.records import Vectors

#: Rows that are mapped at a time.
CHUNK: Final = 4096


@dataclass(frozen=True, slots=True)
class Plan:
    """Which index a space has, and what its constructor takes besides."""

    index: str = frozen.EXACT
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """Whether its answers are those of the exact scan."""
        return self.index in (frozen.EXACT, frozen.FLAT, "linear")


class Engine(Protocol):
    """Items by slot under one model. Searches may run beside each other, not beside a change."""

    @property
    def model(self) -> Model:
        """The version that it measures by."""

    def map(self, rows: Vectors) -> Mapped:
        """What the index keeps of raw rows (m, D)."""

    def put(self, slots: Slots, Z: Mapped) -> None:
        """Add or replace items by what `map` made of them."""

    def drop(self, slots: Slots) -> None:
        """Remove items."""

    def search(self, rows: Vectors, k: int) -> Found:
        """The k nearest of each raw query (q, D)."""

    def adopt(self, model: Model) -> bool:
        """Measure by another model from now on; False where only a new engine can."""

    @property
    def nbytes(self) -> int:
        """Bytes of the index."""


class MappedEngine:
    """An index of what the model makes of the items: any model, and a new engine for every new one."""

    def __init__(self, index: FrozenIndex, model: Model, modalities: Modalities) -> None:
        self._index, self._model, self._modalities = index, model, modalities

    @property
    def model(self) -> Model:
        return self._model

    @property
    def nbytes(self) -> int:
        return self._index.nbytes

    def map(self, rows: Vectors) -> Mapped:
        return mapped(self._model, rows, self._modalities)

    def put(self, slots: Slots, Z: Mapped) -> None:
        self._index.put(slots, Z)

    def drop(self, slots: Slots) -> None:
        self._index.drop(slots)

    def search(self, rows: Vectors, k: int) -> Found:
        return self._index.search(self.map(rows), k)

    def adopt(self, model: Model) -> bool:
        return False


def make(plan: Plan, model: Model, modalities: Modalities) -> Engine:
    """An engine without items.

    Raises
    ------
    SettingsError : the index does not exist, or needs a package that is not installed.
    """
    dimension = sum(size for _, size in modalities)
    width = mapped(model, np.zeros((1, dimension), np.float32), modalities).shape[1]
    return MappedEngine(frozen.create(plan.index, width, **plan.options), model, modalities)


def fits(model: Model, modalities: Modalities) -> bool:
    """Whether a model can measure items of these modalities."""
    sizes = dict(modalities)
    if model.modalities:
        return dict(model.modalities) == sizes or (len(sizes) == 1 and len(model.modalities) == 1)
    return model.dimension is None or (len(sizes) == 1 and model.dimension in sizes.values())


def mapped(model: Model, rows: Vectors, modalities: Modalities) -> Mapped:
    """What a model makes of raw rows (n, D), (n, k) float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        Z = [
            np.asarray(model.transform(features(rows[at : at + CHUNK], modalities)), np.float32)
            for at in range(0, max(1, len(rows)), CHUNK)
        ]
    return np.ascontiguousarray(np.concatenate(Z)) if len(Z) > 1 else np.ascontiguousarray(Z[0])
