"""One space of the gateway: its query models, its store, and whether they can answer."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import numpy as np

from kinstream.search.drafts.drafts import Drafts
from kinstream.search.drafts.randomising import Randomising
from kinstream.search.queries.query_pair import Gated, ModelPair
from kinstream.search.models.staleness import Staleness
from kinstream.search.models.subscription import FollowerStopped, Subscription
from kinstream.search.queries.adapter import Newest
from kinstream.search.queries.model import QueryModel
from kinstream.search.stores.base import BadFilter, Hit, Store, StoreAway
from kinstream.streams.records.values import Vectors

log = logging.getLogger("kinstream.gateway")

#: Seconds between two checks of a store, and after one that failed.
CHECK_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 0.5


class Answer(NamedTuple):
    """The hits of a request.

    Parameters
    ----------
    hits : of each query under the serving model, all of one state of the store.
    candidates : the same under the candidate, by the number of the query; of the state of the store at that moment.
    version : of the state that `hits` are of.
    """

    hits: list[list[Hit]]
    candidates: dict[int, list[Hit]]
    version: str | None


class GatewaySpace:
    """Maps queries and asks the store. Any thread may call it.

    Parameters
    ----------
    kind, collection : of the store, for answers.
    pinned : the model of a file; None to follow `subscription`.
    gated, drafts : the decisions of a gate on the space, and its drafted lists; None without a gate.
    randomising : its randomised lists; None if there are none.
    threads : requests that ask the store under a candidate at the same time.
    timed : receives the seconds of every request to the store, and whether it answered.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        collection: str,
        store: Store,
        subscription: Subscription | None,
        pinned: QueryModel | None,
        gated: Gated | None = None,
        drafts: Drafts | None = None,
        randomising: Randomising | None = None,
        threads: int = 1,
        timed: Callable[[str, float, bool], None] = lambda *_: None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.collection = collection
        self.timed = timed
        self.gated = gated
        self.drafts = drafts
        self.randomising = randomising
        #: Why the last check of the store failed; None if it succeeded. A request says nothing of other requests.
        self.trouble: str | None = "not asked yet"
        #: Number of features of the store's vectors; None while unknown, or if it takes any.
        self.dimension: int | None = None
        self._store = store
        #: To the newest model; None for a pinned one.
        self.subscription = subscription
        self._pinned = pinned
        self._newest = None if subscription is None else Newest(subscription.learner)
        self._none = QueryModel(self.newest.learner)
        #: Asks the store for the candidate's hits while the request's own thread asks for the serving model's.
        self._beside = ThreadPoolExecutor(threads, f"kinstream-candidate-{name}")
        self._stopping = threading.Event()
        #: A request was not answered: the next check is due.
        self._doubted = threading.Event()
        #: When the last check ended.
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
            self.dimension = self._store.check()
            self.trouble = None
        except StoreAway as error:
            self.trouble = str(error)
        # A store of another distribution may raise anything; requests report it, and the next check may succeed.
        except Exception as error:
            self.trouble = f"{type(error).__name__}: {error}"
            if self.trouble != before:
                log.exception("space %r: the check of its store failed", self.name)

    # ---- answers ----------------------------------------------------------------------------------------------------

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

    @property
    def model(self) -> QueryModel:
        """The model that serves: see `pair`."""
        return self.pair().serving

    def pair(self) -> ModelPair:
        """Who answers now: with a gate, as it has decided; else the newest model.

        A model of another dimension than the store does not serve.
        """
        if self.gated is not None:
            return self.gated.pair(self.dimension)
        found = self.newest
        return ModelPair(found if self._fits(found) else self._none)

    def _fits(self, model: QueryModel) -> bool:
        return model.dimension is None or self.dimension is None or model.dimension == self.dimension

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
    def loaded(self) -> bool:
        """Whether all models from before the start are known, and were tried."""
        if self.subscription is None:
            return True
        return self.subscription.caught_up and (self.gated is None or self.gated.tried)

    @property
    def ready(self) -> bool:
        return self.loaded and self.trouble is None

    @property
    def unchecked_seconds(self) -> float:
        """Since the last check of the store ended, whatever its result; 0 while nothing checks it."""
        begun = self._thread.ident is not None and not self._stopping.is_set()
        return time.monotonic() - self.turned if begun else 0.0

    def staleness(self) -> Staleness | None:
        """The age of the newest model; None for a pinned one."""
        return None if self.subscription is None else self.subscription.staleness()

    def search(self, pair: ModelPair, queries: Vectors, drafted: list[int], k: int, where: Any) -> Answer:
        """The hits of queries (n, d). The store is asked for both models at the same time, with a request for each.

        Parameters
        ----------
        drafted : numbers of the queries that are also asked under the candidate. Those are left out that it maps to
            numbers that are not finite, and all of them if the store does not take its vectors.

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
                other = pair.candidate.map(queries[drafted])
                finite = np.isfinite(other).all(axis=1)
                drafted = [drafted[place] for place in np.flatnonzero(finite)]
                if drafted:
                    beside = self._beside.submit(self._store.search, other[finite], k, where)
            found = self._store.search(pair.serving.map(queries), k, where)
            candidates: dict[int, list[Hit]] = {}
            if beside is not None:
                # The candidate's vectors may be what the store does not take; the serving model's are good.
                with contextlib.suppress(BadFilter):
                    candidates = dict(zip(drafted, beside.result().hits, strict=True))
            answered = True
        except StoreAway:
            self._doubted.set()
            raise
        finally:
            self.timed(self.name, time.perf_counter() - began, answered)
        return Answer(found.hits, candidates, found.version)
