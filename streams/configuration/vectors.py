"""`[vectors.SPACE]` and `[sinks.NAME]`: catalogues that are embedded again when a map has moved, and their stores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from pydantic import Field, SecretStr, model_validator

from kinstream.streams.configuration.faults import Path
from kinstream.streams.configuration.section import Name, Section, connection_of
from kinstream.streams.secrets import remember_url
from kinstream.streams.spelling import meant


class VectorsSettings(Section):
    """`[vectors.SPACE]`: whose map embeds the items of a space, and when a new version is due."""

    learner: Name
    """whose newest model maps the items"""
    dimensions: int | None = Field(default=None, ge=1)
    """map queries and items to so few dimensions (`adapter` only); none: queries stay as they are"""
    moved: float = Field(default=0.1, ge=0.0, le=1.0)
    """share of changed neighbours at which `kinstream vectors watch` orders a version"""


class SinkSettings(Section):
    """`[sinks.NAME]`: a store that holds the newest complete version of a space."""

    space: str = Field(min_length=1)
    """one of `[vectors.SPACE]`"""
    store: Literal["pgvector", "qdrant"]
    """`"pgvector"` or `"qdrant"`"""
    connection: SecretStr = SecretStr("")
    """[how to reach the store](serving.md#connections); `--set` refuses it"""
    connection_file: str = ""
    """file with the connection"""
    collection: str = Field(
        pattern=r"^[a-z_][a-z0-9_]{0,30}$",
        description="is made of a-z, 0-9 and _, begins with a letter or _, and has at most 31 characters",
    )
    """the view or alias that readers ask: up to 31 small letters, digits and `_`"""
    index: Literal["none", "hnsw"] = "none"
    """`"hnsw"`: pgvector builds this index before a version is shown"""

    @model_validator(mode="after")
    def _one_connection(self) -> SinkSettings:
        if self.connection.get_secret_value() and self.connection_file:
            raise ValueError("set one of connection and connection_file, not both")
        remember_url(self.connection.get_secret_value())
        return self

    def connect_by(self) -> str:
        """The connection, which is read from its file now: only the sink needs that file.

        Raises
        ------
        SettingsError : the file cannot be read; the message does not quote its content.
        """
        return connection_of(self.connection, self.connection_file)


def unknown_names(data: dict[str, Any]) -> Iterator[tuple[Path, bool, str]]:
    """Spaces that name a learner, and sinks that name a space, which the settings do not have.

    Settings without any learner, or without any space of vectors, may name those of other settings: the process of a
    sink needs nothing else.
    """
    for section, key, known in (("vectors", "learner", "learners"), ("sinks", "space", "vectors")):
        tables, there = data.get(section), data.get(known)
        if not isinstance(tables, dict) or not isinstance(there, dict) or not there:
            continue
        for name, table in tables.items():
            found = table.get(key) if isinstance(table, dict) else None
            if isinstance(found, str) and found and found not in there:
                yield (section, name, key), False, _unknown(found, known, there)


def _unknown(name: str, section: str, known: Iterable[str]) -> str:
    return (
        f"the settings have no [{section}.{name}]; there are {', '.join(sorted(known))}{meant([name], known)}"
    )
