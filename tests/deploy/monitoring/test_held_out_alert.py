"""The alert about a model that is worse than none, fed with what agents show: README's settings of old, and today's."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from kinstream.monitoring.agent import metrics_spec
from tests.deploy.monitoring.world import END, World, healthy
from tests.learners.test_held_out_agent import HEALTHY, OLD, Run, config, embeddings
from tests.support.pipeline import Agent

SERIES: Final = (
    "kinstream_held_out_events_total",
    "kinstream_held_out_difference",
    "kinstream_held_out_difference_low",
    "kinstream_held_out_difference_high",
)
DIGITS: Final[dict[str, Any]] = {"space": "digits", "learner": "opml"}


def scraped(root: Path, learner: dict[str, Any]) -> World:
    """A healthy system in which one learner shows what a stream of embeddings makes of it, a block a minute."""
    run = Run(config(**learner), root, *embeddings())
    spec = metrics_spec(run.settings)
    metrics = Agent(spec, run.settings, run.log, root)
    minutes: list[dict[str, float]] = []
    while len(minutes) < END:
        if run.agent.step(0, 1):
            run.agent.runners[0].checkpoint()
            metrics.run()
        families = [family for collector in spec.collectors for family in collector.collect()]
        minutes.append({s.name: s.value for family in families for s in family.samples if s.name in SERIES})
    assert not run.agent.step(0, 1)
    world = healthy()
    for name in SERIES:
        world.set(name, lambda minute, name=name: minutes[minute].get(name), since=0, **DIGITS)  # type: ignore[misc]
    return world


@pytest.mark.parametrize(
    ("learner", "fires"),
    [
        pytest.param(OLD, [("KinstreamWorseThanUnlearned", "critical", DIGITS)], id="of-old"),
        pytest.param(HEALTHY, [], id="healthy"),
    ],
)
def test_the_alert_fires_on_settings_that_destroy_embeddings_and_is_silent_on_healthy_ones(
    learner: dict[str, Any], fires: list[Any], tmp_path: Path
) -> None:
    scraped(tmp_path, learner).check(tmp_path, {5: [], END - 1: fires})
