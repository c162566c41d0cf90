"""PostgreSQL with pgvector: a table for each version, and a view of the newest complete one.

Rows and the position in the log are written in one transaction. So whatever ends the process, what the log says is
applied once. Readers ask the view; with the last block of a version the view changes to its table, and the tables of
versions before it are dropped afterwards, when no reader holds them. No transaction relies on an earlier one of its
connection: a pooler of transactions may lie between.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from kinstream.search.stores.base import StoreAway
from kinstream.search.stores.postgres import local, sessionless
from kinstream.streams.records.vectors import ItemMap, VectorBlock
from kinstream.streams.secrets import hide
from kinstream.vectors.sinks.base import (
    Change,
    EpochBegins,
    Lane,
    StoreBehind,
    StoreFault,
    VersionName,
    version_of,
)

Connection = psycopg.Connection[TupleRow]
#: Longest wait for readers of a table that is to be dropped; then it is dropped after a later write.
_DROP_MS: Final = 1_000
_CONNECT_SECONDS: Final = 10
_SCHEMA: Final = (
    "create table if not exists kinstream_positions (sink text, generation int, part int, next_offset bigint not null,"
    " primary key (sink, generation, part))",
    "create table if not exists kinstream_versions (collection text, epoch bigint, number bigint, state text not null,"
    " items bigint, dimension int not null, learner text not null, model text not null,"
    " primary key (collection, epoch, number))",
)
_CHECK: Final = "select current_schema(), coalesce(has_schema_privilege(current_schema(), 'create'), false)"
_EXTENSION: Final = (
    "select nspname from pg_extension join pg_namespace n on n.oid = extnamespace where extname = 'vector'"
)


class PgVectorWriter:
    """The writer of one collection.

    Parameters
    ----------
    connection : a URL or a string of libpq; empty for libpq's own variables.
    collection : the view that readers ask, with the columns id, embedding, version. `COLLECTION_map` is the map of
        queries of that version, a row for each dimension; it has no rows if queries stay as they are.
    index : whether a version gets an HNSW index for the inner product before it is shown.

    Raises
    ------
    SettingsError : the connection is not valid.
    """

    def __init__(self, connection: str, collection: str, *, index: bool) -> None:
        self._url, settings = sessionless(connection)
        self._settings = local(settings) if settings else None
        self._collection = collection
        self._index = index
        self._open: Connection | None = None

    def write(self, lane: Lane, first: int, changes: Sequence[tuple[int, Change]], end: int) -> None:
        try:
            connection = self._connected()
            with self._transaction(connection):
                self._written(connection, lane, first, changes, end)
            self._drop_old(connection)
        except psycopg.Error as error:
            self.close()
            raise self._away(error) from error

    def check(self) -> None:
        try:
            with self._connection() as connection, self._transaction(connection):
                schema, may_create = connection.execute(_CHECK).fetchone() or (None, False)
                extension = connection.execute(_EXTENSION).fetchone()
        except psycopg.Error as error:
            raise self._away(error) from error
        if not may_create:
            where = f"the schema {schema}" if schema else "any schema of its search path"
            raise StoreAway(f"{self._collection}: this user may not create tables in {where}")
        if extension is None:
            raise self._bare()

    def _bare(self) -> StoreAway:
        return StoreAway(f"{self._collection}: the database has no type vector: create extension vector")

    def _away(self, error: psycopg.Error) -> StoreAway:
        text = str(error).strip().splitlines() or [type(error).__name__]
        return StoreAway(hide(f"{self._collection}: {text[0]}"))

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    # ---- one transaction ----------------------------------------------------------------------------------------

    def _written(
        self, connection: Connection, lane: Lane, first: int, changes: Sequence[tuple[int, Change]], end: int
    ) -> None:
        # One writer of a collection at a time: an owner that lost its partition may still be at it.
        connection.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", (self._collection,))
        found = connection.execute(
            "select next_offset from kinstream_positions where (sink, generation, part) = (%s, %s, %s)", lane
        ).fetchone()
        at = first if found is None else int(found[0])
        if at < first:
            raise StoreBehind(
                f"{self._collection}: the database holds what {lane.sink} wrote up to offset {at}, and it wrote up to "
                f"{first}: the database is an older one. Begin again: kinstream worker sink {lane.sink} "
                "--new-generation --from-start"
            )
        for offset, change in changes:
            if offset >= at:
                self._apply(connection, change)
        connection.execute(
            "insert into kinstream_positions values (%s, %s, %s, %s) on conflict (sink, generation, part)"
            " do update set next_offset = excluded.next_offset",
            (*lane, max(at, end)),
        )

    def _apply(self, connection: Connection, change: Change) -> None:
        if isinstance(change, EpochBegins):
            for name, _ in self._versions(connection, "building", "shown"):
                if name.epoch < change.epoch:
                    connection.execute(sql.SQL("delete from {}").format(self._table(name)))
            return
        name = version_of(change)
        states = dict(self._versions(connection, "building", "shown"))
        if isinstance(change, ItemMap) and change.first == 0 and all(name > one for one in states):
            self._create(connection, name, change)
            states[name] = "building"
        if name not in states:
            return
        if isinstance(change, ItemMap):
            self._take_map(connection, name, change)
        else:
            self._take_block(connection, name, change)
            if change.complete is not None and states[name] == "building":
                self._show(connection, name, change.complete)

    def _create(self, connection: Connection, name: VersionName, found: ItemMap) -> None:
        """The empty tables of a version. One that was begun before it will never be complete."""
        self._mark(connection, "old", "building", name)
        connection.execute(
            sql.SQL("create table {} (id text primary key, embedding {}({}) not null)").format(
                self._table(name), self._named(connection, "vector"), sql.Literal(found.rank)
            )
        )
        connection.execute(
            sql.SQL("create table {} (row int primary key, weights real[] not null)").format(
                self._table(name, "_map")
            )
        )
        connection.execute(
            "insert into kinstream_versions values (%s, %s, %s, 'building', null, %s, %s, %s)",
            (self._collection, *name, found.rank, found.learner, str(found.model)),
        )

    def _take_map(self, connection: Connection, name: VersionName, found: ItemMap) -> None:
        rows = [(found.first + row, weights.tolist()) for row, weights in enumerate(found.query)]
        if rows:
            with connection.cursor() as cursor:
                cursor.executemany(
                    sql.SQL("insert into {} values (%s, %s) on conflict (row) do nothing").format(
                        self._table(name, "_map")
                    ),
                    rows,
                )

    def _take_block(self, connection: Connection, name: VersionName, block: VectorBlock) -> None:
        if block.ids:
            connection.execute(
                sql.SQL(
                    "insert into {} select * from unnest(%s::text[], %s::{}[]) on conflict (id)"
                    " do update set embedding = excluded.embedding"
                ).format(self._table(name), self._named(connection, "vector")),
                (list(block.ids), [str(row) for row in block.vectors.tolist()]),
            )
        if block.tombstones:
            connection.execute(
                sql.SQL("delete from {} where id = any(%s)").format(self._table(name)),
                (list(block.tombstones),),
            )

    def _show(self, connection: Connection, name: VersionName, wanted: int) -> None:
        """Let readers see a complete version."""
        table = self._table(name)
        row = connection.execute(sql.SQL("select count(*) from {}").format(table)).fetchone()
        assert row is not None
        if row[0] != wanted:
            raise StoreFault(
                f"{self._collection}: version {name} has {row[0]} items, and should have {wanted}"
            )
        if self._index:
            connection.execute(
                sql.SQL("create index on {} using hnsw (embedding {})").format(
                    table, self._named(connection, "vector_ip_ops")
                )
            )
        shown = self._shown_dimension(connection)
        columns = connection.execute(
            "select dimension from kinstream_versions where (collection, epoch, number) = (%s, %s, %s)",
            (self._collection, *name),
        ).fetchone()
        assert columns is not None
        view, version = sql.Identifier(self._collection), sql.Literal(str(name))
        if shown not in (None, columns[0]):
            # A view's column keeps its type.
            connection.execute(sql.SQL("drop view {}").format(view))
        connection.execute(
            sql.SQL("create or replace view {} as select id, embedding, {}::text as version from {}").format(
                view, version, table
            )
        )
        connection.execute(
            sql.SQL("create or replace view {} as select row, weights, {}::text as version from {}").format(
                sql.Identifier(self._collection + "_map"), version, self._table(name, "_map")
            )
        )
        self._mark(connection, "old", "shown", name)
        connection.execute(
            "update kinstream_versions set state = 'shown', items = %s"
            " where (collection, epoch, number) = (%s, %s, %s)",
            (wanted, self._collection, *name),
        )

    # ---- parts --------------------------------------------------------------------------------------------------

    def _drop_old(self, connection: Connection) -> None:
        """Drop the tables of versions that are over, unless a reader still holds them."""
        with self._transaction(connection):
            old = self._versions(connection, "old")
        for name, _ in old:
            with contextlib.suppress(psycopg.errors.LockNotAvailable), self._transaction(connection):
                connection.execute(sql.SQL("set local lock_timeout = {}").format(sql.Literal(_DROP_MS)))
                for part in ("", "_map"):
                    connection.execute(sql.SQL("drop table if exists {}").format(self._table(name, part)))
                connection.execute(
                    "delete from kinstream_versions where (collection, epoch, number) = (%s, %s, %s)",
                    (self._collection, *name),
                )

    def _versions(self, connection: Connection, *states: str) -> list[tuple[VersionName, str]]:
        rows = connection.execute(
            "select epoch, number, state from kinstream_versions where collection = %s and state = any(%s)",
            (self._collection, list(states)),
        )
        return [(VersionName(epoch, number), state) for epoch, number, state in rows]

    def _shown_dimension(self, connection: Connection) -> int | None:
        row = connection.execute(
            "select dimension from kinstream_versions where collection = %s and state = 'shown'",
            (self._collection,),
        ).fetchone()
        return None if row is None else int(row[0])

    def _mark(self, connection: Connection, state: str, before: str, beside: VersionName) -> None:
        connection.execute(
            "update kinstream_versions set state = %s where collection = %s and state = %s"
            " and (epoch, number) <> (%s, %s)",
            (state, self._collection, before, *beside),
        )

    def _table(self, name: VersionName, part: str = "") -> sql.Identifier:
        return sql.Identifier(f"{self._collection}_{name}{part}")

    def _named(self, connection: Connection, name: str) -> sql.Identifier:
        """Something of the extension, whose schema need not be in the search path."""
        found = connection.execute(_EXTENSION).fetchone()
        if found is None:
            raise self._bare()
        return sql.Identifier(str(found[0]), name)

    @contextlib.contextmanager
    def _transaction(self, connection: Connection) -> Iterator[None]:
        with connection.transaction():
            if self._settings is not None:
                connection.execute(self._settings)
            yield

    def _connection(self) -> Connection:
        return psycopg.connect(
            self._url, autocommit=True, prepare_threshold=None, connect_timeout=_CONNECT_SECONDS
        )

    def _connected(self) -> Connection:
        if self._open is None:
            self._open = self._connection()
            with self._transaction(self._open):
                # `if not exists` is no guard against another process that does the same now.
                self._open.execute("select pg_advisory_xact_lock(hashtextextended('kinstream', 0))")
                for statement in _SCHEMA:
                    self._open.execute(statement)
        return self._open
