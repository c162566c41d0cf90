"""The Prometheus metrics that every service over HTTP has."""

from __future__ import annotations

from typing import Final

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.registry import Collector, CollectorRegistry

from kinstream.streams.worker.page.gauges import registry

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
#: Why a service closes a connection early.
CLOSED: Final = ("evicted", "slow", "stalled", "invalid")


class ServiceMetrics:
    """Counts requests and connections, and creates the registry of `/metrics`.

    Parameters
    ----------
    section : of the service's settings; series begin with `kinstream_SECTION_`.
    collector : the service's own series.
    """

    def __init__(self, section: str, collector: Collector) -> None:
        # The `_created` series of counters are left out.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry: CollectorRegistry = registry(collector)
        self.seconds = Histogram(
            f"kinstream_{section}_request_duration_seconds",
            "From a request's headers to the end of its answer, by route and status.",
            ("route", "status"),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.queries = Counter(
            f"kinstream_{section}_queries",
            "Queries answered: one for each vector or item of a request.",
            ("space",),
            registry=self.registry,
        )
        self.busy = Gauge(
            f"kinstream_{section}_requests_in_progress",
            f"Requests in progress; {section}.max_concurrent limits them.",
            registry=self.registry,
        )
        self.connections = Gauge(
            f"kinstream_{section}_connections",
            f"Open connections; {section}.max_connections limits them.",
            registry=self.registry,
        )
        self.closed = Counter(
            f"kinstream_{section}_connections_closed",
            "Connections that the agent closed: evicted (to make room for a newer one), slow (no whole request in "
            f"{section}.header_seconds), stalled (an answer was not read), invalid (not HTTP).",
            ("reason",),
            registry=self.registry,
        )
        for reason in CLOSED:
            self.closed.labels(reason)
