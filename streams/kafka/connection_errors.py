"""Why a connection or login fails, in one sentence that names what to check.

Both client libraries report that a connection failed and little more. librdkafka has one message for an expired
certificate, a wrong host name and an unknown authority; aiokafka only logs the cause. So if one of them fails, the
connection to the brokers is tried once more by hand, step by step, with the same settings.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from typing import Any, Final

from kinstream.streams.errors import AccessDenied, BrokerUnavailable, LoginRefused
from kinstream.streams.kafka.clients import ssl_context
from kinstream.streams.kafka.tokens import attempt
from kinstream.streams.kafka.tokens.source import source_of
from kinstream.streams.settings import KafkaSettings

#: Seconds for one step of one attempt.
STEP_SECONDS: Final = 3.0

#: Requests written by hand: header (key, version, correlation id, client id) and body.
_API_VERSIONS: Final = struct.pack(">hhih", 18, 0, 1, 9) + b"kinstream"
_METADATA: Final = struct.pack(">hhih", 3, 0, 2, 9) + b"kinstream" + struct.pack(">i", 0)
#: At most this much of an answer is read.
_MAX_ANSWER: Final = 65_536
_TLS_ALERT: Final = b"\x15\x03"
#: OpenSSL's X509_V_ERR codes.
_EXPIRED: Final = 10
_NOT_YET: Final = 9
_OTHER_HOST: Final = frozenset({62, 63, 64})


def who(kafka: KafkaSettings) -> str:
    """The principal of this client, as far as it is known here."""
    if kafka.by_token and kafka.sasl_mechanism == "AWS_MSK_IAM":
        return "the AWS identity of this process"
    if kafka.by_token:
        return f"the OAuth client {kafka.sasl_oauthbearer_client_id}"
    if kafka.security_protocol.startswith("SASL"):
        return f"User:{kafka.sasl_username}"
    if kafka.security_protocol == "SSL" and kafka.ssl_certificate_file:
        return f"the principal of certificate {kafka.ssl_certificate_file}"
    return "User:ANONYMOUS"


def refused_login(kafka: KafkaSettings, answer: str) -> LoginRefused:
    """The error for a broker's answer to a login by password or token."""
    return LoginRefused(f"{kafka.bootstrap_servers}: {_refused(kafka, answer)}")


def _refused(kafka: KafkaSettings, answer: str) -> str:
    if "mechanism" in answer.lower() and "unsupported" in answer.lower():
        cause = f"it does not offer {kafka.sasl_mechanism}: check KAFKA_SASL_MECHANISM"
    elif "illegal" in answer.lower() and "state" in answer.lower():
        cause = "its listener takes no login by password: check KAFKA_SECURITY_PROTOCOL and the port"
    elif kafka.sasl_mechanism == "AWS_MSK_IAM":
        cause = "has its IAM role a policy with kafka-cluster:Connect on this cluster, and is AWS_REGION the cluster's?"
    elif kafka.by_token:
        token = source_of(kafka).newest
        sent = "" if token is None else f" ({token.described()})"
        cause = (
            f"the token{sent} is not valid there: compare audience and issuer with the broker's "
            "sasl.oauthbearer.expected.audience and sasl.oauthbearer.expected.issuer, and check both clocks"
        )
    else:
        cause = "check KAFKA_SASL_USERNAME, and KAFKA_SASL_PASSWORD or the file that holds it"
    return f"the broker refused the login of {who(kafka)}: {cause}"


def denied(kafka: KafkaSettings, operation: str, resource: str) -> AccessDenied:
    """The error for one operation that the brokers did not allow."""
    return AccessDenied(
        f"{who(kafka)} lacks {operation} on {resource}; kinstream topics acls lists what to allow"
    )


def diagnose(kafka: KafkaSettings) -> LoginRefused | None:
    """Try to connect to each broker by hand; None if nothing is refused, or no broker answers."""
    for address in kafka.bootstrap_servers.split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            found = _try(kafka, host.strip("[]"), int(port))
        except LoginRefused as error:
            return error
        except (OSError, ValueError, BrokerUnavailable):
            continue
        if found is not None:
            return LoginRefused(f"{address.strip()}: {found}")
    return None


