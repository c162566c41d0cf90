"""Sinks over real stores: readers see one complete version, and what the log says of it, whatever fails."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from qdrant_client import QdrantClient

from kinstream.search.stores.base import Place, StoreAway
from kinstream.search.stores.kinds import create
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.codec.codec import decode_vectors, encode
from kinstream.streams.records.message import Message
from kinstream.streams.records.values import Action, Control
from kinstream.streams.records.vectors import ItemMap, VectorBlock
from kinstream.vectors.sinks.agent import sink_spec
from kinstream.vectors.sinks.base import Lane, StoreBehind
from kinstream.vectors.sinks.kinds import create as writer_of
from kinstream.vectors.sinks.pgvector import PgVectorWriter
from kinstream.vectors.sinks.qdrant import QdrantWriter
from tests.support.crashes import letters
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent
from tests.support.postgres import Postgres, pooled, postgres
from tests.vectors.material import (
    VECTORS,
    Catalogue,
    D,
    agent,
    append,
    config,
    control,
    embedding,
    items,
    story,
)
from tests.vectors.stores import PostgresView, QdrantView, View, sink_settings

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as found:
        yield found


def wiped(server: Postgres) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("drop schema public cascade")
        connection.execute("create schema public")
        connection.execute("create extension vector")


@dataclass(frozen=True)
class Where:
    """A store: its kind, how to connect, and what its readers see."""

    kind: str
    connection: str
    view: View


@pytest.fixture(params=["pgvector", "qdrant"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Where:
    """An empty store."""
    if request.param == "qdrant":
        # The client's local mode in memory, which outlives the writers: to a folder it writes a point at a time.
        client = QdrantClient(":memory:")
        monkeypatch.setattr("kinstream.vectors.sinks.qdrant.connected", lambda place: client)
        monkeypatch.setattr(QdrantWriter, "close", lambda self: setattr(self, "_client", None))
        return Where("qdrant", "http://memory", QdrantView(client, "docs"))
    return in_postgres(request.getfixturevalue("server"))


def in_postgres(server: Postgres) -> Where:
    wiped(server)
    return Where("pgvector", server.url, PostgresView(server.url, "docs"))


def sink(place: Where, log: MemoryLog, root: Path, **more: Any) -> Agent:
    settings = sink_settings(place.kind, place.connection)
    return Agent(sink_spec(settings, "main"), settings, log, root, **more)


def close(one: Agent) -> None:
    # The client's local mode locks its folder.
    for runner in one.runners.values():
        runner.machine._writer.close()  # type: ignore[attr-defined]


def filled(root: Path) -> tuple[MemoryLog, Catalogue]:
    """A log of the agent's outputs, some of them twice, as after crashes."""
    log, said = MemoryLog(), Catalogue()
    append(log, *story("docs", said), *story("shop", Catalogue()))
    settings = config("docs", "shop")
    agent(settings, log, root / "calm").run()
    agent(settings, log, root / "again").run()
    return log, said


def agrees(place: Where, said: Catalogue) -> str:
    """Check all that a reader sees; returns the version."""
    seen = place.view
    found, version = seen.held()
    wanted = said.holds()
    assert found.keys() == wanted.keys() and version is not None
    for name, x in wanted.items():
        np.testing.assert_allclose(found[name], x, rtol=1e-5, atol=1e-5)
    assert seen.leftovers() == []
    return version


def newest_order(log: MemoryLog) -> ItemMap:
    found = [decode_vectors(m.value) for p in (0, 1) for m in log.read(VECTORS, p, 0)]
    return [r for r in found if isinstance(r, ItemMap) and r.space == "docs"][-1]


def test_a_store_holds_what_the_events_say(place: Where, tmp_path: Path) -> None:
    log, said = filled(tmp_path)
    one = sink(place, log, tmp_path)
    one.run()
    close(one)
    order = newest_order(log)
    assert agrees(place, said) == f"0_{order.version}"
    assert said.map is not None
    np.testing.assert_allclose(place.view.query_map(), said.map.query)
    assert letters(log) == set()


