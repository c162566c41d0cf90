"""The sections of the services over HTTP: the query agent and the gateway, their spaces and their limits."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal

from pydantic import Field, SecretStr, model_validator

from kinstream.streams.configuration.section import Name, Section, connection_of
from kinstream.streams.secrets import remember_url

#: How a store compares vectors.
INNER: Final = "inner-product"
COSINE: Final = "cosine"


class ServiceSettings(Section):
    """Where a service listens, and its limits. `threads` 0 stands for one per processor.

    `clients_file` names the clients that may ask, with their tokens; empty: everybody. `client_rate` is requests a
    second of one client; 0: no limit. `audit` logs each request.
    """

    #: Its name in the settings.
    section: ClassVar[str]
    http_host: str = "127.0.0.1"
    http_port: int = Field(default=0, ge=0, le=65535)
    threads: int = Field(default=0, ge=0, le=1_024)
    max_concurrent: int = Field(default=64, ge=1)
    max_connections: int = Field(default=512, ge=1)
    max_body_bytes: int = Field(default=8_000_000, ge=1_024)
    max_rows: int = Field(default=256, ge=1)
    max_k: int = Field(default=1_000, ge=1)
    request_seconds: float = Field(default=10.0, gt=0)
    header_seconds: float = Field(default=10.0, gt=0)
    idle_seconds: int = Field(default=15, ge=1)
    clients_file: str = ""
    client_rate: float = Field(default=0.0, ge=0.0)
    audit: bool = False


class SearchSpaceSettings(Section):
    """`[search.spaces.NAME]`: the model to measure with, the source of the items, and the index.

    `updates` follows every step of a learner with `publish_updates`. `options` are the index's own: `bits`, `seed`,
    `eps` of `lazy`, `neighbours` and `depth` of `faiss-hnsw`.
    """

    learner: Name
    catalogue: Literal["items", "samples"] = "items"
    index: Literal["exact", "faiss-flat", "faiss-hnsw", "lazy"] = "exact"
    updates: bool = False
    options: dict[str, Any] = Field(default_factory=dict)


class SearchSettings(ServiceSettings):
    """The query agent: its spaces, where it listens, and its limits.

    Every `recall_every`-th query is checked against the exact scan; 0: none.
    """

    section = "search"
    spaces: dict[str, SearchSpaceSettings] = Field(default_factory=dict)
    http_port: int = Field(default=8088, ge=0, le=65535)
    redrives_of: Name | None = None
    rebuild_seconds: float = Field(default=1.0, ge=0)
    recall_every: int = Field(default=1_000, ge=0)


class GatewaySpaceSettings(Section):
    """`[gateway.spaces.NAME]`: whose query map is used, and the store that is asked.

    `learner` follows the newest model; `model` names the file of an exported one instead. `connection` may hold a
    password, so it is a secret; `connection_file` names a file that holds it. `collection` is the table or the
    collection, `columns` what an answer shows of an item and what a filter of pgvector may name. `options` are the
    store's own.
    """

    learner: Name | None = None
    model: str | None = None
    store: Name
    connection: SecretStr = SecretStr("")
    connection_file: str = ""
    collection: str = Field(min_length=1)
    distance: Literal["inner-product", "cosine"] = "cosine"
    columns: tuple[str, ...] = ()
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_of_each(self) -> GatewaySpaceSettings:
        if (self.learner is None) == (self.model is None):
            raise ValueError(
                "set learner, for its newest model, or model, for an exported file, and not both"
            )
        if self.connection.get_secret_value() and self.connection_file:
            raise ValueError("set one of connection and connection_file, not both")
        remember_url(self.connection.get_secret_value())
        return self

    def connect_by(self) -> str:
        """The connection, which is read from its file now: only the gateway needs that file.

        Raises
        ------
        SettingsError : the file cannot be read; the message does not quote its content.
        """
        return connection_of(self.connection, self.connection_file)


class GatewaySettings(ServiceSettings):
    """The gateway to vector stores: its spaces, where it listens, and its limits.

    Most of a request is waiting for a store, so there are more threads than processors. `store_seconds` limits the
    wait for one answer of a store.
    """

    section = "gateway"
    spaces: dict[str, GatewaySpaceSettings] = Field(default_factory=dict)
    http_port: int = Field(default=8089, ge=0, le=65535)
    threads: int = Field(default=16, ge=0, le=1_024)
    store_seconds: float = Field(default=5.0, gt=0)
