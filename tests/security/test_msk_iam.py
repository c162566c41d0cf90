"""The login to Amazon MSK by IAM: with Amazon's signer, which needs no network; its errors come from a stand-in."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import subprocess
import sys
import time
from calendar import timegm
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

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


#: Credentials of a role, which nobody has.
ROLE: Final = {
    "AWS_ACCESS_KEY_ID": "ASIAEXAMPLEOFTHETEST",
    "AWS_SECRET_ACCESS_KEY": "s3cret+access/key+of+the+msk+tests+EXAMPLE",
    "AWS_SESSION_TOKEN": "session/token+of+the+msk+tests==",
    "AWS_REGION": "eu-central-1",
}


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Amazon's signer, and a process without any AWS identity: no variables, no files, no machine of AWS."""
    pytest.importorskip("aws_msk_iam_sasl_signer", reason="kinstream[msk] is not installed")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_REGION", ROLE["AWS_REGION"])
    source_of.cache_clear()


@pytest.mark.long
def test_amazons_signer_makes_a_token_of_the_environments_identity(
    aws: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token is a presigned URL (AWS Signature Version 4) for kafka-cluster:Connect, as base64url without padding."""
    from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth

    for name, value in ROLE.items():
        monkeypatch.setenv(name, value)
    text, expires, principal, extensions = confluent(KAFKA)["oauth_cb"]("")
    assert (principal, extensions) == ("", {}) and re.fullmatch(r"[\w-]+", text)
    url = urlsplit(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    assert (url.scheme, url.netloc, url.path) == ("https", "kafka.eu-central-1.amazonaws.com", "/")
    signed = {name: value for name, (value,) in parse_qs(url.query, strict_parsing=True).items()}
    date = signed["X-Amz-Date"]
    wanted = {
        "Action": "kafka-cluster:Connect",
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{ROLE['AWS_ACCESS_KEY_ID']}/{date[:8]}/eu-central-1/kafka-cluster/aws4_request",
        "X-Amz-Expires": "900",
        "X-Amz-Security-Token": ROLE["AWS_SESSION_TOKEN"],
        "X-Amz-SignedHeaders": "host",
    }
    assert wanted.items() <= signed.items() and re.fullmatch("[0-9a-f]{64}", signed["X-Amz-Signature"])
    began = timegm(time.strptime(date, "%Y%m%dT%H%M%SZ"))
    assert expires == began + 900 and 0 <= time.time() - began < 60
    assert ROLE["AWS_SECRET_ACCESS_KEY"] not in str(url)
    auth = credentials_to_aiokafka_auth(faust_broker(KAFKA)["broker_credentials"])
    assert auth is not None and asyncio.run(auth["sasl_oauth_token_provider"].token()) == text


@pytest.mark.long
def test_amazons_signer_without_an_identity_is_refused_and_a_source_that_does_not_answer_is_away(
    aws: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        LoginRefused, match="AWS_MSK_IAM in eu-central-1: this process has no AWS credentials"
    ):
        msk_iam.fetch()
    # The two sources of a pod's role in Amazon EKS: an agent of the node, and Amazon's STS.
    (tmp_path / "token").write_text("a.b.c")
    agent = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:1/role"}
    sts = {
        "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/learner",
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
        "AWS_ENDPOINT_URL_STS": "http://127.0.0.1:1",
        "AWS_MAX_ATTEMPTS": "1",
    }
    for source in (agent, sts):
        with (
            monkeypatch.context() as pod,
            pytest.raises(Away, match=r"AWS credentials does not answer: .*:1/"),
        ):
            for name, value in source.items():
                pod.setenv(name, value)
            msk_iam.fetch()


@pytest.mark.long
def test_no_log_holds_what_makes_a_token(aws: None, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kinstream.cli.main", "--log-level", "DEBUG", "--set", "worker.startup_seconds=0.5",
         "topics", "create"],
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")},
            **ROLE,
            **recipe("\nAmazon MSK, by the AWS identity"),
            "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        },
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert "No broker answers" in done.stderr
    told = done.stdout + done.stderr
    assert not [value for name, value in ROLE.items() if name != "AWS_REGION" and value in told]
    assert not re.search(r"\b[0-9a-f]{64}\b", told), "the signature of a token"


class _BotoCoreError(Exception):
    """As botocore's."""


class _HTTPClientError(_BotoCoreError):
    """As botocore's."""


class _ConnectionError(_BotoCoreError):
    """As botocore's."""


class _SSLError(_ConnectionError):
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
        ConnectionError=_ConnectionError,
        SSLError=_SSLError,
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
    for error in (ValueError("Credentials cannot be empty"), _BotoCoreError("AccessDenied"), _SSLError("x")):
        signer.error = error
        with pytest.raises(LoginRefused, match=f"AWS_MSK_IAM in eu-central-1: no token .*{error}"):
            msk_iam.fetch()
    signer.error = AttributeError("'NoneType' object has no attribute 'access_key'")
    with pytest.raises(LoginRefused, match="has no AWS credentials"):
        msk_iam.fetch()
    for kind in (_HTTPClientError, _ConnectionError, _MetadataRetrievalError):
        signer.error = kind("timed out")
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
