"""The series of exported traces, of any process that exports them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from kinstream.streams.traces.exporter import Exporter


class TraceCollector(Collector):
    """How many spans an exporter has sent, and how many it has dropped."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "kinstream_trace_spans_exported",
            "Spans of traces that the collector has accepted.",
            value=self._exporter.exported,
        )
        yield CounterMetricFamily(
            "kinstream_trace_spans_dropped",
            "Spans of traces that were dropped: the queue was full, or the collector did not accept them.",
            value=self._exporter.dropped,
        )
