"""The expected agents, by the settings, for alerts on missing agents and on learned against un-learned metrics.

A learner whose process is gone exports nothing, and its name does not show its algorithm. So the metrics agent exports
the agents of the settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kinstream.streams.settings import Settings

#: Kinds of learners that learn nothing: the baseline of the others.
UNLEARNED: Final = frozenset({"euclidean"})
#: Kinds that change their model once in many constraints, so almost none of them count as utilised.
REFITTED: Final = frozenset({"itml", "lmnn", "mahalanobis", "rca"})


def learns(kind: str, base: object = None) -> str:
    """How a learner of that kind learns: "never", "refits" at intervals, or "online".

    Parameters
    ----------
    base : kind that a learner of kind "fusion" is made of.
    """
    if kind == "fusion" and isinstance(base, str):
        kind = base
    return "never" if kind in UNLEARNED else "refits" if kind in REFITTED else "online"


class Roster(Collector):
    """A series for each builder, each learner and each served space of the settings, running or not."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        builders = GaugeMetricFamily(
            "kinstream_builder_info",
            "1 for each builder of the settings, running or not.",
            labels=("agent", "builder", "kind"),
        )
        for name, builder in self._settings.builders.items():
            builders.add_metric([f"builder-{name}", name, builder.kind], 1)
        yield builders
        learners = GaugeMetricFamily(
            "kinstream_learner_info",
            "1 for each learner of the settings, running or not. learns: online, refits (at intervals), never (the "
            "baseline of the others).",
            labels=("agent", "learner", "kind", "learns"),
        )
        for name, learner in self._settings.learners.items():
            how = learns(learner.kind, learner.arguments().get("base"))
            learners.add_metric([f"learner-{name}", name, learner.kind, how], 1)
        yield learners
        spaces = GaugeMetricFamily(
            "kinstream_serve_space_info",
            "1 for each space of [serve.spaces] of the settings, whether the service runs or not.",
            labels=("space", "learner", "backend"),
        )
        for name, space in self._settings.serve.spaces.items():
            spaces.add_metric([name, space.learner or "", space.backend], 1)
        yield spaces
