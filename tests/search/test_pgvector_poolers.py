"""pgvector behind pgbouncer: a connection that is no session of one client gives the right rows, in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from psycopg.pq import Trace

from kinstream.search.stores import kinds
from kinstream.search.stores.base import Place, Store, StoreAway
from tests.support.postgres import Postgres, pooled, postgres

pytestmark = pytest.mark.long

X = np.eye(4, dtype=np.float32)
TABLES = ("shoes", "books", "wines", "films")
SLOW = (
    "create or replace view slow as select id, embedding, lang, size + 0 * length(pg_sleep(60)::text) as size"
    " from shoes"
)


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as found:
        for table in TABLES:
            found.fill(table, [f"{table}-{row}" for row in range(4)], X, ("en", "de"))
        yield found


@pytest.fixture(scope="module", params=["session", "transaction", "statement"])
def pooler(server: Postgres, request: pytest.FixtureRequest) -> Iterator[str]:
    with pooled(server, request.param, 16 if request.param == "session" else 2) as url:
        yield url


def store(url: str, table: str, **more: object) -> Store:
    place = Place(url, table, "cosine", ("lang", "size"), **{"seconds": 20.0, **more})  # type: ignore[arg-type]
    return kinds.create("pgvector", place)


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """The kinds of messages that connections have sent since they were made, or since it was asked last."""
    connect = psycopg.Connection.connect
    path, seen = tmp_path / "trace", 0

    with path.open("w") as trace:

        def traced(*arguments: Any, **more: Any) -> Any:
            made = connect.__func__(*arguments, **more)  # type: ignore[attr-defined]
            made.pgconn.trace(trace.fileno())
            made.pgconn.set_trace_flags(Trace.SUPPRESS_TIMESTAMPS)
            return made

        def new() -> list[str]:
            nonlocal seen
            lines = [line.split()[2] for line in path.read_text().splitlines() if line[0] == "F"]
            seen, before = len(lines), seen
            return lines[before:]

        monkeypatch.setattr(psycopg.Connection, "connect", classmethod(traced))
        yield new


#: Of a new connection: the server's own number.
GREETING = ["Query"]
PLANNED = ["Parse", "Bind", "Describe", "Execute"]
PREPARED = ["Bind", "Describe", "Execute"]


def test_nothing_is_sent_after_the_sync_of_a_request(server: Postgres, sent: Callable[[], list[str]]) -> None:
    # A pooler that has released the server takes another one for what follows, and it never gets that one back.
    one = store(server.url, "shoes")
    assert one.check() == 4
    assert one.search(X[:3], 2, None).hits[0][0].id == "shoes-0"
    one.close()
    request = [*PLANNED * 2, "Sync"]
    assert sent() == [*GREETING, *request * 2, *GREETING, *request, "Terminate", "Terminate"]


@pytest.mark.parametrize("where", [None, {"lang": ["en", "de"]}], ids=["without a filter", "with a filter"])
def test_what_comes_often_is_prepared_without_a_filter(
    server: Postgres, sent: Callable[[], list[str]], where: Any
) -> None:
    one = store(server.url, "shoes")
    assert one.check() == 4
    first = one.search(X[:3], 2, where).hits
    for _ in range(5):
        assert one.search(X[:3], 2, where).hits == first
    sent()
    assert one.search(X[:3], 2, where).hits == first
    # The settings of a request have no operands.
    assert sent() == [*PREPARED, *(PLANNED if where else PREPARED), "Sync"]
    one.close()


def test_nothing_is_prepared_by_a_pooler(pooler: str, sent: Callable[[], list[str]]) -> None:
    one = store(pooler, "shoes")
    assert one.check() == 4
    for _ in range(8):
        sent()
        assert one.search(X[:3], 2, None).hits[0][0].id == "shoes-0"
    assert sent() == [*PLANNED * 2, "Sync"]
    one.close()


@pytest.mark.parametrize("late", [False, True])
def test_every_space_gets_the_rows_of_its_own_table(server: Postgres, pooler: str, late: bool) -> None:
    stores = {table: store(pooler, table) for table in TABLES}
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(SLOW)
    hasty = store(pooler, "slow", seconds=0.2)

    def asked(number: int) -> None:
        table, row = TABLES[number % 4], number // 4 % 4
        if late and number % 40 == 7:
            # Others run out of time meanwhile, on the same connections of the pooler.
            with pytest.raises(StoreAway, match=r"statement timeout|no answer within"):
                hasty.search(X[:1], 1, None)
            return
        # Requests of several shapes: their statements are not the same ones in every space.
        queries = np.roll(X, -row, axis=0)[: 1 + number % 3]
        where = [None, {"lang": ["en", "de"]}, {"size": {"lt": 9}}][number % 5 % 3]
        found = stores[table].search(queries, 2, where)
        assert [hits[0].id for hits in found.hits] == [
            f"{table}-{(row + n) % 4}" for n in range(len(queries))
        ]
        assert found.version is not None

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(asked, range(400)))
    for one in (*stores.values(), hasty):
        one.close()


def test_a_statement_ends_in_its_time_and_leaves_no_limit_to_others(server: Postgres, pooler: str) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(SLOW)
    hasty = store(pooler, "slow", seconds=0.5)
    with pytest.raises(StoreAway, match=r"statement timeout|no answer within"):
        hasty.search(X[:1], 1, None)
    hasty.close()
    with psycopg.connect(pooler, autocommit=True, prepare_threshold=None) as client:
        assert client.execute("show statement_timeout").fetchone() == ("0",)


@pytest.mark.parametrize("way", ["connection", "environment"])
def test_settings_of_the_index_hold_for_its_searches_alone(
    server: Postgres, pooler: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(
            "create or replace view told as select id, embedding, current_setting('hnsw.ef_search') as lang,"
            " current_setting('application_name') as size from shoes"
        )
    options = "-c hnsw.ef_search=77 --application-name=one\\ two -csearch_path=nowhere,public"
    url = pooler
    if way == "connection":
        url += "&options=" + options.replace(" ", "%20").replace("=", "%3D").replace("\\", "%5C")
    else:
        monkeypatch.setenv("PGOPTIONS", options)
    one = store(url, "told")
    assert one.check() == 4
    assert one.search(X[:1], 1, None).hits[0][0].fields == {"lang": "77", "size": "one two"}
    one.close()
    monkeypatch.delenv("PGOPTIONS", raising=False)
    with psycopg.connect(pooler, autocommit=True, prepare_threshold=None) as client:
        assert client.execute("show search_path").fetchone() == ('"$user", public',)


@pytest.mark.parametrize(
    "state", ["set search_path to other, public", "create temp table shoes (like public.shoes)"]
)
def test_what_others_leave_on_a_connection_is_nothing_to_a_table_that_is_named_with_its_schema(
    server: Postgres, pooler: str, state: str
) -> None:
    with psycopg.connect(server.url, autocommit=True) as own:
        own.execute("drop schema if exists other cascade")
        own.execute("create schema other")
        own.execute("create table other.shoes as select 'o' || id as id, embedding, lang, size from shoes")
    # One after the other, clients get the same connection of the pooler.
    with psycopg.connect(pooler, autocommit=True, prepare_threshold=None) as client:
        client.execute(state)
    path = "&options=-c%20search_path%3Dpublic,pg_temp"
    for url, table in ((pooler, "public.shoes"), (pooler + path, "shoes")):
        one = store(url, table)
        assert one.check() == 4
        for _ in range(4):
            assert one.search(X[:1], 1, None).hits[0][0].id == "shoes-0"
        one.close()
    with psycopg.connect(pooler, autocommit=True, prepare_threshold=None) as client:
        client.execute("discard all")
