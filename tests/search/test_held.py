"""The models that a service with a gate keeps, and what it knows of the models that have lost."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Collection
from functools import partial
from pathlib import Path
from threading import Condition

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinstream.gate.core import SpaceGate
from kinstream.gate.values import Options
from kinstream.search.models.decisions import Decisions, may_challenge
from kinstream.search.models.feed import ModelFeed
from kinstream.search.models.loader import Unloadable
from kinstream.search.models.model import Model, Name
from kinstream.search.models.model_copies import KEEP_SECONDS, KeptModels
from kinstream.search.models.models_of_gate import RECENT, Held
from kinstream.search.models.staleness import Failure
from kinstream.search.models.subscription import Subscription
from kinstream.streams.checkpoints.files import Damaged, Missing
from kinstream.streams.errors import CheckpointError
from kinstream.streams.operations.models import data_of, kept_at
from kinstream.streams.records.gate import UNADAPTED, GateOrder, Order, Verdict, Version
from kinstream.streams.records.values import ModelVersion
from tests.gate.gates import KEYS, back, drafted
from tests.gate.gates import decision as decision_of
from tests.search.fakes import Clock
from tests.search.learned_world import World

decision = partial(decision_of, space="a")


@given(st.integers(0, 10_000))
def test_the_floor_is_the_one_of_the_gate(seed: int) -> None:
    draw = random.Random(seed)
    many = {"per_user": 0, "per_item": 0, "burst_minutes": 0, "bought_votes": 0}
    options = Options(error=0.3, every_minutes=0, min_learned=0, min_sessions=1, max_sessions=12, **many)
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
            restarted = Decisions()
            restarted.take(decision(rank, one.serving, one.challenger, floor=one.floor, **more))
        if rank:
            found, floor = known.of("a")
            assert found is not None and found.serving == gate.serving
            assert floor == gate._floor == restarted.of("a")[1]


def test_after_a_restart_the_newest_decision_alone_says_which_models_have_lost() -> None:
    lost, newer = Version(1, 0, 9), Version(1, 0, 12)
    for known in (decision(7, UNADAPTED, floor=lost), decision(7, UNADAPTED, newer, floor=lost)):
        read = Decisions()
        read.take(known)
        newest, floor = read.of("a")
        assert [may_challenge(one, newest, floor) for one in (Version(1, 0, 3), lost, newer)] == [
            False,
            False,
            True,
        ]
    # A record of an earlier version does not say it.
    read = Decisions()
    read.take(decision(7, UNADAPTED))
    assert read.of("a")[1] == UNADAPTED


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
        self.copied: list[int] = []
        self.attempts = 0

    def load(self, version: ModelVersion, present: Model) -> Model:
        if version.step in self.gone:
            raise Unloadable(self.gone[version.step], "gone")
        self.loaded.append(version.step)
        return Model(version, object())  # type: ignore[arg-type]

    def find(self, known: ModelVersion, name: Name) -> ModelVersion | None:
        return None

    def keep(self, version: ModelVersion, serves: bool = False) -> None:
        self.attempts += 1
        if version.step in self.gone:
            raise {Failure.MISSING: Missing}.get(self.gone[version.step], CheckpointError)("gone")
        self.copied.append(version.step)

    def prune(self, needed: Collection[Name]) -> None: ...


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
    return Held(subscription, files, files.find, files, changed, clock)


def serve(held: Held, step: int) -> None:
    held.subscription.swap(Model(version(step), object()))  # type: ignore[arg-type]


def test_a_candidate_stays_for_some_minutes_and_decided_models_are_held(
    held: Held, files: Files, clock: Clock
) -> None:
    candidates = []
    for step in range(1, 61):
        serve(held, step)
        held.advance(None, UNADAPTED, True)
        assert held.candidate is not None
        candidates.append(held.candidate.name.step)
        clock.now += 10.0
    assert candidates == [1] * 30 + [31] * 30
    assert files.copied == [1, 31] and held.copied(Version(1, 0, 31))
    held.advance(decision(1, UNADAPTED, Version(1, 0, 1)), UNADAPTED, True)
    for step in range(61, 61 + 30 * (RECENT + 1)):
        serve(held, step)
        held.advance(decision(1, UNADAPTED, Version(1, 0, 1)), UNADAPTED, True)
        clock.now += 10.0
    assert {name.step for name in held._models} == {1, *(step for step in files.copied[-RECENT:])}
    assert files.loaded == []
    # Rolling back finds the model that served before.
    held.advance(decision(2, UNADAPTED, before=Version(1, 0, 1)), Version(1, 0, 1), True)
    assert held.get(Version(1, 0, 1)) is not None
    held.advance(decision(3, UNADAPTED, before=UNADAPTED), Version(1, 0, 1), True)
    assert held.get(Version(1, 0, 1)) is None


def test_a_candidate_that_has_lost_is_replaced_at_once(held: Held) -> None:
    serve(held, 3)
    held.advance(None, UNADAPTED, True)
    serve(held, 5)
    held.advance(decision(1, UNADAPTED), Version(1, 0, 4), True)
    assert held.candidate is not None and held.candidate.name.step == 5
    held.advance(decision(2, Version(1, 0, 5)), Version(1, 0, 4), True)
    assert held.candidate is None


def test_a_candidate_whose_file_is_gone_before_the_copy_makes_way(held: Held, files: Files) -> None:
    files.gone[3] = Failure.MISSING
    serve(held, 3)
    held.advance(None, UNADAPTED, True)
    serve(held, 4)
    held.advance(None, UNADAPTED, True)
    assert held.candidate is not None and held.candidate.name.step == 4
    assert files.copied == [4]


def test_a_copy_that_the_store_refuses_is_tried_again_and_reported_once(
    held: Held, files: Files, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    files.gone[3] = Failure.UNREACHABLE
    serve(held, 3)
    for _ in range(20):
        held.advance(None, UNADAPTED, True)
        clock.now += 10.0
    assert held.candidate is not None and held.candidate.name.step == 3
    assert not held.copied(Version(1, 0, 3)) and 3 < files.attempts < 15
    assert [line.levelname for line in caplog.records].count("WARNING") == 1
    del files.gone[3]
    clock.now += 31.0
    held.advance(None, UNADAPTED, True)
    assert held.copied(Version(1, 0, 3))


def test_a_decided_model_is_loaded_from_its_announcement(held: Held, files: Files) -> None:
    for step in (3, 9):
        held.announced(version(step))
    held.advance(decision(1, Version(1, 0, 3)), UNADAPTED, False)
    assert not held.tried and held.get(Version(1, 0, 3)) is None
    held.advance(decision(1, Version(1, 0, 3)), UNADAPTED, True)
    assert held.tried and held.get(Version(1, 0, 3)) is not None
    assert files.loaded == [3]


def test_a_file_that_is_gone_is_tried_again_with_pauses_and_counted(
    held: Held, files: Files, clock: Clock
) -> None:
    held.announced(version(3))
    files.gone[3] = Failure.MISSING
    attempts = 0
    for _ in range(400):
        held.advance(decision(1, Version(1, 0, 3)), UNADAPTED, True)
        attempts = held.subscription.failures[Failure.MISSING]
        clock.now += 0.25
    # 0.5, 1, 2, 4, 8, 16, 30, ... seconds apart
    assert 7 <= attempts <= 9
    assert held.tried
    del files.gone[3]
    clock.now += 31.0
    held.advance(decision(1, Version(1, 0, 3)), UNADAPTED, True)
    assert held.get(Version(1, 0, 3)) is not None


def test_only_an_announcement_of_that_file_makes_the_next_attempt_earlier(held: Held, files: Files) -> None:
    files.gone[3] = Failure.DAMAGED
    held.announced(version(3))
    held.advance(decision(1, Version(1, 0, 3)), UNADAPTED, True)
    held.announced(version(4))
    held.advance(decision(1, Version(1, 0, 3)), UNADAPTED, True)
    assert held.subscription.failures[Failure.DAMAGED] == 1
    del files.gone[3]
    held.announced(later(3))
    held.advance(decision(1, Version(1, 0, 3)), UNADAPTED, True)
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


def test_a_copy_outlives_the_checkpoint_and_a_restart(world: World) -> None:
    world.learn("a", load="0")
    first = world.announced()[-1]
    name = Version(first.generation, first.epoch, first.step)
    copies = KeptModels(world.settings, "a", "opml")
    assert copies.find(Name(*name)) is None
    copies.keep(first)
    folder = world.system.root / "gate-models" / "a" / "opml"
    assert sorted(path.name for path in folder.iterdir()) == [
        f"{Name(*name)}.model",
        f"{Name(*name)}.safetensors",
    ]
    for number in range(1, 6):
        world.learn("a", load=str(number))
    assert not Path(first.location).exists()
    copies.keep(first)  # is copied already, so that the lost file is not needed
    world.source.decisions.take(decision(1, name))
    world.source.announce(world.announced()[-1])
    world.source.caught_up = True
    feed: ModelFeed = world.feed()
    held = feed.hold("a", "opml")
    for _ in range(50):
        feed.step()
        if held.tried:
            break
    model = held.get(name)
    assert model is not None and model.version is not None and model.version.sha256 == first.sha256
    feed.step()
    assert held.copied(name)


def test_old_copies_that_nothing_names_are_deleted(world: World) -> None:
    versions = []
    clock = Clock()
    clock.now = time.time()
    copies = KeptModels(world.settings, "a", "opml", lambda: clock.now)
    for number in range(3):
        world.learn("a", load=str(number))
        versions.append(world.announced()[-1])
        copies.keep(versions[-1])
    first, second, third = (Name(one.generation, one.epoch, one.step) for one in versions)
    copies.prune([])
    assert all(copies.find(one) for one in (first, second, third))
    clock.now += KEEP_SECONDS + 60.0
    copies.prune([second])
    assert [copies.find(one) is None for one in (first, second, third)] == [True, False, True]
    found = copies.find(second)
    assert (
        found is not None and hashlib.sha256(data_of(found, world.settings)).hexdigest() == versions[1].sha256
    )


def test_a_damaged_record_of_a_copy_is_an_error_with_its_place(world: World) -> None:
    world.learn("a")
    version = world.announced()[-1]
    copies = KeptModels(world.settings, "a", "opml")
    copies.keep(version)
    name = Name(version.generation, version.epoch, version.step)
    (world.system.root / "gate-models" / "a" / "opml" / f"{name}.model").write_bytes(b"\xc3\x01nothing")
    with pytest.raises(Damaged, match=f"gate-models/a/opml/{name}.model"):
        copies.find(name)


def test_copies_of_the_last_models_that_served_stay_so_that_people_can_roll_back(world: World) -> None:
    versions = []
    clock = Clock()
    clock.now = time.time()
    copies = KeptModels(world.settings, "a", "opml", lambda: clock.now)
    for number in range(7):
        world.learn("a", load=str(number))
        versions.append(world.announced()[-1])
        copies.keep(versions[-1])
        if number:
            copies.keep(versions[-1], serves=True)
    clock.now += KEEP_SECONDS + 60.0
    copies.prune([])
    names = [Name(one.generation, one.epoch, one.step) for one in versions]
    # Their steps have one, two and more digits.
    assert [copies.find(name) is not None for name in names] == [False] * 3 + [True] * 4


def test_a_model_that_was_copied_as_a_challenger_is_noted_when_it_serves(held: Held, files: Files) -> None:
    held.announced(version(100))
    held.subscription.swap(Model(version(100), object()))  # type: ignore[arg-type]
    challenger = Version(1, 0, 100)
    noted: list[bool] = []
    files.keep = lambda version, serves=False: noted.append(serves)  # type: ignore[method-assign]
    for decided in (decision(1, UNADAPTED, challenger), decision(2, challenger), decision(3, challenger)):
        held.advance(decided, UNADAPTED, True)
        held.advance(decided, UNADAPTED, True)
        assert held.copied(challenger)
    assert noted == [False, True]
