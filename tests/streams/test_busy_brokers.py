"""Brokers that have answered, and then take long over a request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kinstream.streams.errors import BrokerUnavailable, LoginRefused
from kinstream.streams.kafka import cluster as cluster_module
from kinstream.streams.kafka.cluster import ANSWER_SECONDS, PATIENCE_SECONDS, Cluster
from kinstream.streams.settings import KafkaSettings


class Brokers:
    """An administrator's client, and time that passes while it waits."""

    def __init__(self) -> None:
        self.now, self.busy_until, self.asked = 0.0, 0.0, 0

    def monotonic(self) -> float:
        return self.now

    def list_topics(self, topic: str | None = None, *, timeout: float) -> Any:
        self.asked += 1
        if self.now + timeout < self.busy_until:
            self.now += timeout
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        self.now = max(self.now, self.busy_until)
        return SimpleNamespace(cluster_id="abc", brokers={}, topics={})

    def poll(self, _: float) -> None:
        """Nothing arrives."""


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    made = Brokers()
    monkeypatch.setattr(cluster_module, "time", made)
    monkeypatch.setattr(cluster_module, "diagnose", lambda _: None)
    return made


def cluster_of(brokers: Brokers) -> Cluster:
    made: Any = Cluster(KafkaSettings(bootstrap_servers="localhost:1"))
    made._admin = brokers
    found: Cluster = made
    return found


def test_brokers_that_have_answered_are_given_time(brokers: Brokers) -> None:
    cluster = cluster_of(brokers)
    cluster.view([])
    brokers.busy_until = brokers.now + PATIENCE_SECONDS - 1
    assert cluster.view([]).cluster_id == "abc"


def test_after_that_time_they_are_away(brokers: Brokers) -> None:
    cluster = cluster_of(brokers)
    cluster.view([])
    brokers.busy_until = 1e9
    with pytest.raises(BrokerUnavailable, match="No broker answers"):
        cluster.view([])
    assert PATIENCE_SECONDS <= brokers.now <= PATIENCE_SECONDS + ANSWER_SECONDS


def test_brokers_that_never_answered_are_not_waited_for(brokers: Brokers) -> None:
    brokers.busy_until = 1e9
    with pytest.raises(BrokerUnavailable, match="No broker answers"):
        cluster_of(brokers).view([])
    assert brokers.now == ANSWER_SECONDS


def test_a_refused_login_is_an_error_at_once(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_of(brokers)
    cluster.view([])
    brokers.busy_until = 1e9
    monkeypatch.setattr(cluster_module, "diagnose", lambda _: LoginRefused("not you"))
    with pytest.raises(LoginRefused, match="not you"):
        cluster.view([])
    assert brokers.now == ANSWER_SECONDS
