"""The Prometheus metrics of the service."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from kinstream.search.backends.base import Answer
from kinstream.search.backends.index_metrics import IndexCollector
from kinstream.search.feedback.recorder import Fate
from kinstream.search.feedback.writer import Writer
from kinstream.search.models.staleness import Failure
from kinstream.search.service.service import Service
from kinstream.streams.worker.page.gauges import registry

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
#: Why the service closes a connection early.
CLOSED: Final = ("evicted", "slow", "stalled", "invalid")
_EXAMINED: Final = (10.0, 100.0, 300.0, 1_000.0, 3_000.0, 10_000.0, 30_000.0, 100_000.0, 300_000.0, 1e6)
_BY_LEARNER: Final = ("space", "learner")


class ServiceMetrics:
    """Counts requests, connections and answers, and creates the registry of `/metrics`."""

    def __init__(self, service: Service) -> None:
        # The `_created` series of counters are left out.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry: CollectorRegistry = registry(_Spaces(service))
        self.seconds = self._histogram(
            "request_duration_seconds",
            "From a request's headers to the end of its answer, by route and status.",
            ("route", "status"),
        )
        self.busy = self._gauge(
            "requests_in_progress", "Requests in progress; serve.max_concurrent limits them."
        )
        self.connections = self._gauge(
            "connections", "Open connections; at most eight times serve.max_concurrent."
        )
        self.closed = self._counter(
            "connections_closed",
            "Connections that the service closed: evicted (to make room for a newer one), slow (no whole request in "
            "serve.request_seconds), stalled (an answer was not read), invalid (not HTTP).",
            CLOSED,
            "reason",
        )
        spaces = service.spaces.values()
        self._queries = self._counter(
            "queries", "Queries answered: one for each vector or item of a request.", service.spaces
        )
        self._drafted = self._counter(
            "drafted_lists",
            "Answers with a drafted list: one for each of the queries that the gate's share has chosen.",
            [space.name for space in spaces if space.drafts is not None],
        )
        self._randomised = self._counter(
            "randomised_lists",
            "Answers with a randomised list: one for each of the queries that [randomise.SPACE] has chosen.",
            [space.name for space in spaces if space.randomising is not None],
        )
        if service.writer is not None:
            self._count_feedback(service, service.writer)
        if service.stores:
            self._time_stores(service)
        if service.indexes is not None:
            self._examined = self._histogram(
                "examined_items", "Items whose distance was computed for a query.", ("space",), _EXAMINED
            )
            for name in service.indexes.spaces:
                self._examined.labels(name)
            self.registry.register(IndexCollector(service.indexes))

    def answered(self, space: str, queries: int, answer: Answer) -> None:
        """Count the queries of an answer, and its lists."""
        self._queries.labels(space).inc(queries)
        for counter, lists in ((self._drafted, answer.drafted), (self._randomised, answer.randomised)):
            if lists:
                counter.labels(space).inc(lists)
        for result in answer.body["results"]:
            if "examined" in result:
                self._examined.labels(space).observe(result["examined"])

    def _count_feedback(self, service: Service, writer: Writer) -> None:
        recorded = {
            space.name: space.recorder for space in service.spaces.values() if space.recorder is not None
        }
        written = self._counter(
            "recorded_lists", "Shown lists that were written to kinstream.feedback.", recorded
        )
        dropped = self._counter(
            "dropped_lists",
            "Shown lists that were not written to kinstream.feedback: the brokers were away or too slow.",
            recorded,
        )
        feedback = Counter(
            "kinstream_serve_feedback",
            "Feedback by what became of it: written, not-written (the brokers did not acknowledge it), or refused "
            "(forged-list, late-list, unknown-item).",
            ("space", "fate"),
            registry=self.registry,
        )

        def count(space: str, fate: Fate, number: int) -> None:
            feedback.labels(space, fate.value).inc(number)

        for name, recorder in recorded.items():
            recorder.counted = partial(count, name)
            for fate in Fate:
                feedback.labels(name, fate.value)
        writer.settled = lambda space, done: (written if done else dropped).labels(space).inc()

    def _time_stores(self, service: Service) -> None:
        seconds = self._histogram(
            "store_duration_seconds",
            "Seconds of mapping the queries of a request and waiting for its store.",
            ("space",),
        )
        failures = self._counter("store_failures", "Requests that the store did not answer.", service.stores)

        def timed(space: str, took: float, answered: bool) -> None:
            seconds.labels(space).observe(took)
            if not answered:
                failures.labels(space).inc()

        for name, space in service.stores.items():
            seconds.labels(name)
            space.timed = timed

    def _counter(self, name: str, text: str, values: Iterable[str], label: str = "space") -> Counter:
        """A counter that begins at 0 for these values of its label."""
        made = Counter(f"kinstream_serve_{name}", text, (label,), registry=self.registry)
        for value in values:
            made.labels(value)
        return made

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"kinstream_serve_{name}", text, registry=self.registry)

    def _histogram(
        self, name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...] = BUCKETS
    ) -> Histogram:
        return Histogram(f"kinstream_serve_{name}", text, labels, buckets=buckets, registry=self.registry)


def _gauges(labels: tuple[str, ...], *named: tuple[str, str]) -> list[GaugeMetricFamily]:
    """Gauges of the service without samples, from names and descriptions."""
    return [GaugeMetricFamily(f"kinstream_serve_{name}", text, labels=labels) for name, text in named]


class _Spaces(Collector):
    """The series that every space has, whatever holds its items."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        models = _gauges(
            _BY_LEARNER,
            ("model_generation", "Generation of the serving model; 0 while none serves."),
            ("model_epoch", "Epoch of the serving model; -1 while none serves."),
            ("model_step", "Step of the serving model: constraints that it had accepted in its epoch."),
            ("model_learned", "1 while a learned model serves; 0 while vectors are used as they are."),
            (
                "model_behind",
                "1 while a newer model than the serving one is announced, or, with a gate, while the model is missing "
                "that serves by its decision: it is being loaded, or cannot be loaded.",
            ),
        )
        decided = _gauges(
            _BY_LEARNER,
            (
                "decided_generation",
                "Generation of the model that serves by decision of the gate; 0: un-adapted.",
            ),
            ("decided_epoch", "Epoch of the model that serves by decision of the gate; -1: un-adapted."),
            ("decided_step", "Step of the model that serves by decision of the gate."),
            (
                "decided_missing",
                "1 while the model that serves by decision of the gate is not available, so that queries are asked as "
                "they are.",
            ),
            (
                "decided_kept",
                "1 while the store has a copy of the model that serves by decision of the gate, or none is needed. "
                "Without a copy, a service that starts again does not find the model.",
            ),
        )
        (age,) = _gauges(
            _BY_LEARNER,
            (
                "model_age_seconds",
                "Age of the newest loaded model. Absent before the first, and for a pinned model.",
            ),
        )
        (store_up,) = _gauges(_BY_LEARNER, ("store_up", "1 while the last check of the store was answered."))
        failures = CounterMetricFamily(
            "kinstream_serve_model_failures",
            "Models that were not loaded; each attempt counts.",
            labels=("space", "learner", "reason"),
        )
        for space in self._service.spaces.values():
            labels = [space.name, space.learner]
            # Before the serving model: a page with "not behind" then shows the newest model.
            behind, staleness = space.behind, space.staleness()
            name, learned = space.serving
            _add(models, labels, *name, learned, behind)
            found = space.decided()
            if found is not None:
                _add(decided, labels, *found[0].version, found[1], found[0].kept)
            if staleness is None:
                continue
            if staleness.written_seconds is not None:
                age.add_metric(labels, staleness.written_seconds)
            for reason in Failure:
                failures.add_metric([*labels, reason.value], staleness.failures.get(reason, 0))
        for store in self._service.stores.values():
            store_up.add_metric([store.name, store.learner], int(store.trouble is None))
        ready = GaugeMetricFamily("kinstream_serve_ready", "1 while /readyz answers 200.")
        ready.add_metric([], int(self._service.ready))
        yield from (*models, *decided, age, failures, ready)
        if self._service.stores:
            yield store_up


def _add(families: list[GaugeMetricFamily], labels: list[str], *values: float) -> None:
    for family, value in zip(families, values, strict=True):
        family.add_metric(labels, int(value))
