"""The section of the service over HTTP: its spaces, where it listens, and its limits."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import Field, SecretStr, model_validator

from kinstream.streams.configuration.section import KeyFault, Name, Section, connection_of
from kinstream.streams.secrets import remember_url

#: How a store compares vectors.
INNER: Final = "inner-product"
COSINE: Final = "cosine"
#: The backend that holds the items itself. Every other one is a kind of store.
INDEX: Final = "index"
#: Settings of spaces with our own index, and of those with a store.
_OF_INDEX: Final = frozenset({"catalogue", "index", "updates"})
_OF_STORES: Final = frozenset({"model", "connection", "connection_file", "collection", "distance", "columns"})


class ServeSpaceSettings(Section):
    """`[serve.spaces.NAME]`: the model to measure or map with, and what holds the items.

    `backend` is `index`, or a kind of store. `learner` follows the newest model. `options` are the index's or the
    store's own: `bits`, `seed`, `eps` of `lazy`, `neighbours` and `depth` of `faiss-hnsw`.

    Of the index: `catalogue` is the source of the items. `updates` follows every step of a learner with
    `publish_updates`.

    Of stores: `model` names the file of an exported model, instead of a learner. `connection` may hold a password, so
    it is a secret; `connection_file` names a file that holds it. `collection` is the table or the collection, `columns`
    what an answer shows of an item and what a filter of pgvector may name.
    """

    learner: Name | None = None
    backend: Name = INDEX
    catalogue: Literal["items", "samples"] = "items"
    index: Literal["exact", "faiss-flat", "faiss-hnsw", "lazy"] = "exact"
    updates: bool = False
    model: str | None = None
    connection: SecretStr = SecretStr("")
    connection_file: str = ""
    collection: str = ""
    distance: Literal["inner-product", "cosine"] = "cosine"
    columns: tuple[str, ...] = ()
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fits_its_backend(self) -> ServeSpaceSettings:
        strange = sorted(self.model_fields_set & (_OF_INDEX if self.stored else _OF_STORES))
        if strange:
            other = f'"{INDEX}"' if self.stored else 'a kind of store, such as "pgvector"'
            raise KeyFault(
                strange[0], f'is not of backend = "{self.backend}": remove it, or set backend to {other}'
            )
        if not self.stored and self.learner is None:
            raise ValueError("set learner, for its newest model")
        if self.stored and (self.learner is None) == (self.model is None):
            raise ValueError(
                "set learner, for its newest model, or model, for an exported file, and not both"
            )
        if self.stored and not self.collection:
            raise ValueError("set collection, to the table or the collection of the store")
        if self.connection.get_secret_value() and self.connection_file:
            raise ValueError("set one of connection and connection_file, not both")
        remember_url(self.connection.get_secret_value())
        return self

    @property
    def stored(self) -> bool:
        """Whether a store of others holds the items."""
        return self.backend != INDEX

    def connect_by(self) -> str:
        """The connection, which is read from its file now: only the service needs that file.

        Raises
        ------
        SettingsError : the file cannot be read; the message does not quote its content.
        """
        return connection_of(self.connection, self.connection_file)


class ServeSettings(Section):
    """The service: its spaces, where it listens, and its limits.

    `threads` 0 stands for one per processor, or 16 if a space has a store: most of a request is then waiting.
    `clients_file` names the clients that may ask, with their tokens; empty: everybody. `client_rate` is requests a
    second of one client; 0: no limit. `audit` logs each request.

    Of spaces with our own index, every `recall_every`-th query is checked against the exact scan; 0: none. Of those
    with a store, `store_seconds` limits the wait for one answer.
    """

    spaces: dict[str, ServeSpaceSettings] = Field(default_factory=dict)
    http_host: str = "127.0.0.1"
    http_port: int = Field(default=8088, ge=0, le=65535)
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
    redrives_of: Name | None = None
    rebuild_seconds: float = Field(default=1.0, ge=0)
    recall_every: int = Field(default=1_000, ge=0)
    store_seconds: float = Field(default=5.0, gt=0)

    @property
    def indexed(self) -> dict[str, ServeSpaceSettings]:
        """The spaces with our own index."""
        return {name: space for name, space in self.spaces.items() if not space.stored}

    @property
    def stored(self) -> dict[str, ServeSpaceSettings]:
        """The spaces with a store of others."""
        return {name: space for name, space in self.spaces.items() if space.stored}
