"""Connections to PostgreSQL that need no session: behind a pooler, each transaction may be another server's.

Nothing is prepared under a name unless a connection is direct, and settings hold for one transaction. Startup options,
which poolers refuse, become such settings.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from psycopg import Connection, DataError, Pipeline, ProgrammingError, sql
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow
from psycopg.types import datetime as times

from kinstream.streams.errors import SettingsError

#: The words of startup options; a backslash takes the meaning of a character.
_WORD: Final = re.compile(r"(?:\\.|[^\s\\])+")
_SETTING: Final = re.compile(r"(?:-c|--)?([A-Za-z_][\w.-]*)=(.*)", re.DOTALL)


class SyncedPipeline(Pipeline):
    """A pipeline whose last message is its Sync.

    psycopg sends a Flush after it. When a pooler has released the server by then, it takes one for the Flush, and keeps
    it until a Sync that never comes.
    """

    def _fetch_gen(self, *, flush: bool) -> Any:
        return super()._fetch_gen(flush=False)


class SessionlessConnection(Connection[TupleRow]):
    """A connection whose pipelines a pooler may follow."""

    @contextmanager
    def pipeline(self) -> Iterator[Pipeline]:
        self._pipeline = SyncedPipeline(self)
        with super().pipeline() as pipeline:
            yield pipeline


def _or_text(kind: type[Loader]) -> type[Loader]:
    class OrText(Loader):
        def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
            super().__init__(oid, context)
            self._kind = kind(oid, context)

        def load(self, data: Buffer) -> Any:
            try:
                return self._kind.load(data)
            except (DataError, NotImplementedError):
                return bytes(data).decode()

    return OrText


#: Loaders, by type: a time that Python cannot hold, such as infinity, or of a style that psycopg cannot read, is text.
TIMES: Final = {
    name: _or_text(kind)
    for name, kind in (
        ("date", times.DateLoader),
        ("time", times.TimeLoader),
        ("timetz", times.TimetzLoader),
        ("timestamp", times.TimestampLoader),
        ("timestamptz", times.TimestamptzLoader),
        ("interval", times.IntervalLoader),
    )
}


def sessionless(connection: str) -> tuple[str, dict[str, str]]:
    """A URL or string of libpq without its startup options, and the settings that these are.

    Raises
    ------
    SettingsError : the string is not valid, or an option is no setting; the message does not quote it.
    """
    try:
        options = conninfo_to_dict(connection).get("options", os.environ.get("PGOPTIONS"))
        if not options:
            return connection, {}
        return make_conninfo(connection, options=""), _settings(str(options))
    except ProgrammingError:
        raise SettingsError("connection: not a URL or a string of libpq") from None


def _settings(options: str) -> dict[str, str]:
    found = {}
    # `-c name=value` is one option in two words.
    for word in _WORD.findall(re.sub(r"(^|\s)-c\s+", r"\1-c", options)):
        setting = _SETTING.fullmatch(re.sub(r"\\(.)", r"\1", word))
        if setting is None or not word.startswith("-"):
            raise SettingsError("connection: its options are settings, written as -c NAME=VALUE")
        found[setting[1].replace("-", "_")] = setting[2]
    return found


def direct(connection: Connection[Any]) -> bool:
    """Whether no pooler lies between: the process that greeted is the one that answers.

    A pooler greets before a server is chosen, with a number of its own.
    """
    (answers,) = connection.execute("select pg_backend_pid()").fetchone() or (None,)
    return bool(answers == connection.info.backend_pid)


def local(settings: Mapping[str, str]) -> sql.Composed:
    """A statement that makes settings hold until the end of its transaction."""
    return sql.SQL("select {}").format(
        sql.SQL(", ").join(
            sql.SQL("set_config({}, {}, true)").format(sql.Literal(name), sql.Literal(value))
            for name, value in settings.items()
        )
    )