def test_nothing_is_shown_before_it_is_complete(place: Where, tmp_path: Path) -> None:
    """After every record on its own: an earlier version, or the new one as a whole."""
    log, _ = filled(tmp_path)
    one = sink(place, log, tmp_path)
    sizes: dict[str, list[int]] = {}
    home = 0 if any(m.key == b"docs" for m in log.read(VECTORS, 0, 0)) else 1
    complete: dict[str, int] = {}
    for message in log.read(VECTORS, home, 0):
        record = decode_vectors(message.value)
        one.step(home, 1)
        close(one)
        found, version = place.view.held()
        if isinstance(record, VectorBlock) and record.space == "docs" and record.complete is not None:
            complete.setdefault(f"0_{record.version}", record.complete)
        if version is not None:
            assert version in complete
            sizes.setdefault(version, []).append(len(found))
    assert list(sizes) == list(complete) and len(sizes) == 2
    assert all(sizes[version][0] == number for version, number in complete.items())


class _Broken(Exception):
    """The end of a process in the middle of its work."""


@pytest.mark.parametrize("seed", range(3))
def test_crashes_in_the_middle_of_a_batch_leave_nothing_lost_stale_or_undeleted(
    place: Where, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    log, said = filled(tmp_path)
    draw, left, crashes = random.Random(seed), 5, 0
    kind: type[Any] = PgVectorWriter if place.kind == "pgvector" else QdrantWriter
    real = kind._apply

    def apply(self: Any, client: Any, change: Any) -> None:
        nonlocal left, crashes
        left -= 1
        if left == 0:
            left, crashes = draw.randint(1, 12), crashes + 1
            if draw.random() < 0.5:
                real(self, client, change)
            raise _Broken
        real(self, client, change)

    monkeypatch.setattr(kind, "_apply", apply)
    for _ in range(500):
        one = sink(place, log, tmp_path)
        try:
            while any(one.step(partition, draw.randint(1, 9)) for partition in one.runners):
                if draw.random() < 0.5:
                    one.runners[draw.randint(0, 1)].checkpoint()
            break
        except _Broken:
            continue
        finally:
            close(one)
    assert crashes > 2
    agrees(place, said)


def test_a_reset_empties_what_is_shown_until_the_next_version(place: Where, tmp_path: Path) -> None:
    log, _ = filled(tmp_path)
    settings = config("docs", "shop")
    said = Catalogue()
    append(log, control("docs", Action.RESET))
    reset = [m.offset for p in (0, 1) for m in log.read("kinstream.events", p, 0) if m.key == b"docs"][-1]
    append(log, said.put(items("docs", ["new"], np.ones((1, D)))))
    agent(settings, log, tmp_path / "calm").run()
    one = sink(place, log, tmp_path)
    one.run()
    close(one)
    assert place.view.held()[0] == {}
    said.map = embedding("docs", 5, epoch=reset)
    append(log, *said.map.parts())
    agent(settings, log, tmp_path / "calm").run()
    one = sink(place, log, tmp_path)
    one.run()
    close(one)
    assert agrees(place, said).startswith(f"{reset}_")


def test_a_store_of_an_older_state_is_refused(place: Where, tmp_path: Path) -> None:
    made = writer_of(sink_settings(place.kind, place.connection).sinks["main"])
    lane = Lane("main", 1, 0)
    made.write(lane, 0, [], 5)
    made.write(lane, 3, [], 9)
    with pytest.raises(StoreBehind, match="up to offset 9, and it wrote up to 12"):
        made.write(lane, 12, [], 13)
    made.write(Lane("main", 2, 0), 12, [], 13)
    made.close()


def test_a_version_whose_beginning_is_lost_is_not_shown(place: Where, tmp_path: Path) -> None:
    """A sink that begins late: changes of a version that it has not seen begin are left out."""
    log, _ = filled(tmp_path)
    late = MemoryLog()
    home = 0 if any(m.key == b"docs" for m in log.read(VECTORS, 0, 0)) else 1
    messages = log.read(VECTORS, home, 0)
    second = next(
        n
        for n, m in enumerate(messages)
        if isinstance(r := decode_vectors(m.value), ItemMap) and r.space == "docs" and len(r.query)
    )
    for message in messages[second + 1 :]:
        late.append(VECTORS, message.key, message.value, message.headers, home)  # type: ignore[arg-type]
    one = sink(place, late, tmp_path / "late")
    one.run()
    close(one)
    assert place.view.held() == ({}, None)


def test_records_that_do_not_fit_are_dead_letters(place: Where, tmp_path: Path) -> None:
    log, said = filled(tmp_path)
    home = 0 if any(m.key == b"docs" for m in log.read(VECTORS, 0, 0)) else 1
    good: Message = next(m for m in log.read(VECTORS, home, 0) if m.key == b"docs")
    log.append(VECTORS, b"docs", b"of no use", good.headers, home)  # type: ignore[arg-type]
    log.append(VECTORS, b"docs", encode(Control("docs", Action.RESET, 5)), (), home)
    one = sink(place, log, tmp_path)
    one.run()
    close(one)
    agrees(place, said)
    assert {reason for _, _, reason, _ in letters(log)} <= {b"undecodable", b"bad-identity"}
    assert letters(log)


def test_the_nearest_in_the_view_are_those_of_the_exact_scan(server: Postgres, tmp_path: Path) -> None:
    place = in_postgres(server)
    log, said = filled(tmp_path)
    one = sink(place, log, tmp_path)
    one.run()
    close(one)
    store = create("pgvector", Place(server.url, "docs", "inner-product", ("version",)))
    try:
        assert store.check() == 3
        query = np.array([[0.5, -1.0, 0.25]], np.float32)
        hits = store.search(query, 5, None).hits[0]
        scores = {name: float(query[0] @ x) for name, x in said.holds().items()}
        best = sorted(scores, key=scores.__getitem__, reverse=True)[:5]
        assert [hit.id for hit in hits] == best
        assert {hit.fields["version"] for hit in hits} == {f"0_{newest_order(log).version}"}
    finally:
        store.close()


def test_an_index_is_there_before_a_version_is_shown(server: Postgres, tmp_path: Path) -> None:
    place = in_postgres(server)
    log, said = filled(tmp_path)
    settings = sink_settings("pgvector", server.url, index="hnsw")
    one = Agent(sink_spec(settings, "main"), settings, log, tmp_path)
    one.run()
    close(one)
    agrees(place, said)
    version = newest_order(log).version
    rows = PostgresView(server.url, "docs").rows(
        f"select indexdef from pg_indexes where tablename = 'docs_0_{version}'"
    )
    assert any("hnsw" in row[0] and "vector_ip_ops" in row[0] for row in rows)


def test_a_reader_of_an_old_version_delays_its_table_and_not_the_new_one(
    server: Postgres, tmp_path: Path
) -> None:
    place = in_postgres(server)
    log, said = filled(tmp_path)
    orders = [
        r
        for p in (0, 1)
        for m in log.read(VECTORS, p, 0)
        if isinstance(r := decode_vectors(m.value), ItemMap) and r.space == "docs"
    ]
    one = sink(place, log, tmp_path)
    home = 0 if any(m.key == b"docs" for m in log.read(VECTORS, 0, 0)) else 1
    while place.view.held()[1] is None:
        one.step(home, 1)
    old = f"docs_0_{orders[0].version}"
    with psycopg.connect(server.url) as reader:
        reader.execute(f"select count(*) from {old}")
        one.run()
        assert place.view.held()[1] == f"0_{orders[-1].version}"
        assert place.view.leftovers() == [old, f"{old}_map"]
    said.put(items("docs", ["last"], np.ones((1, D))))
    append(log, items("docs", ["last"], np.ones((1, D))))
    settings = config("docs", "shop")
    agent(settings, log, tmp_path / "calm").run()
    one.run()
    close(one)
    agrees(place, said)


def test_what_a_sink_would_be_refused_is_known_before_it_begins(server: Postgres) -> None:
    wiped(server)
    with psycopg.connect(server.url, autocommit=True) as connection:

        def refused(change: str, undo: str) -> str:
            connection.execute(change)
            try:
                with pytest.raises(StoreAway) as error:
                    PgVectorWriter(server.url, "shop", index=False).check()
            finally:
                connection.execute(undo)
            return str(error.value)

        assert "create extension vector" in refused("drop extension vector", "create extension vector")
        assert "public" in refused(
            "create role reader; grant usage on schema public to reader; alter database postgres set role = reader",
            "alter database postgres reset role; drop owned by reader; drop role reader",
        )
        PgVectorWriter(server.url, "shop", index=False).check()
        assert connection.execute(
            "select count(*) from pg_tables where schemaname = 'public'"
        ).fetchone() == (0,)


def test_sinks_behind_a_pooler_write_what_the_events_say(server: Postgres, tmp_path: Path) -> None:
    wiped(server)
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute('drop extension vector; create schema if not exists "the Vectors"')
        connection.execute('create extension vector schema "the Vectors"')
    log, said = MemoryLog(), {"docs": Catalogue(), "shop": Catalogue()}
    append(log, *story("docs", said["docs"]), *story("shop", said["shop"]))
    agent(config("docs", "shop"), log, tmp_path / "calm").run()
    # Both sinks share the one connection to the server.
    with pooled(server, "transaction", 1) as url:
        section = {
            "store": "pgvector",
            "connection": f"{url}&options=-c%20search_path%3Dpublic",
            "index": "hnsw",
        }
        both = {name: section | {"space": name, "collection": f"{name}_now"} for name in said}
        settings = config("docs", "shop", sinks=both)
        sinks = [Agent(sink_spec(settings, name), settings, log, tmp_path / name) for name in said]
        for _ in range(12):
            for one in sinks:
                for partition in (0, 1):
                    one.step(partition, 3)
        for one in sinks:
            one.run()
            close(one)
    for name, catalogue in said.items():
        agrees(Where("pgvector", server.url, PostgresView(server.url, f"{name}_now")), catalogue)
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute('drop schema "the Vectors" cascade')


def test_a_store_that_is_away_says_so_without_its_password() -> None:
    settings = sink_settings("pgvector", "postgresql://me:secret-word@127.0.0.1:1/x")
    with pytest.raises(StoreAway) as error:
        writer_of(settings.sinks["main"]).write(Lane("main", 1, 0), 0, [], 1)
    assert "secret-word" not in str(error.value)


@pytest.mark.parametrize("place", ["qdrant"], indirect=True)
@pytest.mark.parametrize("seed", range(4))
def test_requests_to_qdrant_that_fail_anywhere_are_made_good(
    place: Where, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Qdrant has no transactions: each single request may be the last one of a process."""
    log, said = filled(tmp_path)
    draw, left, failed = random.Random(seed), 5, 0

    def failing(real: Any) -> Any:
        def request(*args: Any, **kwargs: Any) -> Any:
            nonlocal left, failed
            left -= 1
            if left > 0:
                return real(*args, **kwargs)
            left, failed = draw.randint(1, 25), failed + 1
            if draw.random() < 0.5:
                real(*args, **kwargs)  # done, and its answer is lost
            raise _Broken

        return request

    with pytest.MonkeyPatch.context() as patch:
        for name in (
            "upsert",
            "delete",
            "create_collection",
            "delete_collection",
            "update_collection_aliases",
        ):
            patch.setattr(QdrantClient, name, failing(getattr(QdrantClient, name)))
        for _ in range(500):
            one = sink(place, log, tmp_path)
            try:
                while any(one.step(partition, 3) for partition in one.runners):
                    pass
                break
            except _Broken:
                continue
            finally:
                close(one)
    assert failed > 5
    agrees(place, said)


def test_a_folder_of_qdrants_local_mode_outlives_its_process(tmp_path: Path) -> None:
    log, said = filled(tmp_path)
    settings = sink_settings("qdrant", str(tmp_path / "qdrant"))
    one = Agent(sink_spec(settings, "main"), settings, log, tmp_path)
    one.run()
    close(one)
    client = QdrantClient(path=str(tmp_path / "qdrant"))
    try:
        agrees(Where("qdrant", "", QdrantView(client, "docs")), said)
    finally:
        client.close()


def test_settings_of_sinks_are_checked(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"no \[sinks.man\].*main"):
        sink_spec(sink_settings("qdrant", str(tmp_path)), "man")
