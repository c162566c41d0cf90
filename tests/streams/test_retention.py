"""How long a topic keeps its records, as a real cluster says it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kinstream.streams.errors import BrokerUnavailable
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.settings import KafkaSettings
from tests.kafka.broker import KafkaBroker


@pytest.fixture
def cluster(kafka: KafkaBroker) -> Iterator[Cluster]:
    made = Cluster(KafkaSettings(bootstrap_servers=kafka.bootstrap))
    yield made
    made.close()


@pytest.mark.long
def test_a_topic_keeps_what_it_says(kafka: KafkaBroker, cluster: Cluster) -> None:
    kafka.create_topic("kept-hour", retention_ms="3600000")
    assert cluster.retention_seconds("kept-hour") == 3600


def test_for_ever_is_none(kafka: KafkaBroker, cluster: Cluster) -> None:
    kafka.create_topic("kept-ever", retention_ms="-1")
    kafka.create_topic("kept-newest", cleanup_policy="compact")
    assert cluster.retention_seconds("kept-ever") is None
    assert cluster.retention_seconds("kept-newest") is None


def test_a_topic_that_is_not_there_is_no_answer(kafka: KafkaBroker, cluster: Cluster) -> None:
    with pytest.raises(BrokerUnavailable, match="kept-nowhere"):
        cluster.retention_seconds("kept-nowhere")
