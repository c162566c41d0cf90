"""A service with our own index over lists of records and models in place of brokers, served by the real application."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.search.backends.index import IndexSpace, Rebuilt
from kinstream.search.models.choice import Announcement
from kinstream.search.models.decisions import Decisions
from kinstream.search.models.feed import ModelFeed
from kinstream.search.models.model import Model
from kinstream.search.models.sources import Source
from kinstream.search.service.service import Service
from kinstream.search.spaces.catalogue import CatalogueReader
from kinstream.search.spaces.feed import Progress
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.gate import Version
from kinstream.streams.records.message import Message
from kinstream.streams.records.values import (
    Action,
    Control,
    Event,
    ItemBlock,
    ModelUpdate,
    ModelVersion,
    Table,
)
from kinstream.streams.settings import Settings
from tests.gate.gates import SECRET, decision
from tests.learners.published_unit import create
from tests.support.processes import until

TOPIC = "kinstream.events"
#: Models come fast here.
Rebuilt.pause = 0.0


def items(space: str, names: list[str], X: NDArray[Any], tombstones: tuple[str, ...] = ()) -> ItemBlock:
    tables = (Table("x", np.asarray(X, np.float32)),) if names else ()
    return ItemBlock(space, tuple(names), tables, 1, tombstones)


def control(space: str, action: Action) -> Control:
    return Control(space, action, 1)


class Events:
    """In place of `EventsFeed`: one partition, whose records a test appends."""

    def __init__(
        self, settings: Settings, sources: dict[str, str], apply: Callable[..., None], redrives: str | None
    ) -> None:
        self.reader = CatalogueReader(TOPIC, 0, 1, sources, redrives_of=redrives)
        self.readers = {0: self.reader}
        self.progress = {0: Progress(0, reached=True)}
        self.failure = None
        self._apply = apply
        self._offset = 0

    caught_up = True
    waiting_for: tuple[str, ...] = ()

    def start(self) -> None: ...

    def stop(self, seconds: float = 0.0) -> None: ...

    def partition(self, space: str) -> int:
        return 0

    def append(self, *records: Event) -> int:
        """Append records, and apply them together; returns the offset of the last one."""
        changed = []
        for record in records:
            message = Message(
                TOPIC, 0, self._offset, 1, record.space.encode(), encode(record), (), self._offset - 1
            )
            self._offset += 1
            found = self.reader.step(message)
            if found is not None:
                changed.append(found)
        for space in {one.space for one in changed}:
            self._apply(space, [one for one in changed if one.space == space])
        return self._offset - 1


class Updates:
    """In place of `UpdatesFeed`: a test gives the records."""

    def __init__(self, settings: Settings, spaces: list[str], give: Callable[[ModelUpdate], None]) -> None:
        self.give = give
        self.read = self.unreadable = 0
        self.trouble: str | None = None

    def start(self) -> None: ...

    def stop(self, seconds: float = 0.0) -> None: ...


class Announced:
    """A source of announcements that a test fills."""

    caught_up = True
    contact: float | None = None
    trouble: str | None = None
    unreadable = 0

    def __init__(self, named: str = "opml") -> None:
        self.named = named
        self.decisions = Decisions()
        self.learners: dict[tuple[str, int, int, int], Any] = {}
        self._waiting: queue.SimpleQueue[ModelVersion] = queue.SimpleQueue()
        self._announced = self._given = self._handled = 0

    def open(self) -> None: ...

    def poll(self, seconds: float, learners: Any, stop: Any) -> list[Announcement]:
        # The feed has dealt with what it was given before it asks for more.
        self._handled = self._given
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(Announcement(self._waiting.get_nowait(), "a test"))
        self._given += len(found)
        if not found:
            stop.wait(0.005)
        return found

    @property
    def handled(self) -> bool:
        """Whether the feed has read all announcements, and tried to load what they name."""
        return self._handled == self._announced

    def close(self) -> None: ...

    def load(self, version: ModelVersion, serving: Model | None = None) -> Model:
        key = (version.space, version.generation, version.epoch, version.step)
        return Model(version, self.learners[key])

    def announce(self, space: str, learner: Any, step: int, epoch: int = 0, generation: int = 1) -> None:
        """Announce a learner as it is; it must not learn on."""
        self.learners[space, generation, epoch, step] = learner
        self._announced += 1
        self._waiting.put(
            ModelVersion(
                space,
                self.named,
                learner.algorithm if learner else "?",
                generation,
                epoch,
                step,
                "t",
                0,
                step,
                "",
                f"{step:064x}",
                int(time.time() * 1000),
            )
        )


def linear(d: int, seed: int) -> Any:
    """A learner with a map of its own, as after learning."""
    rng = np.random.default_rng([7, seed])
    learner: Any = create("opml", gamma=0.1)
    X = rng.normal(size=(64, d))
    learner.learn_triplets(X[:20], X[20:40], X[40:60])
    return learner


class Agent:
    """A running service with its two feeds."""

    def __init__(
        self, gate: dict[str, Any] | None = None, randomise: dict[str, Any] | None = None, **search: Any
    ) -> None:
        drawn = {"gate": gate or {}, "randomise": randomise or {}}
        gated = {**drawn, "gate_key": SECRET} if gate or randomise else {}
        self.settings = Settings.model_validate({"serve": {"recall_every": 0, **search}, **gated})
        self.announced = Announced()
        made: list[Events] = []

        def events(*arguments: Any) -> Events:
            made.append(Events(*arguments))
            return made[0]

        source: Source = self.announced
        models = ModelFeed(self.settings, source=source, loader=self.announced)
        self.service = Service(self.settings, models=models, events=events, updates=Updates)
        self.events = made[0]

    def space(self, name: str = "shop") -> IndexSpace:
        found: IndexSpace = self.indexes.spaces[name]
        return found

    @property
    def indexes(self) -> Any:
        """With the feeds of the tests."""
        return self.service.indexes

    def models(self) -> ModelFeed:
        assert self.service.models is not None
        return self.service.models

    def wait(self, condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
        until(condition, what, seconds, every=0.002)

    def settle(self) -> None:
        """Wait until the newest models serve everywhere."""
        spaces = self.indexes.spaces.values()
        self.wait(lambda: self.announced.handled, "announcements are read")
        self.wait(
            lambda: all(
                s.subscription.model.name >= s.subscription.staleness().announced and not s.searcher.behind
                for s in spaces
            ),
            "the newest models serve",
        )


@contextmanager
def running(**search: Any) -> Iterator[Agent]:
    agent = Agent(**search)
    agent.service.start()
    try:
        agent.wait(lambda: agent.service.ready, "ready")
        yield agent
    finally:
        agent.service.stop()


def full_page() -> bytes:
    """A metrics page with every series of a space with our own index."""
    from prometheus_client import generate_latest

    from kinstream.search.service.metrics import ServiceMetrics

    drawn = {"shop": {"kind": "swaps"}}
    with running(
        gate={"shop": {}}, randomise=drawn, spaces={"shop": {"learner": "opml", "index": "lazy"}}
    ) as agent:
        agent.events.append(items("shop", ["a"], np.ones((1, 2))))
        agent.announced.announce("shop", linear(2, 1), 1)
        agent.announced.decisions.take(decision(1, Version(1, 0, 1), space="shop"))
        agent.wait(lambda: agent.space().searcher.glance().learned, "the model serves")
        agent.indexes.recall._window["shop"] = deque([1.0])
        metrics = ServiceMetrics(agent.service)
        metrics.seconds.labels("/search", "200").observe(0.1)
        return generate_latest(metrics.registry)


SHOP = {"spaces": {"shop": {"learner": "opml"}}}


@contextmanager
def served(agent: Agent) -> Iterator[str]:
    """The application on a port of its own, by uvicorn as `kinstream serve` runs it; yields the address."""
    from kinstream.search.service.routes import make_app

    section = agent.settings.serve.model_copy(update={"http_port": 0})
    with on_a_port(section, make_app(agent.service), agent.wait) as address:
        yield address


@contextmanager
def on_a_port(section: Any, app: Any, wait: Callable[[Callable[[], bool], str], Any]) -> Iterator[str]:
    """An application by uvicorn as the commands run it, at the port of its settings; yields the address."""
    from kinstream.search.service.process import listening, web_server

    listener = listening(section)
    server = web_server(app, 2)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        wait(lambda: server.started, "the server listens")
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        app.state.desk.close()
        assert not thread.is_alive()


class Truth:
    """What every state of a catalogue held, and every model, for checking answers against brute force."""

    def __init__(self) -> None:
        self.items: dict[str, NDArray[np.float32]] = {}
        self.at: dict[int, dict[str, NDArray[np.float32]]] = {-1: {}}

    def note(self, offset: int) -> None:
        self.at[offset] = dict(self.items)

    def check(self, answer: dict[str, Any], Q: NDArray[Any], k: int, learners: dict[Any, Any]) -> None:
        """Compare an answer with the scan of the catalogue and under the model that it names."""
        catalogue = self.at[answer["catalogue"]["offset"]]
        assert answer["catalogue"]["items"] == len(catalogue)
        model = answer["model"]
        key = (answer["space"], model["generation"], model["epoch"], model["step"])
        learner = learners[key] if model["learned"] else None
        names = list(catalogue)
        for query, result in zip(Q, answer["results"], strict=True):
            found = {n["id"]: n["squared_distance"] for n in result["neighbours"]}
            assert len(found) == len(result["neighbours"]) == min(k, len(names))
            if not names:
                continue
            X = np.array([catalogue[name] for name in names], np.float64)
            Y = np.repeat(np.asarray(query, np.float64)[None], len(X), axis=0)
            far = learner.distance(X, Y) if learner is not None else ((X - Y) ** 2).sum(axis=1)
            true = dict(zip(names, np.asarray(far, np.float64).tolist(), strict=True))
            rounding = 1e-4 * (1.0 + max(true.values()))
            for name, distance in found.items():
                assert abs(distance - true[name]) <= rounding, name
            left = [distance for name, distance in true.items() if name not in found]
            assert not left or min(left) >= max(found.values()) - rounding
            told = [n["squared_distance"] for n in result["neighbours"]]
            assert told == sorted(told)
