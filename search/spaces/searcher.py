"""One searchable space: its items, an index, and the model that the index measures by.

An answer comes from one version of the model and one state of the catalogue, and names both. A new model is taken over
in the background; the old one serves until the new index is complete.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.search.index.engines import Engine, IndexPlan, OnlineEngine, fits, make, mapped
from kinstream.search.index.exact import Mapped, measured, nearest
from kinstream.search.index.items import Items, Modalities, Slots, least, side_by_side, sizes_of
from kinstream.search.index.mapping import CHUNK, Mapping, middle
from kinstream.search.models.intermediate_model import Matrix
from kinstream.search.models.model import Model, Name
from kinstream.search.spaces.catalogue import Begin, Change, Changed, Drop, Put
from kinstream.search.spaces.errors import NotReady, UnknownItem, WrongDimension
from kinstream.search.spaces.read_write_lock import SharedLock
from kinstream.streams.records.values import Vectors

log = logging.getLogger("kinstream.search")

#: With at most this many changed items left, a new index is brought up to date while changes wait.
_FEW: Final = 256
#: Serves if no model fits.
_RAW: Final = Model()


@dataclass(frozen=True, slots=True)
class Standing:
    """The versions behind an answer.

    Parameters
    ----------
    model : the version of the metric; with `learned` false it is the un-learned map.
    epoch : of the catalogue.
    items : number of items.
    offset : the last record of `kinstream.events` that had changed the catalogue; -1 for none.
    """

    model: Name
    learned: bool
    epoch: int
    items: int
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """The nearest items of each query, nearest first; equally near ones by name.

    Parameters
    ----------
    names, distances : for each query, the items found; squared distances by the model of `standing`.
    examined : (q,) items whose distance was computed.
    """

    standing: Standing
    names: list[list[str]]
    distances: list[list[float]]
    examined: NDArray[np.int64]
    used: Model


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """Vectors mapped by a model, (n, k) float32."""

    standing: Standing
    vectors: Mapped


@dataclass(slots=True)
class _Step:
    """A change that is ready to be taken over: new rows, and their form in the engine.

    `lost`: the engine could not take the rows and no longer serves.
    """

    change: Change
    rows: Vectors | None = None
    kept: Mapped | None = None
    engine: Engine | None = None
    lost: bool = False


class Searcher:
    """Search in one space. Any thread may search; one thread applies changes, one refreshes.

    Parameters
    ----------
    plan : the index.
    newest : the newest model of the space's learner, from a follower.
    """

    def __init__(self, space: str, plan: IndexPlan, newest: Callable[[], Model]) -> None:
        self.space = space
        self.plan = plan
        self._newest = newest
        #: Held while a change of items or engine is prepared; the change itself happens under `_lock`.
        self._changing = threading.Lock()
        self._lock = SharedLock()
        self._items = Items()
        self._epoch = 0
        self._offset = -1
        self._engine: Engine | None = None
        self._loaded = False
        #: Slots that changed while an engine is being built; None otherwise.
        self._touched: dict[int, None] | None = None
        self.counts: Counter[str] = Counter()
        self.build_seconds = 0.0

    # ---- state -------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether searches are answered."""
        return self._loaded and (self._engine is not None or not self._items.modalities)

    @property
    def modalities(self) -> Modalities:
        """The modalities of the items; empty while there are none."""
        return self._items.modalities

    @property
    def behind(self) -> bool:
        """Whether another model than the serving one is to be taken over."""
        engine = self._engine
        return (
            self._loaded
            and bool(self._items.modalities)
            and (engine is None or self._wanted(self._items.modalities, self._epoch) is not engine.model)
        )

    @property
    def nbytes(self) -> int:
        """Bytes of vectors and index."""
        engine = self._engine
        return self._items.nbytes + (0 if engine is None else engine.nbytes)

    def standing(self) -> Standing:
        """The versions behind an answer given now."""
        with self._lock.read():
            return self._standing()

    def glance(self) -> Standing:
        """The same without waiting for a running change, so perhaps inconsistent: for metrics."""
        return self._standing()

    def _standing(self) -> Standing:
        model = _RAW if self._engine is None else self._engine.model
        return Standing(model.name, model.learned, self._epoch, len(self._items), self._offset)

    def _wanted(self, modalities: Modalities, epoch: int) -> Model:
        """The newest model, unless its epoch has ended or its vectors differ: then the un-learned map."""
        model = self._newest()
        if model.learned and (model.name.epoch < epoch or not fits(model, modalities)):
            return _RAW
        return model

    # ---- queries ------------------------------------------------------------------------------------------------

    def search(self, rows: Vectors, k: int) -> Answer:
        """The k nearest items of each query.

        Parameters
        ----------
        rows : (q, D) float32, all modalities side by side in the order of `modalities`.

        Raises
        ------
        NotReady : searches cannot be answered yet.
        WrongDimension : D is not that of the catalogue.
        """
        with self._lock.read():
            return self._search(rows, k, None)

    def similar(self, names: Sequence[str], k: int) -> Answer:
        """The k items nearest to each of these items of the catalogue, without the item itself.

        Raises
        ------
        NotReady, UnknownItem
        """
        with self._lock.read():
            if not self.ready:
                raise NotReady
            slots = []
            for row, name in enumerate(names):
                slot = self._items.slot(name)
                if slot is None:
                    raise UnknownItem(row)
                slots.append(slot)
            return self._search(self._items.rows(np.array(slots, np.int64)), k, names)

    def _search(self, rows: Vectors, k: int, without: Sequence[str] | None) -> Answer:
        if not self.ready:
            raise NotReady
        if self._engine is None:
            none = np.zeros(len(rows), np.int64)
            return Answer(self._standing(), [[] for _ in rows], [[] for _ in rows], none, _RAW)
        if rows.shape[1] != self._items.dimension:
            raise WrongDimension(self._items.modalities)
        found = self._engine.search(rows, k if without is None else k + 1, self._items.first)
        names, distances = [], []
        for row, (slots, apart) in enumerate(
            zip(found.slots.tolist(), found.distances.tolist(), strict=True)
        ):
            itself = None if without is None else without[row]
            near = sorted(
                (far, name)
                for slot, far in zip(slots, apart, strict=True)
                if slot >= 0 and (name := self._items.names[slot]) is not None and name != itself
            )[:k]
            names.append([name for _, name in near])
            distances.append([far for far, _ in near])
        return Answer(self._standing(), names, distances, found.examined, self._engine.model)

    def transform(self, rows: Vectors) -> Image:
        """The images of raw vectors (n, D) under the serving model.

        Raises
        ------
        NotReady, WrongDimension : as `search`.
        """
        with self._lock.read():
            if not self.ready:
                raise NotReady
            # An online engine changes its model in place.
            model = None if self._engine is None else self._engine.model
            standing, modalities = self._standing(), self._items.modalities
        if model is None:
            return Image(standing, rows)
        if rows.shape[1] != sum(size for _, size in modalities):
            raise WrongDimension(modalities)
        return Image(standing, mapped(model, rows, modalities))

    def scan(self, model: Model, rows: Vectors, k: int) -> list[list[str]] | None:
        """Names of the k nearest items of each query by measuring all, under a model that may no longer serve.

        It copies the catalogue in parts, so changes continue meanwhile. None if the model no longer fits.
        """
        items = self._items
        modalities, centre = items.modalities, items.centre
        if not fits(model, modalities) or rows.shape[1] != items.dimension:
            return None
        mapping = Mapping(model, modalities, centre)
        queries = mapping(rows)
        near: list[list[tuple[float, str]]] = [[] for _ in rows]
        with self._lock.read():
            slots = items.slots()
        for at in range(0, len(slots), CHUNK):
            with self._lock.read():
                if self._items is not items:
                    return None
                here = self._there(slots[at : at + CHUNK])
                names = [items.names[slot] or "" for slot in here.tolist()]
                part = items.rows(here)
            Z = mapping(part)

            def first(places: Slots, m: int, names: list[str] = names) -> Slots:
                return least(places, m, names)

            for row, query in enumerate(queries):
                places = np.arange(len(Z))
                best, far = nearest(places, measured(Z, places, query), k, first)
                here_near = [(d, names[place]) for d, place in zip(far.tolist(), best.tolist(), strict=True)]
                near[row] = sorted([*near[row], *here_near])[:k]
        return [[name for _, name in found] for found in near]

    # ---- changes of the catalogue -------------------------------------------------------------------------------

    def apply(self, changed: Sequence[Changed]) -> None:
        """Take over changes in the order of the log. A search sees all of them or none."""
        with self._changing:
            # The images of new rows are computed before searches have to wait.
            engine, epoch, modalities = self._engine, self._epoch, self._items.modalities
            centre = self._items.centre
            steps = []
            for change in (change for record in changed for change in record.changes):
                step = _Step(change)
                if isinstance(change, Begin):
                    engine, epoch, modalities = None, change.epoch, ()
                elif isinstance(change, Put):
                    # If items came before an engine was needed, only `refresh` creates one that holds them.
                    first = not modalities
                    modalities = modalities or sizes_of(change.tables)
                    step.rows = side_by_side(change.tables, modalities)
                    if first:
                        centre = middle(step.rows)
                    try:
                        if first and self._loaded:
                            model = self._wanted(modalities, epoch)
                            engine = step.engine = make(self.plan, model, modalities, centre)
                        step.kept = None if engine is None else engine.map(step.rows)
                    # The catalogue is not at fault for a model: `refresh` creates another engine, or reports why it
                    # cannot.
                    except Exception:
                        log.exception("space %r: the model cannot map its items", self.space)
                        self.counts["failed"] += 1
                        engine, step.engine, step.lost = None, None, True
                steps.append(step)
            with self._lock.write():
                for step in steps:
                    self._take(step)
                self._offset = changed[-1].offset if changed else self._offset

    def _take(self, step: _Step) -> None:
        match step.change:
            case Begin(epoch=epoch):
                self._epoch, self._items, self._engine = epoch, Items(), None
            case Put(names=names):
                assert step.rows is not None
                self._items.declare(sizes_of(step.change.tables), middle(step.rows))
                self._engine = None if step.lost else step.engine or self._engine
                slots, counted = self._items.put(names, step.rows)
                if self._engine is not None and step.kept is not None:
                    self._engine.put(slots, step.kept[counted])
                self._touch(slots)
            case Drop(names=names):
                slots = self._items.drop(names)
                if self._engine is not None and len(slots):
                    self._engine.drop(slots)
                self._touch(slots)

    def _touch(self, slots: Slots) -> None:
        if self._touched is not None:
            self._touched.update(dict.fromkeys(slots.tolist()))

    # ---- models -------------------------------------------------------------------------------------------------

    def loaded(self) -> None:
        """The catalogue is read up to the log's end at the start: from now on there is an index."""
        with self._changing:
            self._loaded = True

    def refresh(self) -> bool:
        """Take over the newest model, building a new index if needed. Returns whether there was one."""
        with self._changing:
            if not self.behind:
                return False
            items, modalities = self._items, self._items.modalities
            model = self._wanted(modalities, self._epoch)
            engine = self._engine
            if engine is not None:
                with self._lock.write():
                    if engine.adopt(model):
                        self.counts["adopted"] += 1
                        return True
            slots = items.slots()
            self._touched = {}
        began = time.monotonic()
        try:
            done = self._build(make(self.plan, model, modalities, items.centre), items, slots)
        finally:
            with self._changing:
                self._touched = None
        self.build_seconds = time.monotonic() - began
        self.counts["swapped" if done else "abandoned"] += 1
        return True

    def step(self, before: Name, model: Model, U: Matrix, V: Matrix) -> bool:
        """Move an online index from the model of that name to this one, by the steps between them.

        Parameters
        ----------
        U, V : (k, r) and (r, d + 1), as `kinstream.search.index.online.base.Index.step` takes them.

        Returns
        -------
        False if another model serves: then `refresh` takes this one over completely.
        """
        with self._changing:
            engine = self._engine
            if not isinstance(engine, OnlineEngine) or engine.model.name != before:
                return False
            with self._lock.write():
                engine.step(model, U, V)
            self.counts["stepped"] += 1
            return True

    def _build(self, engine: Engine, items: Items, slots: Slots) -> bool:
        """Fill an engine with the items and let it serve; False if the space was reset meanwhile."""
        self.counts["builds"] += 1
        for at in range(0, len(slots), CHUNK):
            with self._changing:
                if self._items is not items:
                    return False
                here = self._there(slots[at : at + CHUNK])
                rows = items.rows(here)
            engine.put(here, engine.map(rows))
        while True:
            with self._changing:
                if self._items is not items:
                    return False
                assert self._touched is not None
                touched, self._touched = np.array(list(self._touched), np.int64), {}
                if len(touched) <= _FEW:
                    self._catch_up(engine, touched, items.rows(self._there(touched)))
                    with self._lock.write():
                        self._engine = engine
                    return True
                rows = items.rows(self._there(touched))
                here = self._there(touched)
            engine.drop(np.setdiff1d(touched, here))
            engine.put(here, engine.map(rows))

    def _catch_up(self, engine: Engine, touched: Slots, rows: Vectors) -> None:
        if len(touched):
            here = self._there(touched)
            engine.drop(np.setdiff1d(touched, here))
            engine.put(here, engine.map(rows))

    def _there(self, slots: Slots) -> Slots:
        """The slots that hold an item now."""
        names = self._items.names
        return np.array([slot for slot in slots.tolist() if names[slot] is not None], np.int64)
