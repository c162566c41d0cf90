"""A login that cannot succeed is told in one line that says what to check, by both client libraries, and at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kinstream.streams.errors import KinstreamError, LoginRefused, SettingsError
from kinstream.streams.kafka.client_errors import explained
from kinstream.streams.kafka.clients import confluent, faust_broker
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.settings import KafkaSettings
from tests.kafka.secured_broker import SecuredBroker
from tests.security.consumers import aiokafka_fails, both_are_let_in
from tests.security.users import acting_as, by_certificate, by_password, recipe

PASSWORD = "pa55-of-the-login-tests"
KEY_PASSWORD = "k3y-of-the-login-tests"
WRONG = "wr0ng-of-the-login-tests"
Changes = dict[str, str]


def _certificate(broker: SecuredBroker) -> Changes:
    return by_certificate(broker, "login-tests", KEY_PASSWORD)


def _no_certificate(broker: SecuredBroker) -> Changes:
    found = _certificate(broker)
    return {name: found[name] for name in found if "CERTIFICATE" not in name and "KEY" not in name}


def _foreign_certificate(broker: SecuredBroker) -> Changes:
    own = broker.stranger.sign("login-tests")
    files = {"KAFKA_SSL_CERTIFICATE_FILE": str(own.certificate), "KAFKA_SSL_KEY_FILE": str(own.key)}
    return _no_certificate(broker) | files


def _expired_certificate(broker: SecuredBroker) -> Changes:
    own = broker.authority.sign("login-tests-expired", expired=True)
    files = {"KAFKA_SSL_CERTIFICATE_FILE": str(own.certificate), "KAFKA_SSL_KEY_FILE": str(own.key)}
    return _no_certificate(broker) | files


def _login(**changes: str) -> Callable[[SecuredBroker], Changes]:
    def made(broker: SecuredBroker) -> Changes:
        return by_password(broker, "login-tests", PASSWORD) | {f"KAFKA_{n}": v for n, v in changes.items()}

    return made


def _at(listener: str) -> Callable[[SecuredBroker], Changes]:
    return lambda broker: by_password(broker, "login-tests", PASSWORD, listener)


def _foreign_authority(broker: SecuredBroker) -> Changes:
    return _login(SSL_CA_FILE=str(broker.stranger.certificate))(broker)


def _no_tls_there(broker: SecuredBroker) -> Changes:
    return _login(BOOTSTRAP_SERVERS=broker.at("PLAIN"))(broker)


REFUSALS: list[Any] = [
    pytest.param(
        _login(SASL_PASSWORD=WRONG),
        "refused the login of User:login-tests.*KAFKA_SASL_PASSWORD",
        id="password",
    ),
    pytest.param(
        _login(SASL_USERNAME="nobody"), "refused the login of User:nobody.*KAFKA_SASL_USERNAME", id="user"
    ),
    pytest.param(
        _login(SASL_MECHANISM="SCRAM-SHA-256"),
        "does not offer SCRAM-SHA-256.*KAFKA_SASL_MECHANISM",
        id="mechanism",
    ),
    pytest.param(_foreign_authority, "is not signed by KAFKA_SSL_CA_FILE", id="authority"),
    pytest.param(
        _login(SSL_CA_FILE=""),
        "is not signed by the system.s authorities.*set KAFKA_SSL_CA_FILE",
        id="no authority",
    ),
    pytest.param(_at("EXPIRED"), "certificate has expired.*clock", id="expired"),
    pytest.param(_at("ELSEWHERE"), "not for 127.0.0.1.*KAFKA_BOOTSTRAP_SERVERS", id="host name"),
    pytest.param(
        _login(SECURITY_PROTOCOL="PLAINTEXT"),
        "speaks TLS, and KAFKA_SECURITY_PROTOCOL is PLAINTEXT",
        id="plaintext",
    ),
    pytest.param(
        _login(SECURITY_PROTOCOL="SASL_PLAINTEXT"),
        "speaks TLS.*set it to SASL_SSL",
        id="password in the clear",
    ),
    pytest.param(_login(SECURITY_PROTOCOL="SSL"), "wants a login.*SASL_SSL", id="no login"),
    pytest.param(_no_tls_there, "does not speak TLS.*SASL_SSL", id="no TLS there"),
    pytest.param(
        _no_certificate, "wants a client certificate.*KAFKA_SSL_CERTIFICATE_FILE", id="no certificate"
    ),
    pytest.param(_foreign_certificate, "refuses the client certificate", id="foreign certificate"),
    pytest.param(_expired_certificate, "refuses the client certificate.*expired", id="expired certificate"),
]


@pytest.fixture(scope="module")
def broker(secured_kafka: SecuredBroker) -> SecuredBroker:
    secured_kafka.add_user("login-tests", PASSWORD)
    return secured_kafka


def _settings(patch: pytest.MonkeyPatch, environment: Changes) -> KafkaSettings:
    with acting_as(patch, environment):
        return KafkaSettings()


def _check(error: KinstreamError, told: str) -> None:
    text = str(error)
    assert "\n" not in text and not {PASSWORD, KEY_PASSWORD, WRONG} & set(text.split())
    assert not any(secret in text + repr(error) for secret in (PASSWORD, KEY_PASSWORD, WRONG))
    assert error.exit_status == 3
    with pytest.raises(LoginRefused, match=told):
        raise error


@pytest.mark.long
@pytest.mark.parametrize(("user", "told"), REFUSALS)
def test_librdkafka_ends_the_wait_at_once_and_says_why(
    user: Callable[[SecuredBroker], Changes],
    told: str,
    broker: SecuredBroker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(_settings(monkeypatch, user(broker)))
    began = time.monotonic()
    with pytest.raises(LoginRefused) as refused:
        cluster.wait(60.0)
    assert time.monotonic() - began < 15.0
    cluster.close()
    _check(refused.value, told)


@pytest.mark.long
@pytest.mark.parametrize(("user", "told"), REFUSALS)
def test_aiokafkas_error_is_explained_alike(
    user: Callable[[SecuredBroker], Changes],
    told: str,
    broker: SecuredBroker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka = _settings(monkeypatch, user(broker))
    found = explained(kafka, aiokafka_fails(kafka))
    assert found is not None
    _check(found, told)


def test_the_recipes_for_password_and_certificate_log_in_with_both(
    broker: SecuredBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines of docs/security.md, where the addresses and the files are those of this test."""
    secret, key_secret = tmp_path / "kafka-password", tmp_path / "key-password"
    secret.write_text(PASSWORD)
    key_secret.write_text(KEY_PASSWORD)
    by_name = recipe(
        "Login by password over TLS",
        KAFKA_BOOTSTRAP_SERVERS=f"127.0.0.1:1,{broker.at('SCRAM')}",
        KAFKA_SASL_PASSWORD_FILE=str(secret),
        KAFKA_SSL_CA_FILE=str(broker.authority.certificate),
    )
    broker.add_user(by_name["KAFKA_SASL_USERNAME"], PASSWORD)
    own = broker.client_certificate("recipe", KEY_PASSWORD)
    mutual = recipe(
        "Login by certificate (mutual TLS)",
        KAFKA_SSL_CA_FILE=str(broker.authority.certificate),
        KAFKA_SSL_CERTIFICATE_FILE=str(own.certificate),
        KAFKA_SSL_KEY_FILE=str(own.key),
        KAFKA_SSL_KEY_PASSWORD_FILE=str(key_secret),
    )
    for told in (by_name, mutual | {"KAFKA_BOOTSTRAP_SERVERS": broker.at("MUTUAL")}):
        both_are_let_in(_settings(monkeypatch, told))


