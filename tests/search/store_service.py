"""A service with a store over models that a test announces and a real store, served by the real application."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.search.backends.base import Query
from kinstream.search.backends.store import StoreSpace
from kinstream.search.feedback.writer import Writer
from kinstream.search.models.feed import ModelFeed
from kinstream.search.models.model import Model
from kinstream.search.models.sources import Source
from kinstream.search.queries.adapter import query_loader
from kinstream.search.service.service import Service
from kinstream.search.stores import kinds
from kinstream.search.stores.base import Hit, Place, Store, StoreAway, StoreHits
from kinstream.streams.records.values import ModelVersion
from kinstream.streams.settings import Settings
from tests.gate.gates import SECRET
from tests.learners.published_unit import create
from tests.search.brokers import Brokers, writer_to
from tests.search.index_service import Announced, on_a_port
from tests.support.processes import until

LEARNER = "adapter"


def bilinear(d: int, seed: int, kind: str = "oasis", **arguments: Any) -> Any:
    """A learner of a similarity of its own, as after learning."""
    draw = np.random.default_rng([11, seed])
    learner: Any = create(kind, **arguments)
    learner.learn_triplets(*(draw.normal(size=(40, d)) for _ in range(3)))
    return learner


class Checking:
    """Hands out learners as they are, and refuses those that the loader for stores refuses."""

    def __init__(self, announced: Announced, settings: Settings) -> None:
        self._announced = announced
        self._check = query_loader(settings)._check

    def load(self, version: ModelVersion, present: Model) -> Model:
        from kinstream.search.models.loader import Unloadable
        from kinstream.search.models.staleness import Failure
        from kinstream.streams.errors import SettingsError

        model = self._announced.load(version, present)
        if model.learner is not None:
            try:
                self._check(model.learner)
            except (SettingsError, ValueError) as error:
                raise Unloadable(Failure.REFUSED, str(error)) from error
        return model


class Gateway:
    """A service with a source of announcements."""

    def __init__(
        self,
        spaces: dict[str, Any],
        create: Callable[[str, Place], Store] = kinds.create,
        gate: dict[str, Any] | None = None,
        randomise: dict[str, Any] | None = None,
        writer: Writer | None = None,
        **limits: Any,
    ) -> None:
        sections = {"serve": {"http_port": 0, "spaces": spaces, **limits}}
        drawn = {"gate": gate or {}, "randomise": randomise or {}}
        gated = {**drawn, "gate_key": SECRET} if gate or randomise or writer else {}
        if writer is not None:
            gated["sources"] = {"feedback": {"topic": "kinstream.feedback", "preset": "feedback"}}
        self.settings = Settings.model_validate({**sections, **gated})
        self.announced = Announced(LEARNER)
        source: Source = self.announced
        models = ModelFeed(self.settings, source=source, loader=Checking(self.announced, self.settings))
        self.service = Service(self.settings, models=models, create=create, writer=writer)

    def space(self, name: str = "docs") -> StoreSpace:
        return self.service.stores[name]

    def wait(self, condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
        until(condition, what, seconds, every=0.002)

    def settle(self) -> None:
        """Wait until the newest models serve."""
        self.wait(lambda: self.announced.handled, "announcements are read")
        self.wait(lambda: not any(space.behind for space in self.service.spaces.values()), "they serve")


@contextmanager
def running(spaces: dict[str, Any], **options: Any) -> Iterator[Gateway]:
    gateway = Gateway(spaces, **options)
    gateway.service.start()
    try:
        gateway.wait(lambda: gateway.service.ready, "ready")
        yield gateway
    finally:
        gateway.service.stop()


@contextmanager
def served(gateway: Gateway) -> Iterator[str]:
    """The application on a port of its own, by uvicorn as `kinstream serve` runs it; yields the address."""
    from kinstream.search.service.routes import make_app

    with on_a_port(gateway.settings.serve, make_app(gateway.service), gateway.wait) as address:
        yield address


def near(space: StoreSpace, query: NDArray[Any], k: int) -> list[str]:
    """The ids that a space answers one query with."""
    found = space.answer(Query([b""], k, rows=np.asarray(query, np.float32)), lambda _: None)
    return [one["id"] for one in found.body["results"][0]["neighbours"]]


class Memory:
    """A store in this process, which a test may take away."""

    def __init__(self, names: list[str], X: NDArray[Any]) -> None:
        self.names, self.X = names, np.asarray(X, np.float32)
        self.away: str | None = None
        self.closed = False
        self.asked: list[NDArray[np.float32]] = []

    def check(self) -> int | None:
        if self.away is not None:
            raise StoreAway(self.away)
        return int(self.X.shape[1])

    def search(self, queries: NDArray[np.float32], k: int, where: Any) -> StoreHits:
        if self.away is not None:
            raise StoreAway(self.away)
        self.asked.append(queries)
        with np.errstate(invalid="ignore"):
            scores = queries.astype(np.float64) @ self.X.T.astype(np.float64)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return StoreHits(
            [
                [Hit(self.names[i], float(scores[row, i]), {}) for i in found]
                for row, found in enumerate(order)
            ],
            "7",
        )

    def close(self) -> None:
        self.closed = True


def full_page() -> bytes:
    """A metrics page with every series of a space with a store."""
    from prometheus_client import generate_latest

    from kinstream.search.service.metrics import ServiceMetrics

    store = Memory(["a"], np.ones((1, 2)))
    options: dict[str, Any] = {"gate": {"docs": {}}, "randomise": {"docs": {"kind": "swaps"}}}
    options["writer"] = writer_to(Brokers())
    with running({"docs": section(record=True)}, create=lambda *_: store, **options) as gateway:
        metrics = ServiceMetrics(gateway.service)
        gateway.announced.announce("docs", bilinear(2, 1), 3)
        gateway.settle()
        metrics.seconds.labels("/search", "200").observe(0.1)
        return generate_latest(metrics.registry)


def section(**more: Any) -> dict[str, Any]:
    """A space that follows the models of the tests."""
    return {
        "learner": LEARNER,
        "backend": "memory",
        "collection": "items",
        "distance": "inner-product",
        **more,
    }
