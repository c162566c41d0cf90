"""The Prometheus metrics of spaces with an index of ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kinstream.streams.errors import Reason

if TYPE_CHECKING:
    from kinstream.search.backends.indexes import Indexes

#: Events of an index: filled, swapped in, dropped because the space was reset, failed, moved to a model in place.
_INDEX_FATES: Final = ("builds", "swapped", "abandoned", "failed", "adopted", "stepped")
_SAMPLE_FATES: Final = ("measured", "outdated", "dropped")


class IndexCollector(Collector):
    """The series of spaces with an index of ours, and of the topics that they are read from."""

    def __init__(self, indexes: Indexes) -> None:
        self._indexes = indexes

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        yield from self._catalogues()
        yield from self._builds()
        yield from self._recall()
        yield from self._updates()
        yield from self._records()

    def _catalogues(self) -> Iterator[Metric]:
        labels = ("space", "learner")
        named = (
            ("catalogue_items", "Items that can be found."),
            ("catalogue_offset", "Last offset of kinstream.events that changed the catalogue; -1 for none."),
            ("memory_bytes", "Memory of raw vectors and index, without names."),
            (
                "model_stale_seconds",
                "Time since a newer model was loaded that does not serve yet; 0 if none.",
            ),
        )
        families = [GaugeMetricFamily(f"kinstream_serve_{name}", text, labels=labels) for name, text in named]
        for space in self._indexes.spaces.values():
            standing = space.searcher.glance()
            values = standing.items, standing.offset, space.nbytes, space.stale_seconds()
            for family, value in zip(families, values, strict=True):
                family.add_metric([space.name, space.learner], value)
        yield from families

    def _builds(self) -> Iterator[Metric]:
        events = CounterMetricFamily(
            "kinstream_serve_index_events",
            "Index events: builds, swapped, abandoned (the space was reset), failed; adopted: models applied to an "
            "index in place; stepped: batches of update records applied to it.",
            labels=("space", "event"),
        )
        seconds = GaugeMetricFamily(
            "kinstream_serve_index_build_seconds", "Duration of the last build.", labels=("space",)
        )
        for space in self._indexes.spaces.values():
            for fate in _INDEX_FATES:
                events.add_metric([space.name, fate], space.searcher.counts[fate])
            seconds.add_metric([space.name], space.searcher.build_seconds)
        yield from (events, seconds)

    def _recall(self) -> Iterator[Metric]:
        ratio = GaugeMetricFamily(
            "kinstream_serve_recall_ratio",
            "Share of the true nearest items that were answered, over the newest 100 checked queries.",
            labels=("space",),
        )
        samples = CounterMetricFamily(
            "kinstream_serve_recall_samples",
            "Queries selected for a check against the exact scan: measured, outdated, dropped (the checks could not "
            "keep up).",
            labels=("space", "fate"),
        )
        sampler = self._indexes.recall
        for space in self._indexes.spaces.values():
            found = sampler.ratio(space.name)
            if found is not None:
                ratio.add_metric([space.name], found)
            for fate in _SAMPLE_FATES:
                samples.add_metric([space.name, fate], sampler.fates[space.name, fate])
        yield from (ratio, samples)

    def _updates(self) -> Iterator[Metric]:
        updates = CounterMetricFamily(
            "kinstream_serve_update_records",
            "Records of kinstream.updates, of spaces with updates: read, unreadable, left_out (read but not used).",
            labels=("fate",),
        )
        updates.add_metric(["read"], self._indexes.updates.read)
        updates.add_metric(["unreadable"], self._indexes.updates.unreadable)
        stepping = [one.stepping for one in self._indexes.spaces.values() if one.stepping is not None]
        updates.add_metric(["left_out"], sum(one.left_out for one in stepping))
        trouble = GaugeMetricFamily(
            "kinstream_serve_updates_trouble",
            "1 while kinstream.updates cannot be read; spaces with updates then follow announced models.",
        )
        trouble.add_metric([], int(self._indexes.updates.trouble is not None))
        yield from (updates, trouble)

    def _records(self) -> Iterator[Metric]:
        records = CounterMetricFamily(
            "kinstream_serve_records",
            "Records of kinstream.events: applied, duplicates, not_followed, passed_over (other spaces), failed "
            "(skipped because of a fault; the log has its traceback).",
            labels=("partition", "fate"),
        )
        refused = CounterMetricFamily(
            "kinstream_serve_records_refused",
            "Records, or parts of them, that the catalogue could not use.",
            labels=("partition", "reason"),
        )
        lost = CounterMetricFamily(
            "kinstream_serve_records_lost",
            "Offsets that were deleted before they were read.",
            labels=("partition",),
        )
        left = GaugeMetricFamily(
            "kinstream_serve_catch_up_records",
            "Records left up to the end that the log had at the start.",
            labels=("partition",),
        )
        feed = self._indexes.events
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
