"""`ModelFollower` on the embedded broker and on checkpoints alone, against the worker's learner and the export."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Producer

from kinstream.learners.agent import learner_spec
from kinstream.search.models.feed import ModelFeed
from kinstream.search.models.follower import ModelFollower
from kinstream.search.models.model import UNLEARNED, name_of
from kinstream.search.models.staleness import Failure
from kinstream.search.models.subscription import NotYet
from kinstream.search.models.topic import PROBE_SECONDS, TopicSource
from kinstream.streams.errors import SettingsError
from kinstream.streams.kafka.embedded_broker import EmbeddedBroker
from kinstream.streams.settings import LearnerSettings, Settings
from tests.docs.pages import ROOT, blocks
from tests.search.fakes import Clock
from tests.search.learned_world import MODELS, World
from tests.support.pipeline import settings

X = np.random.default_rng(1).normal(size=(20, 4))


class Broker:
    """The embedded broker, and announcements on it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._broker = EmbeddedBroker(world.settings)
        self.address = self._broker.bootstrap_servers
        self._producer = Producer({"bootstrap.servers": self.address, "log_level": 2})
        self._published = 0

    def publish(self, *values: bytes) -> None:
        for number, value in enumerate(values):
            self._producer.produce(MODELS, value, b"key", partition=number % 2)
        assert self._producer.flush(20) == 0

    def publish_new(self) -> None:
        """What the learners have announced since the last call, the newest first, and all of it twice."""
        records = [value for _, value in self.world.records()][self._published :]
        self._published += len(records)
        self.publish(*records[::-1], *records)

    def close(self) -> None:
        self._broker.close()


@pytest.fixture
def broker(world: World) -> Iterator[Broker]:
    found = Broker(world)
    yield found
    found.close()


# ---- the whole way ----------------------------------------------------------------------------------------------


def test_what_serves_is_what_the_worker_learned_and_what_an_export_holds(
    world: World, broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # The service has none of the workers' settings: not the learner's, nor where checkpoints lie.
    elsewhere = tmp_path / "service"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    broker.publish(b"of no use")
    with ModelFollower("a", "opml", brokers=broker.address) as metric:
        assert metric.wait(timeout=20.0).name == UNLEARNED
        assert (metric.transform(X) == X).all()
        for number in (3, 6):
            world.learn("a", number, load=str(number))
            broker.publish_new()
            newest = world.announced()[-1]
            model = metric.wait(name_of(newest), timeout=20.0)
            assert model.version == newest
            assert (model.transform(X) == world.core().transform(X)).all()
            assert (metric.distance(X, 2 * X) == world.core().distance(X, 2 * X)).all()
        told = metric.staleness()
        assert (told.behind, told.caught_up, told.trouble) == (False, True, None)
        assert told.failures[Failure.UNREADABLE] == 1
        assert told.contact_seconds is not None and told.contact_seconds < 60.0
        arguments = ["models", "export", "a", "--learner", "opml", "--checkpoints"]
        result = world.system.cli(*arguments, "-o", str(tmp_path / "a.npz"))
        assert result.exit_code == 0, repr(result.exception)
        with np.load(tmp_path / "a.npz") as file:
            np.testing.assert_allclose(X @ file["map"].T + file["offset"], metric.transform(X), rtol=1e-12)
            about = json.loads(str(file["metadata"]))
        assert tuple(int(about[key]) for key in ("generation", "epoch", "step")) == metric.model.name
        assert metric.healthy
    assert not metric.healthy
    assert (metric.transform(X) == world.core().transform(X)).all()


def test_only_the_first_model_of_an_epoch_is_logged_for_people(
    world: World, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "kinstream.follower")
    with ModelFollower("a", "opml", brokers=broker.address) as metric:
        names = []
        for number in (3, 6, 9):
            world.learn("a", number, load=str(number))
            broker.publish_new()
            names.append(metric.wait(name_of(world.announced()[-1]), timeout=20.0).name)
    levels = {name: r.levelno for r in caplog.records for name in names if f"{name} serves" in r.getMessage()}
    assert levels == dict(zip(names, (logging.INFO, logging.DEBUG, logging.DEBUG), strict=True))


def test_one_consumer_follows_several_spaces(world: World, broker: Broker) -> None:
    world.learn("a")
    world.learn("b", 3)
    broker.publish_new()
    kafka = world.settings.kafka.model_copy(update={"bootstrap_servers": broker.address})
    with ModelFeed(world.settings.model_copy(update={"kafka": kafka})) as feed:
        for space in ("a", "b"):
            for learner in ("opml", "copml"):
                one = feed.subscribe(space, learner)
                wanted = world.announced(space, learner)[-1]
                assert one.wait(name_of(wanted), timeout=20.0).version == wanted
                assert (one.transform(X) == world.core(learner, space).transform(X)).all()


def test_without_brokers_the_checkpoints_say_the_same(world: World) -> None:
    metric = ModelFollower.from_checkpoints("a", "opml", world.settings, interval=0.02)
    with metric:
        assert metric.wait(timeout=20.0).name == UNLEARNED
        world.learn("a", 3)
        first = metric.wait(lambda model: model.learned, timeout=20.0)
        assert (first.transform(X) == world.core().transform(X)).all()
        world.lose()
        assert metric.model is first
        world.bring_back()
        world.learn("a", 3, load="more")
        newest = metric.wait(name_of(world.announced()[-1]), timeout=20.0)
        assert (newest.transform(X) == world.core().transform(X)).all()
        assert newest.version == world.announced()[-1]
        assert metric.staleness().contact_seconds is not None


def test_checkpoints_that_cannot_be_read_are_told_and_keep_what_serves(world: World) -> None:
    world.learn("a", 3)
    with ModelFollower.from_checkpoints(
        "a", "opml", checkpoints=str(world.system.root), interval=0.02
    ) as metric:
        before = metric.wait(lambda model: model.learned, timeout=20.0)
        newest = max((world.system.root / "learner-opml").rglob("birth.json"))
        whole = newest.read_bytes()
        newest.write_bytes(b"rotten")
        metric.wait(lambda model: metric.staleness().trouble is not None, timeout=20.0)
        assert "birth.json" in (metric.staleness().trouble or "")
        assert metric.model is before
        newest.write_bytes(whole)
        metric.wait(lambda model: metric.staleness().trouble is None, timeout=20.0)


def test_a_follower_without_brokers_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    with pytest.raises(SettingsError, match="no brokers"):
        ModelFollower("a", "opml").start()


@pytest.mark.long
def test_the_example_of_the_readme_runs_as_it_stands(world: World, broker: Broker, tmp_path: Path) -> None:
    (example,) = [b.text for b in blocks(ROOT / "README.md", "python") if b.before == "<!-- test: follow -->"]
    assert len(example.splitlines()) <= 20
    learner = LearnerSettings.model_validate({"kind": "mixture", "from": ["one-pass"]})
    settings = world.settings.model_copy(update={"learners": {**world.settings.learners, "mixture": learner}})
    world.system.agents.append(world.system.begin(learner_spec(settings, "mixture")))
    world.learn("digits", 3, d=64)
    broker.publish_new()
    service = tmp_path / "service"
    service.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=service,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "KAFKA_BOOTSTRAP_SERVERS": broker.address},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, distances, staleness = done.stdout.splitlines()
    version = world.announced("digits", "mixture")[-1]
    assert first == f"{name_of(version)} mixture/6 (5, 64)"
    core, X = world.core("mixture", "digits"), np.random.default_rng(0).random((5, 64))
    assert distances == str(core.distance(X[:3], X[2:]))
    assert staleness.startswith("written ") and staleness.endswith("behind: False")


