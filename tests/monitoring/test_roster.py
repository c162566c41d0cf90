"""The settings' builders and learners are on the metrics page, whether they run or not."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from kinstream.learners import registry
from kinstream.learners.baselines.batch_base import Refitted
from kinstream.learners.baselines.euclidean import Euclidean
from kinstream.monitoring.agent import metrics_spec
from kinstream.monitoring.roster import Roster, learns
from kinstream.streams.settings import (
    BuilderSettings,
    LearnerSettings,
    ServeSettings,
    ServeSpaceSettings,
    Settings,
)


def settings(**learners: dict[str, object]) -> Settings:
    return Settings(
        builders={"pairs": BuilderSettings(kind="one-pass")},
        learners={
            name: LearnerSettings.model_validate({"from": ["pairs"], **section})
            for name, section in learners.items()
        },
    )


def shown(given: Settings) -> CollectorRegistry:
    made = CollectorRegistry()
    made.register(Roster(given))
    return made


def test_every_agent_of_the_settings_is_shown() -> None:
    page = shown(settings(fast={"kind": "opml"}, floor={"kind": "euclidean"}))
    labels = {"agent": "builder-pairs", "builder": "pairs", "kind": "one-pass"}
    assert page.get_sample_value("kinstream_builder_info", labels) == 1
    labels = {"agent": "learner-fast", "learner": "fast", "kind": "opml", "learns": "online"}
    assert page.get_sample_value("kinstream_learner_info", labels) == 1
    labels = {"agent": "learner-floor", "learner": "floor", "kind": "euclidean", "learns": "never"}
    assert page.get_sample_value("kinstream_learner_info", labels) == 1


def test_every_space_that_is_to_be_served_is_shown() -> None:
    given = Settings(serve=ServeSettings(spaces={"shop": ServeSpaceSettings(learner="fast", index="lazy")}))
    labels = {"space": "shop", "learner": "fast", "backend": "index"}
    assert shown(given).get_sample_value("kinstream_serve_space_info", labels) == 1


def test_the_metrics_agent_shows_them() -> None:
    assert any(isinstance(one, Roster) for one in metrics_spec(settings(fast={"kind": "opml"})).collectors)


@pytest.mark.parametrize("kind", registry.names())
def test_how_a_kind_learns_is_what_its_class_does(kind: str) -> None:
    learner = type(registry.create(kind))
    wanted = (
        "refits" if issubclass(learner, Refitted) else "never" if issubclass(learner, Euclidean) else "online"
    )
    assert learns(kind) == wanted


@pytest.mark.parametrize(
    ("base", "wanted"), [("euclidean", "never"), ("rca", "refits"), ("opml", "online"), (None, "online")]
)
def test_a_fusion_learns_as_its_base(base: str | None, wanted: str) -> None:
    assert learns("fusion", base) == wanted
