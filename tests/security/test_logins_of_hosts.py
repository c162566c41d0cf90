"""A real broker takes the tokens of an OpenID provider, and the API key of the recipe for Confluent Cloud."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from aiokafka.errors import KafkaConnectionError

from kinstream.streams.errors import BrokerUnavailable, LoginRefused
from kinstream.streams.kafka.client_errors import explained
from kinstream.streams.kafka.clients import confluent_producer
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.connection_errors import diagnose
from kinstream.streams.kafka.tokens.source import source_of
from kinstream.streams.records.codec.codec import decode_outcome, encode
from kinstream.streams.settings import KafkaSettings
from tests.docs.pages import ROOT
from tests.faults.poison import constraints, identity
from tests.faults.processes import System
from tests.kafka.certificates import missing
from tests.kafka.logins import AUDIENCE, HostedBroker
from tests.security.consumers import aiokafka_fails, both_are_let_in, consumer_of
from tests.security.provider import CLIENT, SCOPE, SECRET, Provider
from tests.security.users import acting_as, recipe, until

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.long,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]
API_KEY: Final = ("ABCDEFGHIJKLMNOP", "cloud-s3cret-of-the-tests")
#: Debian's.
SYSTEMS_AUTHORITIES: Final = "/etc/ssl/certs"


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    made = Provider(tmp_path_factory.mktemp("provider"), AUDIENCE).start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def broker(started: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedBroker]:
    folder = tmp_path_factory.mktemp("hosted")
    with HostedBroker(folder, f"{started.plain_url}/keys", started.url, API_KEY) as made:
        yield made


@pytest.fixture
def provider(started: Provider) -> Provider:
    started.audience, started.seconds, started.shift, started.fails = AUDIENCE, 300.0, 0.0, None
    started.extra = {}
    return started


@pytest.fixture
def kafka(broker: HostedBroker, provider: Provider, request: pytest.FixtureRequest) -> KafkaSettings:
    # An extension of its own, so that no test is given the token of another.
    name = "".join(filter(str.isalpha, request.node.name))
    return KafkaSettings(
        bootstrap_servers=broker.at("OAUTH"),
        security_protocol="SASL_SSL",
        ssl_ca_file=str(broker.authority.certificate),
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=f"{provider.url}/token",
        sasl_oauthbearer_ca_file=str(provider.authority.certificate),
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


def recipe_for_tokens(broker: HostedBroker, provider: Provider, folder: Path) -> dict[str, str]:
    """The lines of docs/security.md, where the addresses and the files are those of this test."""
    (folder / "secret").write_text(SECRET)
    told = recipe(
        "\nLogin by token",
        KAFKA_SSL_CA_FILE=str(broker.authority.certificate),
        KAFKA_SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL=f"{provider.url}/token",
        KAFKA_SASL_OAUTHBEARER_CLIENT_SECRET_FILE=str(folder / "secret"),
    )
    assert (told["KAFKA_SASL_OAUTHBEARER_CLIENT_ID"], told["KAFKA_SASL_OAUTHBEARER_SCOPE"]) == (CLIENT, SCOPE)
    return told | {"KAFKA_BOOTSTRAP_SERVERS": broker.at("OAUTH")}


def test_the_recipe_for_tokens_logs_in_where_the_endpoint_is_trusted(
    broker: HostedBroker, provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = recipe_for_tokens(broker, provider, tmp_path)
    with acting_as(monkeypatch, told):
        kafka = KafkaSettings()
    asked = provider.asked
    why = (
        f"^{re.escape(provider.url)}/token: the certificate of the token endpoint is not trusted .*"
        "KAFKA_SASL_OAUTHBEARER_CA_FILE"
    )
    assert re.search(why, refused(kafka))
    found = explained(kafka, aiokafka_fails(kafka))
    assert isinstance(found, LoginRefused) and re.search(why, str(found)) and provider.asked == asked
    told |= {"KAFKA_SASL_OAUTHBEARER_CA_FILE": str(provider.authority.certificate)}
    with acting_as(monkeypatch, told):
        both_are_let_in(KafkaSettings())


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


def test_a_refused_token_that_cannot_be_renewed_or_was_renewed_is_no_refusal(
    kafka: KafkaSettings, provider: Provider
) -> None:
    provider.shift = -1_000.0
    cluster, source = Cluster(kafka), source_of(kafka)
    assert isinstance(diagnose(kafka), LoginRefused) and source.newest is not None
    # Most of its life is over.
    source.newest = replace(source.newest, fetched=time.time() - 100, expires=time.time() + 10)
    provider.fails = (503, b"")
    assert diagnose(kafka) is None and isinstance(source.failure, BrokerUnavailable)
    provider.shift, provider.fails, source.failure = 0.0, None, None
    cluster.wait(20.0)
    # librdkafka reports the refusal of the token before.
    cluster._refused = "invalid_token"
    assert cluster._refusal() is None
    cluster.close()


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


def recipe_for_confluent_cloud(
    broker: HostedBroker, folder: Path, secret: str = API_KEY[1]
) -> dict[str, str]:
    """The lines of docs/security.md, where address, key and file are those of this test: they name no authority."""
    (folder / "secret").write_text(secret)
    told = recipe(
        "\nConfluent Cloud, by an API key",
        KAFKA_BOOTSTRAP_SERVERS=broker.at("CLOUD"),
        KAFKA_SASL_USERNAME=API_KEY[0],
        KAFKA_SASL_PASSWORD_FILE=str(folder / "secret"),
    )
    assert told.keys() == {
        "KAFKA_BOOTSTRAP_SERVERS",
        "KAFKA_SECURITY_PROTOCOL",
        "KAFKA_SASL_MECHANISM",
        "KAFKA_SASL_USERNAME",
        "KAFKA_SASL_PASSWORD_FILE",
    }
    return told


@pytest.mark.parametrize("variable", ["KAFKA_SSL_CA_FILE", "SSL_CERT_FILE"])
def test_the_recipe_for_confluent_cloud_logs_in_if_the_authority_is_named(
    variable: str, broker: HostedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = {variable: str(broker.authority.certificate)}
    with acting_as(monkeypatch, recipe_for_confluent_cloud(broker, tmp_path) | authority):
        both_are_let_in(KafkaSettings())
    with acting_as(monkeypatch, recipe_for_confluent_cloud(broker, tmp_path, "another") | authority):
        assert "KAFKA_SASL_PASSWORD or the file" in refused(KafkaSettings())


@pytest.mark.skipif(
    os.geteuid() != 0 or not Path(SYSTEMS_AUTHORITIES).is_dir() or shutil.which("unshare") is None,
    reason="authorities of its own for a process need root, and a system that has some",
)
def test_the_recipe_for_confluent_cloud_logs_in_if_the_system_trusts_the_authority(
    broker: HostedBroker, tmp_path: Path
) -> None:
    """In a process for which the system's folder of authorities is another one."""
    folder = tmp_path / "certs"
    folder.mkdir()
    shutil.copy(broker.authority.certificate, folder / "ca-certificates.crt")
    given = {
        name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "SSL_CERT_"))
    }
    program = "from tests.security.consumers import *; both_are_let_in(KafkaSettings())"
    mounted = f'mount --bind "$0" {SYSTEMS_AUTHORITIES} && exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mounted, str(folder), sys.executable, "-c", program],
        env=given | recipe_for_confluent_cloud(broker, tmp_path),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_worker_learns_over_renewals_and_an_outage_and_ends_when_the_provider_disables_its_client(
    broker: HostedBroker, provider: Provider, tmp_path: Path
) -> None:
    """The promises of docs/security.md to a worker whose tokens last 4 s."""
    # The broker accepts them for longer, as a busy machine may be late.
    provider.seconds, provider.extra = 7.0, {"expires_in": 4}
    environment = recipe_for_tokens(broker, provider, tmp_path)
    environment["KAFKA_SASL_OAUTHBEARER_CA_FILE"] = str(provider.authority.certificate)
    # The test itself needs no login at the listener of the administrator.
    with contextlib.closing(System(tmp_path / "system", broker.bootstrap, partitions=1)) as system:
        system.configure(worker__session_timeout_seconds=6.0)
        system.create_topics()
        sent = 0

        def learn() -> None:
            nonlocal sent
            chained = identity("s", sent, system.topic("events"))
            system.send([("s", encode(constraints("s")))], "constraints", chained)
            sent += 1
            system.settle_learner(60.0)

        worker = system.worker("learner-opml", "--create", environment=environment)
        worker.expect("serves http")
        asked = provider.asked
        while provider.asked < asked + 3:
            learn()
        assert not worker.said("no token for the brokers")
        provider.stop()
        # The second line comes once the last token has expired and the broker has ended the connections.
        for logger in ("tokens", "watchdog"):
            worker.expect(f"WARNING kinstream.{logger}: .*the token endpoint does not answer", 60.0)
        provider.start()
        learn()
        assert worker.said("tokens can be fetched again") and not worker.said("Stalled")
        provider.fails = (401, b'{"error": "invalid_client"}')
        assert worker.status(60.0) == 3
        last = worker.log().splitlines()[-1]
        assert f" {provider.url}/token: the token endpoint answers 401 (invalid_client): check " in last
        assert SECRET not in worker.log() and "Traceback" not in worker.log()
        outcomes = system.chain("outcomes").values["opml", "s"]
        steps = [getattr(decode_outcome(value), "step", None) for value in outcomes]
        assert steps == list(range(1, sent + 1))
