"""The models that a service with a gate keeps, and what it knows of the models that have lost."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from threading import Condition

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinstream.search.gate.core import Options, SpaceGate
from kinstream.search.models.decisions import Decisions
from kinstream.search.models.feed import ModelFeed
from kinstream.search.models.held import RECENT, Held
from kinstream.search.models.loader import Unloadable
from kinstream.search.models.model import Model, Name
from kinstream.search.models.staleness import Failure
from kinstream.search.models.subscription import Subscription
from kinstream.streams.operations.models import kept_at
from kinstream.streams.records.gate import UNADAPTED, GateOrder, Order, Verdict, Version
from kinstream.streams.records.values import ModelVersion
from tests.search.fakes import Clock
from tests.search.gates import KEYS, back, drafted
from tests.search.gates import decision as decision_of
from tests.search.world import World

decision = partial(decision_of, space="a")


@given(st.integers(0, 10_000))
def test_the_floor_is_the_one_of_the_gate(seed: int) -> None:
    draw = random.Random(seed)
    options = Options(error=0.3, every_minutes=0.0, min_sessions=1, max_sessions=12, per_user=0, per_item=0)
    gate, known, rank = SpaceGate("docs", KEYS, options), Decisions(), 0
    for number in range(80):
        model = Version(1, 0, draw.randint(1, 6))
        if draw.random() < 0.08:
            order = draw.choice([Order.PROMOTE, Order.PIN, Order.ROLLBACK, Order.RESUME])
            try:
                made = gate.order(GateOrder("docs", order, 0, model), 0)
            except Exception as error:
                assert type(error).__name__ == "BadRecord"
                continue
        else:
            made = gate.take(back(drafted(number, model, gate.serving), draw.randint(0, 1)), 0)
        for one in made:
            rank += 1
            more = {"verdict": one.verdict, "before": one.before, "pinned": one.pinned}
            known.take(decision(rank, one.serving, one.challenger, **more))
        if rank:
            found, floor = known.of("a")
            assert found is not None and found.serving == gate.serving
            assert floor == gate._floor


def test_an_older_decision_changes_nothing_and_a_new_epoch_has_no_floor() -> None:
    known = Decisions()
    model = Version(1, 0, 3)
    assert known.of("a") == (None, UNADAPTED)
    known.take(decision(1, UNADAPTED, model))
    known.take(decision(2, UNADAPTED, verdict=Verdict.RETIRE))
    known.take(decision(1, UNADAPTED, model))
    found, floor = known.of("a")
    assert found is not None and (found.number, floor) == (2, model)
    known.take(decision(1, UNADAPTED, epoch=7, verdict=Verdict.BEGIN))
    assert known.of("a")[1] == UNADAPTED


def version(step: int) -> ModelVersion:
    return ModelVersion("a", "opml", "opml/1", 1, 0, step, "t", 0, step, "place", f"{step:064x}", 0)


class Files:
    """Models that a test can take away; a learner stands for itself."""

    def __init__(self) -> None:
        self.gone: dict[int, Failure] = {}
        self.loaded: list[int] = []

    def load(self, version: ModelVersion, present: Model) -> Model:
        if version.step in self.gone:
            raise Unloadable(self.gone[version.step], "gone")
        self.loaded.append(version.step)
        return Model(version, object())  # type: ignore[arg-type]

    def find(self, known: ModelVersion, name: Name) -> ModelVersion | None:
        return None


class Nobody:
    fault = None

    def check(self) -> None: ...


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def held(files: Files, clock: Clock) -> Held:
    changed = Condition()
    subscription = Subscription(Nobody(), "a", "opml", changed)  # type: ignore[arg-type]
    return Held(subscription, files, files.find, changed, clock)


def serve(held: Held, step: int) -> None:
    held.subscription.swap(Model(version(step), object()))  # type: ignore[arg-type]


def test_the_newest_models_and_the_decided_ones_are_kept_and_no_others(held: Held, files: Files) -> None:
    for step in range(1, 31):
        serve(held, step)
        held.advance(decision(1, Version(1, 0, 2), Version(1, 0, 4)) if step > 4 else None, True)
    kept = {name.step for name in held._models}
    assert kept == {2, 4, *range(31 - RECENT, 31)}
    assert files.loaded == []
    # Rolling back finds the model that served before.
    held.advance(decision(2, Version(1, 0, 4), before=Version(1, 0, 2)), True)
    assert held.get(Version(1, 0, 2)) is not None
    held.advance(decision(3, Version(1, 0, 4), before=Version(1, 0, 4)), True)
    assert held.get(Version(1, 0, 2)) is None


def test_a_decided_model_is_loaded_from_its_announcement(held: Held, files: Files) -> None:
    for step in (3, 9):
        held.announced(version(step))
    held.advance(decision(1, Version(1, 0, 3)), False)
    assert not held.tried and held.get(Version(1, 0, 3)) is None
    held.advance(decision(1, Version(1, 0, 3)), True)
    assert held.tried and held.get(Version(1, 0, 3)) is not None
    assert files.loaded == [3]


def test_a_file_that_is_gone_is_tried_again_with_pauses_and_counted(
    held: Held, files: Files, clock: Clock
) -> None:
    held.announced(version(3))
    files.gone[3] = Failure.MISSING
    attempts = 0
    for _ in range(400):
        held.advance(decision(1, Version(1, 0, 3)), True)
        attempts = held.subscription.failures[Failure.MISSING]
        clock.now += 0.25
    # 0.5, 1, 2, 4, 8, 16, 30, ... seconds apart
    assert 7 <= attempts <= 9
    assert held.tried
    del files.gone[3]
    clock.now += 31.0
    held.advance(decision(1, Version(1, 0, 3)), True)
    assert held.get(Version(1, 0, 3)) is not None


def test_only_an_announcement_of_that_file_makes_the_next_attempt_earlier(held: Held, files: Files) -> None:
    files.gone[3] = Failure.DAMAGED
    held.announced(version(3))
    held.advance(decision(1, Version(1, 0, 3)), True)
    held.announced(version(4))
    held.advance(decision(1, Version(1, 0, 3)), True)
    assert held.subscription.failures[Failure.DAMAGED] == 1
    del files.gone[3]
    held.announced(later(3))
    held.advance(decision(1, Version(1, 0, 3)), True)
    assert held.get(Version(1, 0, 3)) is not None


def later(step: int) -> ModelVersion:
    from dataclasses import replace

    return replace(version(step), offset=step + 100)


def test_an_earlier_model_is_found_in_the_checkpoints_that_are_kept(world: World) -> None:
    for number in range(3):
        world.learn("a", load=str(number))
    versions = world.announced()
    assert len({one.step for one in versions}) >= 3
    newest = versions[-1]
    for one in versions:
        found = kept_at(world.settings, newest, one.generation, one.epoch, one.step)
        if Path(one.location).exists():
            assert found is not None and found.sha256 == one.sha256
        else:
            assert found is None
    assert kept_at(world.settings, newest, 1, newest.epoch, newest.step + 1) is None
    assert kept_at(world.settings, newest, 9, newest.epoch, newest.step) is None


def test_after_a_restart_the_decided_model_comes_from_its_checkpoint(world: World) -> None:
    """Compaction leaves the newest announcement only."""
    for number in range(2):
        world.learn("a", load=str(number))
    versions = world.announced()
    first, newest = versions[-2], versions[-1]
    assert first.step < newest.step
    world.source.decisions.take(decision(1, Version(first.generation, first.epoch, first.step)))
    world.source.announce(newest)
    world.source.caught_up = True
    feed: ModelFeed = world.feed()
    held = feed.hold("a", "opml")
    for _ in range(50):
        feed.step()
        if held.tried:
            break
    model = held.get(Version(first.generation, first.epoch, first.step))
    assert model is not None and model.version is not None and model.version.sha256 == first.sha256
    assert held.subscription.serving.name == (newest.generation, newest.epoch, newest.step)
    row = np.random.default_rng(1).normal(size=(1, model.dimension or 1))
    assert not np.array_equal(model.transform(row), held.subscription.serving.transform(row))
