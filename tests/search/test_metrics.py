"""What the page of the service says of models that are behind and of update records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kinstream.search.models.loader import Unloadable
from kinstream.search.models.model import Model
from kinstream.search.models.staleness import Failure
from kinstream.search.service.metrics import ServiceMetrics
from kinstream.streams.records.values import ModelVersion
from tests.search.index_service import SHOP, Agent, items, linear, running

MODEL = {"space": "shop", "learner": "opml"}


def shown(agent: Agent, name: str, **labels: str) -> float | None:
    return ServiceMetrics(agent.service).registry.get_sample_value(f"kinstream_serve_{name}", labels)


def test_a_model_that_cannot_be_loaded_leaves_the_space_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(**SHOP) as agent:
        agent.events.append(items("shop", ["a", "b"], np.eye(2)))
        agent.announced.announce("shop", linear(2, 1), 1)
        agent.settle()
        assert (shown(agent, "model_behind", **MODEL), shown(agent, "model_step", **MODEL)) == (0, 1)
        load: Callable[..., Model] = agent.announced.load
        broken = True

        def fails(version: ModelVersion, serving: Model | None = None) -> Model:
            if broken:
                raise Unloadable(Failure.UNREACHABLE, "the store is away")
            return load(version, serving)

        monkeypatch.setattr(agent.announced, "load", fails)
        agent.announced.announce("shop", linear(2, 2), 2)
        agent.wait(
            lambda: bool(shown(agent, "model_failures_total", **MODEL, reason="unreachable")), "it was tried"
        )
        assert shown(agent, "model_behind", **MODEL) == 1
        assert (shown(agent, "model_step", **MODEL), shown(agent, "ready")) == (1, 1)
        broken = False
        agent.wait(lambda: shown(agent, "model_behind", **MODEL) == 0, "it is behind no more")
        assert shown(agent, "model_step", **MODEL) == 2


def test_models_that_come_while_another_is_taken_over_are_not_older_than_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running(**SHOP) as agent:
        agent.events.append(items("shop", ["a", "b"], np.eye(2)))
        agent.settle()
        served = agent.space("shop")
        refresh = served.searcher.refresh
        since: list[float | None] = []
        step = 1

        def slow(*arguments: Any) -> Any:
            # The next one is there before this one serves: the space is always behind, and not for ever longer.
            nonlocal step
            found = refresh(*arguments)
            since.append(served.rebuilt.behind_since)
            if step < 6:
                agent.announced.announce("shop", linear(2, step + 1), step + 1)
                step += 1
                agent.wait(lambda: served.searcher.behind, "the next is known")
            return found

        monkeypatch.setattr(served.searcher, "refresh", slow)
        agent.announced.announce("shop", linear(2, step), step)
        agent.wait(lambda: step == 6, "six came")
        agent.settle()
    seen = [one for one in since if one is not None]
    assert len(seen) >= 6 and len(set(seen)) >= 6


def test_update_records_are_counted_and_their_trouble_is_shown() -> None:
    with running(**SHOP) as agent:
        assert shown(agent, "updates_trouble") == 0
        agent.indexes.updates.read, agent.indexes.updates.unreadable = 7, 2
        agent.indexes.updates.trouble = "kinstream.updates: no right to read"
        assert shown(agent, "update_records_total", fate="read") == 7
        assert shown(agent, "update_records_total", fate="unreadable") == 2
        assert shown(agent, "updates_trouble") == 1
