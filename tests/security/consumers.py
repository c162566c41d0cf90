"""Clients of both libraries: of aiokafka with the login that the faust transport gives them."""

from __future__ import annotations

import asyncio
from typing import Any

from kinstream.streams.kafka.clients import faust_broker
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.settings import KafkaSettings


def consumer_of(kafka: KafkaSettings, *topics: str) -> Any:
    """A consumer, made as the transport makes it."""
    from aiokafka import AIOKafkaConsumer
    from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth

    login = dict(credentials_to_aiokafka_auth(faust_broker(kafka)["broker_credentials"]))
    servers = kafka.bootstrap_servers
    # Without topics it has a group, as aiokafka 0.14 cannot stop a consumer with neither.
    login |= {} if topics else {"group_id": "login-tests"}
    return AIOKafkaConsumer(*topics, bootstrap_servers=servers, auto_offset_reset="earliest", **login)


def both_are_let_in(kafka: KafkaSettings) -> None:
    """Both libraries log in, and see one broker."""

    async def brokers() -> int:
        consumer = consumer_of(kafka)
        await consumer.start()
        try:
            return len(consumer._client.cluster.brokers())
        finally:
            await consumer.stop()

    cluster = Cluster(kafka)
    cluster.wait(20.0)
    assert cluster.view([]).brokers == 1
    cluster.close()
    assert asyncio.run(brokers()) == 1


def aiokafka_fails(kafka: KafkaSettings) -> BaseException:
    """How a consumer fails with these settings."""

    async def fail() -> BaseException:
        consumer = consumer_of(kafka)
        try:
            await consumer.start()
        except Exception as error:
            return error
        finally:
            await consumer.stop()
        raise AssertionError("it was let in")

    return asyncio.run(fail())