def _try(kafka: KafkaSettings, host: str, port: int) -> str | None:
    with contextlib.ExitStack() as stack:
        plain = stack.enter_context(socket.create_connection((host, port), STEP_SECONDS))
        connection: Any = plain
        if kafka.security_protocol.endswith("SSL"):
            try:
                connection = stack.enter_context(ssl_context(kafka).wrap_socket(plain, server_hostname=host))
            except ssl.SSLCertVerificationError as error:
                return _distrusted(kafka, host, error)
            except ssl.SSLError as error:
                return _alert(kafka, error) or _no_tls(kafka)
            except ConnectionError:
                return _no_tls(kafka)
        try:
            answer = _ask(connection, _API_VERSIONS)
        except ssl.SSLError as error:
            return _alert(kafka, error)
        if answer.startswith(_TLS_ALERT):
            wanted = "SASL_SSL" if kafka.security_protocol.startswith("SASL") else "SSL or SASL_SSL"
            return (
                f"this port speaks TLS, and KAFKA_SECURITY_PROTOCOL is {kafka.security_protocol}: "
                f"set it to {wanted}, or use the port for {kafka.security_protocol}"
            )
        if not kafka.security_protocol.startswith("SASL") and answer and not _ask(connection, _METADATA):
            return (
                "the broker ended the connection after the first request: its listener wants a login. Set "
                f"KAFKA_SECURITY_PROTOCOL to SASL_{kafka.security_protocol}, with KAFKA_SASL_USERNAME and "
                "KAFKA_SASL_PASSWORD, or use another port"
            )
        if kafka.by_token and answer:
            source = source_of(kafka)
            token = source.token().text
            told = attempt.refusal(lambda request: _ask(connection, request), token, kafka.extensions)
            if told is not None and source.failure is not None:
                # The token has expired, and the cause is what keeps another from being fetched.
                raise source.failure
            return None if told is None else _refused(kafka, told)
    return None


def _ask(connection: Any, request: bytes) -> bytes:
    """The answer, or other bytes in its place; empty if the broker ended the connection."""
    try:
        connection.sendall(struct.pack(">i", len(request)) + request)
        size = _read(connection, 4)
        if len(size) < 4 or size.startswith(_TLS_ALERT):
            return size
        return size + _read(connection, min(int.from_bytes(size, "big"), _MAX_ANSWER))
    except ConnectionError:
        return b""


def _read(connection: Any, size: int) -> bytes:
    found = b""
    while len(found) < size and (more := connection.recv(size - len(found))):
        found += more
    return found


def _distrusted(kafka: KafkaSettings, host: str, error: ssl.SSLCertVerificationError) -> str:
    trusted = f"KAFKA_SSL_CA_FILE ({kafka.ssl_ca_file})" if kafka.ssl_ca_file else "the system's authorities"
    match error.verify_code:
        case code if code == _EXPIRED:
            return "the broker's certificate has expired: renew it, or check the clock of this machine"
        case code if code == _NOT_YET:
            return "the broker's certificate is not valid yet: check the clock of this machine"
        case code if code in _OTHER_HOST:
            return (
                f"the broker's certificate is not for {host}: name the broker in KAFKA_BOOTSTRAP_SERVERS as its "
                "certificate does, or have the name added to the certificate"
            )
    hint = "" if kafka.ssl_ca_file else "; set KAFKA_SSL_CA_FILE"
    return (
        f"the broker's certificate is not signed by {trusted} ({error.verify_message}): "
        f"is it the right authority, and the right broker?{hint}"
    )


def _alert(kafka: KafkaSettings, error: ssl.SSLError) -> str | None:
    """The meaning of a broker's TLS alert about the client's certificate."""
    if "ALERT" not in (error.reason or ""):
        return None
    if not kafka.ssl_certificate_file:
        return (
            "the broker wants a client certificate: set KAFKA_SSL_CERTIFICATE_FILE and KAFKA_SSL_KEY_FILE, "
            "or use a port with a login by password"
        )
    return (
        f"the broker refuses the client certificate {kafka.ssl_certificate_file} ({error.reason}): has it expired, "
        "and does the broker trust its issuer?"
    )


def _no_tls(kafka: KafkaSettings) -> str:
    return (
        f"this port does not speak TLS, and KAFKA_SECURITY_PROTOCOL is {kafka.security_protocol}: check both"
    )