# ---- brokers that fail ------------------------------------------------------------------------------------------


@pytest.mark.long
def test_brokers_that_are_away_are_told_and_waited_for(world: World) -> None:
    with ModelFollower("a", "opml", world.settings, brokers="127.0.0.1:1") as metric:
        metric.wait(lambda model: metric.staleness().trouble is not None, timeout=20.0)
        with pytest.raises(NotYet, match=r"127\.0\.0\.1:1"):
            metric.wait(timeout=0.1)
        told = metric.staleness()
        assert (told.contact_seconds, told.caught_up) == (None, False)
        assert metric.healthy and not metric.model.learned


class Record:
    """What a consumer hands out: a record, or an error of a partition."""

    def __init__(
        self, partition: int, value: bytes | None = None, code: int | None = None, offset: int = 0
    ) -> None:
        self._partition, self._value, self._offset = partition, value, offset
        self._error = None if code is None else KafkaError(code)

    def error(self) -> KafkaError | None:
        return self._error

    def headers(self) -> None: ...

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes | None:
        return self._value


class FakeConsumer:
    """A consumer whose brokers do what a test says."""

    def __init__(self) -> None:
        self.config: dict[str, Any] = {}
        self.partitions = 2
        self.away = False
        self.refused: str | None = None
        self.assigned: list[int] = []
        #: Every partition that was to be read from its beginning, in order.
        self.begun: list[int] = []
        self.records: list[Record] = []
        self.closed = False

    def list_topics(self, topic: str, timeout: float) -> Any:
        if self.away:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        error = None if self.refused is None else SimpleNamespace(name=lambda: self.refused, str=lambda: "no")
        partitions = {} if error else dict.fromkeys(range(self.partitions))
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error, partitions=partitions)})

    def incremental_assign(self, partitions: list[Any]) -> None:
        begun = sorted(one.partition for one in partitions)
        assert all(one.offset == OFFSET_BEGINNING for one in partitions)
        self.assigned += begun
        self.begun += begun

    def poll(self, timeout: float) -> Record | None:
        return self.records.pop(0) if self.assigned and self.records else None

    def consume(self, number: int, timeout: float) -> list[Record]:
        found, self.records = self.records, []
        return found

    def close(self) -> None:
        self.closed, self.assigned = True, []


