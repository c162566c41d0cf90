"""PostgreSQL with the extension pgvector, through psycopg.

All queries of a request are one statement, so they see one snapshot, which the answer names. An index for the column
and the distance is used as for a query of the user's own.
"""

from __future__ import annotations

import contextlib
import math
import queue
import re
import struct
from functools import lru_cache
from typing import Any, Final

import numpy as np
import psycopg
from psycopg import sql
from psycopg.adapt import Dumper
from psycopg.pq import Format
from psycopg.rows import TupleRow

from kinstream.search.stores.base import BadFilter, Hit, Place, StoreAway, StoreHits, no_options
from kinstream.search.stores.filters import conditions
from kinstream.streams.configuration.services import COSINE
from kinstream.streams.records.values import Vectors
from kinstream.streams.secrets import hide

#: Operator of a distance, and what makes a similarity of it.
_OPERATORS: Final = {COSINE: ("<=>", "1 - "), "inner-product": ("<#>", "-")}
#: Statements that are kept, by number of queries and shape of the filter.
_STATEMENTS: Final = 128
#: The types that a column may have, with their dimension.
_TYPE: Final = re.compile(r"((?:\w+\.)?(?:vector|halfvec))(?:\((\d+)\))?")


class _Timed(psycopg.Connection[TupleRow]):
    """A connection that waits for every answer in a limited time, also if the server is reached and hangs."""

    seconds = 5.0

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        try:
            return super().wait(gen, interval, timeout=self.seconds if timeout is None else timeout)
        except psycopg.errors._WaitTimeout:
            self.pgconn.finish()
            raise _Late(f"no answer within {self.seconds:g} s") from None


class _Late(psycopg.OperationalError):
    """The time for an answer is up."""


