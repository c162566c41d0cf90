"""The stores that a sink can write."""

from __future__ import annotations

from kinstream.streams.configuration.vectors import SinkSettings
from kinstream.streams.extras import require
from kinstream.vectors.sinks.base import Writer


def create(section: SinkSettings) -> Writer:
    """The writer of a sink. It does not connect yet.

    Raises
    ------
    SettingsError : the package of the store is not installed, or the file of the connection cannot be read.
    """
    who = f'store = "{section.store}"'
    if section.store == "pgvector":
        require("psycopg", who=who, extra="pgvector")
        from kinstream.vectors.sinks.pgvector import PgVectorWriter

        return PgVectorWriter(section.connect_by(), section.collection, index=section.index == "hnsw")
    require("qdrant_client", who=who, extra="qdrant")
    from kinstream.vectors.sinks.qdrant import QdrantWriter

    return QdrantWriter(section.connect_by(), section.collection)
