"""A space whose items are in a store of others: queries are mapped, and the store is asked."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import numpy as np

from kinstream.learners.ranking.remembered import Recalled
from kinstream.processors.base.id_table import name_hashes
from kinstream.search.backends.base import (
    Found,
    Neighbour,
    Query,
    Side,
    Space,
    TooLarge,
    Unsupported,
    Used,
    Waiting,
    gate_state,
)
from kinstream.search.drafts.serving_choice import Decided, Deciding
from kinstream.search.index.items import Modalities
from kinstream.search.models.feed import ModelFeed
from kinstream.search.models.model import Name
from kinstream.search.models.subscription import FollowerStopped
from kinstream.search.queries.adapter import Newest
from kinstream.search.queries.model import QueryModel
from kinstream.search.queries.query_pair import Gated, ModelPair
from kinstream.search.spaces.errors import NotReady, WrongDimension
from kinstream.search.stores import kinds
from kinstream.search.stores.base import BadFilter, Hit, Place, Store, StoreAway
from kinstream.streams.configuration.service import COSINE
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.gate import UNADAPTED, Version
from kinstream.streams.records.values import Vectors
from kinstream.streams.settings import ServeSettings, ServeSpaceSettings, Settings
from kinstream.streams.signals import ADAPTED, REMEMBERED, SIMILARITY

log = logging.getLogger("kinstream.serve")

#: Seconds between two checks of a store, and after one that failed.
CHECK_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 0.5


class Ranked(NamedTuple):
    """What a model ranks, of some queries.

    Parameters
    ----------
    hits : of each query, best first.
    infinite : the places of those with similarities that are no numbers.
    version : of the store.
    """

    hits: list[list[Neighbour]]
    infinite: list[int]
    version: str | None


class StoreSpace(Space):
    """Maps queries by the model that serves, and asks the store.

    Parameters
    ----------
    models : the feed, if the space follows a learner; not started yet.
    threads : requests that ask the store under a candidate at the same time.
    create : a store from its kind and place.

    Attributes
    ----------
    trouble : why the last check of the store failed; None if it succeeded. A request says nothing of other requests.
    turned : when the last check ended.
    timed : receives the seconds of every request to the store, and whether it answered.

    Raises
    ------
    SettingsError : the space cannot be served with its settings.
    """

    measure = "similarity"

    def __init__(
        self,
        settings: Settings,
        name: str,
        section: ServeSpaceSettings,
        models: ModelFeed | None,
        threads: int = 1,
        create: Callable[[str, Place], Store] = kinds.create,
    ) -> None:
        place = f"serve.spaces.{name}"
        try:
            self._store = create(section.backend, place_of(section, settings.serve))
            self._pinned = None if section.model is None else QueryModel.from_file(section.model)
        except SettingsError as error:
            raise type(error)(f"{place}: {error}") from None
        subscription = self._newest = self.gated = None
        if section.learner is not None and models is not None:
            subscription = models.subscribe(name, section.learner)
            self._newest = Newest(section.learner)
            if name in settings.gate:
                self.gated = Gated(section.learner, Deciding(name, section.learner, models))
        elif name in settings.gate:
            raise SettingsError(
                f"{place}: model pins a file, and [gate.{name}] decides who serves: name the learner in place of "
                f"model, or remove [gate.{name}]"
            )
        learner = section.learner if self._pinned is None else self._pinned.learner
        assert learner is not None
        super().__init__(settings, name, learner, subscription)
        self._most = section.candidates
        self._cosine = section.distance == COSINE
        self.about = {"kind": section.backend, "collection": section.collection}
        self.timed: Callable[[str, float, bool], None] = lambda *_: None
        self.trouble: str | None = "not asked yet"
        #: Features of the store's vectors; None while unknown, or if it takes any.
        self.features: int | None = None
        self._none = QueryModel(learner)
        #: Asks the store for the candidate's hits while the request's own thread asks for the serving model's.
        self._beside = ThreadPoolExecutor(threads, f"kinstream-candidate-{name}")
        self._stopping = threading.Event()
        #: A request was not answered: the next check is due.
        self._doubted = threading.Event()
        self.turned = time.monotonic()
        self._thread = threading.Thread(target=self._watch, name=f"kinstream-store-{name}", daemon=True)

    # ---- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to check the store."""
        self.turned = time.monotonic()
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """End the checks and the connections; wait up to that long."""
        self._stopping.set()
        self._doubted.set()
        if self._thread.is_alive():
            self._thread.join(seconds)
        self._beside.shutdown(wait=False, cancel_futures=True)
        self._store.close()

    def _watch(self) -> None:
        while not self._stopping.is_set():
            self._doubted.clear()
            self._check()
            self.turned = time.monotonic()
            if not self._stopping.wait(AGAIN_SECONDS) and self.trouble is None:
                self._doubted.wait(CHECK_SECONDS - AGAIN_SECONDS)

    def _check(self) -> None:
        before = self.trouble
        try:
            self.features = self._store.check()
            self.trouble = None
        except StoreAway as error:
            self.trouble = str(error)
        # A store of another distribution may raise anything; requests report it, and the next check may succeed.
        except Exception as error:
            self.trouble = f"{type(error).__name__}: {error}"
            if self.trouble != before:
                log.exception("space %r: the check of its store failed", self.name)

    # ---- state ------------------------------------------------------------------------------------------------------

    @property
    def modalities(self) -> Modalities | None:
        return None

    @property
    def dimension(self) -> int | None:
        model = self.pair().serving
        return self.features if model.dimension is None else model.dimension

    @property
    def newest(self) -> QueryModel:
        """The newest model, whether it fits the store or not."""
        if self._pinned is not None:
            return self._pinned
        assert self.subscription is not None and self._newest is not None
        try:
            return self._newest.of(self.subscription.model)
        except FollowerStopped:
            # The service ends because of the failure; until then it answers.
            return self._newest.of(self.subscription.serving)

    def pair(self) -> ModelPair:
        """Who answers now: with a gate, as it has decided; else the newest model.

        A model of another dimension than the store does not serve.
        """
        if self.gated is not None:
            return self.gated.pair(self.features)
        found = self.newest
        return ModelPair(found if self._fits(found) else self._none)

    def _fits(self, model: QueryModel) -> bool:
        return model.dimension is None or self.features is None or model.dimension == self.features

    @property
    def known(self) -> bool:
        if self.subscription is None:
            return True
        return self.subscription.caught_up and (self.gated is None or self.gated.tried)

    @property
    def ready(self) -> bool:
        return self.known and self.trouble is None

    @property
    def behind(self) -> bool:
        """Whether a newer model is known than the newest usable one; it may be loading, or not be usable.

        With a gate, also whether the model is missing that serves by decision.
        """
        staleness = self.staleness()
        if staleness is None:
            return False
        return staleness.behind or not self._fits(self.newest) or self.pair().missing

    @property
    def serving(self) -> tuple[Name, bool]:
        model = self.pair().serving
        return model.name, model.adapted

    @property
    def alive(self) -> bool:
        """Whether the thread that checks the store runs, if it should."""
        return self._stopping.is_set() or self._thread.ident is None or self._thread.is_alive()

    @property
    def unchecked_seconds(self) -> float:
        """Since the last check of the store ended, whatever its result; 0 while nothing checks it."""
        begun = self._thread.ident is not None and not self._stopping.is_set()
        return time.monotonic() - self.turned if begun else 0.0

    def decided(self) -> tuple[Decided, bool] | None:
        pair = self.pair()
        return None if pair.decided is None else (pair.decided, pair.missing)

    def waiting_for(self) -> Iterator[Waiting]:
        if not self.known:
            staleness = self.staleness()
            why = None if staleness is None else staleness.trouble
            yield Waiting(f"models of {self.name!r} under {self.learner!r}", why)
        if self.trouble is not None:
            yield Waiting(f"the store of {self.name!r}", self.trouble)

    def shown(self) -> dict[str, Any]:
        staleness, pair = self.staleness(), self.pair()
        facts = {
            "space": self.name,
            "model": _named(pair.serving),
            **self._state(None),
            "ready": self.ready,
            "dimension": self.features,
            "announced": None if staleness is None else str(staleness.announced),
            "behind": self.behind,
        }
        gate = {} if pair.decided is None else {"gate": gate_state(pair.decided, pair.missing)}
        return facts | gate | self.withheld()

    def _state(self, version: str | None) -> dict[str, Any]:
        return {"store": self.about | {"version": version}}

    # ---- answers ----------------------------------------------------------------------------------------------------

    def map(self, rows: Vectors) -> tuple[dict[str, Any], Side, Vectors]:
        model = self._pair_for(rows).serving
        return {}, _side(model, {}), model.map(rows)

    def _pair(self) -> ModelPair:
        if not self.known:
            raise NotReady
        return self.pair()

    def _pair_for(self, rows: Vectors) -> ModelPair:
        """Who answers. Once for a request: everything in the answer comes from these models."""
        pair = self._pair()
        if not pair.serving.takes(rows):
            # Another model serves than when the vectors were checked.
            raise WrongDimension((("vectors", pair.serving.dimension or 0),))
        return pair

    def _ask(self, query: Query, drafted: list[int], used: Used) -> Found:
        if query.rows is None:
            if query.texts is None:
                raise Unsupported(f"the store of {self.name!r} is asked by vector, not by item")
            pair = self._pair()
        else:
            pair = self._pair_for(query.rows)
            if pair.candidate is not None and not pair.candidate.takes(query.rows):
                drafted = []
        if pair.candidate is None:
            drafted = []
        used(_version(pair.serving))
        found, others = self._both(pair, query, drafted)
        if found.infinite:
            raise TooLarge(found.infinite[0], "similarities")
        candidate = None if pair.candidate is None else _side(pair.candidate, others)
        ranked = dict(enumerate(found.hits))
        more: list[dict[str, Any]] = [{} for _ in found.hits]
        state = self._state(found.version)
        return Found(_side(pair.serving, ranked), candidate, state, more, pair.decided, pair.missing)

    def _both(
        self, pair: ModelPair, query: Query, drafted: list[int]
    ) -> tuple[Ranked, dict[int, list[Neighbour]]]:
        """What the serving model ranks, and by number of the query what the candidate does.

        The store is asked for both at the same time, with a request for each. The candidate's are of the state of the
        store at that moment. Those are left out that it maps to numbers that are not finite, and all of them if the
        store does not take its vectors.

        Raises
        ------
        StoreAway, BadFilter : as of the store.
        """
        began = time.perf_counter()
        answered = False
        try:
            beside = None
            if drafted:
                assert pair.candidate is not None
                other = None
                if query.rows is not None:
                    other = pair.candidate.map(query.rows[drafted])
                    finite = np.isfinite(other).all(axis=1)
                    drafted = [drafted[place] for place in np.flatnonzero(finite)]
                    other = other[finite]
                if drafted:
                    beside = self._beside.submit(self._rank, pair.candidate, query, drafted, other)
            mapped = None if query.rows is None else pair.serving.map(query.rows)
            found = self._rank(pair.serving, query, range(len(query.names)), mapped)
            candidates: dict[int, list[Neighbour]] = {}
            if beside is not None:
                # The candidate's vectors may be what the store does not take; the serving model's are good.
                with contextlib.suppress(BadFilter):
                    others = beside.result()
                    both = enumerate(zip(drafted, others.hits, strict=True))
                    candidates = {row: hits for at, (row, hits) in both if at not in others.infinite}
            answered = True
        except StoreAway:
            self._doubted.set()
            raise
        finally:
            self.timed(self.name, time.perf_counter() - began, answered)
        return found, candidates

    def _rank(self, model: QueryModel, query: Query, rows: Sequence[int], mapped: Vectors | None) -> Ranked:
        """What a model ranks.

        Parameters
        ----------
        rows : the numbers of m queries.
        mapped : (m, d) float32, what the model makes of their vectors; None for queries without vectors.
        """
        assert mapped is not None and query.rows is not None
        recalled = [model.recall(query.rows[row]) for row in rows]
        n = query.k if all(one is None for one in recalled) else max(self._most, query.k)
        found = self._store.search(mapped, n, query.where)
        infinite = [at for at, hits in enumerate(found.hits) if _infinite(hits)]
        ranked = [
            hits if one is None else self._by_memory(model, hits, one, mapped[at])
            for at, (hits, one) in enumerate(zip(found.hits, recalled, strict=True))
        ]
        return Ranked([_neighbours(hits[: query.k]) for hits in ranked], infinite, found.version)

    def _by_memory(
        self, model: QueryModel, hits: list[Hit], recalled: Recalled, mapped: Vectors
    ) -> list[Hit]:
        """Hits by what is remembered of their query, too. The store says one similarity, which counts for both."""
        assert model.known is not None
        similarity = np.array([hit.similarity for hit in hits], np.float64)
        if model.cosine and not self._cosine and mapped.any():
            similarity /= float(np.linalg.norm(mapped))
        rates = recalled.rates(name_hashes([hit.id for hit in hits]))
        values = model.known({SIMILARITY: similarity, ADAPTED: similarity, REMEMBERED: rates})
        return [hits[at] for at in np.argsort(-values, kind="stable").tolist()]

    def held(self, query: Query) -> int:
        pair = self.pair()
        remembers = any(one is not None and one.remembered for one in (pair.serving, pair.candidate))
        return len(query.names) * (max(self._most, query.k) if remembers else query.k)

    def _why_fewer(self, query: Query) -> str | None:
        return "filter" if query.where else "store"


def place_of(section: ServeSpaceSettings, limits: ServeSettings) -> Place:
    """Where the items of a space lie."""
    return Place(
        section.connect_by(),
        section.collection,
        section.distance,
        section.columns,
        limits.store_seconds,
        section.options,
        section.text,
        section.signals,
    )


def _side(model: QueryModel, ranked: dict[int, list[Neighbour]]) -> Side:
    return Side(_named(model), _version(model), ranked)


def _version(model: QueryModel) -> Version:
    return Version(*model.name) if model.adapted else UNADAPTED


def _named(model: QueryModel) -> dict[str, Any]:
    named = {"learner": model.learner, **model.name._asdict()}
    return named | {"digest": model.digest, "adapted": model.adapted}


def _infinite(hits: list[Hit]) -> bool:
    return any(math.isinf(hit.similarity) for hit in hits)


def _neighbours(hits: list[Hit]) -> list[Neighbour]:
    # A vector of zeros has no cosine.
    return [hit._asdict() for hit in hits if not math.isnan(hit.similarity)]
