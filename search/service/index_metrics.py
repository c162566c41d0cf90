"""The Prometheus metrics of the query agent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kinstream.search.backends.index import SearchService
from kinstream.search.drafts.metrics import (
    decided_families,
    decided_sample,
    drafted_lists,
    randomised_lists,
)
from kinstream.search.models.staleness import Failure
from kinstream.search.service.metrics import ServiceMetrics
from kinstream.search.spaces.searcher import Answer
from kinstream.streams.errors import Reason

_EXAMINED: Final = (10.0, 100.0, 300.0, 1_000.0, 3_000.0, 10_000.0, 30_000.0, 100_000.0, 300_000.0, 1e6)
#: Events of an index: filled, swapped in, dropped because the space was reset, failed, moved to a model in place.
_INDEX_FATES: Final = ("builds", "swapped", "abandoned", "failed", "adopted", "stepped")
_SAMPLE_FATES: Final = ("measured", "outdated", "dropped")


class SearchMetrics(ServiceMetrics):
    """Counts requests, and creates the registry of `/metrics`."""

    def __init__(self, service: SearchService) -> None:
        super().__init__("search", _SearchCollector(service))
        self.examined = Histogram(
            "kinstream_search_examined_items",
            "Items whose distance was computed for a query.",
            ("space",),
            buckets=_EXAMINED,
            registry=self.registry,
        )
        gated = [name for name, served in service.spaces.items() if served.drafting is not None]
        self.drafted = drafted_lists("search", self.registry, gated)
        randomised = [name for name, served in service.spaces.items() if served.randomising is not None]
        self.randomised = randomised_lists("search", self.registry, randomised)
        for space in service.spaces:
            self.queries.labels(space)
            self.examined.labels(space)

    def answered(self, space: str, answer: Answer) -> None:
        """Count the queries of an answer."""
        self.queries.labels(space).inc(len(answer.names))
        histogram = self.examined.labels(space)
        for examined in answer.examined.tolist():
            histogram.observe(examined)


class _SearchCollector(Collector):
    def __init__(self, service: SearchService) -> None:
        self._service = service

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        yield from self._spaces()
        yield from self._indexes()
        yield from self._recall()
        yield from self._feeds()
        yield from self._records()

    def _spaces(self) -> Iterator[Metric]:
        labels = ("space", "learner")
        families = [
            GaugeMetricFamily(f"kinstream_search_{name}", text, labels=labels)
            for name, text in (
                ("catalogue_items", "Items that can be found."),
                (
                    "catalogue_offset",
                    "Last offset of kinstream.events that changed the catalogue; -1 for none.",
                ),
                ("memory_bytes", "Memory of raw vectors and index, without names."),
                ("model_step", "Step of the serving model: constraints that it had accepted in its epoch."),
                ("model_epoch", "Epoch of the serving model; -1 while the un-learned map serves."),
                ("model_generation", "Generation of the serving model; 0 while the un-learned map serves."),
                (
                    "model_behind",
                    "1 while a newer model than the serving one is announced, or, with a gate, while another model is "
                    "to serve by its decision: it is being loaded, or cannot be loaded.",
                ),
                (
                    "model_stale_seconds",
                    "Time since a newer model was loaded that does not serve yet; 0 if none.",
                ),
            )
        ]
        age = GaugeMetricFamily(
            "kinstream_search_model_age_seconds",
            "Time since the newest loaded model was written. Absent before the first.",
            labels=labels,
        )
        for served in self._service.spaces.values():
            # Before the serving model: a page with "not behind" then shows the newest model.
            behind = served.behind
            standing = served.searcher.glance()
            values = (
                standing.items,
                standing.offset,
                served.nbytes,
                standing.model.step,
                standing.model.epoch,
                standing.model.generation,
                int(behind),
                served.stale_seconds(),
            )
            for family, value in zip(families, values, strict=True):
                family.add_metric([served.space, served.learner], value)
            written = served.subscription.staleness().written_seconds
            if written is not None:
                age.add_metric([served.space, served.learner], written)
        yield from (*families, age, *self._gates())

    def _gates(self) -> Iterator[Metric]:
        families = decided_families("search")
        for served in self._service.spaces.values():
            if served.drafting is not None:
                found = served.drafting.deciding.now()
                decided_sample(families, (served.space, served.learner), found, found.missing)
        yield from families

    def _indexes(self) -> Iterator[Metric]:
        events = CounterMetricFamily(
            "kinstream_search_index_events",
            "Index events: builds, swapped, abandoned (the space was reset), failed; adopted: models applied to an "
            "index in place; stepped: batches of update records applied to it.",
            labels=("space", "event"),
        )
        seconds = GaugeMetricFamily(
            "kinstream_search_index_build_seconds", "Duration of the last build.", labels=("space",)
        )
        for served in self._service.spaces.values():
            for fate in _INDEX_FATES:
                events.add_metric([served.space, fate], served.searcher.counts[fate])
            seconds.add_metric([served.space], served.searcher.build_seconds)
        yield from (events, seconds)

    def _recall(self) -> Iterator[Metric]:
        ratio = GaugeMetricFamily(
            "kinstream_search_recall_ratio",
            "Share of the true nearest items that were answered, over the newest 100 checked queries.",
            labels=("space",),
        )
        samples = CounterMetricFamily(
            "kinstream_search_recall_samples",
            "Queries selected for a check against the exact scan: measured, outdated, dropped (the checks could not "
            "keep up).",
            labels=("space", "fate"),
        )
        sampler = self._service.recall
        for served in self._service.spaces.values():
            found = sampler.ratio(served.space)
            if found is not None:
                ratio.add_metric([served.space], found)
            for fate in _SAMPLE_FATES:
                samples.add_metric([served.space, fate], sampler.fates[served.space, fate])
        yield from (ratio, samples)

    def _feeds(self) -> Iterator[Metric]:
        ready = GaugeMetricFamily("kinstream_search_ready", "1 while /readyz answers 200.")
        ready.add_metric([], int(self._service.ready))
        failures = CounterMetricFamily(
            "kinstream_search_model_failures",
            "Models that were not loaded, each attempt counted.",
            labels=("space", "learner", "reason"),
        )
        for served in self._service.spaces.values():
            found = served.subscription.staleness().failures
            for reason in Failure:
                failures.add_metric([served.space, served.learner, reason.value], found.get(reason, 0))
        updates = CounterMetricFamily(
            "kinstream_search_update_records",
            "Records of kinstream.updates, of spaces with updates: read, unreadable, left_out (read but not used).",
            labels=("fate",),
        )
        updates.add_metric(["read"], self._service.updates.read)
        updates.add_metric(["unreadable"], self._service.updates.unreadable)
        stepping = [one.stepping for one in self._service.spaces.values() if one.stepping is not None]
        updates.add_metric(["left_out"], sum(one.left_out for one in stepping))
        trouble = GaugeMetricFamily(
            "kinstream_search_updates_trouble",
            "1 while kinstream.updates cannot be read; spaces with updates then follow announced models.",
        )
        trouble.add_metric([], int(self._service.updates.trouble is not None))
        yield from (ready, failures, updates, trouble)

    def _records(self) -> Iterator[Metric]:
        records = CounterMetricFamily(
            "kinstream_search_records",
            "Records of kinstream.events: applied, duplicates, not_followed, passed_over (other spaces), failed "
            "(skipped because of a fault; the log has its traceback).",
            labels=("partition", "fate"),
        )
        refused = CounterMetricFamily(
            "kinstream_search_records_refused",
            "Records, or parts of them, that the catalogue could not use.",
            labels=("partition", "reason"),
        )
        lost = CounterMetricFamily(
            "kinstream_search_records_lost",
            "Offsets that were deleted before they were read.",
            labels=("partition",),
        )
        left = GaugeMetricFamily(
            "kinstream_search_catch_up_records",
            "Records left up to the end that the log had at the start.",
            labels=("partition",),
        )
        feed = self._service.events
        for number, progress in sorted(feed.progress.items()):
            reader, partition = feed.readers[number], str(number)
            more = {"passed_over": reader.passed_over, "failed": reader.failed}
            for fate, count in (reader.counts() | more).items():
                records.add_metric([partition, fate], count)
            found = reader.refused()
            for reason in Reason:
                refused.add_metric([partition, reason.value], found.get(reason.value, 0))
            lost.add_metric([partition], progress.lost)
            left.add_metric(
                [partition], 0 if progress.reached else max(0, progress.stop - reader.next_offset)
            )
        yield from (records, refused, lost, left)
