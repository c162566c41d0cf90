"""A follower on a real Kafka: a topic that is not there yet, a killed broker, new partitions, a topic made anew."""

from __future__ import annotations

import numpy as np
import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewPartitions

from kinstream.search.models.follower import ModelFollower
from kinstream.search.models.model import name_of
from kinstream.search.models.staleness import Failure
from tests.kafka.broker import KafkaBroker
from tests.search.learned_world import MODELS, World

X = np.random.default_rng(1).normal(size=(20, 4))
SECONDS = 120.0


def producer(broker: KafkaBroker, **more: str) -> Producer:
    quiet = {"log_level": 0, "error_cb": lambda error: None, "reconnect.backoff.max.ms": 200}
    return Producer({"bootstrap.servers": broker.bootstrap, **quiet, **more})


@pytest.mark.kafka
def test_nothing_that_happens_to_brokers_and_topic_loses_a_model(
    world: World, own_kafka: KafkaBroker
) -> None:
    loads = iter(range(100))

    def learn() -> bytes:
        """One more model, and its announcement."""
        world.learn("a", 1, load=str(next(loads)))
        return [value for key, value in world.records() if key.startswith(b"a/opml/")][-1]

    def announce(value: bytes, partition: int) -> None:
        refused: list[object] = []

        def told(error: object, message: object) -> None:
            if error is not None:
                refused.append(error)

        sender = producer(own_kafka)
        sender.produce(MODELS, value, b"key", partition=partition, on_delivery=told)
        assert sender.flush(20) == 0 and not refused

    with ModelFollower("a", "opml", world.settings, brokers=own_kafka.bootstrap) as metric:

        def followed() -> None:
            newest = world.announced()[-1]
            model = metric.wait(name_of(newest), timeout=SECONDS)
            assert model.version == newest
            assert (model.transform(X) == world.core().transform(X)).all()

        metric.wait(lambda model: "topics create" in (metric.staleness().trouble or ""), timeout=SECONDS)
        own_kafka.create_topic(MODELS, partitions=2)
        announce(learn(), 1)
        followed()
        metric.wait(timeout=SECONDS)
        assert metric.staleness().caught_up

        own_kafka.kill()
        before = metric.model
        metric.wait(lambda model: metric.staleness().trouble is not None, timeout=SECONDS)
        assert metric.model is before and metric.healthy
        own_kafka.start()
        announce(learn(), 0)
        followed()
        metric.wait(lambda model: metric.staleness().trouble is None, timeout=SECONDS)

        admin = own_kafka.admin()
        admin.create_partitions([NewPartitions(MODELS, 3)])[MODELS].result(SECONDS)
        own_kafka.wait_for_leaders(MODELS, 3)
        announce(learn(), 2)
        followed()

        own_kafka.delete_topic(MODELS)
        own_kafka.create_topic(MODELS, partitions=1)
        announce(learn(), 0)
        followed()

        # What a transaction has taken back was never announced.
        served = metric.model.name
        sender = producer(own_kafka, **{"transactional.id": "announcer"})
        sender.init_transactions(20)
        sender.begin_transaction()
        aborted = learn()
        sender.produce(MODELS, aborted, b"key", partition=0)
        assert sender.flush(20) == 0
        sender.abort_transaction(20)
        announce(b"of no use", 0)
        metric.wait(lambda model: metric.staleness().failures[Failure.UNREADABLE] > 0, timeout=SECONDS)
        assert metric.staleness().announced == served == metric.model.name
        announce(aborted, 0)
        followed()
