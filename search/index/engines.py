"""An index together with the version of the metric that it measures by."""

from __future__ import annotations

import threading
from collections.abc import Mapping as Options
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np

from kinstream.learners import registry
from kinstream.learners.base.learner import Learner
from kinstream.learners.base.one_modality import SingleModal
from kinstream.search.index.create import create
from kinstream.search.index.exact import First, Mapped, NearestSlots, first_slots
from kinstream.search.index.items import Modalities, Slots, features
from kinstream.search.index.mapping import CHUNK, Mapping, divided, linear
from kinstream.search.index.online.base import Index
from kinstream.search.index.vector_indexes import EXACT, MappedIndex, create_mapped
from kinstream.search.index.warm_up import warm_up, warm_up_scans
from kinstream.search.models.intermediate_model import Matrix
from kinstream.search.models.model import Model
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import Vectors
from kinstream.streams.settings import Settings

LINEAR: Final = "linear"
#: Modes of `kinstream.search.index.create` that follow a linear map in place. Settings offer `lazy` alone: the others
#: are for comparisons; so is `static`, which follows no changes.
ONLINE: Final = (LINEAR, "lazy", "naive")


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """The index of a space, and the other arguments of its constructor."""

    index: str = EXACT
    options: Options[str, Any] = field(default_factory=dict)


class Engine(Protocol):
    """Items by slot under one model. Searches may run beside each other, not beside a change."""

    @property
    def model(self) -> Model:
        """The version that it measures by."""

    def map(self, rows: Vectors) -> Mapped:
        """The form of raw rows (m, D) that the index keeps."""

    def put(self, slots: Slots, Z: Mapped) -> None:
        """Add or replace items in the form that `map` returned."""

    def drop(self, slots: Slots) -> None:
        """Remove items."""

    def search(self, rows: Vectors, k: int, first: First = first_slots) -> NearestSlots:
        """The k nearest of each raw query (q, D); among equally near items at the cut, those that `first` selects."""

    def adopt(self, model: Model) -> bool:
        """Measure by another model from now on; False if that needs a new engine."""

    @property
    def nbytes(self) -> int:
        """Bytes of the index."""


class MappedEngine:
    """An index of mapped items: for any model, with a new engine for every new model."""

    def __init__(self, index: MappedIndex, model: Model, mapping: Mapping) -> None:
        self._index, self._model, self.map = index, model, mapping

    @property
    def model(self) -> Model:
        return self._model

    @property
    def nbytes(self) -> int:
        return self._index.nbytes

    def put(self, slots: Slots, Z: Mapped) -> None:
        self._index.put(slots, Z)

    def drop(self, slots: Slots) -> None:
        self._index.drop(slots)

    def search(self, rows: Vectors, k: int, first: First = first_slots) -> NearestSlots:
        return self._index.search(self.map(rows), k, first)

    def adopt(self, model: Model) -> bool:
        return False


