"""Partitions that have no leader for a time: a busy broker that makes files, one that has just started."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kinstream.search.updates.feed import UpdatesFeed
from kinstream.streams.errors import BrokerUnavailable
from kinstream.streams.kafka import broker_errors
from kinstream.streams.kafka import cluster as cluster_module
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.settings import KafkaSettings

NO_LEADER = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)


class Clock:
    """Time that passes with pauses and with requests."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Electing:
    """A consumer whose broker leads nothing for that many seconds."""

    def __init__(self, clock: Clock, seconds: float, code: int) -> None:
        self._clock, self._until, self._error = clock, seconds, KafkaError(code)

    def poll(self, _: float) -> None:
        """Nothing arrives."""

    def get_watermark_offsets(self, place: TopicPartition, timeout: float, cached: bool) -> tuple[int, int]:
        assert place.partition == 3 and timeout > 0 and not cached
        if self._clock.now < self._until:
            raise KafkaException(self._error)
        return 5, 9

    def offsets_for_times(self, places: list[Any], timeout: float) -> list[Any]:
        (place,) = places
        assert timeout > 0
        # As the client library does: the error is of the partition, and the offset stays what was asked for.
        error = self._error if self._clock.now < self._until else None
        return [Answer(place.offset if error else 7, error)]


class Answer:
    def __init__(self, offset: int, error: KafkaError | None) -> None:
        self.offset, self.error = offset, error


REQUESTS: list[tuple[Callable[[Cluster], Any], Any]] = [
    (lambda cluster: cluster.bounds("t", 3), (5, 9)),
    (lambda cluster: cluster.offset_at("t", 3, 1_700_000_000_000), 7),
]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(broker_errors, "time", made)
    return made


def electing(clock: Clock, seconds: float, code: int) -> Cluster:
    cluster: Any = Cluster(KafkaSettings(bootstrap_servers="localhost:1"))
    cluster._consumer = Electing(clock, seconds, code)
    found: Cluster = cluster
    return found


@pytest.mark.parametrize("code", NO_LEADER)
@pytest.mark.parametrize(("request_", "answer"), REQUESTS)
def test_a_partition_may_have_no_leader_for_a_while(
    clock: Clock, request_: Callable[[Cluster], Any], answer: Any, code: int
) -> None:
    assert request_(electing(clock, 25.0, code)) == answer
    assert 25 <= clock.now < 26


@pytest.mark.parametrize(("request_", "answer"), REQUESTS)
def test_a_timeout_means_it_if_the_brokers_answer_other_requests(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, request_: Callable[[Cluster], Any], answer: Any
) -> None:
    """The client library waits for a leader itself, and then says that the request timed out."""
    monkeypatch.setattr(cluster_module, "answers", lambda _: True)
    assert request_(electing(clock, 25.0, KafkaError._TIMED_OUT)) == answer


@pytest.mark.parametrize(("request_", "_"), REQUESTS)
def test_a_timeout_of_brokers_that_are_away_is_an_error_at_once(
    clock: Clock, request_: Callable[[Cluster], Any], _: Any
) -> None:
    with pytest.raises(BrokerUnavailable, match="No broker answers"):
        request_(electing(clock, 25.0, KafkaError._TIMED_OUT))
    assert clock.now == 0


@pytest.mark.parametrize(("request_", "_"), REQUESTS)
def test_one_that_gets_none_is_an_error(clock: Clock, request_: Callable[[Cluster], Any], _: Any) -> None:
    with pytest.raises(BrokerUnavailable, match=r"t partition 3.*leader"):
        request_(electing(clock, 1e9, NO_LEADER[0]))
    assert clock.now < 60


def test_updates_are_not_read_from_the_end_of_a_partition_without_a_leader() -> None:
    class Consumer(Electing):
        assigned: Any = None

        def list_topics(self, topic: str, timeout: float) -> Any:
            assert topic == "updates" and timeout > 0
            one = type("Topic", (), {"error": None, "partitions": {0: None}})()
            return type("View", (), {"topics": {"updates": one}})()

        def assign(self, places: Any) -> None:
            self.assigned = places

    feed: Any = UpdatesFeed.__new__(UpdatesFeed)
    feed._topic, feed._spaces = "updates", {b"a": "a"}
    clock = Clock()
    consumer: Any = Consumer(clock, 1.0, NO_LEADER[0])
    with pytest.raises(KafkaException, match="leader"):
        feed._assign(consumer)
    assert not consumer.assigned
    clock.sleep(2)
    feed._assign(consumer)
    assert [place.offset for place in consumer.assigned] == [7]