class _Packed:
    """A vector as the server receives it: how many numbers, and the numbers."""

    def __init__(self, row: Vectors, half: bool) -> None:
        with np.errstate(over="ignore"):
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
        SCHEMA.TABLE. Options: `id`, `vector`: the columns.

    Raises
    ------
    SettingsError : an option is unknown.
    """

    def __init__(self, place: Place) -> None:
        no_options(place, "id", "vector")
        self._place = place
        self._id = sql.Identifier(str(place.options.get("id", "id")))
        self._name = str(place.options.get("vector", "embedding"))
        self._table = sql.Identifier(*place.collection.split("."))
        self._type: str | None = None
        self._columns = sql.SQL("").join(
            sql.SQL(", {}").format(sql.Identifier(name)) for name in place.columns
        )
        self._statement = lru_cache(_STATEMENTS)(self._composed)
        self._kind: type[_Timed] = type("Connection", (_Timed,), {"seconds": place.seconds})
        #: Connections that nothing uses. There are as many as threads ask at once.
        self._idle: queue.LifoQueue[_Timed] = queue.LifoQueue()

    def check(self) -> int | None:
        rows = self._run(
            sql.SQL(
                "select format_type(atttypid, atttypmod) from pg_attribute"
                " where attrelid = {}::regclass and attname = {} and not attisdropped"
            )
            .format(sql.Literal(self._table.as_string(None)), sql.Literal(self._name))
            .as_string(None)
        )
        if not rows:
            raise StoreAway(f"{self._place.collection} has no column {self._name}")
        found = _TYPE.fullmatch(rows[0][0])
        if found is None:
            raise StoreAway(
                f"{self._place.collection}.{self._name} is of the type {rows[0][0]}, not vector or halfvec"
            )
        # This shows whether the table may be read, with these columns.
        self._run(
            sql.SQL("select {}{} from {} limit 0")
            .format(self._id, self._columns, self._table)
            .as_string(None)
        )
        self._type = found[1]
        return None if found[2] is None else int(found[2])

    def search(self, queries: Vectors, k: int, where: Any) -> StoreHits:
        if self._type is None:
            self.check()
        assert self._type is not None
        wanted = conditions(where, self._place.columns)
        shape = tuple((one.column, one.operator) for one in wanted)
        half = self._type.endswith("halfvec")
        parameters = [*(_Packed(row, half) for row in queries), *(one.value for one in wanted), k]
        hits: list[list[Hit]] = [[] for _ in queries]
        version = None
        for row in self._run(self._statement(self._type, len(queries), shape), parameters, bool(wanted)):
            query, version, name, similarity, *fields = row
            if name is not None:
                shown = dict(zip(self._place.columns, fields, strict=True))
                hits[query].append(Hit(str(name), float(similarity), shown))
        return StoreHits(hits, version)

    def close(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._idle.get_nowait().close()

    # ---- parts ------------------------------------------------------------------------------------------------------

    def _composed(self, kind: str, number: int, shape: tuple[tuple[str, str], ...]) -> str:
        """The statement whose parameters are so many queries, the operands of the filter, and k.

        Parameters
        ----------
        shape : column and operator of each condition.
        """
        operator, sign = _OPERATORS[self._place.distance]
        rules = [
            sql.SQL("{} {} {}").format(
                sql.Identifier(column),
                sql.SQL(compares),
                sql.SQL("(%s)" if compares == "= any" else "%s"),
            )
            for column, compares in shape
        ]
        query = sql.SQL("({}, %s::" + kind + ")")
        return (
            sql.SQL(
                "select q.n, pg_current_snapshot()::text, near.* from (values {queries}) q(n, v) left join lateral"
                " (select {id}, {sign}({far}){columns} from {table}{where} order by {far} limit %s) near on true"
                " order by 1, 4 desc"
            )
            .format(
                queries=sql.SQL(", ").join(query.format(sql.Literal(row)) for row in range(number)),
                id=self._id,
                sign=sql.SQL(sign),
                far=sql.SQL("{} {} q.v").format(sql.Identifier(self._name), sql.SQL(operator)),
                columns=self._columns,
                table=self._table,
                where=sql.SQL(" where ") + sql.SQL(" and ").join(rules) if rules else sql.SQL(""),
            )
            .as_string(None)
        )

    def _run(self, statement: str, parameters: Any = None, filtered: bool = False) -> list[Any]:
        """The rows of a statement.

        Raises
        ------
        BadFilter : the server says that the operands of a filter, or the vectors, do not fit the columns.
        StoreAway : for any other reason.
        """
        try:
            with contextlib.suppress(queue.Empty):
                connection = self._idle.get_nowait()
                try:
                    return self._asked(connection, statement, parameters)
                except psycopg.OperationalError as error:
                    if not connection.closed or isinstance(error, _Late):
                        raise
                    # The server has ended it meanwhile, and with it those that are as old.
                    self.close()
            return self._asked(self._connected(), statement, parameters)
        except psycopg.Error as error:
            unfit = isinstance(error, psycopg.DataError)
            unfit |= filtered and isinstance(error, psycopg.errors.UndefinedFunction)
            raise (BadFilter if unfit else StoreAway)(_line(error)) from None

    def _asked(self, connection: _Timed, statement: str, parameters: Any) -> list[Any]:
        """The rows of a statement; keeps the connection if it is still good."""
        try:
            return connection.execute(statement, parameters, prepare=True).fetchall()
        finally:
            if connection.closed:
                connection.close()
            else:
                self._idle.put(connection)

    def _connected(self) -> _Timed:
        seconds = self._place.seconds
        made = self._kind.connect(
            self._place.connection, autocommit=True, connect_timeout=max(2, math.ceil(seconds))
        )
        # A server does not go on with what nothing waits for any more.
        made.adapters.register_dumper(_Packed, _PackedDumper)
        made.execute(sql.SQL("set statement_timeout = {}").format(int(1000 * seconds)))
        return made


def _line(error: Exception) -> str:
    """An error of the server in one line."""
    return hide(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__)