class OnlineEngine:
    """An index of raw vectors whose metric, a linear map, is changed in place."""

    def __init__(self, index: Index, model: Model, modalities: Modalities) -> None:
        self._index = index
        self._dimension = sum(size for _, size in modalities)
        #: The index is for one thread at a time.
        self._turn = threading.Lock()
        matrix, offset, self._unit = linear(model, self._dimension)
        index.remap(matrix, offset)
        self._model = model

    @property
    def model(self) -> Model:
        return self._model

    @property
    def nbytes(self) -> int:
        return len(self._index) * self._dimension * 4

    def map(self, rows: Vectors) -> Mapped:
        """The vectors themselves, divided by their length if the scaler is unit length."""
        if not self._unit:
            return rows
        return divided(rows.astype(np.float64)).astype(np.float32)

    def put(self, slots: Slots, Z: Mapped) -> None:
        if len(slots):
            with self._turn:
                self._index.put([str(slot) for slot in slots.tolist()], Z)

    def drop(self, slots: Slots) -> None:
        with self._turn:
            self._index.drop([str(slot) for slot in slots.tolist()])

    def search(self, rows: Vectors, k: int, first: First = first_slots) -> NearestSlots:
        def names(ids: Sequence[str], m: int) -> list[str]:
            return [str(slot) for slot in first(np.array(ids, np.int64), m).tolist()]

        with self._turn:
            k = min(k, len(self._index))
            if not k:
                none = np.zeros(len(rows), np.int64)
                return NearestSlots(np.empty((len(rows), 0), np.int64), np.empty((len(rows), 0)), none)
            found = self._index.search(self.map(rows), k, names)
        slots = np.full((len(rows), k), -1, np.int64)
        for row, ids in enumerate(found.ids):
            slots[row, : len(ids)] = [int(slot) for slot in ids]
        return NearestSlots(slots, found.distances, found.examined)

    def adopt(self, model: Model) -> bool:
        matrix, offset, unit = linear(model, self._dimension)
        if unit != self._unit:
            return False
        with self._turn:
            self._index.remap(matrix, offset)
        self._model = model
        return True

    def step(self, model: Model, U: Matrix, V: Matrix) -> None:
        """Add U V to the matrix, which gives this model; the last column of V changes the offset."""
        if U.shape[1]:
            with self._turn:
                self._index.step(U, V)
        self._model = model


def check(plan: IndexPlan, settings: Settings, learner: str, place: str) -> None:
    """Refuse an index that does not exist, does not accept its options, or cannot serve the learner.

    Parameters
    ----------
    learner : if its kind is in the settings, an online index is refused for a learner that is not a linear map.

    Raises
    ------
    SettingsError : names the setting.
    """
    try:
        if plan.index not in ONLINE:
            create_mapped(plan.index, 1, **plan.options)
            return
        create(plan.index, **plan.options)
        section = settings.learners.get(learner)
        if section is not None:
            made = registry.create(section.kind, **section.arguments())
            if not _is_linear(made):
                raise SettingsError(
                    f"index {plan.index!r} needs a linear map, and {section.kind} is not one: use exact"
                )
    except (TypeError, SettingsError) as error:
        raise SettingsError(f"{place}: {error}") from None


def _is_linear(learner: Learner) -> bool:
    """Whether a learner will have a linear map, as far as that is known before it learns."""
    try:
        return isinstance(learner, SingleModal) and learner.map is not None
    except ValueError:
        return True  # it has no dimension yet
    except SettingsError:
        return False


def make(plan: IndexPlan, model: Model, modalities: Modalities, centre: Vectors) -> Engine:
    """An engine without items.

    Parameters
    ----------
    centre : (D,) raw features near the items, as `kinstream.search.index.mapping.Mapping` takes them.

    Raises
    ------
    SettingsError : the index does not exist, or needs a package that is not installed.
    """
    if plan.index in ONLINE:
        options = {"dtype": "float32", **plan.options}
        warm_up(plan.index, options)
        return OnlineEngine(create(plan.index, **options), model, modalities)
    warm_up_scans()
    mapping = Mapping(model, modalities, centre)
    return MappedEngine(create_mapped(plan.index, mapping.width, **plan.options), model, mapping)


def fits(model: Model, modalities: Modalities) -> bool:
    """Whether a model can measure items of these modalities."""
    sizes = dict(modalities)
    if model.modalities:
        return dict(model.modalities) == sizes or (len(sizes) == 1 and len(model.modalities) == 1)
    return model.dimension is None or (len(sizes) == 1 and model.dimension in sizes.values())


def mapped(model: Model, rows: Vectors, modalities: Modalities) -> Mapped:
    """The images under a model of raw rows (n, D), (n, k) float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        Z = [
            np.asarray(model.transform(features(rows[at : at + CHUNK], modalities)), np.float32)
            for at in range(0, max(1, len(rows)), CHUNK)
        ]
    return np.ascontiguousarray(np.concatenate(Z)) if len(Z) > 1 else np.ascontiguousarray(Z[0])
