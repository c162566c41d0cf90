"""Settings: `kinstream.toml`, then the environment, then the command line; later ones override earlier ones.

Brokers are named once, with the names of Kafka's own environment variables (`KAFKA_BOOTSTRAP_SERVERS`,
`KAFKA_SECURITY_PROTOCOL`, `KAFKA_SASL_MECHANISM`, ...), and handed to both client libraries by
`kinstream.streams.kafka.clients`.

A secret comes from the environment, from a file that a setting names (as container platforms mount them), or from the
settings file; never from the command line, which every user of the machine can read.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as SettingsSourceError

from kinstream.streams.configuration.faults import Fault, Path, as_text, faults_of, names
from kinstream.streams.configuration.gate import GateSettings as GateSettings
from kinstream.streams.configuration.gate import check_key, check_retiring
from kinstream.streams.configuration.kafka import SECRETS as KAFKA_SECRETS
from kinstream.streams.configuration.kafka import KafkaSettings as KafkaSettings
from kinstream.streams.configuration.layers import Layers, broken_json, environment_faults, merged
from kinstream.streams.configuration.randomise import RandomiseSettings as RandomiseSettings
from kinstream.streams.configuration.randomise import check_shares
from kinstream.streams.configuration.section import KeyFault, Name, Section, start_of, with_secrets
from kinstream.streams.configuration.service import ServeSettings as ServeSettings
from kinstream.streams.configuration.service import ServeSpaceSettings as ServeSpaceSettings
from kinstream.streams.configuration.sources import FEEDBACK, SourceSettings
from kinstream.streams.configuration.vectors import SinkSettings as SinkSettings
from kinstream.streams.configuration.vectors import VectorsSettings as VectorsSettings
from kinstream.streams.configuration.vectors import unknown_names
from kinstream.streams.encodings import HEAD, advice, not_utf8
from kinstream.streams.errors import SettingsError
from kinstream.streams.secrets import remember, remember_url, warn_of_readers, without_secret
from kinstream.streams.spelling import meant
from kinstream.streams.topics import PARTITIONS, REPLICATION

DEFAULT_FILE: Final = "kinstream.toml"
#: Largest settings file.
MAX_FILE_BYTES: Final = 1_000_000
SECRETS: Final = frozenset({*(f"kafka.{name}" for name in KAFKA_SECRETS), "gate_key", "gate_key_retiring"})
_CONNECTION: Final = re.compile(r"(serve\.spaces|sinks)\..+\.connection")
#: Of a connection, which is a URL, a string of libpq or a folder.
_PASSWORD: Final = re.compile(r"passw(or)?d\s*=|://[^/\s@]*:[^/\s]*@", re.IGNORECASE)
#: Share of the events that a learner judges and never learns.
HELD_OUT: Final = 0.02


class BuilderSettings(Section):
    """`[builders.NAME]`: a builder, and the arguments of its constructor."""

    model_config = ConfigDict(extra="allow", frozen=True)
    kind: str
    """which builder"""
    generation: int | None = Field(default=None, ge=1)
    """pins a generation"""
    float16: bool = False
    """vectors of constraint blocks in float16: half the bytes"""

    def arguments(self) -> dict[str, Any]:
        return dict(self.__pydantic_extra__ or {})


class LearnerSettings(Section):
    """`[learners.NAME]`: an algorithm, and the arguments of its constructor.

    Generations do not depend on `publish`, `publish_updates` and `unranked_lists`, which do not shape outcomes.
    """

    model_config = ConfigDict(extra="allow", frozen=True, populate_by_name=True)
    kind: str
    """which algorithm: [learners](learners.md)"""
    follows: tuple[str, ...] = Field(alias="from", min_length=1)
    """list of the builders that it follows"""
    generation: int | None = Field(default=None, ge=1)
    """pins a generation"""
    held_out: float = Field(default=HELD_OUT, ge=0.0, lt=0.5)
    """share of the events that are judged and never learned, below 0.5: [held-out events](learning.md#held-out-events)
    """
    publish: Literal["better", "always"] = "better"
    """do not announce a model that is worse than the best un-learned metric on held-out events; `"always"`: announce
    every model"""
    publish_updates: bool = False
    """write each step to `updates`: [learning](learning.md#publishing-updates)"""
    unranked_lists: bool = False
    """clicked lists were in an order without meaning, such as a random one. [Ranked lists](building.md#ranked-lists)
    teach every learner but `adapter` and `ranking` to rank worse, and are refused to it without this"""

    def arguments(self) -> dict[str, Any]:
        return dict(self.__pydantic_extra__ or {})


class SpaceSettings(Section):
    """Which spaces their first valid event may create."""

    auto_create: bool = True
    """create a space on its first valid event; otherwise only `kinstream spaces create` does"""
    max_per_partition: int = Field(default=10_000, ge=1)
    """events for further spaces are refused: `space-limit`"""


class CheckpointSettings(Section):
    """The checkpoint store."""

    url: str = Field(default="checkpoints", min_length=1, repr=False)
    """a path, or the URL of a store that fsspec knows; all workers of an agent must share it"""
    interval_seconds: float = Field(default=10.0, gt=0)
    """time between checkpoints of a partition that has changed"""
    keep: int = Field(default=3, ge=2)
    """checkpoints kept for each partition; at least 2"""

    @property
    def shown(self) -> str:
        """The URL for display, without credentials."""
        return without_secret(self.url)


class WorkerSettings(Section):
    """Limits of a worker process, in seconds and bytes."""

    session_timeout_seconds: float = Field(default=6.0, gt=0)
    """without a heartbeat for so long, other workers take over the partitions"""
    heartbeat_interval_seconds: float = Field(default=2.0, gt=0)
    """time between heartbeats"""
    delivery_deadline_seconds: float = Field(default=120.0, gt=0)
    """the process ends if an output is not confirmed in time"""
    stall_seconds: float = Field(default=60.0, gt=0)
    """the watchdog ends a process that has work and does not advance, or does not answer"""
    rebalance_limit_seconds: float = Field(default=60.0, gt=0)
    """it ends a process in a longer rebalance"""
    restore_limit_seconds: float = Field(default=600.0, gt=0)
    """it ends a process that restores partitions for longer"""
    shutdown_seconds: float = Field(default=20.0, gt=0)
    """time from SIGTERM to a hard exit"""
    startup_seconds: float = Field(default=300.0, gt=0)
    """how long a start waits for the brokers"""
    http_host: str = "127.0.0.1"
    """address of `/metrics`, `/healthz`, `/readyz`; `"0.0.0.0"` for a Prometheus elsewhere"""
    http_port: int = Field(default=0, ge=0, le=65535)
    """0: any free port, which the log shows. Under `kinstream up` without `together`, the metrics agent's"""
    together: bool = True
    """`kinstream up` runs all agents in one process; `false`: each in its own, on cores of its own"""
    max_resident_bytes: int = Field(default=1_500_000_000, ge=1_000_000)
    """of a partition: above it, or half of the worker's memory, unchanged spaces are evicted to their files. A space
    that would take more, or a quarter of the memory, takes no more blocks that add to it (`too-large`): give all
    workers of an agent equal memory"""


class MetricsSettings(Section):
    """The settings of the metrics agent."""

    generation: int | None = Field(default=None, ge=1)
    """pins a generation"""
    top_spaces: int = Field(default=100, ge=1)
    """spaces of a partition shown by name"""
    window: int = Field(default=1_000, ge=1)
    """least number of constraints in the windows of ratios"""


class LogSettings(Section):
    """The form of log lines."""

    format: Literal["text", "json"] = "text"
    """`"json"`: one object a line: [fields](#output-and-logs)"""


class TraceSettings(Section):
    """The collector of traces."""

    endpoint: str = Field(
        default="",
        pattern=r"^(https?://\S+)?$",
        description="is a URL that begins with http:// or https://, and has no spaces",
        repr=False,
    )
    """OTLP/HTTP receiver, such as `"http://collector:4318"`; empty: [traces](tracing.md) are not exported"""


class TopicSettings(Section):
    prefix: str = Field(
        default="kinstream",
        pattern=r"^[a-z0-9][a-z0-9-]*$",
        description="is made of a-z, 0-9 and -, and begins with a letter or a digit",
    )
    """prefix of all names"""
    partitions: int = Field(default=PARTITIONS, ge=1)
    """partitions of a created topic; later: [more partitions](operations.md#more-partitions)"""
    replication: int = Field(default=REPLICATION, ge=1)
    """capped at the number of brokers, with a warning"""


class Settings(BaseSettings):
    """Everything that `kinstream.toml` can set; `KINSTREAM_CHECKPOINTS__URL` is `[checkpoints] url`."""

    model_config = SettingsConfigDict(
        env_prefix="KINSTREAM_", env_nested_delimiter="__", extra="forbid", frozen=True
    )

    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    topics: TopicSettings = TopicSettings()
    spaces: SpaceSettings = SpaceSettings()
    checkpoints: CheckpointSettings = CheckpointSettings()
    worker: WorkerSettings = WorkerSettings()
    metrics: MetricsSettings = MetricsSettings()
    logs: LogSettings = LogSettings()
    traces: TraceSettings = TraceSettings()
    serve: ServeSettings = ServeSettings()
    builders: dict[Name, BuilderSettings] = {}
    learners: dict[Name, LearnerSettings] = {}
    sources: dict[Name, SourceSettings] = {}
    gate: dict[str, GateSettings] = {}
    randomise: dict[str, RandomiseSettings] = {}
    vectors: dict[str, VectorsSettings] = {}
    sinks: dict[Name, SinkSettings] = {}
    gate_key: SecretStr = SecretStr("")
    gate_key_file: str = ""
    gate_key_retiring: SecretStr = SecretStr("")
    gate_key_retiring_file: str = ""

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

    @model_validator(mode="before")
    @classmethod
    def _read_gate_key(cls, values: Any) -> Any:
        return with_secrets(values, "gate_key", "gate_key_retiring")

    @model_validator(mode="after")
    def _gates_have_a_key(self) -> Settings:
        key = self.gate_key.get_secret_value()
        try:
            check_key(key, bool(self.gate or self.randomise or self.recorded))
        except ValueError as error:
            source = "gate_key_file" if self.gate_key_file else "gate_key"
            sections = {"gate": self.gate, "randomise": self.randomise, "serve": self.recorded}
            raise KeyFault(source if key else next(n for n, s in sections.items() if s), str(error)) from None
        retiring = self.gate_key_retiring.get_secret_value()
        try:
            check_retiring(retiring, key)
        except ValueError as error:
            source = "gate_key_retiring_file" if self.gate_key_retiring_file else "gate_key_retiring"
            raise KeyFault(source, str(error)) from None
        remember(key, retiring)
        check_shares(self.randomise, self.gate)
        if self.recorded and self.feedback is None:
            raise KeyFault(
                "serve",
                f"record of the space {self.recorded[0]!r}: nothing joins what is shown with feedback: add a source "
                f'with preset = "{FEEDBACK}" and topic = "{self.topic("feedback")}"',
            )
        return self

    @property
    def recorded(self) -> list[str]:
        """The served spaces whose lists are recorded."""
        return [name for name, space in self.serve.spaces.items() if space.record]

    @property
    def feedback(self) -> SourceSettings | None:
        """The source that joins what the service has shown with feedback."""
        topic = self.topic("feedback")
        return next(
            (one for one in self.sources.values() if one.preset == FEEDBACK and one.topic == topic), None
        )

    @model_validator(mode="after")
    def _learners_follow_builders(self) -> Settings:
        for name, learner in self.learners.items():
            for builder in learner.follows:
                if builder not in self.builders:
                    raise ValueError(f"learners.{name}.from: {_no_builder(builder, self.builders)}")
        return self

    def topic(self, role: str) -> str:
        """Full name of the topic with that role."""
        return f"{self.topics.prefix}.{role}"


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The settings as read, and all their faults.

    Parameters
    ----------
    settings : None where there are faults.
    data : sections as read, for checks that need other packages.
    """

    settings: Settings | None
    faults: tuple[Fault, ...]
    data: dict[str, Any]
    layers: Layers

    def fault(self, path: Path, text: str, *, section: bool = False) -> Fault:
        """The fault of a setting, with the place that set it."""
        return Fault(self.layers.where(path, section=section), text)


def load(path: str | FilePath | None = None, overrides: dict[str, Any] | None = None) -> Settings:
    """Read the settings file (`kinstream.toml` if there is one), then environment, then `overrides`.

    Parameters
    ----------
    overrides : dotted names from the command line, such as {"checkpoints.url": "file:///var/lib/kinstream"}.

    Raises
    ------
    SettingsError : the file is missing or not TOML, names or values are unknown or out of range, all of them named; or
        the command line holds a secret.
    """
    found = read(path, overrides)
    if found.settings is None:
        raise SettingsError(as_text(found.faults))
    return found.settings


def read(path: str | FilePath | None = None, overrides: dict[str, Any] | None = None) -> ReadSettings:
    """Read settings as `load` does, but collect their faults instead of raising them.

    Raises
    ------
    SettingsError : the file is missing or not TOML, or the command line holds a secret.
    """
    overrides = overrides or {}
    _refuse_secrets(overrides)
    source = FilePath(path) if path is not None else FilePath(DEFAULT_FILE)
    in_file: dict[str, Any] = {}
    if path is not None or source.exists():
        try:
            text = start_of(source, MAX_FILE_BYTES)
            if (what := not_utf8(text[:HEAD])) is not None:
                raise SettingsError(f"{source}: not text in UTF-8: {advice(what)}")
            # Some editors begin a file with a byte order mark.
            in_file = tomllib.loads(text.decode("utf-8-sig"))
        except OSError as error:
            raise SettingsError(f"{source}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise SettingsError(f"{source}: not text in UTF-8") from None
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise SettingsError(f"{source}: not TOML: {error}") from None
        if any(_is_secret(name, value) for name, value in _leaves(in_file)):
            warn_of_readers(source)
    faults: list[Fault] = []
    environment = _of_environment(faults)
    layers = Layers(str(source), in_file, environment, overrides)
    data = layers.merged(faults)
    _refuse_no_text(data, source)
    wrong = list(_wrong(data))
    settings = None
    if not wrong:
        settings = Settings(**{**data, "kafka": KafkaSettings(**data.get("kafka", {}))})
        remember_url(settings.checkpoints.url)
        remember_url(settings.traces.endpoint)
    faults += [Fault(layers.where(place, section=section), text) for place, section, text in wrong]
    return ReadSettings(None if faults else settings, tuple(faults), data, layers)


def _of_environment(faults: list[Fault]) -> dict[str, Any]:
    """The settings of the environment, nested."""
    faults += environment_faults(os.environ, names(Settings), names(KafkaSettings), _keys())
    try:
        found = dict(EnvSettingsSource(Settings)())
    except SettingsSourceError:
        # For a text that begins as JSON but is not JSON.
        text = "must be JSON, and cannot be read as such"
        faults += [Fault(name, text) for name in broken_json(os.environ, names(Settings))]
        found = {}
    brokers = EnvSettingsSource(KafkaSettings)()
    return merged(found, {"kafka": brokers}) if brokers else found


def _keys() -> list[str]:
    """Every setting with a name of its own, dotted."""
    found = []
    for section, field in Settings.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found += [f"{section}.{name}" for name in names(kind)]
    return found


def _wrong(data: dict[str, Any]) -> Iterator[tuple[Path, bool, str]]:
    """Path, whether it is a section, and message of every fault that one setting has by itself."""
    kafka = data.get("kafka", {})
    plain = {**data, "kafka": KafkaSettings.model_construct()}
    if isinstance(kafka, dict):
        try:
            KafkaSettings(**kafka)
        except ValidationError as error:
            yield from faults_of(error, KafkaSettings, ("kafka",))
    else:
        yield ("kafka",), False, "must be a section"
    strangers = list(_strangers(data))
    yield from strangers
    yield from unknown_names(data)
    try:
        Settings(**plain)
    except ValidationError as error:
        for path, section, text in faults_of(error, Settings):
            # The learners' builders are already checked above.
            if path or not strangers:
                yield path, section, text


def _strangers(data: dict[str, Any]) -> Iterator[tuple[Path, bool, str]]:
    """Learners that follow a builder which does not exist."""
    learners, builders = data.get("learners"), data.get("builders", {})
    if not isinstance(learners, dict) or not isinstance(builders, dict):
        return
    for name, section in learners.items():
        follows = section.get("from") if isinstance(section, dict) else None
        for builder in follows if isinstance(follows, list | tuple) else ():
            if isinstance(builder, str) and builder not in builders:
                yield ("learners", name, "from"), False, _no_builder(builder, builders)


def _refuse_no_text(data: dict[str, Any], source: FilePath) -> None:
    """Refuse names and values that have no form in UTF-8: bytes of another encoding, half of a surrogate pair."""
    for name, value in _leaves(data):
        for text in (name, value):
            if isinstance(text, str) and any("\ud800" <= character <= "\udfff" for character in text):
                raise SettingsError(f"{source}: {name!a}: is not valid UTF-8")


def _no_builder(name: str, builders: Iterable[str]) -> str:
    known = sorted(builders)
    return f"{name!r} is not a builder; there are {', '.join(known) or 'none'}{meant([name], known)}"


def _leaves(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names and values of nested settings."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _refuse_secrets(overrides: dict[str, Any]) -> None:
    for name, value in _leaves(overrides):
        if _CONNECTION.fullmatch(name):
            raise SettingsError(
                f"--set {name}: every user of this machine can read a command line, and a connection may hold a "
                f"password; set {_variable(name)} in the environment, or connection_file to the path of a file"
            )
        if name in SECRETS:
            variable = f"{'' if '.' in name else 'KINSTREAM_'}{name.upper().replace('.', '_')}"
            raise SettingsError(
                f"--set {name}: every user of this machine can read a command line; set {variable} in the "
                f"environment, or {variable}_FILE to the path of a file that holds it"
            )
        if isinstance(value, str) and without_secret(value) != value:
            raise SettingsError(
                f"--set {name}: holds credentials, and every user of this machine can read a command line; set "
                f"{_variable(name)} in the environment, or use the store's own variables or files for them"
            )


def _is_secret(name: str, value: Any) -> bool:
    if not isinstance(value, str):
        return bool(value) and name in SECRETS
    if _CONNECTION.fullmatch(name):
        return _PASSWORD.search(value) is not None
    return bool(value) and (name in SECRETS or without_secret(value) != value)


def _variable(name: str) -> str:
    return f"KINSTREAM_{name.upper().replace('.', '__')}"