EOF = KafkaError._PARTITION_EOF


class Topic:
    """A source on a fake consumer, with a clock of its own."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.identity: str | None = "first"
        config: Settings = settings()
        #: Stands for every consumer that the source makes, one after the other.
        self.consumer = FakeConsumer()
        kafka = config.kafka.model_copy(update={"bootstrap_servers": "somewhere:9092"})
        self.source = TopicSource(
            config.model_copy(update={"kafka": kafka}),
            make=self._make,
            identify=lambda: self.identity,
            clock=self.clock,
        )
        self.source.open()

    def _make(self, config: dict[str, Any]) -> Any:
        self.consumer.config = config
        return self.consumer

    def poll(self, *records: Record, after: float = 0.0) -> list[Any]:
        self.clock.now += after
        self.consumer.records += records
        return self.source.poll(0.0, (), Event())


def test_a_consumer_reads_all_partitions_without_leaving_a_trace(world: World) -> None:
    world.learn("a")
    values = [value for _, value in world.records()]
    topic = Topic()
    wanted = {
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
    }
    assert wanted.items() <= topic.consumer.config.items()
    found = topic.poll(Record(0, values[0]), Record(1), Record(1, b"rubbish"), Record(0, values[1]))
    assert [len(found), topic.source.unreadable, topic.consumer.assigned] == [2, 1, [0, 1]]
    assert not topic.source.caught_up
    topic.poll(Record(1, code=EOF))
    assert not topic.source.caught_up
    topic.poll(Record(0, code=EOF))
    assert topic.source.caught_up
    topic.consumer.partitions = 3
    topic.poll(after=PROBE_SECONDS)
    assert topic.consumer.assigned == [0, 1, 2]
    topic.source.close()
    assert topic.consumer.closed


def test_a_topic_that_was_made_anew_is_read_from_its_beginning() -> None:
    topic = Topic()
    topic.poll()
    assert topic.consumer.begun == [0, 1]
    topic.identity = None
    topic.poll(after=PROBE_SECONDS)
    assert topic.consumer.begun == [0, 1], "that brokers do not say which topic it is says nothing"
    topic.identity, topic.consumer.partitions = "second", 1
    topic.poll(after=PROBE_SECONDS)
    assert (topic.consumer.begun, topic.consumer.assigned) == ([0, 1, 0], [0])
    topic.poll(after=PROBE_SECONDS)
    assert topic.consumer.begun == [0, 1, 0]


def test_an_outage_is_told_and_leaves_no_record_out(world: World) -> None:
    topic = Topic()
    topic.consumer.away = True
    assert topic.poll() == []
    assert topic.source.contact is None and "somewhere:9092" in (topic.source.trouble or "")
    topic.consumer.away = False
    topic.poll(after=PROBE_SECONDS)
    assert topic.source.trouble is None
    assert topic.source.contact == topic.clock.now
    topic.consumer.away = True
    topic.poll(after=PROBE_SECONDS)
    assert topic.source.contact == topic.clock.now - PROBE_SECONDS
    assert topic.source.trouble is not None and topic.consumer.assigned == [0, 1]
    # The topic is gone, or is another one: it is read from the beginning once it is there.
    topic.poll(Record(0, code=KafkaError.UNKNOWN_TOPIC_OR_PART), after=PROBE_SECONDS)
    assert topic.consumer.assigned == []
    topic.consumer.away = False
    topic.poll(after=PROBE_SECONDS)
    assert topic.consumer.assigned == [0, 1]


def test_what_the_brokers_do_not_allow_is_told_with_what_to_do() -> None:
    topic = Topic()
    topic.consumer.refused = "TOPIC_AUTHORIZATION_FAILED"
    topic.poll()
    assert "lacks READ on topic kinstream.models" in (topic.source.trouble or "")
    topic.consumer.refused = "UNKNOWN_TOPIC_OR_PART"
    topic.poll(after=PROBE_SECONDS)
    assert "kinstream topics create" in (topic.source.trouble or "")
    topic.consumer.refused = None
    topic.poll(Record(-1, code=KafkaError.GROUP_AUTHORIZATION_FAILED), after=PROBE_SECONDS)
    assert topic.source.trouble is None
    assert topic.consumer.assigned == [0, 1]
    topic.poll(Record(0, code=KafkaError.TOPIC_AUTHORIZATION_FAILED))
    assert "lacks READ on topic kinstream.models" in (topic.source.trouble or "")
    assert topic.consumer.assigned == []
    topic.consumer.away = True
    topic.consumer.config["error_cb"](KafkaError(KafkaError._AUTHENTICATION))
    topic.poll(after=PROBE_SECONDS)
    assert "refused the login" in (topic.source.trouble or "")
