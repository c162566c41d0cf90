"""The settings of sources: `[sources.NAME]`."""

from __future__ import annotations

from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from kinstream.streams.configuration.section import Section, secret_in
from kinstream.streams.secrets import remember, remember_url, without_secret

#: A path, or a path for each modality.
Paths = str | dict[str, str]
#: A value that `when` compares with.
Value = str | int | bool
#: Debezium's text for a value that has not changed.
UNAVAILABLE = "__debezium_unavailable_value"
#: The preset of the topic that the service writes.
FEEDBACK: Final = "feedback"
_OF_FEEDBACK: Final = frozenset({"topic", "preset", "window_minutes", "generation"})
#: How long a list takes clicks where the settings do not say it.
WINDOW_MINUTES: Final = 30
KINDS = ("samples", "items", "clicks", "relations")


class SourceSettings(Section):
    """`[sources.NAME]`: a topic of another system, and how its records become events.

    Either `kind` with `fields`, or a `preset`, whose fields `fields` may replace.
    """

    topic: str = Field(
        min_length=1,
        max_length=249,
        pattern=r"^[a-zA-Z0-9._-]+$",
        description="is made of a-z, A-Z, 0-9, ., _ and -",
    )
    """full name"""
    kind: Literal["samples", "items", "clicks", "relations"] | None = None
    """`"samples"`, `"items"`, `"clicks"` or `"relations"`"""
    preset: Literal["ubi", "feedback"] | None = None
    """`"ubi"`: [User Behavior Insights](sources.md#recipe-user-behavior-insights); `"feedback"`: [what the service has
    shown, and feedback on it](serving.md#feedback)"""
    format: Literal["json", "avro"] = "json"
    """or `"avro"`, in Confluent's framing"""
    space: str = ""
    """space of all records; or its path in `fields.space`"""
    fields: dict[str, Paths] = Field(default_factory=dict)
    """[field](sources.md#fields) to [path](sources.md#paths)"""
    when: dict[str, Value | list[Value]] = Field(default_factory=dict)
    """path to the value, or values, that a record must have"""
    first_position: int = Field(default=0, ge=0)
    """number of the top rank, of clicks"""
    unavailable_value: str = Field(default=UNAVAILABLE, min_length=4)
    """placeholder of an unchanged value: [change data capture](sources.md#recipe-change-data-capture)"""
    actions: list[str] = Field(default_factory=list)
    """of `"ubi"`: actions that are clicks; empty: `click`, `click_through`"""
    window_minutes: int | float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """of a preset: how long a list takes clicks; none: 30"""
    schemas: dict[str, str] = Field(default_factory=dict)
    """Avro schema id to file"""
    registry: str = Field(default="", repr=False)
    """address of a schema registry"""
    registry_username: str = ""
    """its user"""
    registry_password_file: str = ""
    """file with its password"""
    generation: int | None = Field(default=None, ge=1)
    """pins a generation"""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.kind is None) == (self.preset is None):
            raise ValueError(f"must have one of kind ({', '.join(KINDS)}) and preset (ubi, feedback)")
        if self.kind is not None and (self.actions or self.window_minutes is not None):
            raise ValueError("actions and window_minutes belong to a preset")
        if self.preset == FEEDBACK and self.model_fields_set - _OF_FEEDBACK:
            raise ValueError(
                f'preset = "{FEEDBACK}" goes with {", ".join(sorted(_OF_FEEDBACK - {"preset"}))} alone'
            )
        if self.kind != "clicks" and self.first_position:
            raise ValueError('first_position belongs to kind = "clicks"')
        if self.format == "avro" and not self.schemas and not self.registry:
            raise ValueError('format = "avro" needs schemas or registry')
        if self.format == "json" and (self.schemas or self.registry):
            raise ValueError('schemas and registry belong to format = "avro"')
        if without_secret(self.registry) != self.registry:
            raise ValueError(
                "registry must hold no password: set registry_username and registry_password_file"
            )
        if bool(self.registry_username) != bool(self.registry_password_file):
            raise ValueError("registry_username and registry_password_file belong together")
        return self

    @property
    def window_ms(self) -> int:
        """How long a list of a preset takes clicks."""
        return max(1, round(60_000 * (self.window_minutes or WINDOW_MINUTES)))

    def registry_password(self) -> str:
        """The password of the registry, from its file; empty where none is set.

        Raises
        ------
        ValueError : the file cannot be read; the message does not quote its content.
        """
        if not self.registry_password_file:
            return ""
        found = secret_in(self.registry_password_file)
        remember(found)
        remember_url(self.registry)
        return found

    def shaping(self) -> dict[str, Any]:
        """What shapes the events, for the birth record: a schema belongs to its id, wherever it comes from."""
        left_out = {"schemas", "registry", "registry_username", "registry_password_file", "generation"}
        return self.model_dump(mode="json", exclude=left_out)