def test_brokers_that_are_away_are_no_refusal(broker: SecuredBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = _settings(monkeypatch, _login(BOOTSTRAP_SERVERS="127.0.0.1:1")(broker))
    cluster = Cluster(kafka)
    with pytest.raises(KinstreamError, match=r"No broker answers at .* within 1 s") as error:
        cluster.wait(1.0)
    assert not isinstance(error.value, LoginRefused)
    cluster.close()
    assert explained(kafka, ConnectionRefusedError()) is None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"SSL_CA_FILE": "/nowhere/ca.pem"}, "KAFKA_SSL_CA_FILE /nowhere/ca.pem: No such file"),
        ({"SSL_CA_FILE": __file__}, "KAFKA_SSL_CA_FILE .*not a usable PEM file"),
        ({"SSL_KEY_PASSWORD": WRONG}, "KAFKA_SSL_KEY_FILE .*KAFKA_SSL_KEY_PASSWORD right"),
        ({"SSL_KEY_PASSWORD": ""}, "KAFKA_SSL_KEY_FILE .*KAFKA_SSL_KEY_PASSWORD right"),
        ({"SSL_KEY_FILE": "/nowhere/key.pem"}, "/nowhere/key.pem does not exist"),
        ({"SSL_CERTIFICATE_FILE": __file__}, "KAFKA_SSL_CERTIFICATE_FILE"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_before_anything_is_sent(
    changes: Changes, told: str, broker: SecuredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = _certificate(broker) | {f"KAFKA_{name}": value for name, value in changes.items()}
    kafka = _settings(monkeypatch, environment)
    for make in (confluent, faust_broker):
        with pytest.raises(SettingsError, match=told) as error:
            make(kafka)
        assert WRONG not in str(error.value) and KEY_PASSWORD not in str(error.value)
