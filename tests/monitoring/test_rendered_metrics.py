"""A page of a thousand spaces is rendered once for all who read it in a moment."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kinstream.monitoring.exposition import OwnedTallies, TallyCollector
from kinstream.monitoring.tallies import Tallies
from kinstream.streams.worker.page.metrics_text import CHEAP_SECONDS, LONGEST_SECONDS, SHARE, RenderedMetrics
from tests.monitoring.outcomes import outcome

TEXT = "text/plain"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


class Counting(Collector):
    """Counts its readings; each takes that much of a processor."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.readings = 0
        self.seconds = seconds
        self.now = self.spent = 0.0

    def collect(self) -> Iterator[Metric]:
        self.readings += 1
        self.spent += self.seconds
        yield GaugeMetricFamily("readings", "How often.", value=self.readings)

    def metrics(self) -> RenderedMetrics:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        self.readings = 0
        return RenderedMetrics(registry, clock=lambda: self.now, processor=lambda: self.spent)


def test_a_large_page_takes_a_twentieth_of_a_processor_however_many_read_it() -> None:
    one = Counting(seconds=0.4)
    metrics = one.metrics()
    one.spent = 0.0
    for _ in range(1_000):
        metrics.page(TEXT)
        one.now += 0.1
    assert one.spent <= SHARE * one.now * 1.1
    # It is up to date again after that time.
    before = one.readings
    one.now += LONGEST_SECONDS
    assert f"readings {before + 1}.0".encode() in metrics.page(TEXT)[1]


def test_a_small_page_is_always_of_now() -> None:
    one = Counting(seconds=CHEAP_SECONDS / 2)
    metrics = one.metrics()
    for number in range(1, 4):
        assert f"readings {number}.0".encode() in metrics.page(TEXT)[1]


def test_what_a_worker_has_handed_over_is_gone_at_once() -> None:
    one = Counting(seconds=0.4)
    metrics = one.metrics()
    assert metrics.page(TEXT) == metrics.page(TEXT)
    metrics.forget()
    assert b"readings 2.0" in metrics.page(TEXT)[1]


def test_each_format_has_its_own_text_and_readers_of_one_moment_share_it() -> None:
    one = Counting(seconds=10.0)
    metrics = one.metrics()
    with ThreadPoolExecutor(8) as pool:
        pages = list(pool.map(metrics.page, [TEXT, OPEN_METRICS] * 20))
    assert one.readings == 2
    assert {content_type.partition(";")[0] for content_type, _ in pages} == {
        "text/plain",
        "application/openmetrics-text",
    }
    assert len({text for _, text in pages}) == 2


def test_no_series_of_a_thousand_spaces_is_left_out() -> None:
    owned, tallies = OwnedTallies(), Tallies(window=50, top_spaces=1_000)
    owned.assign(0, tallies, live=True)
    for number in range(1_000):
        owned.apply(0, outcome(f"space-{number}", seen=5, mistakes=1, utilised=2))
    registry = CollectorRegistry(auto_describe=False)
    registry.register(TallyCollector(owned))
    metrics = RenderedMetrics(registry)
    lines = metrics.page(TEXT)[1].decode().splitlines()
    for name in ("seen", "mistakes", "rejected", "degenerate", "ignored", "clipped"):
        found = [line for line in lines if line.startswith(f"kinstream_constraints_{name}_total{{")]
        assert len(found) == 1_000
