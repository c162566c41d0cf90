"""What a store holds, as its readers see it; and a sink over a log that nothing else reads."""

from __future__ import annotations

import json
from typing import Any, Protocol

import numpy as np
import psycopg
from numpy.typing import NDArray
from qdrant_client import QdrantClient

from kinstream.streams.settings import Settings
from tests.vectors.material import config

Held = dict[str, NDArray[Any]]


class View(Protocol):
    """What a reader sees: each item with its vector, the name of the version, and the map of queries."""

    def held(self) -> tuple[Held, str | None]: ...

    def query_map(self) -> NDArray[Any]: ...

    def leftovers(self) -> list[str]:
        """Tables or collections of versions other than the one that is shown."""


class PostgresView:
    def __init__(self, url: str, collection: str) -> None:
        self.url, self.collection = url, collection

    def rows(self, statement: str) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement).fetchall()

    def held(self) -> tuple[Held, str | None]:
        if not self.rows(f"select to_regclass('{self.collection}') is not null")[0][0]:
            return {}, None
        rows = self.rows(f"select id, embedding::text, version from {self.collection}")
        versions = {version for _, _, version in rows}
        assert len(versions) <= 1
        found = {name: np.array(json.loads(text)) for name, text, _ in rows}
        assert len(found) == len(rows)
        return found, next(iter(versions), None)

    def query_map(self) -> NDArray[Any]:
        return np.array([w for (w,) in self.rows(f"select weights from {self.collection}_map order by row")])

    def leftovers(self) -> list[str]:
        names = [n for (n,) in self.rows("select tablename from pg_tables where schemaname = 'public'")]
        shown = self.rows("select epoch || '_' || number from kinstream_versions where state = 'shown'")
        own = {f"{self.collection}_{name}{part}" for (name,) in shown for part in ("", "_map")}
        books = {"kinstream_positions", "kinstream_versions"}
        return sorted(n for n in names if n not in own | books and n.startswith(self.collection))


class QdrantView:
    def __init__(self, client: QdrantClient, collection: str) -> None:
        self.client, self.collection = client, collection

    def held(self) -> tuple[Held, str | None]:
        aliases = {one.alias_name: one.collection_name for one in self.client.get_aliases().aliases}
        if self.collection not in aliases:
            return {}, None
        rows, _ = self.client.scroll(self.collection, limit=100_000, with_vectors=True)
        found = {str((row.payload or {})["id"]): np.array(row.vector) for row in rows}
        assert len(found) == len(rows)
        return found, aliases[self.collection].removeprefix(f"{self.collection}_")

    def query_map(self) -> NDArray[Any]:
        _, version = self.held()
        rows, _ = self.client.scroll(f"{self.collection}_kinstream", limit=1_000)
        parts = [r.payload for r in rows if (r.payload or {}).get("key", "").startswith(f"map {version} ")]
        parts.sort(key=lambda one: one["first"] if one else 0)
        return np.array([row for one in parts if one for row in one["query"]])

    def leftovers(self) -> list[str]:
        _, version = self.held()
        names = {one.name for one in self.client.get_collections().collections}
        return sorted(names - {f"{self.collection}_{version}", f"{self.collection}_kinstream"})


def sink_settings(store: str, connection: str, **more: Any) -> Settings:
    """A sink of the space `docs` to the collection `docs`."""
    section = {"space": "docs", "store": store, "connection": connection, "collection": "docs", **more}
    return config("docs", sinks={"main": section})
