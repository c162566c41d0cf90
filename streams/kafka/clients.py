"""One set of broker settings in the options of each client library."""

from __future__ import annotations

import os
import ssl
from typing import Any

from kinstream.streams.errors import SettingsError
from kinstream.streams.kafka.tokens.login import aiokafka_login, confluent_login
from kinstream.streams.settings import KafkaSettings
from kinstream.streams.topics import PARTITIONER


def confluent(kafka: KafkaSettings) -> dict[str, Any]:
    """Configuration for confluent-kafka (librdkafka names).

    Raises
    ------
    SettingsError : no brokers are named, or a TLS file cannot be used.
    """
    _brokers(kafka)
    config: dict[str, Any] = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "security.protocol": kafka.security_protocol,
        "client.id": "kinstream",
        # Errors are raised to the caller; other messages of librdkafka are for its own developers.
        "log_level": 2,
    }
    if kafka.by_token:
        config |= confluent_login(kafka)
    elif kafka.security_protocol.startswith("SASL"):
        config |= {
            "sasl.mechanism": kafka.sasl_mechanism,
            "sasl.username": kafka.sasl_username,
            "sasl.password": kafka.sasl_password.get_secret_value(),
        }
    if kafka.security_protocol.endswith("SSL"):
        # librdkafka gives little detail on a file that it cannot use, and does not name it.
        ssl_context(kafka)
        # librdkafka would search for a file of the system itself, and ignore SSL_CERT_FILE, which aiokafka reads.
        if file := kafka.ssl_ca_file or ssl.get_default_verify_paths().cafile:
            config["ssl.ca.location"] = file
    for name, value in (
        ("ssl.certificate.location", kafka.ssl_certificate_file),
        ("ssl.key.location", kafka.ssl_key_file),
        ("ssl.key.password", kafka.ssl_key_password.get_secret_value()),
    ):
        if value:
            config[name] = value
    return config


def confluent_producer(kafka: KafkaSettings) -> dict[str, Any]:
    """Configuration of an idempotent producer: a later record is never written without the earlier.

    librdkafka's gapless guarantee does not cover messages that fail by `message.timeout.ms`, so there is no such
    timeout; each producer has a deadline of its own.
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
    hosts = ";".join(f"kinstream://{host}" for host in _brokers(kafka))
    return {"broker": hosts, "broker_credentials": _faust_credentials(kafka)}


def _brokers(kafka: KafkaSettings) -> list[str]:
    found = [host.strip() for host in kafka.bootstrap_servers.split(",") if host.strip()]
    if not found:
        raise SettingsError(
            "no brokers: set KAFKA_BOOTSTRAP_SERVERS, or [kafka] bootstrap_servers in kinstream.toml"
        )
    return found


def _faust_credentials(kafka: KafkaSettings) -> Any:
    if kafka.security_protocol == "PLAINTEXT":
        return None
    from faust.auth import OAuthCredentials, SASLCredentials, SSLCredentials

    context = ssl_context(kafka) if kafka.security_protocol.endswith("SSL") else None
    if kafka.security_protocol == "SSL":
        return SSLCredentials(context)
    if kafka.by_token:
        return OAuthCredentials(oauth_cb=aiokafka_login(kafka), ssl_context=context)
    return SASLCredentials(
        mechanism=kafka.sasl_mechanism,
        username=kafka.sasl_username,
        password=kafka.sasl_password.get_secret_value(),
        ssl_context=context,
    )


def ssl_context(kafka: KafkaSettings) -> ssl.SSLContext:
    """TLS for aiokafka: the same files as for librdkafka, read again by every process.

    Raises
    ------
    SettingsError : a file is missing or unusable, or its password is wrong; the message names the setting.
    """
    try:
        context = ssl.create_default_context(cafile=kafka.ssl_ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"KAFKA_SSL_CA_FILE {kafka.ssl_ca_file}: {_reason(error)}") from None
    if kafka.ssl_certificate_file:
        files = f"KAFKA_SSL_CERTIFICATE_FILE {kafka.ssl_certificate_file}"
        if kafka.ssl_key_file:
            files += f", KAFKA_SSL_KEY_FILE {kafka.ssl_key_file}"
        for file in filter(None, (kafka.ssl_certificate_file, kafka.ssl_key_file)):
            if not os.access(file, os.R_OK):
                raise SettingsError(f"{files}: {file} does not exist, or may not be read")
        # Without a password OpenSSL would ask for one at the terminal.
        password = kafka.ssl_key_password.get_secret_value()
        try:
            context.load_cert_chain(kafka.ssl_certificate_file, kafka.ssl_key_file or None, lambda: password)
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(
                f"{files}: {_reason(error)}; is the key the certificate's, and KAFKA_SSL_KEY_PASSWORD right?"
            ) from None
    return context


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"not a usable PEM file ({error.reason or 'unreadable'})"
    return error.strerror or type(error).__name__
