"""A real broker takes the tokens of an OpenID provider, and the API key of the recipe for Confluent Cloud."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from aiokafka.errors import KafkaConnectionError

from kinstream.streams.errors import BrokerUnavailable, LoginRefused
from kinstream.streams.kafka.client_errors import explained
from kinstream.streams.kafka.clients import confluent_producer
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.settings import KafkaSettings
from tests.kafka.certificates import missing
from tests.kafka.logins import AUDIENCE, HostedBroker
from tests.security.consumers import aiokafka_fails, consumer_of
from tests.security.provider import CLIENT, SCOPE, SECRET, Provider
from tests.security.users import acting_as, recipe, until

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.long,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]
API_KEY: Final = ("ABCDEFGHIJKLMNOP", "cloud-s3cret-of-the-tests")


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    made = Provider(tmp_path_factory.mktemp("provider"), AUDIENCE).start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def broker(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedBroker]:
    folder = tmp_path_factory.mktemp("hosted")
    with HostedBroker(folder, f"{provider.url}/keys", provider.url, API_KEY) as made:
        yield made


@pytest.fixture
def kafka(broker: HostedBroker, provider: Provider, request: pytest.FixtureRequest) -> KafkaSettings:
    provider.audience, provider.seconds, provider.shift, provider.fails = AUDIENCE, 300.0, 0.0, None
    # An extension of its own, so that no test is given the token of another.
    name = "".join(filter(str.isalpha, request.node.name))
    return KafkaSettings(
        bootstrap_servers=broker.at("OAUTH"),
        security_protocol="SASL_SSL",
        ssl_ca_file=str(broker.authority.certificate),
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=f"{provider.url}/token",
        sasl_oauthbearer_client_id=CLIENT,
        sasl_oauthbearer_client_secret=SECRET,  # type: ignore[arg-type]
        sasl_oauthbearer_scope=SCOPE,
        sasl_oauthbearer_extensions=f"test={name}",
    )


def refused(kafka: KafkaSettings, seconds: float = 20.0) -> str:
    cluster = Cluster(kafka)
    with pytest.raises(LoginRefused) as error:
        cluster.wait(seconds)
    cluster.close()
    assert SECRET not in str(error.value) and "\n" not in str(error.value)
    return str(error.value)


def test_the_recipe_for_tokens_logs_in(
    kafka: KafkaSettings,
    broker: HostedBroker,
    provider: Provider,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lines of docs/security.md, where the addresses and the files are those of this test."""
    told = recipe("\nLogin by token")
    assert (told["KAFKA_SASL_OAUTHBEARER_CLIENT_ID"], told["KAFKA_SASL_OAUTHBEARER_SCOPE"]) == (CLIENT, SCOPE)
    (tmp_path / "secret").write_text(SECRET)
    told |= {
        "KAFKA_BOOTSTRAP_SERVERS": broker.at("OAUTH"),
        "KAFKA_SSL_CA_FILE": kafka.ssl_ca_file,
        "KAFKA_SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL": f"{provider.url}/token",
        "KAFKA_SASL_OAUTHBEARER_CLIENT_SECRET_FILE": str(tmp_path / "secret"),
    }
    with acting_as(monkeypatch, told):
        cluster = Cluster(KafkaSettings())
    cluster.wait(20.0)
    assert cluster.view([]).brokers == 1
    cluster.close()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"audience": "another.example.org"}, "audience 'another.example.org'.*expected.audience"),
        ({"shift": -1_000.0}, r"expired 70\d s ago.*check both clocks"),
    ],
)
def test_a_token_that_the_broker_refuses_is_described(
    wrong: dict[str, Any], told: str, kafka: KafkaSettings, broker: HostedBroker, provider: Provider
) -> None:
    for name, value in wrong.items():
        setattr(provider, name, value)
    place = f"^{broker.at('OAUTH')}: the broker refused the login of the OAuth client learner: the token"
    assert re.search(f"{place} .*{told}", refused(kafka))
    # aiokafka takes this refusal for a success, and then sees a cluster without brokers.
    found = explained(kafka, KafkaConnectionError())
    assert isinstance(found, LoginRefused) and re.search(f"{place} .*{told}", str(found))


