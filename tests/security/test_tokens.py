"""Tokens: one request for all clients, renewal before the end, and errors that name the endpoint and the reason."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kinstream.streams.errors import BrokerUnavailable, LoginRefused, SettingsError
from kinstream.streams.kafka.clients import confluent, faust_broker
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.tokens import oidc
from kinstream.streams.kafka.tokens.source import PAUSE_SECONDS, TokenSource, source_of
from kinstream.streams.kafka.tokens.token import Away, Token
from kinstream.streams.secrets import hide
from kinstream.streams.settings import KafkaSettings
from tests.kafka.certificates import missing
from tests.security.provider import CLIENT, SCOPE, SECRET, Provider

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    provider = Provider(tmp_path_factory.mktemp("provider"), "kafka").start()
    yield provider
    provider.stop()


@pytest.fixture
def provider(started: Provider) -> Provider:
    started.fails, started.extra, started.asked = None, {}, 0
    return started


def settings(provider: Provider, **changes: Any) -> KafkaSettings:
    given: dict[str, Any] = {
        "bootstrap_servers": "127.0.0.1:1",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": f"{provider.url}/token",
        "sasl_oauthbearer_ca_file": str(provider.authority.certificate),
        "sasl_oauthbearer_client_id": CLIENT,
        "sasl_oauthbearer_client_secret": SECRET,
        "sasl_oauthbearer_scope": SCOPE,
    }
    return KafkaSettings(**{**given, **changes})


@pytest.mark.parametrize("tls", [True, False])
def test_both_libraries_get_the_same_token_by_one_request(tls: bool, provider: Provider) -> None:
    """Without TLS only from this machine."""
    from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth

    url = provider.url if tls else provider.plain_url
    kafka = settings(
        provider,
        sasl_oauthbearer_token_endpoint_url=f"{url}/token",
        sasl_oauthbearer_extensions="logicalCluster=lkc-1, identityPoolId=pool-2",
    )
    options = confluent(kafka)
    text, expires, principal, extensions = options["oauth_cb"]("")
    assert (options["sasl.mechanism"], principal) == ("OAUTHBEARER", "service-account-learner")
    assert extensions == {"logicalCluster": "lkc-1", "identityPoolId": "pool-2"}
    auth = credentials_to_aiokafka_auth(faust_broker(kafka)["broker_credentials"])
    assert (auth["security_protocol"], auth["sasl_mechanism"]) == ("SASL_PLAINTEXT", "OAUTHBEARER")
    given = auth["sasl_oauth_token_provider"]
    assert asyncio.run(given.token()) == text and given.extensions() == extensions
    assert provider.asked == 1 and text.count(".") == 2
    assert 200 < expires - time.time() <= 300


@pytest.mark.parametrize(
    ("fails", "refused", "told"),
    [
        ((400, b'{"error": "unauthorized_client"}'), True, "answers 400 .unauthorized_client.*grant"),
        ((400, b'{"error": "invalid_scope"}'), True, "KAFKA_SASL_OAUTHBEARER_SCOPE"),
        ((401, b"no JSON"), True, "answers 401: .*CLIENT_ID"),
        ((404, b""), True, "answers 404: .*TOKEN_ENDPOINT_URL"),
        ((302, b""), True, "answers 302: "),
        ((429, b""), False, "answers 429"),
        ((503, b'{"error_description": "starting"}'), False, "answers 503 .starting"),
        ((200, b"[]"), True, "no access_token"),
        ((200, b'{"access_token": "opaque"}'), True, "expires_in"),
    ],
)
def test_an_answer_without_a_token_says_why(
    fails: tuple[int, bytes], refused: bool, told: str, provider: Provider
) -> None:
    provider.fails = fails
    with pytest.raises(LoginRefused if refused else Away, match=told) as error:
        oidc.fetch(settings(provider))
    assert str(error.value).startswith(f"{provider.url}/token: ") and SECRET not in str(error.value)
    # A redirect is not followed: the secret would go elsewhere.
    assert provider.asked == 1


def test_a_wrong_secret_is_refused_and_not_shown(provider: Provider) -> None:
    wrong = "wr0ng-of-the-token-tests"
    with pytest.raises(LoginRefused, match=r"401 \(invalid_client: Invalid client.*CLIENT_SECRET") as error:
        oidc.fetch(settings(provider, sasl_oauthbearer_client_secret=wrong))
    assert wrong not in str(error.value) and hide(wrong) == "***"


def test_the_expiry_is_the_answers_or_the_tokens(provider: Provider) -> None:
    provider.extra = {"expires_in": 60}
    told = oidc.fetch(settings(provider))
    assert told.expires - told.fetched == 60
    provider.extra = {"expires_in": None}
    told = oidc.fetch(settings(provider))
    assert told.expires == told.claims()["exp"] and 290 < told.expires - time.time() <= 300


@pytest.mark.parametrize(("host", "trusted"), [("127.0.0.1", False), ("localhost", True)])
def test_an_endpoint_whose_certificate_is_foreign_or_for_another_host_never_sees_the_secret(
    host: str, trusted: bool, provider: Provider
) -> None:
    url = f"{provider.url.replace('127.0.0.1', host)}/token"
    file = str(provider.authority.certificate) if trusted else ""
    kafka = settings(provider, sasl_oauthbearer_token_endpoint_url=url, sasl_oauthbearer_ca_file=file)
    told = f"^{re.escape(url)}: the certificate of the token endpoint is not trusted .*CA_FILE and the URL$"
    with pytest.raises(LoginRefused, match=told) as error:
        oidc.fetch(kafka)
    assert error.value.exit_status == 3 and not provider.asked


def test_without_a_file_the_systems_authorities_vouch_for_the_endpoint(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(provider.authority.certificate))
    assert oidc.fetch(settings(provider, sasl_oauthbearer_ca_file="")).claims()["iss"] == provider.url


def test_an_endpoint_that_does_not_answer_is_away() -> None:
    kafka = KafkaSettings(sasl_oauthbearer_token_endpoint_url="http://127.0.0.1:1/token")
    with pytest.raises(
        Away, match=r"127.0.0.1:1/token: the token endpoint does not answer: Connection refused"
    ):
        oidc.fetch(kafka)


class Endpoint:
    """A clock, and an endpoint whose tokens last 100 s."""

    def __init__(self) -> None:
        self.now, self.asked = 1_000.0, 0
        self.error: Exception | None = None

    def fetch(self) -> Token:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return Token(f"token {self.asked}", self.now, self.now + 100)


def test_a_token_is_renewed_before_it_expires_and_used_while_the_endpoint_is_away() -> None:
    endpoint = Endpoint()
    source = TokenSource(endpoint.fetch, lambda: endpoint.now)
    assert [source.token().text for _ in range(3)] == ["token 1"] * 3
    endpoint.now += 79
    assert source.token().text == "token 1"
    endpoint.now += 2
    assert source.token().text == "token 2"
    endpoint.now, endpoint.error = endpoint.now + 90, Away("the endpoint answers 503")
    assert source.token().text == "token 2" and isinstance(source.failure, BrokerUnavailable)
    asked = endpoint.asked
    assert source.token().text == "token 2" and endpoint.asked == asked
    endpoint.now += 10
    for _ in range(2):
        with pytest.raises(BrokerUnavailable, match="503"):
            source.token()
    assert endpoint.asked == asked + 1
    endpoint.now, endpoint.error = endpoint.now + PAUSE_SECONDS, None
    assert source.token().text == f"token {asked + 2}" and source.failure is None
    endpoint.now, endpoint.error = endpoint.now + 101, LoginRefused("disabled")
    with pytest.raises(LoginRefused, match="disabled"):
        source.token()


def test_librdkafka_asks_again_soon_while_the_endpoint_is_away(provider: Provider) -> None:
    """After an error it would wait for 10 s, so it is given the token that has expired once more."""
    kafka = settings(provider, sasl_oauthbearer_extensions="test=away")
    give = confluent(kafka)["oauth_cb"]
    text, *_ = give("")
    source = source_of(kafka)
    source.newest = Token(text, time.time() - 10, time.time() - 1)
    provider.fails = (503, b"")
    again, until, *_ = give("")
    assert again == text and 0 < until - time.time() <= PAUSE_SECONDS
    source.newest = None
    with pytest.raises(BrokerUnavailable, match="503"):
        give("")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"sasl_oauthbearer_client_id": ""}, "OAUTHBEARER needs KAFKA_SASL_OAUTHBEARER_CLIENT_ID"),
        ({"sasl_oauthbearer_client_secret": ""}, "needs KAFKA_SASL_OAUTHBEARER_CLIENT_SECRET"),
        ({"sasl_oauthbearer_token_endpoint_url": "http://id.example.org/token"}, "must begin with https://"),
        (
            {"sasl_oauthbearer_token_endpoint_url": "https://a:b@id.example.org/"},
            "without a user or password",
        ),
        ({"sasl_oauthbearer_extensions": "auth=x"}, "name=value"),
        ({"sasl_oauthbearer_extensions": "logicalCluster"}, "name=value"),
    ],
)
def test_settings_that_cannot_work_are_refused(
    changes: dict[str, str], told: str, provider: Provider
) -> None:
    with pytest.raises(ValueError, match=told) as error:
        settings(provider, **changes)
    assert SECRET not in str(error.value)


def test_a_file_of_authorities_that_cannot_be_used_is_named(provider: Provider, tmp_path: Path) -> None:
    for file in (tmp_path / "missing.pem", Path(__file__)):
        kafka = settings(provider, sasl_oauthbearer_ca_file=str(file))
        for make in (confluent, faust_broker):
            with pytest.raises(SettingsError, match=f"KAFKA_SASL_OAUTHBEARER_CA_FILE {file}: "):
                make(kafka)


def test_a_refusal_that_lasts_is_found_by_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watchdog ends a worker after two in a row, and a diagnosis without a finding is made rarely."""
    found: list[LoginRefused | None] = [LoginRefused("one"), LoginRefused("two"), None]
    monkeypatch.setattr("kinstream.streams.kafka.cluster.diagnose", lambda _: found.pop(0))
    cluster = Cluster(KafkaSettings(bootstrap_servers="127.0.0.1:1"))
    for told in ("one", "two"):
        with pytest.raises(LoginRefused, match=told):
            cluster._metadata_within(None, 0.1)
    for _ in range(3):
        with pytest.raises(BrokerUnavailable):
            cluster._metadata_within(None, 0.1)
    assert not found
    cluster.close()
