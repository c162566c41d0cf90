"""The section of the service over HTTP: its spaces, where it listens, and its limits."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, Literal

from pydantic import Field, SecretStr, model_validator

from kinstream.streams.configuration.section import KeyFault, Name, Section, connection_of
from kinstream.streams.secrets import remember_url
from kinstream.streams.signals import COMPUTED, MOST_NAMES, SIMILARITY, TEXT

#: How a store compares vectors.
INNER: Final = "inner-product"
COSINE: Final = "cosine"
#: The backend that holds the items itself. Every other one is a kind of store.
INDEX: Final = "index"
#: Settings of spaces with our own index, and of those with a store.
_OF_INDEX: Final = frozenset({"catalogue", "index", "updates"})
_OF_STORES: Final = frozenset(
    {"model", "connection", "connection_file", "collection", "distance", "columns", "text", "signals"}
    | {"candidates", "blend"}
)


class ServeSpaceSettings(Section):
    """`[serve.spaces.NAME]`: the model to measure or map with, and what holds the items.

    A space with `text` or `signals` ranks by all that its store says.
    """

    learner: Name | None = None
    """learner whose newest model serves"""
    backend: Name = INDEX
    """our own index; or `"pgvector"`, `"qdrant"`, `"opensearch"`, or [your own](serving.md#a-store-of-your-own)"""
    catalogue: Literal["items", "samples"] = "items"
    """item records, or `"samples"` with ids"""
    index: Literal["exact", "faiss-flat", "faiss-hnsw", "lazy"] = "exact"
    """[which index](serving.md#which-index)"""
    updates: bool = False
    """follow every published step of the learner, with the index `lazy`"""
    model: str | None = None
    """file of an exported model, instead of `learner`"""
    connection: SecretStr = SecretStr("")
    """[how to reach the store](serving.md#connections); it may hold a password, so `--set` refuses it"""
    connection_file: str = ""
    """file with the connection"""
    collection: str = ""
    """table or collection"""
    distance: Literal["inner-product", "cosine"] = "cosine"
    """or `"inner-product"`"""
    columns: tuple[str, ...] = ()
    """columns, or keys of the payload, that answers show. Filters of pgvector may name only these"""
    text: str = ""
    """[what is searched by words](serving.md#more-than-a-vector): a column, field, or sparse vector"""
    signals: tuple[str, ...] = ()
    """columns of numbers, or of [further vectors](serving.md#more-than-a-vector), that rank as well"""
    candidates: int = Field(default=100, ge=1, le=1_000)
    """items found by vector, and by text, that are ranked"""
    blend: dict[str, float] = Field(default_factory=dict)
    """share of each signal before a `ranking` model is learned; none: half similarity, half text"""
    options: dict[str, Any] = Field(default_factory=dict)
    """options of the index or of the store"""
    record: bool | Annotated[float, Field(ge=0.0, le=1.0)] = False
    """[write the lists that are shown](serving.md#feedback), and take feedback on them; or the share of the lists"""

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
        self._ranks_by_known_signals()
        if self.connection.get_secret_value() and self.connection_file:
            raise ValueError("set one of connection and connection_file, not both")
        remember_url(self.connection.get_secret_value())
        return self

    def _ranks_by_known_signals(self) -> None:
        if not self.ranks:
            for name in sorted(self.model_fields_set & {"candidates", "blend"}):
                raise KeyFault(name, "is of a space that ranks by more than a vector: set text or signals")
        known = {SIMILARITY, *self.signals, *([TEXT] if self.text else [])}
        if {*COMPUTED, TEXT} & set(self.signals) or len(set(self.signals)) < len(self.signals):
            raise KeyFault("signals", f"names each column once, and none {', '.join(COMPUTED)} or {TEXT}")
        if "" in self.signals or len(known) > MOST_NAMES:
            raise KeyFault("signals", f"there are at most {MOST_NAMES} signals, and each has a name")
        if strange := sorted(set(self.blend) - known):
            raise KeyFault(
                "blend", f"there is no signal {strange[0]!r}; there are {', '.join(sorted(known))}"
            )
        shares = list(self.blend.values())
        if self.blend and not (all(math.isfinite(one) for one in shares) and any(shares)):
            raise KeyFault("blend", "shares are finite numbers, and one of them is not zero")

    @property
    def ranks(self) -> bool:
        """Whether the store says more of an item than its vector."""
        return bool(self.text or self.signals)

    @property
    def shares(self) -> dict[str, float]:
        """The ranking that people have before anything is learned: the share of each signal."""
        return self.blend or {SIMILARITY: 0.5, TEXT: 0.5} if self.text else self.blend or {SIMILARITY: 1.0}

    @property
    def known_signals(self) -> tuple[str, ...]:
        """What a ranking of the space can go by."""
        return (*COMPUTED, *([TEXT] if self.text else []), *self.signals)

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
    """The service: its spaces, where it listens, and its limits."""

    spaces: dict[str, ServeSpaceSettings] = Field(default_factory=dict)
    """a table for each served space: below"""
    http_host: str = "127.0.0.1"
    """address; no TLS, and a login only with `clients_file`"""
    http_port: int = Field(default=8088, ge=0, le=65535)
    """0: any free port, which the log shows"""
    threads: int = Field(default=0, ge=0, le=1_024)
    """requests processed at a time; 0: one per processor, or 16 if a space has a store, which gets as many connections,
    twice as many with a gate"""
    max_concurrent: int = Field(default=64, ge=1)
    """requests processed or waiting for a thread; connections are eight times as many, above which the one that has
    waited longest is closed"""
    max_body_bytes: int = Field(default=8_000_000, ge=1_024)
    """size of a request"""
    request_seconds: float = Field(default=10.0, gt=0)
    """for the headers to arrive, for the body, and for the answer; a store has half of it for one of its own"""
    clients_file: str = ""
    """file of the [clients](security.md#clients-of-the-service) and their tokens; empty: everybody may ask"""
    client_rate: float = Field(default=0.0, ge=0.0)
    """requests a second of a client, or of an address without `clients_file`; large ones [count as
    several](security.md#clients-of-the-service); 0: no limit"""
    audit: bool = False
    """log each request: client, path, space, status, time"""
    redrives_of: Name | None = None
    """builder whose redriven items are applied"""
    recall_every: int = Field(default=1_000, ge=0)
    """one query in so many to our own index is checked by an exact scan; 0: none"""

    @property
    def max_connections(self) -> int:
        """Open connections."""
        return 8 * self.max_concurrent

    @property
    def store_seconds(self) -> float:
        """For one answer of a store: a request asks it twice."""
        return self.request_seconds / 2

    @property
    def indexed(self) -> dict[str, ServeSpaceSettings]:
        """The spaces with our own index."""
        return {name: space for name, space in self.spaces.items() if not space.stored}

    @property
    def stored(self) -> dict[str, ServeSpaceSettings]:
        """The spaces with a store of others."""
        return {name: space for name, space in self.spaces.items() if space.stored}