def test_a_client_that_the_provider_refuses_ends_at_once(kafka: KafkaSettings, provider: Provider) -> None:
    provider.fails = (401, b'{"error": "invalid_client"}')
    began = time.monotonic()
    told = f"{provider.url}/token: the token endpoint answers 401 (invalid_client): check "
    assert refused(kafka).startswith(told) and time.monotonic() - began < 5
    found = explained(kafka, aiokafka_fails(kafka))
    assert isinstance(found, LoginRefused) and str(found).startswith(told)


def test_an_endpoint_that_is_away_is_waited_for(kafka: KafkaSettings, provider: Provider) -> None:
    provider.stop()
    cluster = Cluster(kafka)
    with pytest.raises(BrokerUnavailable, match=r"No token for the brokers within 1 s: .*does not answer"):
        cluster.wait(1.0)
    back = threading.Timer(1.0, provider.start)
    back.start()
    cluster.wait(30.0)
    assert cluster.view([]).brokers == 1
    cluster.close()
    back.join()


def test_both_renew_their_tokens_while_they_run(
    kafka: KafkaSettings, broker: HostedBroker, provider: Provider
) -> None:
    """The broker ends connections whose token has expired, so work after three lives needs new tokens."""
    from confluent_kafka import Producer

    provider.seconds = 4.0
    asked = provider.asked
    broker.create_topic("renewed")
    sent: list[bytes] = []
    failed: list[Any] = []

    async def read() -> list[bytes]:
        consumer = consumer_of(kafka, "renewed")
        await consumer.start()
        found: list[bytes] = []
        try:
            limit = time.monotonic() + 30
            while len(found) < 14 and time.monotonic() < limit:
                batch = await consumer.getmany(timeout_ms=500)
                found += [record.value for records in batch.values() for record in records]
        finally:
            await consumer.stop()
        return found

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    def write() -> None:
        producer = Producer(confluent_producer(kafka))
        for number in range(14):
            sent.append(str(number).encode())
            producer.produce("renewed", sent[-1], on_delivery=delivered)
            producer.flush(20)
            time.sleep(1.0)

    writer = threading.Thread(target=write)
    writer.start()
    assert asyncio.run(read()) == [str(number).encode() for number in range(14)]
    writer.join()
    assert not failed and provider.asked - asked >= 3


def test_an_outage_of_the_endpoint_while_running_is_survived(
    kafka: KafkaSettings, provider: Provider
) -> None:
    provider.seconds = 4.0
    cluster = Cluster(kafka)
    cluster.wait(20.0)
    provider.fails = (503, b"")

    def away() -> bool:
        try:
            cluster.view([])
        except BrokerUnavailable as error:
            return "answers 503" in str(error)
        return False

    until(away, "the broker ends the connection and no token is had")
    # On a busy machine a token of seconds may expire before the broker sees it.
    provider.seconds = 300.0
    provider.fails = None
    cluster.wait(30.0)
    assert cluster.view([]).brokers == 1
    cluster.close()


def test_the_recipe_for_confluent_cloud_logs_in(
    broker: HostedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines of docs/security.md, where address, key, file and authority are those of this test."""
    told = recipe("\nConfluent Cloud, by an API key")
    assert told.keys() == {
        "KAFKA_BOOTSTRAP_SERVERS",
        "KAFKA_SECURITY_PROTOCOL",
        "KAFKA_SASL_MECHANISM",
        "KAFKA_SASL_USERNAME",
        "KAFKA_SASL_PASSWORD_FILE",
    }
    (tmp_path / "secret").write_text(API_KEY[1])
    told |= {"KAFKA_BOOTSTRAP_SERVERS": broker.at("CLOUD"), "KAFKA_SASL_USERNAME": API_KEY[0]}
    told |= {"KAFKA_SASL_PASSWORD_FILE": str(tmp_path / "secret")}
    told |= {"KAFKA_SSL_CA_FILE": str(broker.authority.certificate)}
    with acting_as(monkeypatch, told):
        kafka = KafkaSettings()
    cluster = Cluster(kafka)
    cluster.wait(20.0)
    assert cluster.view([]).brokers == 1
    cluster.close()

    async def connects() -> int:
        consumer = consumer_of(kafka)
        await consumer.start()
        try:
            return len(consumer._client.cluster.brokers())
        finally:
            await consumer.stop()

    assert asyncio.run(connects()) == 1
    (tmp_path / "secret").write_text("another")
    with acting_as(monkeypatch, told):
        assert "KAFKA_SASL_PASSWORD or the file" in refused(KafkaSettings())
