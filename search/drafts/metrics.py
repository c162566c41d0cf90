"""What services with a gate count and show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily

from kinstream.search.drafts.serving_choice import Decided


def drafted_lists(service: str, registry: CollectorRegistry, spaces: Iterable[str]) -> Counter:
    """The counter of drafted lists of a service, which begins at 0 for these spaces."""
    why = "one for each of the queries that the gate's share has chosen"
    return _lists(service, registry, spaces, "drafted", why)


def randomised_lists(service: str, registry: CollectorRegistry, spaces: Iterable[str]) -> Counter:
    """The counter of randomised lists of a service, which begins at 0 for these spaces."""
    why = "one for each of the queries that [randomise.SPACE] has chosen"
    return _lists(service, registry, spaces, "randomised", why)


def _lists(service: str, registry: CollectorRegistry, spaces: Iterable[str], kind: str, why: str) -> Counter:
    made = Counter(
        f"kinstream_{service}_{kind}_lists",
        f"Answers with a {kind} list: {why}.",
        ("space",),
        registry=registry,
    )
    for space in spaces:
        made.labels(space)
    return made


def decided_families(service: str) -> list[GaugeMetricFamily]:
    """The gauges of a service (search, gateway), by space and learner; without samples."""
    return [
        GaugeMetricFamily(f"kinstream_{service}_decided_{name}", text, labels=("space", "learner"))
        for name, text in (
            ("generation", "Generation of the model that serves by decision of the gate; 0: un-adapted."),
            ("epoch", "Epoch of the model that serves by decision of the gate; -1: un-adapted."),
            ("step", "Step of the model that serves by decision of the gate."),
            (
                "missing",
                "1 while the model that serves by decision of the gate is not available, so that queries are asked as "
                "they are.",
            ),
            (
                "kept",
                "1 while the store has a copy of the model that serves by decision of the gate, or none is needed. "
                "Without a copy, a service that starts again does not find the model.",
            ),
        )
    ]


def decided_sample(
    families: Sequence[GaugeMetricFamily], labels: Sequence[str], decided: Decided, missing: bool
) -> None:
    """Add the values of one space to the gauges of `decided_families`."""
    for family, value in zip(families, (*decided.version, missing, decided.kept), strict=True):
        family.add_metric(labels, int(value))
