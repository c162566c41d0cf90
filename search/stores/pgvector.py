"""PostgreSQL with the extension pgvector, through psycopg.

All queries of a request are one statement, so they see one snapshot, which the answer names. An index for the column
and the distance is used as for a query of the user's own. No statement relies on what the table was before, nor, where
a pooler lies between, on an earlier one of its connection. Without a pooler, what comes often is prepared, except with
a filter: its operands may want other plans.
"""

from __future__ import annotations

import contextlib
import math
import queue
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar

import numpy as np
import psycopg
from psycopg import errors, sql
from psycopg.adapt import Dumper
from psycopg.pq import Format

from kinstream.search.stores import pgvector_candidates as ranking
from kinstream.search.stores.base import (
    Asked,
    BadFilter,
    BadVectors,
    Hit,
    Place,
    StoreAway,
    StoreCandidates,
    StoreHits,
    no_options,
    scaled_by_powers,
)
from kinstream.search.stores.filters import Condition, conditions
from kinstream.search.stores.pgvector_candidates import LANGUAGE, OPERATORS, Column
from kinstream.search.stores.postgres import TIMES, SessionlessConnection, direct, local, sessionless
from kinstream.streams.configuration.service import COSINE
from kinstream.streams.records.values import Vectors
from kinstream.streams.secrets import hide
from kinstream.streams.signals import ADAPTED, SIMILARITY

#: Statements that are kept, by number of queries and shape of the filter.
_STATEMENTS: Final = 128
#: A statement that a connection has had as often is prepared there.
_OFTEN: Final = 5
#: Types that a column may have.
_TYPES: Final = ("vector", "halfvec")
#: What an operand of a filter can be guilty of.
_UNFIT: Final = (
    errors.UndefinedFunction,
    errors.AmbiguousFunction,
    errors.IndeterminateDatatype,
    errors.DatatypeMismatch,
    errors.UndefinedObject,
    errors.CannotCoerce,
    errors.InvalidParameterValue,
    errors.InvalidTextRepresentation,
    errors.InvalidBinaryRepresentation,
    errors.NumericValueOutOfRange,
    errors.InvalidDatetimeFormat,
    errors.DatetimeFieldOverflow,
    errors.CharacterNotInRepertoire,
    errors.UntranslatableCharacter,
)
#: What a new connection may mend: it may have another search path or role, and has prepared nothing for old columns.
_MOVED: Final = (
    errors.UndefinedTable,
    errors.InvalidSchemaName,
    errors.InsufficientPrivilege,
    errors.FeatureNotSupported,
)
_COLUMNS: Final = (
    "select a.attname, n.nspname, t.typname, a.atttypmod,"
    " c.relkind in ('r', 'p', 'm') and has_table_privilege(c.oid, 'select')"
    " from pg_attribute a join pg_type t on t.oid = a.atttypid join pg_namespace n on n.oid = t.typnamespace"
    " join pg_class c on c.oid = a.attrelid"
    " where a.attrelid = {}::regclass and a.attname = any({}) and not a.attisdropped"
)


_Answer = TypeVar("_Answer")


class _Timed(SessionlessConnection):
    """A connection that waits for every answer in a limited time, also if the server is reached and hangs."""

    seconds = 5.0

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        try:
            return super().wait(gen, interval, timeout=self.seconds if timeout is None else timeout)
        except errors._WaitTimeout:
            self.pgconn.finish()
            raise _Late(f"no answer within {self.seconds:g} s") from None


class _Late(psycopg.OperationalError):
    """The time for an answer is up."""


class _Packed:
    """A vector as the server receives it: how many numbers, and the numbers."""

    def __init__(self, row: Vectors, half: bool) -> None:
        self.data = struct.pack(">HH", len(row), 0) + row.astype(">f2" if half else ">f4").tobytes()


class _PackedDumper(Dumper):
    """Sends a vector in binary: writing and reading its numbers as text takes longer than the search."""

    format = Format.BINARY

    def dump(self, obj: _Packed) -> bytes:
        return obj.data


