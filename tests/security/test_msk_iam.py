"""The login to Amazon MSK by IAM: Amazon's signer is replaced, the way of its tokens is not."""

from __future__ import annotations

import asyncio
import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kinstream.streams.errors import LoginRefused, PackageMissing, SettingsError
from kinstream.streams.kafka.clients import confluent, faust_broker
from kinstream.streams.kafka.connection_errors import refused_login
from kinstream.streams.kafka.tokens import msk_iam
from kinstream.streams.kafka.tokens.source import source_of
from kinstream.streams.kafka.tokens.token import Away
from kinstream.streams.settings import KafkaSettings
from tests.security.users import acting_as, recipe

KAFKA = KafkaSettings(
    bootstrap_servers="b-1.msk.example.org:9098", security_protocol="SASL_SSL", sasl_mechanism="AWS_MSK_IAM"
)


class _BotoCoreError(Exception):
    """As botocore's."""


class _HTTPClientError(_BotoCoreError):
    """As botocore's."""


class _MetadataRetrievalError(_BotoCoreError):
    """As botocore's."""


class Signer:
    """The function of Amazon's package: regions that it was called with, and the error that it raises."""

    def __init__(self) -> None:
        self.regions: list[str] = []
        self.error: Exception | None = None

    def generate_auth_token(self, region: str) -> tuple[str, int]:
        """A token for 900 s, and its expiry in milliseconds, as Amazon's."""
        self.regions.append(region)
        if self.error is not None:
            raise self.error
        return "c2lnbmVk", int((time.time() + 900) * 1000)


@pytest.fixture
def signer(monkeypatch: pytest.MonkeyPatch) -> Signer:
    made = Signer()
    package: Any = ModuleType("aws_msk_iam_sasl_signer")
    package.MSKAuthTokenProvider = made
    botocore: Any = ModuleType("botocore")
    botocore.exceptions = SimpleNamespace(
        BotoCoreError=_BotoCoreError,
        ClientError=_BotoCoreError,
        HTTPClientError=_HTTPClientError,
        MetadataRetrievalError=_MetadataRetrievalError,
    )
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", package)
    monkeypatch.setitem(sys.modules, "botocore", botocore)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    source_of.cache_clear()
    return made


def test_both_libraries_are_given_the_signers_token(signer: Signer, monkeypatch: pytest.MonkeyPatch) -> None:
    from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth

    told = recipe("\nAmazon MSK, by the AWS identity") | {"KAFKA_BOOTSTRAP_SERVERS": KAFKA.bootstrap_servers}
    assert told.pop("AWS_REGION") == "eu-central-1"
    with acting_as(monkeypatch, told):
        assert KafkaSettings() == KAFKA
    options = confluent(KAFKA)
    text, expires, principal, extensions = options["oauth_cb"]("")
    assert (options["sasl.mechanism"], text, principal, extensions) == ("OAUTHBEARER", "c2lnbmVk", "", {})
    assert 890 < expires - time.time() <= 900
    auth = credentials_to_aiokafka_auth(faust_broker(KAFKA)["broker_credentials"])
    assert auth is not None and auth["sasl_mechanism"] == "OAUTHBEARER"
    assert asyncio.run(auth["sasl_oauth_token_provider"].token()) == "c2lnbmVk"
    assert signer.regions == ["eu-central-1"]


def test_an_identity_that_cannot_sign_is_refused_and_an_outage_is_not(signer: Signer) -> None:
    for error in (ValueError("Credentials cannot be empty"), _BotoCoreError("AccessDenied")):
        signer.error = error
        with pytest.raises(LoginRefused, match=f"AWS_MSK_IAM in eu-central-1: no token .*{error}"):
            msk_iam.fetch()
    signer.error = AttributeError("'NoneType' object has no attribute 'access_key'")
    with pytest.raises(LoginRefused, match="has no AWS credentials"):
        msk_iam.fetch()
    for error in (_HTTPClientError("timed out"), _MetadataRetrievalError("timed out")):
        signer.error = error
        with pytest.raises(Away, match=r"eu-central-1: the source of AWS credentials .*timed out"):
            msk_iam.fetch()


def test_a_refusal_of_the_broker_names_the_policy(signer: Signer) -> None:
    told = "b-1.msk.example.org:9098: the broker refused the login of the AWS identity of this process: .*Connect"
    with pytest.raises(LoginRefused, match=told):
        raise refused_login(KAFKA, "invalid_token")


def test_what_is_missing_is_named(signer: Signer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert msk_iam.check() == "eu-west-1"
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    with pytest.raises(SettingsError, match="AWS_REGION"):
        confluent(KAFKA)
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(PackageMissing, match=r"pip install 'kinstream\[msk\]'"):
        confluent(KAFKA)
    with pytest.raises(ValueError, match="AWS_MSK_IAM needs KAFKA_SECURITY_PROTOCOL=SASL_SSL"):
        KafkaSettings(security_protocol="SASL_PLAINTEXT", sasl_mechanism="AWS_MSK_IAM")
