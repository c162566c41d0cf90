"""What serves while files go away, rot and come back, spaces are reset and deleted, and threads fail."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kinstream.search.models.attempts import FIRST_PAUSE, LONGEST_PAUSE
from kinstream.search.models.feed import ModelFeed
from kinstream.search.models.loader import Loader
from kinstream.search.models.model import UNLEARNED, Model, Name, name_of
from kinstream.search.models.staleness import Failure
from kinstream.search.models.subscription import FollowerStopped, NotYet
from kinstream.streams.checkpoints.state_bytes import from_bytes, to_bytes
from kinstream.streams.errors import SettingsError
from kinstream.streams.kafka.reader import arrived
from kinstream.streams.records.values import Action, ModelVersion
from tests.search.fakes import Clock
from tests.search.learned_world import World

X = np.random.default_rng(1).normal(size=(20, 4))
Y = np.random.default_rng(2).normal(size=(20, 4))


# ---- one version ------------------------------------------------------------------------------------------------


def test_before_the_first_model_the_features_are_measured_as_they_are(world: World) -> None:
    one = world.feed().subscribe("a", "opml")
    assert (one.model.name, one.model.version, one.model.learned) == (UNLEARNED, None, False)
    for d in (1, 4, 7):
        A, B = np.ones((3, d)), np.zeros((3, d))
        assert (one.transform(A) == A).all() and one.transform(A) is not A
        assert one.distance(A, B).tolist() == [d] * 3
    mixed = {"words": np.ones((2, 3)), "image": np.zeros((2, 1))}
    assert one.transform(mixed).tolist() == [[0, 1, 1, 1]] * 2
    for wrong in (np.ones(3), {"a": np.ones((2, 1)), "b": np.ones((3, 1))}, {}):
        with pytest.raises(ValueError, match="expected features of shape"):
            one.transform(wrong)
    with pytest.raises(ValueError, match="two tables of the same shape"):
        one.distance(np.ones((2, 3)), np.ones((3, 3)))


def test_the_newest_model_is_the_learner_itself(world: World) -> None:
    feed = world.feed()
    one, other = feed.subscribe("a", "opml"), feed.subscribe("a", "copml")
    assert feed.subscribe("a", "opml") is one
    for number in (3, 6):
        world.learn("a", number, load=str(number))
        versions = world.announced("a") + world.announced("a", "copml")
        world.source.announce(*versions[::-1])
        feed.step()
        for subscription, learner in ((one, "opml"), (other, "copml")):
            model, core = subscription.model, world.core(learner)
            assert model.version == world.announced("a", learner)[-1]
            assert model.dimension == 4
            assert (model.transform(X) == core.transform(X)).all()
            assert (subscription.distance(X, Y) == core.distance(X, Y)).all()
            told = subscription.staleness()
            assert (told.serving, told.announced, told.behind) == (model.name, model.name, False)
            assert told.caught_up and told.trouble is None
            assert set(told.failures.values()) == {0}


def test_who_subscribes_late_gets_what_was_announced_before(world: World) -> None:
    world.learn("a")
    feed = world.feed()
    feed.subscribe("b", "opml")
    world.source.announce(*world.announced())
    feed.step()
    late = feed.subscribe("a", "opml")
    assert (late.model.name, late.caught_up) == (UNLEARNED, False)
    feed.step()
    feed.step()
    assert late.caught_up
    assert late.model.version == world.announced()[-1]


# ---- files that are gone ----------------------------------------------------------------------------------------


def feed_at(world: World) -> tuple[ModelFeed, Clock]:
    clock = Clock()
    return world.feed(clock=clock, wall=clock), clock


def test_a_store_that_goes_away_leaves_what_serves_and_is_tried_again_until_it_is_back(world: World) -> None:
    feed, clock = feed_at(world)
    one = feed.subscribe("a", "opml")
    world.learn("a", 2)
    world.source.announce(*world.announced())
    feed.step()
    before = one.model
    world.learn("a", 4, load="more")
    newest = world.announced()[-1]
    world.lose()
    world.source.announce(newest)
    pauses = []
    for attempt in range(1, 10):
        feed.step()
        told = one.staleness()
        assert one.model is before
        assert (told.behind, told.announced, told.failures[Failure.MISSING]) == (
            True,
            name_of(newest),
            attempt,
        )
        assert told.trouble is not None and "does not exist" in told.trouble
        pauses.append(one.retry_at - clock.now)
        feed.step()
        assert one.failures[Failure.MISSING] == attempt, "tried before its pause was over"
        clock.now = one.retry_at
    assert pauses == [min(FIRST_PAUSE * 2.0**k, LONGEST_PAUSE) for k in range(9)]
    world.bring_back()
    feed.step()
    assert one.model.version == newest
    assert (one.transform(X) == world.core().transform(X)).all()
    assert (one.staleness().behind, one.staleness().trouble) == (False, None)


def test_a_newer_model_is_tried_at_once_and_one_that_is_never_back_does_not_matter(world: World) -> None:
    feed, _ = feed_at(world)
    one = feed.subscribe("a", "opml")
    world.learn("a", 2)
    world.source.announce(*world.announced())
    feed.step()
    world.learn("a", 2, load="more")
    Path(world.announced()[-1].location).unlink()
    world.source.announce(world.announced()[-1])
    feed.step()
    assert one.staleness().behind
    world.learn("a", 2, load="most")
    world.source.announce(world.announced()[-1])
    feed.step()
    assert one.model.version == world.announced()[-1]
    assert not one.choice.wanted()


def test_a_damaged_file_is_never_used_and_the_one_before_it_is(world: World) -> None:
    world.learn("a", 2)
    world.learn("a", 2, load="more")
    before, newest = world.announced()[-2:]
    world.damage(newest)
    feed, _ = feed_at(world)
    one = feed.subscribe("a", "opml")
    world.source.announce(newest, before)
    feed.step()
    told = one.staleness()
    assert one.model.version == before
    assert told.failures[Failure.DAMAGED] == 1 and told.caught_up and told.behind
    assert told.trouble is not None and "its digest differs from the announced one" in told.trouble


def test_what_does_not_fit_or_lies_elsewhere_is_refused(world: World, tmp_path: Path) -> None:
    world.learn("a")
    good = world.announced()[-1]
    nowhere = replace(good, step=good.step + 9, location="http://169.254.169.254/key", partition=7)
    # Under their right digests: no state at all, and one of another type.
    state = from_bytes(Path(good.location).read_bytes())
    other = to_bytes(state | {"core.L": np.asarray(state["core.L"], np.float32)})
    wrong = []
    for number, data in enumerate((b"of no use", other)):
        file = tmp_path / str(number)
        file.write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        wrong.append(replace(good, step=good.step + 1 + number, location=str(file), sha256=digest))
    feed, _ = feed_at(world)
    one = feed.subscribe("a", "opml")
    world.source.announce(good, nowhere, *wrong)
    feed.step()
    assert one.model.version == good
    assert one.failures == {Failure.REFUSED: 3}


def test_an_unknown_learner_without_birth_record_is_refused_with_what_is_missing(world: World) -> None:
    world.learn("a")
    version = replace(world.announced()[-1], learner="other")
    feed, _ = feed_at(world)
    one = feed.subscribe("a", "other")
    world.source.announce(version)
    feed.step()
    assert one.failures == {Failure.REFUSED: 1}
    assert "its hyper-parameters are unknown" in (one.staleness().trouble or "")


# ---- spaces that are reset and deleted --------------------------------------------------------------------------


def test_a_reset_and_a_deleted_space_have_nothing_learned_and_no_old_epoch_comes_back(world: World) -> None:
    feed, _ = feed_at(world)
    one = feed.subscribe("a", "opml")
    world.learn("a")
    old = world.announced()
    world.source.announce(*old)
    feed.step()
    assert one.model.learned
    world.system.control("a", Action.RESET)
    world.run()
    world.source.announce(*world.announced())
    feed.step()
    epoch = one.model.name.epoch
    assert epoch > name_of(old[-1]).epoch
    assert not one.model.learned and (one.transform(X) == X).all()
    world.source.announce(*old)
    feed.step()
    assert one.model.name.epoch == epoch
    world.learn("a", 3, load="again")
    world.system.control("a", Action.DELETE)
    learned = len(world.announced())
    world.run()
    world.source.announce(*world.announced()[:learned])
    feed.step()
    assert one.model.learned and one.model.name.epoch == epoch
    world.source.announce(*world.announced())
    feed.step()
    assert one.model.version is not None and one.model.version.deleted
    assert one.model.name.epoch > epoch
    assert (one.transform(X) == X).all() and one.model.dimension is None
    world.source.announce(*world.announced()[:learned])
    feed.step()
    assert not one.model.learned


# ---- staleness, waiting, threads --------------------------------------------------------------------------------


def test_staleness_tells_seconds(world: World) -> None:
    feed, clock = feed_at(world)
    one = feed.subscribe("a", "opml")
    assert (one.staleness().written_seconds, one.staleness().contact_seconds) == (None, None)
    world.learn("a")
    version = replace(world.announced()[-1], time_ms=int(clock.now * 1000) - 5_000)
    world.source.announce(version)
    world.source.contact = clock.now
    feed.step()
    clock.now += 2.0
    told = one.staleness()
    assert (told.written_seconds, told.contact_seconds) == (7.0, 2.0)
    world.source.trouble, world.source.unreadable = "brokers are away", 3
    told = one.staleness()
    assert (told.trouble, told.failures[Failure.UNREADABLE]) == ("brokers are away", 3)


def test_one_waits_for_a_name_a_condition_or_the_end_of_the_topic(world: World) -> None:
    with world.feed() as feed:
        one = feed.subscribe("a", "opml")
        assert one.wait(timeout=10.0).name == UNLEARNED
        world.learn("a")
        wanted = name_of(world.announced()[-1])
        with pytest.raises(NotYet, match=r"0\.-1\.0 serves"):
            one.wait(wanted, timeout=0.05)
        world.source.announce(*world.announced())
        assert one.wait(wanted, timeout=10.0).name == wanted
        assert one.wait(lambda model: model.learned, timeout=10.0).name == wanted
        assert feed.healthy
    assert world.source.closed and not feed.healthy
    assert one.model.name == wanted, "what served last still answers"


def test_a_fault_of_the_thread_is_told_at_the_next_use(world: World) -> None:
    feed = world.feed().start()
    one = feed.subscribe("a", "opml")
    world.source.fail(RuntimeError("a fault of our own"))
    with pytest.raises(FollowerStopped, match="a fault of our own") as stopped:
        one.wait(Name(9, 9, 9), timeout=10.0)
    assert isinstance(stopped.value.__cause__, RuntimeError)
    with pytest.raises(FollowerStopped):
        one.transform(X)
    assert not feed.healthy
    assert "a fault of our own" in (one.staleness().trouble or "")
    feed.close()
    with pytest.raises(SettingsError, match="started only once"):
        feed.start()


class Scaled:
    """A learner whose every answer tells which version it is of."""

    dimension = 2

    def __init__(self, step: int) -> None:
        self.step = step

    def transform(self, X: np.ndarray) -> np.ndarray:
        return X * self.step


class Quick(Loader):
    """Makes models without files."""

    def load(self, version: ModelVersion, present: Model) -> Model:
        return Model(version, Scaled(version.step))  # type: ignore[arg-type]


def test_readers_always_have_one_whole_version_that_never_goes_back(world: World) -> None:
    version = ModelVersion("a", "opml", "opml/1", 1, 5, 0, "t", 0, 0, "place", "digest", 1_000)
    last, torn = 300, []
    with world.feed(loader=Quick(world.settings)) as feed:
        one = feed.subscribe("a", "opml")

        def read() -> None:
            seen = UNLEARNED
            while seen.step < last:
                model = one.model
                step = model.name.step if model.learned else 1
                answers = {float(value) for value in model.transform(np.ones((3, 2))).ravel()}
                if answers != {float(step)} or model.name < seen:
                    torn.append((seen, model.name, answers))
                    return
                seen = model.name

        readers = [threading.Thread(target=read) for _ in range(4)]
        for reader in readers:
            reader.start()
        for step in np.random.default_rng(0).permutation(np.arange(1, last + 1)):
            world.source.announce(replace(version, step=int(step)))
        for reader in readers:
            reader.join(30.0)
        assert not any(reader.is_alive() for reader in readers)
    assert torn == []


def test_records_that_have_come_are_returned_at_once() -> None:
    class Consumer:
        def __init__(self, *records: int) -> None:
            self.records, self.waited = list(records), 0.0

        def poll(self, seconds: float) -> int | None:
            if self.records:
                return self.records.pop(0)
            self.waited += seconds
            return None

        def consume(self, number: int, timeout: float) -> list[int]:
            self.waited += timeout
            found, self.records = self.records[:number], self.records[number:]
            return found

    consumer = Consumer(1, 2, 3, 4)
    assert arrived(consumer, 3, 5.0) == [1, 2, 3]
    assert arrived(consumer, 3, 5.0) == [4]
    assert (arrived(consumer, 3, 0.5), consumer.waited) == ([], 0.5)
