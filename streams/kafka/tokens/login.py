"""The source of tokens in the form that each client library takes."""

from __future__ import annotations

import time
from typing import Any

from kinstream.streams.errors import BrokerUnavailable, KinstreamError, LoginRefused
from kinstream.streams.kafka.tokens import msk_iam, oidc
from kinstream.streams.kafka.tokens.source import PAUSE_SECONDS, TokenSource, source_of
from kinstream.streams.settings import KafkaSettings


def confluent_login(kafka: KafkaSettings) -> dict[str, Any]:
    """Options for confluent-kafka, which calls `oauth_cb` when it starts and before a token expires.

    Raises
    ------
    SettingsError : the file of authorities cannot be used, or AWS_MSK_IAM lacks its package or region.
    """
    source = _source(kafka)

    def token(_: str) -> tuple[str, float, str, dict[str, str]]:
        # An error here becomes one of librdkafka's; `TokenSource.failure` has the reason.
        try:
            found = source.token()
            until = found.expires
        except BrokerUnavailable:
            # After an error librdkafka would not ask again for 10 s.
            if (expired := source.newest) is None:
                raise
            found, until = expired, time.time() + PAUSE_SECONDS
        return found.text, until, str(found.claims().get("sub", "")), kafka.extensions

    return {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": token}


def aiokafka_login(kafka: KafkaSettings) -> Any:
    """The token provider for aiokafka, which asks it for a token at every connection; errors as above."""
    import asyncio

    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.errors import KafkaConnectionError, SaslAuthenticationFailed

    source = _source(kafka)

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            try:
                return (await asyncio.to_thread(source.token)).text
            except LoginRefused as error:
                raise SaslAuthenticationFailed(str(error)) from error
            except KinstreamError as error:
                # aiokafka tries again after errors of its own, and only then.
                raise KafkaConnectionError(str(error)) from error

        def extensions(self) -> dict[str, str]:
            return kafka.extensions

    return Provider()


def _source(kafka: KafkaSettings) -> TokenSource:
    if kafka.sasl_mechanism == "AWS_MSK_IAM":
        msk_iam.check()
    else:
        oidc.trusted(kafka)
    return source_of(kafka)
