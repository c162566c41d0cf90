"""The series of exported traces, of any process that exports them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from kinstream.streams.traces.exporter import Exporter


class TraceCollector(Collector):
    """How many spans the exporters of a process have sent, and how many they have dropped."""

    def __init__(self, *exporters: Exporter) -> None:
        self._exporters = exporters

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "kinstream_trace_spans_exported",
            "Spans of traces that the collector has accepted.",
            value=sum(one.exported for one in self._exporters),
        )
        yield CounterMetricFamily(
            "kinstream_trace_spans_dropped",
            "Spans of traces that were dropped: the queue was full, or the collector did not accept them.",
            value=sum(one.dropped for one in self._exporters),
        )
