"""The drafted lists of a log, with the propensities of their items, and what each model would have shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinstream.evaluation.counterfactual.catalogue import LogCatalogue
from kinstream.evaluation.counterfactual.draws import MOST_PLACES, place_probabilities, was_drafted
from kinstream.evaluation.counterfactual.estimates import Ranked, ShownList, class_of
from kinstream.gate.exposure.lists import Served, served
from kinstream.gate.lists.list_id import PREFIX, Impression, Keys, mark_of, read
from kinstream.streams.records import randomised_id
from kinstream.streams.records.gate import Version
from kinstream.streams.records.values import Action, Click, ClickBlock, Control, ItemBlock, Vectors

#: What names a model: a version, or a learner whose model changes while the log is read.
Model = Version | str


class Maps(Protocol):
    """A map of queries, such as `kinstream.search.queries.model.QueryModel`. It may change between two lists."""

    def map(self, Q: ArrayLike) -> NDArray[np.float32]: ...


class Use(StrEnum):
    """Whether a list counts, or why not.

    `ranked`: not drafted. `randomised`: of one model, so it does not tell of others. `unreadable`, `changed`,
    `invalid`: as `kinstream.gate.exposure.lists.ListKind`.
    `other_model`: a model that has drafted it was not given. `no_query`: without a query vector that fits the items.
    `other_ranking`: the models rank the items of the log otherwise than they did then.
    """

    USED = "used"
    RANKED = "ranked"
    RANDOMISED = "randomised"
    UNREADABLE = "unreadable"
    CHANGED = "changed"
    INVALID = "invalid"
    OTHER_MODEL = "other_model"
    NO_QUERY = "no_query"
    OTHER_RANKING = "other_ranking"


class Event(NamedTuple):
    """An event of the space, and whether its lists are to be evaluated; items count in any case."""

    record: object
    counts: bool


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """The lists of a log.

    Parameters
    ----------
    shown : n lists.
    models : of each, n lists.
    people : (n,) users, or sessions, or ids of the lists.
    uses : lists by `Use`.
    """

    shown: list[ShownList]
    models: dict[Model, list[Ranked]]
    people: list[str]
    uses: dict[str, int]


class _List(NamedTuple):
    shown: ShownList
    ranked: dict[Model, Ranked]
    person: str


def depth_of(size: int) -> int:
    """Places at which models are evaluated, of a drafted list of so many places."""
    return (size + 1) // 2


def recorded(
    events: Iterable[Event],
    space: str,
    keys: Keys,
    models: Mapping[Model, Maps] | Mapping[Version, Maps],
    *,
    exponent: float = 1.0,
    product: str = "cosine",
) -> Recorded:
    """Read the lists of a space.

    A list counts if its id proves how it was drafted, all models that drafted it are given, and they rank the items
    that the log held then as the list shows; its first `MOST_PLACES` places count. A list that comes back several
    times is one, with all its clicks.

    Models are evaluated at the first half of the places. A list of k places may hold the first (k + 1) / 2 items of
    both models that have drafted it, whichever they are; what they rank below may have had no chance.

    Parameters
    ----------
    events : of the space, in the order of the log, from the beginning of its catalogue on.
    models : to evaluate, and those that have drafted lists.
    exponent : users look at place k, from 1, with probability k^-exponent.
    product : how the store compares; one of `kinstream.evaluation.counterfactual.catalogue.PRODUCTS`.
    """
    reader = Reader(space, keys, models, exponent=exponent, product=product)
    for event in events:
        reader.take(event)
    return reader.result()


class Reader:
    """Reads the lists of a space, event by event; parameters as of `recorded`. Each list is ranked as it is read."""

    def __init__(
        self,
        space: str,
        keys: Keys,
        models: Mapping[Model, Maps] | Mapping[Version, Maps],
        *,
        exponent: float = 1.0,
        product: str = "cosine",
    ) -> None:
        self._space, self._keys = space, keys
        self._models: dict[Model, Maps] = dict(models.items())
        self._catalogue = LogCatalogue(product)
        self._looked = np.arange(1.0, MOST_PLACES + 1.0) ** -exponent
        self._lists: dict[str, _List] = {}
        self._uses: Counter[Use] = Counter()

    def result(self) -> Recorded:
        """The lists that were read."""
        lists = list(self._lists.values())
        return Recorded(
            [one.shown for one in lists],
            {model: [one.ranked[model] for one in lists] for model in self._models},
            [one.person for one in lists],
            {str(use): self._uses[use] for use in Use},
        )

    def take(self, event: Event) -> None:
        """Read the next event."""
        match event.record:
            case ItemBlock() as block:
                self._catalogue.take(block)
            case Control(action=Action.RESET | Action.DELETE):
                self._catalogue.clear()
            case Click() | ClickBlock() as record if event.counts:
                for one, query, person in _of(record, self._catalogue):
                    self._list(one, query, person)

    def _list(self, one: Served, query: Vectors | None, person: str) -> None:
        known = self._lists.get(one.list_id)
        if known is not None:
            places = [place for place in one.clicked if place < len(known.shown.clicked)]
            known.shown.clicked[places] = 1.0
            return
        made = self._made(one, query)
        if isinstance(made, Use):
            self._uses[made] += 1
        else:
            self._uses[Use.USED] += 1
            self._lists[one.list_id] = _List(*made, person)

    def _made(self, one: Served, query: Vectors | None) -> Use | tuple[ShownList, dict[Model, Ranked]]:
        if not one.valid:
            return Use.INVALID
        if one.list_id.startswith(randomised_id.PREFIX):
            return Use.RANDOMISED
        if not one.list_id.startswith(PREFIX):
            return Use.RANKED
        drafted = read(self._keys, self._space, one.list_id)
        if drafted is None:
            return Use.UNREADABLE
        items = one.items[:MOST_PLACES]
        if tuple(mark_of(self._space, item) for item in items) != drafted.marks[: len(items)]:
            return Use.CHANGED
        if drafted.serving not in self._models or drafted.candidate not in self._models:
            return Use.OTHER_MODEL
        if query is None or not self._catalogue.fits(query):
            return Use.NO_QUERY
        return self._evaluated(one, items, drafted, query) or Use.OTHER_RANKING

    def _evaluated(
        self, one: Served, items: tuple[str, ...], drafted: Impression, query: Vectors
    ) -> tuple[ShownList, dict[Model, Ranked]] | None:
        size, find = len(items), self._catalogue
        own = {v: find.best(find.similarities(model.map(query)), size) for v, model in self._models.items()}
        sides = own[drafted.serving], own[drafted.candidate]
        if not was_drafted(*sides, items, drafted.picks[:size]):
            return None
        looked = self._looked[:size]
        where = place_probabilities(*sides, size, shared=drafted.shared)
        names = list(dict.fromkeys([*items, *(name for ranking in own.values() for name in ranking)]))
        kinds = dict(zip(names, class_of(find.ranks(find.similarities(query), names)).tolist(), strict=True))
        clicked = np.zeros(size)
        clicked[[place for place in one.clicked if place < size]] = 1.0
        shown = ShownList(
            clicked,
            looked,
            np.array([where[item] @ looked for item in items]),
            np.array([kinds[item] for item in items], np.int64),
        )
        return shown, {
            version: _ranked(ranking[: depth_of(size)], items, looked, where, kinds)
            for version, ranking in own.items()
        }


def _ranked(
    ranking: list[str],
    items: tuple[str, ...],
    looked: NDArray[np.float64],
    where: Mapping[str, NDArray[np.float64]],
    kinds: Mapping[str, int],
) -> Ranked:
    gains = dict(zip(ranking, looked[: len(ranking)].tolist(), strict=True))
    return Ranked(
        np.array([gains.get(item, 0.0) for item in items]),
        np.array([gains[item] for item in ranking]),
        np.array([kinds[item] for item in ranking], np.int64),
        np.array([item in where for item in ranking], np.bool_),
    )


def _of(record: Click | ClickBlock, catalogue: LogCatalogue) -> Iterator[tuple[Served, Vectors | None, str]]:
    """Each list with its query (d,) and whose it was."""
    for number, one in enumerate(served(record)):
        if isinstance(record, Click):
            row, name = 0 if record.query_vector else -1, record.query_item
            actors = [record.user, record.session]
        else:
            row, item = int(record.query_row[number]), int(record.query[number])
            name = record.ids[item] if item >= 0 else None
            places = (int(record.user[number]), int(record.session[number]))
            actors = [record.actors[place] if place >= 0 else None for place in places]
        query = None
        if row >= 0 and len(record.query_vector if isinstance(record, Click) else record.query_vectors) == 1:
            tables = record.query_vector if isinstance(record, Click) else record.query_vectors
            query = tables[0].vectors[row]
        elif row < 0 and name is not None:
            query = catalogue.vector(name)
        yield one, query, next((actor for actor in actors if actor), f"list {one.list_id}")
