"""One set of broker settings in the words of each client library."""

from __future__ import annotations

import ssl
from typing import Any

from streams.errors import SettingsError
from streams.settings import KafkaSettings
from streams.topics import PARTITIONER


def confluent(kafka: KafkaSettings) -> dict[str, Any]:
    """Configuration for confluent-kafka (librdkafka names)."""
    if not kafka.bootstrap_servers:
        raise SettingsError(
            "no brokers: set KAFKA_BOOTSTRAP_SERVERS, or [kafka] bootstrap_servers in kinstream.toml"
        )
    config: dict[str, Any] = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "security.protocol": kafka.security_protocol,
        "client.id": "kinstream",
        # Errors come back to the caller; what librdkafka says besides is for its own developers.
        "log_level": 2,
    }
    if kafka.security_protocol.startswith("SASL"):
        config |= {
            "sasl.mechanism": kafka.sasl_mechanism,
            "sasl.username": kafka.sasl_username,
            "sasl.password": kafka.sasl_password.get_secret_value(),
        }
    for name, value in (
        ("ssl.ca.location", kafka.ssl_ca_file),
        ("ssl.certificate.location", kafka.ssl_certificate_file),
        ("ssl.key.location", kafka.ssl_key_file),
        ("ssl.key.password", kafka.ssl_key_password.get_secret_value()),
    ):
        if value:
            config[name] = value
    return config


def confluent_producer(kafka: KafkaSettings) -> dict[str, Any]:
    """Configuration of an idempotent producer: a later record never lands without the earlier.

    librdkafka's gapless guarantee does not cover messages that fail by `message.timeout.ms`, so there is no such
    timeout; whoever produces keeps a deadline of its own.
    """
    return confluent(kafka) | {
        "enable.idempotence": True,
        "enable.gapless.guarantee": True,
        "acks": "all",
        "message.timeout.ms": 0,
        "partitioner": PARTITIONER,
        "linger.ms": 5,
        "compression.type": "none",
        "message.max.bytes": 1_000_000,
    }


def faust_broker(kafka: KafkaSettings) -> dict[str, Any]:
    """`broker` and `broker_credentials` for a faust app on the Kinstream transport."""
    if not kafka.bootstrap_servers:
        raise SettingsError(
            "no brokers: set KAFKA_BOOTSTRAP_SERVERS, or [kafka] bootstrap_servers in kinstream.toml"
        )
    hosts = ";".join(f"kinstream://{host.strip()}" for host in kafka.bootstrap_servers.split(","))
    return {"broker": hosts, "broker_credentials": _faust_credentials(kafka)}


def _faust_credentials(kafka: KafkaSettings) -> Any:
    if kafka.security_protocol == "PLAINTEXT":
        return None
    from faust.auth import SASLCredentials, SSLCredentials

    context = ssl_context(kafka) if kafka.security_protocol.endswith("SSL") else None
    if kafka.security_protocol == "SSL":
        return SSLCredentials(context)
    return SASLCredentials(
        mechanism=kafka.sasl_mechanism,
        username=kafka.sasl_username,
        password=kafka.sasl_password.get_secret_value(),
        ssl_context=context,
    )


def ssl_context(kafka: KafkaSettings) -> ssl.SSLContext:
    """TLS for aiokafka: the same files that librdkafka is given."""
    try:
        context = ssl.create_default_context(cafile=kafka.ssl_ca_file or None)
        if kafka.ssl_certificate_file:
            password = kafka.ssl_key_password.get_secret_value() or None
            context.load_cert_chain(kafka.ssl_certificate_file, kafka.ssl_key_file or None, password)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"a TLS file cannot be used: {error}") from error
    return context