class PgVector:
    """A table or a view with an id and a column of the type vector or halfvec.

    Parameters
    ----------
    place : `connection` is a URL or a string of libpq, empty for libpq's own variables; `collection` is the table, or
        SCHEMA.TABLE; `text` is a column of the type tsvector; `signals` are columns of numbers, vector or halfvec.
        Options: `id`, `vector`: the columns; `language`: the configuration by which the text of a query is split into
        words, as for that column.

    Raises
    ------
    SettingsError : an option is unknown, or the connection is not valid.
    """

    def __init__(self, place: Place) -> None:
        no_options(place, "id", "vector", "language")
        self._place = place
        self._id = sql.Identifier(str(place.options.get("id", "id")))
        self._name = str(place.options.get("vector", "embedding"))
        self._table = sql.Identifier(*place.collection.split("."))
        self._columns = sql.SQL("").join(
            sql.SQL(", {}").format(sql.Identifier(name)) for name in place.columns
        )
        #: As it was last seen; None before.
        self._column: Column | None = None
        self._connection, settings = sessionless(place.connection)
        # A server does not go on with what nothing waits for any more.
        settings["statement_timeout"] = str(max(1, int(1000 * place.seconds)))
        self._settings = local(settings).as_string(None)
        self._statement = lru_cache(_STATEMENTS)(self._composed)
        self._ranking = lru_cache(_STATEMENTS)(self._composed_ranking)
        self._kind: type[_Timed] = type("Connection", (_Timed,), {"seconds": place.seconds})
        #: Connections that nothing uses. There are as many as threads ask at once.
        self._idle: queue.LifoQueue[_Timed] = queue.LifoQueue()
        #: A connection of checks alone: those are answered while searches take all others.
        self._checking: queue.LifoQueue[_Timed] = queue.LifoQueue()

    def check(self) -> int | None:
        try:
            column = self._look(self._checking)
            # All that a search does but for looking at rows.
            self._run(self._checking, self._statement(column, 1, (), 0), _operands(column, np.zeros((1, 1))))
            if self._place.text or self._place.signals:
                self._check_ranking(column)
        except psycopg.Error as error:
            raise StoreAway(_line(error)) from None
        return column.dimension

    def search(self, queries: Vectors, k: int, where: Any) -> StoreHits:
        wanted = conditions(where, self._place.columns)
        return self._answered(wanted, queries.shape[1], lambda column: self._hits(column, queries, k, wanted))

    def candidates(self, asked: Sequence[Asked], n: int, where: Any) -> StoreCandidates:
        wanted = conditions(where, self._place.columns)
        dimension = next((len(one.plain) for one in asked if one.plain is not None), None)
        return self._answered(
            wanted, dimension, lambda column: self._candidates(column, asked, dimension, n, wanted)
        )

    def close(self) -> None:
        for idle in (self._idle, self._checking):
            with contextlib.suppress(queue.Empty):
                while True:
                    idle.get_nowait().close()

    # ---- parts ------------------------------------------------------------------------------------------------------

    def _answered(
        self, wanted: list[Condition], dimension: int | None, answer: Callable[[Column], _Answer]
    ) -> _Answer:
        """What `answer` makes of the column, with errors of the server as those of a store."""
        try:
            column = self._column or self._look(self._idle)
            if dimension is not None and column.dimension not in (None, dimension):
                column = self._look(self._idle)
            try:
                return answer(column)
            except (
                psycopg.ProgrammingError,
                psycopg.NotSupportedError,
                psycopg.DataError,
                BadVectors,
            ) as error:
                # The table may be another one than it was.
                moved = isinstance(error, _MOVED)
                if moved:
                    self.close()
                before, column = column, self._look(self._idle)
                if column == before and not moved:
                    raise
                return answer(column)
        except psycopg.Error as error:
            unfit = bool(wanted) and isinstance(error, _UNFIT)
            raise (BadFilter if unfit else StoreAway)(_line(error)) from None

    def _check_ranking(self, column: Column) -> None:
        """See that the text is searchable and signals are numbers, without looking at rows."""
        place = self._place
        if place.text:
            found = self._columns_of(self._checking, [place.text])
            if not found:
                raise StoreAway(f"{place.collection} has no column {place.text}")
            if (kind := found[place.text][1]) != "tsvector":
                raise StoreAway(f"{place.collection}.{place.text} is of the type {kind}, not tsvector")
        self._run(
            self._checking,
            self._ranking(column, 1, (), 0),
            [None, None, "a", *[None] * len(column.beside)],
        )

    def _look(self, idle: queue.LifoQueue[_Timed]) -> Column:
        """What the column is now.

        Raises
        ------
        StoreAway : it is not there, or of another type, or the server does not answer.
        """
        try:
            found = self._columns_of(idle, [self._name, *self._place.signals])
        except psycopg.Error as error:
            raise StoreAway(_line(error)) from None
        if self._name not in found:
            raise StoreAway(f"{self._place.collection} has no column {self._name}")
        schema, kind, dimension, placed = found[self._name]
        if kind not in _TYPES:
            raise StoreAway(
                f"{self._place.collection}.{self._name} is of the type {kind}, not {' or '.join(_TYPES)}"
            )
        beside = [
            (name, found[name][1], found[name][2])
            for name in self._place.signals
            if name in found and found[name][1] in _TYPES
        ]
        self._column = Column(schema, kind, dimension, placed, tuple(beside))
        return self._column

    def _columns_of(
        self, idle: queue.LifoQueue[_Timed], names: list[str]
    ) -> dict[str, tuple[str, str, int | None, bool]]:
        """Of columns that are there: schema and name of the type, dimension, and whether rows have places."""
        where = (sql.Literal(self._table.as_string(None)), sql.Literal(names))
        rows = self._run(idle, sql.SQL(_COLUMNS).format(*where).as_string(None))
        return {
            name: (schema, kind, size if size > 0 else None, placed)
            for name, schema, kind, size, placed in rows
        }

    def _hits(self, column: Column, queries: Vectors, k: int, wanted: list[Condition]) -> StoreHits:
        """The hits in a column that is as it was seen.

        Raises
        ------
        BadVectors : they are not of its dimension.
        """
        number, dimension = queries.shape
        self._see_that_it_fits(column, dimension)
        scaled, exponents = scaled_by_powers(queries)
        shape = tuple((one.column, one.operator) for one in wanted)
        statement = self._statement(column, number, shape, k)
        values = [*_operands(column, scaled), *(one.value for one in wanted)]
        hits: list[list[Hit]] = [[] for _ in queries]
        version = None
        for row in self._run(self._idle, statement, values, not wanted):
            query, version, name, similarity, *fields = row
            # A vector of zeros has no cosine.
            if name is not None and not math.isnan(similarity):
                shown = dict(zip(self._place.columns, fields, strict=True))
                if self._place.distance != COSINE:
                    similarity = math.ldexp(similarity, int(exponents[query]))
                hits[query].append(Hit(str(name), similarity, shown))
        if (
            column.dimension is None
            and not any(hits)
            and self._run(self._idle, self._strange(column), [dimension])
        ):
            raise BadVectors(f"{dimension} numbers; no vector of {self._place.collection} has as many")
        return StoreHits(hits, version)

    def _see_that_it_fits(self, column: Column, dimension: int) -> None:
        if column.dimension not in (None, dimension):
            raise BadVectors(f"{dimension} numbers; {self._place.collection} has {column.dimension}")

    def _candidates(
        self, column: Column, asked: Sequence[Asked], dimension: int | None, n: int, wanted: list[Condition]
    ) -> StoreCandidates:
        """The candidates in a column that is as it was seen.

        Raises
        ------
        BadVectors : the vectors are not of its dimension.
        """
        if dimension is not None:
            self._see_that_it_fits(column, dimension)
        sizes = {name: size for name, _, size in column.beside}
        types = [column.type, column.type, *(kind for _, kind, _ in column.beside)]
        values: list[Any] = []
        exponents: list[dict[str, int]] = []
        for one in asked:
            beside = one.compared(sizes, self._place.collection)
            vectors = {SIMILARITY: one.plain, ADAPTED: one.nearest} | {
                name: beside.get(name) for name in sizes
            }
            packed: list[_Packed | None] = []
            exponents.append({})
            for (name, vector), kind in zip(vectors.items(), types, strict=True):
                if vector is None:
                    packed.append(None)
                    continue
                scaled, powers = scaled_by_powers(vector[None])
                packed.append(_Packed(scaled[0], kind == "halfvec"))
                exponents[-1][name] = int(powers[0])
            values += [*packed[:2], one.text, *packed[2:]]
        shape = tuple((one.column, one.operator) for one in wanted)
        values += [one.value for one in wanted] * (2 if self._place.text else 1)
        answer = self._run(self._idle, self._ranking(column, len(asked), shape, n), values, not wanted)
        found = ranking.candidates(self._place, column, asked, exponents, answer)
        if (
            column.dimension is None
            and dimension is not None
            and not any(one.ids for one in found)
            and self._run(self._idle, self._strange(column), [dimension])
        ):
            raise BadVectors(f"{dimension} numbers; no vector of {self._place.collection} has as many")
        return StoreCandidates(found, answer[0][1])

    def _composed_ranking(
        self, column: Column, number: int, shape: tuple[tuple[str, str], ...], n: int
    ) -> str:
        """The statement for `n` candidates by each way of so many queries; `shape` as of `_composed`."""
        language = str(self._place.options.get("language", LANGUAGE))
        return ranking.statement(self._place, column, number, n, _rules(shape), language)

    def _strange(self, column: Column) -> str:
        """A statement that has a row if the table has vectors, and none of the dimension that is its parameter."""
        vector = sql.Identifier(self._name)
        return (
            sql.SQL(
                "select true where exists (select from {0} where {1} is not null)"
                " and not exists (select from {0} where {2}.vector_dims({1}) = %s)"
            )
            .format(self._table, vector, sql.Identifier(column.schema))
            .as_string(None)
        )

    def _composed(self, column: Column, number: int, shape: tuple[tuple[str, str], ...], k: int) -> str:
        """The statement whose parameters are so many queries, their dimension, and the operands of the filter.

        `k` is no parameter, because a plan for any number of rows would be another one.
        Rows without an id or a vector are left out, and so are those of another dimension than the queries.

        Parameters
        ----------
        shape : column and operator of each condition.
        """
        operator, sign = OPERATORS[self._place.distance]
        schema, vector = sql.Identifier(column.schema), sql.Identifier(self._name)
        rules = [sql.SQL("{} is not null").format(self._id), sql.SQL("{} is not null").format(vector)]
        if column.dimension is None:
            rules.append(sql.SQL("{}.vector_dims({}) = %s").format(schema, vector))
        rules += _rules(shape)
        kind = sql.Identifier(column.schema, column.type)
        return (
            sql.SQL(
                "select q.n, pg_current_snapshot()::text, near.* from (values {queries}) q(n, v) left join lateral"
                " (select {id}, {sign}({far}){columns} from {table} where {rules} order by {far} limit {k}) near"
                " on true order by 1, 4 desc"
            )
            .format(
                queries=sql.SQL(", ").join(
                    sql.SQL("({}, %s::{})").format(sql.Literal(row), kind) for row in range(number)
                ),
                id=self._id,
                sign=sql.SQL(sign),
                far=sql.SQL("{} operator({}.{}) q.v").format(vector, schema, sql.SQL(operator)),
                columns=self._columns,
                table=self._table,
                rules=sql.SQL(" and ").join(rules),
                k=sql.Literal(k),
            )
            .as_string(None)
        )

    def _run(
        self,
        idle: queue.LifoQueue[_Timed],
        statement: str,
        parameters: Any = None,
        plain: bool = True,
    ) -> list[Any]:
        """The rows of a statement, asked by a connection that is idle, or by a new one.

        Parameters
        ----------
        plain : one plan fits all parameters.
        """
        with contextlib.suppress(queue.Empty):
            connection = idle.get_nowait()
            try:
                return self._asked(idle, connection, statement, parameters, plain)
            except psycopg.OperationalError as error:
                if not connection.closed or isinstance(error, _Late):
                    raise
                # The server has ended it meanwhile, and with it those that are as old.
                self.close()
        return self._asked(idle, self._connected(), statement, parameters, plain)

    def _asked(
        self,
        idle: queue.LifoQueue[_Timed],
        connection: _Timed,
        statement: str,
        parameters: Any,
        plain: bool,
    ) -> list[Any]:
        """The rows of a statement; keeps the connection if it is still good."""
        try:
            # One message to the server, and so one transaction, which a pooler does not part.
            with connection.pipeline():
                connection.execute(self._settings)
                # Not False: a statement that comes often is prepared.
                found = connection.execute(statement, parameters, prepare=None if plain else False)
            return found.fetchall()
        finally:
            if connection.closed:
                connection.close()
            else:
                idle.put(connection)

    def _connected(self) -> _Timed:
        made = self._kind.connect(
            self._connection,
            autocommit=True,
            prepare_threshold=None,
            # In whole seconds, and never less than two: libpq's rule.
            connect_timeout=max(2, math.ceil(self._place.seconds)),
        )
        if direct(made):
            made.prepare_threshold = _OFTEN
        made.adapters.register_dumper(_Packed, _PackedDumper)
        for name, loader in TIMES.items():
            made.adapters.register_loader(name, loader)
        return made


def _rules(shape: tuple[tuple[str, str], ...]) -> list[sql.Composed]:
    """Conditions whose operands are parameters; of column and operator of each."""
    return [
        sql.SQL("{} {} {}").format(
            sql.Identifier(name), sql.SQL(compares), sql.SQL("(%s)" if compares == "= any" else "%s")
        )
        for name, compares in shape
    ]


def _operands(column: Column, rows: Any) -> list[Any]:
    """The parameters of a statement that stand for its queries."""
    packed: list[Any] = [_Packed(row, column.type == "halfvec") for row in rows]
    return packed if column.dimension is not None else [*packed, rows.shape[1]]


def _line(error: Exception) -> str:
    """An error of the server in one line."""
    return hide(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__)
