"""Settings: `kinstream.toml`, then the environment, then the command line, each over the one before.

Brokers are named once, in the words of Kafka's own environment variables (`KAFKA_BOOTSTRAP_SERVERS`,
`KAFKA_SECURITY_PROTOCOL`, `KAFKA_SASL_MECHANISM`, ...), and handed to both client libraries by `streams.clients`.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as SettingsSourceError

from streams.errors import SettingsError
from streams.topics import PARTITIONS, REPLICATION

DEFAULT_FILE: Final = "kinstream.toml"
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BuilderSettings(_Section):
    """`[builders.NAME]`: which builder, and what its constructor takes."""

    model_config = ConfigDict(extra="allow", frozen=True)
    kind: str
    generation: int | None = Field(default=None, ge=1)

    def arguments(self) -> dict[str, Any]:
        return dict(self.__pydantic_extra__ or {})


class LearnerSettings(_Section):
    """`[learners.NAME]`: which algorithm, which builders it follows (`from`), and what its constructor takes."""

    model_config = ConfigDict(extra="allow", frozen=True, populate_by_name=True)
    kind: str
    follows: tuple[str, ...] = Field(alias="from", min_length=1)
    generation: int | None = Field(default=None, ge=1)

    def arguments(self) -> dict[str, Any]:
        return dict(self.__pydantic_extra__ or {})


class SpaceSettings(_Section):
    """Which spaces may come to be by their first valid event."""

    auto_create: bool = True
    max_per_partition: int = Field(default=10_000, ge=1)


class CheckpointSettings(_Section):
    """Where checkpoints lie (a path or an fsspec URL), how often they are written, how many are kept."""

    url: str = "checkpoints"
    interval_seconds: float = Field(default=10.0, gt=0)
    keep: int = Field(default=3, ge=2)


class WorkerSettings(_Section):
    """Limits of a worker process, in seconds and bytes; `max_resident_bytes` is for each partition."""

    session_timeout_seconds: float = Field(default=6.0, gt=0)
    heartbeat_interval_seconds: float = Field(default=2.0, gt=0)
    delivery_deadline_seconds: float = Field(default=120.0, gt=0)
    stall_seconds: float = Field(default=60.0, gt=0)
    rebalance_limit_seconds: float = Field(default=60.0, gt=0)
    shutdown_seconds: float = Field(default=20.0, gt=0)
    startup_seconds: float = Field(default=300.0, gt=0)
    http_host: str = "127.0.0.1"
    http_port: int = Field(default=0, ge=0, le=65535)
    max_resident_bytes: int = Field(default=1_500_000_000, ge=1_000_000)


class MetricsSettings(_Section):
    """What the metrics agent exposes. Spaces beyond `top_spaces` are summed under the label `other`."""

    generation: int | None = Field(default=None, ge=1)
    top_spaces: int = Field(default=100, ge=1)
    window: int = Field(default=1_000, ge=1)


class TopicSettings(_Section):
    prefix: str = Field(default="kinstream", pattern=r"^[a-z0-9][a-z0-9-]*$")
    partitions: int = Field(default=PARTITIONS, ge=1)
    replication: int = Field(default=REPLICATION, ge=1)


class KafkaSettings(BaseSettings):
    """How to reach the brokers. The environment variables are Kafka's own; secrets are never printed."""

    model_config = SettingsConfigDict(env_prefix="KAFKA_", extra="forbid", frozen=True)
    bootstrap_servers: str = ""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    sasl_username: str = ""
    sasl_password: SecretStr = SecretStr("")
    ssl_ca_file: str = ""
    ssl_certificate_file: str = ""
    ssl_key_file: str = ""
    ssl_key_password: SecretStr = SecretStr("")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return env_settings, init_settings

    @field_validator("security_protocol", "sasl_mechanism", mode="before")
    @classmethod
    def _upper(cls, value: object) -> object:
        return value.upper() if isinstance(value, str) else value

    @model_validator(mode="after")
    def _complete(self) -> KafkaSettings:
        if self.security_protocol.startswith("SASL") and not self.sasl_username:
            raise ValueError(f"{self.security_protocol} needs KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD")
        return self


class Settings(BaseSettings):
    """Everything that `kinstream.toml` can say; `KINSTREAM_CHECKPOINTS__URL` is `[checkpoints] url`."""

    model_config = SettingsConfigDict(
        env_prefix="KINSTREAM_", env_nested_delimiter="__", extra="forbid", frozen=True
    )

    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    topics: TopicSettings = TopicSettings()
    spaces: SpaceSettings = SpaceSettings()
    checkpoints: CheckpointSettings = CheckpointSettings()
    worker: WorkerSettings = WorkerSettings()
    metrics: MetricsSettings = MetricsSettings()
    builders: dict[Name, BuilderSettings] = {}
    learners: dict[Name, LearnerSettings] = {}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # The order file, environment, command line is made in `load`.
        return (init_settings,)

    @model_validator(mode="after")
    def _learners_follow_builders(self) -> Settings:
        for name, learner in self.learners.items():
            for builder in learner.follows:
                if builder not in self.builders:
                    known = ", ".join(sorted(self.builders)) or "none"
                    raise ValueError(
                        f"learners.{name} follows {builder!r}, which is no builder (known: {known})"
                    )
        return self

    def topic(self, role: str) -> str:
        """Full name of the topic with that role."""
        return f"{self.topics.prefix}.{role}"


def load(path: str | Path | None = None, overrides: dict[str, Any] | None = None) -> Settings:
    """Read the settings file (`kinstream.toml` if there is one), then environment, then `overrides`.

    Parameters
    ----------
    overrides : dotted names from the command line, such as {"checkpoints.url": "file:///var/lib/kinstream"}.

    Raises
    ------
    SettingsError : the file is missing or not TOML, or a value is unknown or out of range; names each of them.
    """
    data: dict[str, Any] = {}
    source = Path(path) if path is not None else Path(DEFAULT_FILE)
    if path is not None or source.exists():
        try:
            data = tomllib.loads(source.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise SettingsError(f"{source}: {error}") from error
    environment = EnvSettingsSource(Settings)
    try:
        data = _merged(data, environment())
        for name, value in (overrides or {}).items():
            _put(data, name, value)
        kafka = KafkaSettings(**data.pop("kafka", {}))
        forced = {n.removeprefix("kafka."): v for n, v in (overrides or {}).items() if n.startswith("kafka.")}
        return Settings(kafka=kafka.model_copy(update=forced), **data)
    except ValidationError as error:
        raise SettingsError(f"{source}: {describe(error)}") from None
    except (SettingsSourceError, TypeError, AttributeError) as error:
        raise SettingsError(f"{source}: {error}") from error


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    both = {
        n: _merged(below[n], v)
        for n, v in above.items()
        if isinstance(v, dict) and isinstance(below.get(n), dict)
    }
    return {**below, **above, **both}


def _put(data: dict[str, Any], name: str, value: Any) -> None:
    *sections, last = name.split(".")
    for section in sections:
        data = data.setdefault(section, {})
    data[last] = value


def describe(error: ValidationError) -> str:
    """The faults by name, without the values: one of them may be a secret."""
    return "; ".join(
        f"{'.'.join(str(part) for part in e['loc']) or 'settings'}: {e['msg']}" for e in error.errors()
    )
