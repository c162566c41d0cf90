"""`[kafka]`: the connection to the brokers and the login."""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from typing import Any, Final, Literal, get_args
from urllib.parse import urlsplit

from pydantic import SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from kinstream.streams.configuration.faults import shown
from kinstream.streams.configuration.section import KeyFault, refuse_pipe, with_secrets
from kinstream.streams.secrets import remember, warn_of_readers

#: Settings whose value is a secret; each has a `_file` beside it.
SECRETS: Final = ("sasl_password", "sasl_oauthbearer_client_secret", "ssl_key_password")
_OAUTH: Final = "KAFKA_SASL_OAUTHBEARER_"
_HERE: Final = frozenset({"localhost", "127.0.0.1", "::1"})
#: Port of a broker whose address names none: librdkafka and aiokafka agree on it.
_PORT: Final = "9092"
_ADDRESS: Final = re.compile(r"(?P<host>[\w.-]+|\[(?P<ipv6>[^]]*)\])(:(?P<port>[0-9]{1,5}))?", re.ASCII)


def addresses(text: str, port: str | None = _PORT) -> str:
    """Addresses of brokers, each as HOST:PORT.

    The clients differ in what else they take: of 99999 librdkafka makes another port, and a worker ends.

    Parameters
    ----------
    port : for an address without one; None refuses it.

    Raises
    ------
    ValueError : an address has another form.
    """
    found = []
    for address in filter(None, map(str.strip, text.split(","))):
        if "@" in address:
            raise ValueError("must be HOST:PORT, without a user or a password")
        match = _ADDRESS.fullmatch(address)
        number = match and (match["port"] or port)
        if (
            match is None
            or number is None
            or not 0 < int(number) < 65_536
            or not _is_ipv6(match["ipv6"] or "::")
        ):
            wanted = "HOST:PORT, with a port from 1 to 65535 and an IPv6 address in brackets"
            raise ValueError(f"must be {wanted}; {shown(address[:60])} is not")
        found.append(f"{match['host']}:{number}")
    return ",".join(found)


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


class KafkaSettings(BaseSettings):
    """The connection to the brokers. The environment variables are Kafka's own; secrets are never printed.

    The files that settings with `_file` at the end name are read when the settings are.
    """

    model_config = SettingsConfigDict(env_prefix="KAFKA_", extra="forbid", frozen=True)
    bootstrap_servers: str = ""
    """`host:port,host:port`; the port is 9092 if omitted. Empty: `kinstream up` runs the embedded broker, other
    commands refuse"""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"] = (
        "SCRAM-SHA-512"
    )
    """PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM"""
    sasl_username: str = ""
    """for a login by password"""
    sasl_password: SecretStr = SecretStr("")
    """secret"""
    sasl_password_file: str = ""
    """file with it"""
    sasl_oauthbearer_token_endpoint_url: str = ""
    """for OAUTHBEARER: `https://HOST/PATH` of the provider"""
    sasl_oauthbearer_client_id: str = ""
    """for OAUTHBEARER"""
    sasl_oauthbearer_client_secret: SecretStr = SecretStr("")
    """secret"""
    sasl_oauthbearer_client_secret_file: str = ""
    """file with it"""
    sasl_oauthbearer_scope: str = ""
    """scopes, separated by spaces"""
    sasl_oauthbearer_extensions: str = ""
    """`name=value,name=value`, sent with the token"""
    sasl_oauthbearer_ca_file: str = ""
    """authorities trusted for the token endpoint; empty: the system's"""
    ssl_ca_file: str = ""
    """trusted authorities; empty: the system's"""
    ssl_certificate_file: str = ""
    """certificate of this client"""
    ssl_key_file: str = ""
    """its key"""
    ssl_key_password: SecretStr = SecretStr("")
    """secret"""
    ssl_key_password_file: str = ""
    """file with it"""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings

    @model_validator(mode="before")
    @classmethod
    def _read_secrets(cls, values: Any) -> Any:
        return with_secrets(values, *SECRETS)

    @field_validator("bootstrap_servers")
    @classmethod
    def _addresses(cls, value: str) -> str:
        return addresses(value)

    @field_validator("security_protocol", "sasl_mechanism", mode="before")
    @classmethod
    def _upper(cls, value: object, info: ValidationInfo) -> object:
        """Any case is taken. What is wrong stays as it was written, so that an error can quote it."""
        known = get_args(cls.model_fields[info.field_name or ""].annotation)
        return value.upper() if isinstance(value, str) and value.upper() in known else value

    @field_validator("sasl_oauthbearer_token_endpoint_url")
    @classmethod
    def _encrypted(cls, value: str) -> str:
        if value:
            url = urlsplit(value)
            if url.scheme != "https" and (url.scheme != "http" or url.hostname not in _HERE):
                raise ValueError(
                    "must begin with https://, or be http:// on this machine: it receives the client secret"
                )
            if not url.hostname or url.username or url.password:
                raise ValueError("must be https://HOST/PATH, without a user or password")
        return value

    @field_validator("sasl_oauthbearer_ca_file", "ssl_ca_file", "ssl_certificate_file", "ssl_key_file")
    @classmethod
    def _no_pipe(cls, value: str) -> str:
        refuse_pipe(value)
        return value

    @field_validator("sasl_oauthbearer_extensions")
    @classmethod
    def _pairs(cls, value: str) -> str:
        for pair in filter(None, value.split(",")):
            name, equals, text = pair.strip().partition("=")
            if not (name.isascii() and name.isalpha() and equals and text) or name == "auth":
                raise ValueError("must be name=value,name=value; a name has letters alone, and is not auth")
        return value

    @model_validator(mode="after")
    def _complete(self) -> KafkaSettings:
        if self.security_protocol.startswith("SASL"):
            if self.sasl_mechanism == "OAUTHBEARER":
                needed = {
                    "TOKEN_ENDPOINT_URL": self.sasl_oauthbearer_token_endpoint_url,
                    "CLIENT_ID": self.sasl_oauthbearer_client_id,
                    "CLIENT_SECRET": self.sasl_oauthbearer_client_secret.get_secret_value(),
                }
                if lacking := [f"{_OAUTH}{name}" for name, value in needed.items() if not value]:
                    raise KeyFault("sasl_mechanism", f"OAUTHBEARER needs {', '.join(lacking)}")
            elif self.sasl_mechanism == "AWS_MSK_IAM":
                if self.security_protocol != "SASL_SSL":
                    raise KeyFault("sasl_mechanism", "AWS_MSK_IAM needs KAFKA_SECURITY_PROTOCOL=SASL_SSL")
            elif not self.sasl_username:
                raise KeyFault(
                    "security_protocol",
                    f"{self.security_protocol} needs KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD",
                )
        if self.ssl_key_file and not self.ssl_certificate_file:
            raise KeyFault("ssl_key_file", "KAFKA_SSL_KEY_FILE needs KAFKA_SSL_CERTIFICATE_FILE")
        remember(*(getattr(self, name).get_secret_value() for name in SECRETS))
        if self.ssl_key_file:
            warn_of_readers(self.ssl_key_file)
        return self

    @property
    def by_token(self) -> bool:
        """Whether the login is by a token, which is fetched when a connection is made."""
        by_token = self.sasl_mechanism in ("OAUTHBEARER", "AWS_MSK_IAM")
        return by_token and self.security_protocol.startswith("SASL")

    @property
    def extensions(self) -> dict[str, str]:
        """`sasl_oauthbearer_extensions`, by name."""
        pairs = (pair.strip().partition("=") for pair in self.sasl_oauthbearer_extensions.split(","))
        return {name: text for name, _, text in pairs if name}
