"""The Prometheus metrics of the gateway."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kinstream.search.drafts.metrics import (
    decided_families,
    decided_sample,
    drafted_lists,
    randomised_lists,
)
from kinstream.search.service.gateway_service import GatewayService
from kinstream.search.models.staleness import Failure
from kinstream.search.service.metrics import BUCKETS, ServiceMetrics


class GatewayMetrics(ServiceMetrics):
    """Counts requests, also those to stores, and creates the registry of `/metrics`."""

    def __init__(self, service: GatewayService) -> None:
        super().__init__("gateway", _GatewayCollector(service))
        self._store_seconds = Histogram(
            "kinstream_gateway_store_duration_seconds",
            "Seconds of mapping the queries of a request and waiting for its store.",
            ("space",),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._store_failures = Counter(
            "kinstream_gateway_store_failures",
            "Requests that the store did not answer.",
            ("space",),
            registry=self.registry,
        )
        gated = [space.name for space in service.spaces.values() if space.drafts is not None]
        self.drafted = drafted_lists("gateway", self.registry, gated)
        randomised = [space.name for space in service.spaces.values() if space.randomising is not None]
        self.randomised = randomised_lists("gateway", self.registry, randomised)
        for space in service.spaces.values():
            self.queries.labels(space.name)
            self._store_seconds.labels(space.name)
            self._store_failures.labels(space.name)
            space.timed = self._timed

    def _timed(self, space: str, seconds: float, answered: bool) -> None:
        self._store_seconds.labels(space).observe(seconds)
        if not answered:
            self._store_failures.labels(space).inc()


class _GatewayCollector(Collector):
    def __init__(self, service: GatewayService) -> None:
        self._service = service

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        labels = ("space", "learner")
        families = [
            GaugeMetricFamily(f"kinstream_gateway_{name}", text, labels=labels)
            for name, text in (
                ("model_generation", "Generation of the serving model; 0 while queries are not adapted."),
                ("model_epoch", "Epoch of the serving model; -1 while queries are not adapted."),
                ("model_step", "Step of the serving model."),
                ("model_adapted", "1 while queries are mapped; 0 while they are asked as they are."),
                (
                    "model_behind",
                    "1 while a newer model is announced than the newest usable one, or the model is missing that "
                    "serves by decision of a gate.",
                ),
                ("store_up", "1 while the last check of the store was answered."),
            )
        ]
        age = GaugeMetricFamily(
            "kinstream_gateway_model_age_seconds",
            "Age of the newest loaded model. Absent before the first, and for a pinned model.",
            labels=labels,
        )
        decided = decided_families("gateway")
        failures = CounterMetricFamily(
            "kinstream_gateway_model_failures",
            "Models that were not loaded; each attempt counts.",
            labels=("space", "learner", "reason"),
        )
        for space in self._service.spaces.values():
            staleness, pair = space.staleness(), space.pair()
            model = pair.serving
            if pair.decided is not None:
                decided_sample(decided, (space.name, model.learner), pair.decided, pair.missing)
            values = (*model.name, model.adapted, space.behind, space.trouble is None)
            for family, value in zip(families, values, strict=True):
                family.add_metric([space.name, model.learner], int(value))
            if staleness is None:
                continue
            if staleness.written_seconds is not None:
                age.add_metric([space.name, model.learner], staleness.written_seconds)
            for reason in Failure:
                count = staleness.failures.get(reason, 0)
                failures.add_metric([space.name, model.learner, reason.value], count)
        ready = GaugeMetricFamily("kinstream_gateway_ready", "1 while /readyz answers 200.")
        ready.add_metric([], int(self._service.ready))
        yield from (*families, *decided, age, failures, ready)
