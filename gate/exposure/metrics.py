"""The series about exposure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kinstream.gate.exposure.counts import POSITIONS, Exposed

_SPACE: Final = ("space",)


def families(spaces: Mapping[str, Exposed]) -> Iterator[Metric]:
    """The series of these spaces."""
    lists = CounterMetricFamily(
        "kinstream_exposure_lists",
        "Lists that came back, each counted once, by kind: ranked, drafted, randomised; unreadable or changed, which "
        "were drawn and do not show with which probabilities; or invalid.",
        labels=("space", "kind"),
    )
    items = CounterMetricFamily(
        "kinstream_exposure_item_impressions",
        "Impressions of the followed items by the item: new, known, or unlisted, which is not in the catalogue.",
        labels=("space", "item"),
    )
    impressions = CounterMetricFamily(
        "kinstream_exposure_impressions", "Items shown, by position as served.", labels=("space", "position")
    )
    clicks = CounterMetricFamily(
        "kinstream_exposure_clicks",
        "Items clicked, once for each list, by position as served.",
        labels=("space", "position"),
    )
    catalogue = GaugeMetricFamily(
        "kinstream_exposure_catalogue_items", "Items of the catalogue that the gate has read.", labels=_SPACE
    )
    coverage = GaugeMetricFamily(
        "kinstream_exposure_coverage_ratio",
        "Share of the catalogue that was shown in the last 12 to 24 hours. Absent without a catalogue.",
        labels=_SPACE,
    )
    concentration = GaugeMetricFamily(
        "kinstream_exposure_gini",
        "Gini coefficient of the impressions of all items in the last 12 to 24 hours: 0 if all have as many, near 1 if "
        "a few have all. Absent while nothing was shown.",
        labels=_SPACE,
    )
    followed = GaugeMetricFamily(
        "kinstream_exposure_followed_ratio",
        "Share of the items that the figures about items are from.",
        labels=_SPACE,
    )
    for space, one in spaces.items():
        for kind, count in one.lists.items():
            lists.add_metric([space, kind], count)
        for kind, count in one.items.items():
            items.add_metric([space, kind], count)
        for position, (shown, clicked) in enumerate(zip(one.impressions, one.clicks, strict=True)):
            label = str(position) if position < POSITIONS else f"{POSITIONS}+"
            impressions.add_metric([space, label], shown)
            clicks.add_metric([space, label], clicked)
        catalogue.add_metric([space], one.catalogue)
        followed.add_metric([space], one.followed)
        for family, value in ((coverage, one.coverage), (concentration, one.gini)):
            if value is not None:
                family.add_metric([space], value)
    yield from (lists, items, impressions, clicks, catalogue, coverage, concentration, followed)
