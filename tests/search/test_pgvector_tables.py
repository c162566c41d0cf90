"""pgvector over tables that change, that leave values out, and whose extension lies elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import psycopg
import pytest

from kinstream.search.stores import kinds
from kinstream.search.stores.base import Asked, BadFilter, BadVectors, Hit, Place, Store, StoreAway
from tests.search.store_service import running, section, served
from tests.support.postgres import Postgres, postgres

pytestmark = pytest.mark.long

X = np.array([[3.0, 0.0, 0.0], [2.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 2.0, 1.0]], np.float32)
NAMES = ["a", "b", "c", "d"]
ROWS = "insert into docs (id, embedding, lang) values ('a', '[3,0,0]', 'en'), ('b', '[2,1,0]', 'de')"


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as found:
        yield found


class Table:
    """The table `docs` of a test."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._stores: list[Store] = []

    def run(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for one in statements:
                connection.execute(one)

    def store(self, distance: str = "cosine", url: str = "", **more: Any) -> Store:
        made = kinds.create(
            "pgvector", Place(url or self.url, "docs", distance, ("lang",), seconds=30.0, **more)
        )
        self._stores.append(made)
        return made

    def close(self) -> None:
        for one in self._stores:
            one.close()


@pytest.fixture
def table(server: Postgres) -> Iterator[Table]:
    found = Table(server.url)
    server.fill("docs", NAMES, X, ("en", "de"))
    yield found
    found.close()
    found.run(
        "drop schema if exists elsewhere cascade",
        "alter role postgres reset search_path",
        "drop table if exists docs cascade",
        "drop view if exists docs cascade",
        "alter extension vector set schema public",
    )


def ids(hits: list[Hit]) -> list[str]:
    return [one.id for one in hits]


CHANGES: dict[str, tuple[list[str], int | None, int]] = {
    "half precision": (["alter table docs alter embedding type halfvec(3)"], 3, 3),
    "back from half precision": (
        [
            "alter table docs alter embedding type halfvec(3)",
            "alter table docs alter embedding type vector(3)",
        ],
        3,
        3,
    ),
    "another length": (
        ["alter table docs alter embedding type vector(2) using subvector(embedding, 1, 2)"],
        2,
        2,
    ),
    "no length": (["alter table docs alter embedding type vector"], None, 3),
    "other columns": (
        ["alter table docs alter id type varchar", "alter table docs alter lang type name"],
        3,
        3,
    ),
    "made again": (
        ["drop table docs", "create table docs (lang text, embedding halfvec(3), id text)", ROWS],
        3,
        3,
    ),
    "a view in its place": (
        ["alter table docs rename to old", "create view docs as select * from old", "select 1"],
        3,
        3,
    ),
    "another schema of the table, which new connections search": (
        [
            "create schema if not exists elsewhere",
            "alter table docs set schema elsewhere",
            "alter role postgres set search_path = elsewhere, public",
        ],
        3,
        3,
    ),
    "another schema of the extension": (
        ['create schema if not exists "Vector\'s"', 'alter extension vector set schema "Vector\'s"'],
        3,
        3,
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_table_may_change_while_it_is_asked(table: Table, change: str) -> None:
    statements, dimension, asked = CHANGES[change]
    store, other = table.store(), table.store("inner-product")
    for one in (store, other):
        assert one.check() == 3
        # Often enough that a driver may have prepared the statement.
        for _ in range(7):
            assert ids(one.search(X[:1], 2, None).hits[0]) == ["a", "b"]
            assert ids(one.search(X[:1], 2, {"lang": "de"}).hits[0]) == ["b", "d"][:2]
    table.run(*statements)
    for one in (store, other):
        assert ids(one.search(X[:1, :asked], 1, None).hits[0]) == ["a"]
        assert ids(one.search(X[:1, :asked], 1, {"lang": "de"}).hits[0]) == ["b"]
        assert one.check() == dimension
    table.run("drop table if exists old cascade")


def test_a_column_that_is_gone_is_the_stores_trouble_until_it_is_back(table: Table) -> None:
    store = table.store()
    assert store.check() == 3
    for breaks, mends in (
        ("alter table docs rename embedding to other", "alter table docs rename other to embedding"),
        ("alter table docs rename to gone", "alter table gone rename to docs"),
        ("alter table docs rename lang to language", "alter table docs rename language to lang"),
    ):
        table.run(breaks)
        for where in (None, {"lang": "de"}):
            with pytest.raises(StoreAway):
                store.search(X[:1], 2, where)
        with pytest.raises(StoreAway):
            store.check()
        table.run(mends)
        assert ids(store.search(X[:1], 2, {"lang": "de"}).hits[0]) == ["b", "d"]


@pytest.mark.parametrize("distance", ["cosine", "inner-product"])
@pytest.mark.parametrize("kind", ["vector(3)", "halfvec(3)", "vector"])
def test_rows_without_a_vector_or_an_id_are_left_out(table: Table, kind: str, distance: str) -> None:
    table.run(
        f"alter table docs drop constraint docs_pkey, alter id drop not null, alter embedding type {kind}",
        "insert into docs (id, embedding) values (null, '[9,0,0]'), ('none', null), (null, null), ('zero', '[0,0,0]')",
    )
    store = table.store(distance)
    for k in (2, 4, 10):
        (found,) = store.search(X[:1], k, None).hits
        assert ids(found) == (NAMES + ["zero"] * (distance != "cosine"))[:k]
    assert (store.search(0 * X[:1], 2, None).hits == [[]]) is (distance == "cosine")
    table.run("delete from docs where embedding is not null")
    assert store.search(X[:1], 2, None).hits == [[]]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("date", "infinity"),
        ("date", "4000-01-01 BC"),
        ("timestamp", "-infinity"),
        ("timestamptz", "infinity"),
        ("timestamptz", "12000-01-01 00:00:00+00"),
        ("time", "24:00:00"),
        ("timetz", "24:00:00+00"),
        ("interval", "99999999 years"),
    ],
)
def test_times_that_python_cannot_hold_are_shown_as_text(table: Table, kind: str, value: str) -> None:
    table.run(
        f"alter table docs alter lang type {kind} using case lang when 'en' then '{value}'::{kind}"
        f" else '{'1 day' if kind == 'interval' else '2026-05-01 12:00'}'::{kind} end"
    )
    (hits,) = table.store().search(X[:1], 4, None).hits
    with psycopg.connect(table.url) as connection:
        (written,) = connection.execute(f"select '{value}'::{kind}::text").fetchone() or ()
    assert ids(hits) == NAMES
    assert hits[0].fields["lang"] == hits[2].fields["lang"] == written
    assert type(hits[1].fields["lang"]) is not str


def test_times_of_any_style_are_shown(table: Table) -> None:
    table.run(
        "alter table docs alter lang type interval using '1 day'",
        "alter role postgres set intervalstyle = iso_8601",
    )
    (hits,) = table.store().search(X[:1], 1, None).hits
    table.run("alter role postgres reset intervalstyle")
    assert (ids(hits), hits[0].fields) == (["a"], {"lang": "P1D"})


def test_rows_of_other_lengths_are_left_out(table: Table) -> None:
    table.run(
        "alter table docs alter embedding type vector",
        "insert into docs (id, embedding, lang) values ('short', '[1,0]', 'en'), ('long', '[1,0,0,0]', 'en')",
    )
    for distance in ("cosine", "inner-product"):
        store = table.store(distance)
        assert store.check() is None
        for where in (None, {"lang": "en"}):
            assert ids(store.search(np.ones((1, 2), np.float32), 5, where).hits[0]) == ["short"]
            assert ids(store.search(X[:1], 5, where).hits[0])[:1] == ["a"]
            with pytest.raises(BadVectors, match="5 numbers"):
                store.search(np.ones((1, 5), np.float32), 5, where)
    table.run("delete from docs")
    assert store.search(np.ones((1, 5), np.float32), 5, None).hits == [[]]


@pytest.mark.parametrize("distance", ["cosine", "inner-product"])
@pytest.mark.parametrize("kind", ["vector(3)", "halfvec(3)"])
@pytest.mark.parametrize("size", [1e-44, 1e-30, 1e-9, 1.0, 7e4, 1e15, 1e38])
def test_vectors_of_any_size_are_ranked(table: Table, kind: str, distance: str, size: float) -> None:
    table.run(f"alter table docs alter embedding type {kind}")
    query = (np.array([[1.0, 0.5, 0.25]]) * size).astype(np.float32)
    exact = query.astype(np.float64) @ X.T.astype(np.float64)
    if distance == "cosine":
        exact /= np.linalg.norm(query.astype(np.float64)) * np.linalg.norm(X.astype(np.float64), axis=1)
    for where in (None, {"lang": ["en", "de"]}):
        (found,) = table.store(distance).search(query, 4, where).hits
        assert ids(found) == [NAMES[n] for n in np.argsort(-exact[0], kind="stable")]
        np.testing.assert_allclose([one.similarity for one in found], np.sort(exact[0])[::-1], rtol=2e-3)


def test_an_extension_outside_of_the_search_path_is_found(table: Table) -> None:
    table.run('create schema if not exists "Über alles"', 'alter extension vector set schema "Über alles"')
    for kind in ("vector(3)", "halfvec(3)", "vector"):
        table.run(f'alter table docs alter embedding type "Über alles".{kind}')
        for distance in ("cosine", "inner-product"):
            store = table.store(distance)
            assert store.check() == (None if kind == "vector" else 3)
            assert ids(store.search(X[:1], 1, {"lang": "de"}).hits[0]) == ["b"]


def test_what_is_wrong_is_told_of_the_filter_only_if_the_filter_is_wrong(table: Table) -> None:
    store = table.store()
    for where in ({"lang": 3}, {"lang": True}, {"lang": [1.5]}):
        with pytest.raises(BadFilter) as error:
            store.search(X[:1], 1, where)
        assert not isinstance(error.value, BadVectors)
    for options in ("-c work_mem=much", "-c no_such_setting=1"):
        place = Place(f"{table.url}&options={quote(options)}", "docs", "cosine", ("lang",), seconds=30.0)
        other = kinds.create("pgvector", place)
        for asked in (None, {"lang": "de"}):
            with pytest.raises(StoreAway):
                other.search(X[:1], 1, asked)
        other.close()
    with pytest.raises(BadVectors, match="2 numbers; docs has 3"):
        store.search(X[:1, :2], 1, {"lang": "de"})
    # A column that no list of values can be compared with.
    table.run("alter table docs alter lang type text[] using array[lang]")
    with pytest.raises(BadFilter, match="array type"):
        store.search(X[:1], 1, {"lang": ["de", "en"]})
    table.run("alter table docs alter lang type text using lang[1]")
    table.run(
        "alter table docs rename to old",
        "create view docs as select id, embedding, lang || (1 / (size - 1))::text as lang from old",
    )
    with pytest.raises(StoreAway, match="division by zero"):
        store.search(X[:1], 4, {"lang": "de"})
    table.run("drop table old cascade")


def test_requests_that_are_late_leave_the_store_ready_and_others_answered(table: Table) -> None:
    table.run(
        "create view slow as select id, embedding, lang || length(pg_sleep(60)::text)::text as lang from docs"
    )
    own = {
        name: section(backend="pgvector", connection=table.url, collection=name, columns=["lang"])
        for name in ("docs", "slow")
    }
    with running(own, threads=6, request_seconds=6.0) as gateway, served(gateway) as base:

        def asked(space: str) -> httpx.Response:
            return httpx.post(f"{base}/search", json={"space": space, "vectors": X[0].tolist()}, timeout=60)

        with ThreadPoolExecutor(4) as pool:
            heavy = [pool.submit(asked, "slow") for _ in range(4)]
            ready = []
            while not all(one.done() for one in heavy):
                ready.append(httpx.get(f"{base}/readyz", timeout=60).status_code)
                assert asked("docs").status_code == 200
            ready.append(httpx.get(f"{base}/readyz", timeout=60).status_code)
        assert ready and set(ready) == {200}
        assert {(one.result().status_code, one.result().json()["reason"]) for one in heavy} == {
            (503, "store")
        }
        # What nothing waits for is not gone on with.
        with psycopg.connect(table.url, autocommit=True) as connection:
            count = "select count(*) from pg_stat_activity where state = 'active' and query like '%slow%'"
            gateway.wait(lambda: connection.execute(count).fetchone() == (1,), "the statements have ended")


def test_the_gateway_answers_on_while_the_column_changes_and_rows_have_no_values(table: Table) -> None:
    own = section(
        backend="pgvector", connection=table.url, collection="docs", distance="cosine", columns=["lang"]
    )
    body: dict[str, Any] = {"vectors": X[0].tolist(), "k": 3}
    with running({"docs": own}) as gateway, served(gateway) as base, httpx.Client(base_url=base) as client:
        for _ in range(7):
            assert client.post("/search", json=body).status_code == 200
        table.run(
            "alter table docs alter embedding type halfvec(3)",
            "alter table docs alter lang type float8[] using array['nan', 'infinity', 1.5]::float8[]",
            "insert into docs (id, embedding) values ('none', null)",
        )
        answer = client.post("/search", json=body)
        assert answer.status_code == 200, answer.text

        def refused(word: str) -> None:
            raise AssertionError(f"{word} is not JSON")

        found = json.loads(answer.text, parse_constant=refused)["results"][0]["neighbours"]
        assert [one["id"] for one in found] == ["a", "b", "c"]
        assert found[0]["fields"] == {"lang": [None, None, 1.5]}
        assert client.get("/readyz").status_code == 200
        # Another length is known with the next check.
        table.run("alter table docs alter embedding type vector(2) using subvector(embedding::vector, 1, 2)")
        short = body | {"vectors": [1.0, 0.0]}
        gateway.wait(lambda: client.post("/search", json=short).status_code == 200, "the new length is known")
        told = client.post("/search", json=body)
        assert (told.status_code, told.json()["place"]) == (422, "vectors[0]")


#: What may stand in the place of a table with the same rows; the last one is read by another user.
FORMS: dict[str, list[str]] = {
    "as it is": [],
    "a view": ["alter table docs rename to old", "create view docs as select * from old"],
    "a materialized view": [
        "alter table docs rename to old",
        "create materialized view docs as select * from old",
    ],
    # The rows of both partitions have the same places.
    "partitions": [
        "alter table docs rename to old",
        "create table docs (like old) partition by list (lang)",
        "create table english partition of docs for values in ('en')",
        "create table others partition of docs default",
        "insert into docs select * from old",
    ],
    "some columns": [
        "drop role if exists reader",
        "create role reader login",
        "grant select (id, embedding, lang, size, words) on docs to reader",
    ],
}


@pytest.mark.parametrize("distance", ["cosine", "inner-product"])
@pytest.mark.parametrize("form", FORMS)
def test_candidates_are_the_same_in_every_form_of_a_table(table: Table, form: str, distance: str) -> None:
    table.run(
        "alter table docs add words tsvector",
        "update docs set words = to_tsvector('english', case when size > 1 then 'red shoes' else 'hat' end)",
    )
    asked = [Asked(X[1], 2.0**40 * X[0], "shoe"), Asked(None, None, "boat"), Asked(X[0], None, "hats")]
    place: dict[str, Any] = {"text": "words", "signals": ("size",)}
    url = table.url.replace("postgres:@", "reader@") if form == "some columns" else ""
    before: Any = table.store(distance, **place)
    expected = before.candidates(asked, 2, None).found
    table.run(*FORMS[form])
    store: Any = table.store(distance, url, **place)
    found = store.candidates(asked, 2, None).found
    for one in (found, before.candidates(asked, 2, None).found):
        assert [sorted(query.ids) for query in one] == [["a", "b", "c", "d"], [], ["a", "b"]]
        for query, other in zip(one, expected, strict=True):
            order, same = (np.argsort(both.ids) for both in (query, other))
            assert [query.fields[row] for row in order] == [other.fields[row] for row in same]
            assert query.signals.keys() == other.signals.keys()
            for name, values in query.signals.items():
                assert values[order].tolist() == other.signals[name][same].tolist()
    shown = {name: values[np.argsort(found[0].ids)].tolist() for name, values in found[0].signals.items()}
    products = X.astype(np.float64) @ np.stack([X[1], 2.0**40 * X[0]]).astype(np.float64).T
    if distance == "cosine":
        lengths = np.linalg.norm(X, axis=1)
        products /= lengths[:, None] * (lengths[[1, 0]] * [1.0, 2.0**40])
    assert shown["similarity"] == pytest.approx(products[:, 0], rel=1e-6)
    assert shown["adapted"] == pytest.approx(products[:, 1], rel=1e-6)
    assert shown["size"] == [0.0, 1.0, 2.0, 3.0]
    assert [bool(rank) for rank in shown["text"]] == [False, False, True, True]
    table.run("drop table if exists old cascade")


def test_of_rows_with_one_id_the_nearest_stands_for_all(table: Table) -> None:
    table.run(
        "alter table docs drop constraint docs_pkey, add words tsvector",
        "update docs set words = to_tsvector('english', 'hat'), id = case when size < 3 then 'a' else id end",
    )
    store: Any = table.store(text="words", signals=("size",))
    for row, size in ((0, 0.0), (1, 1.0), (2, 2.0)):
        (found,) = store.candidates([Asked(X[row], None, "hat")], 10, None).found
        assert sorted(found.ids) == ["a", "d"]
        assert found.signals["size"][found.ids.index("a")] == size


@pytest.mark.parametrize("distance", ["cosine", "inner-product"])
@pytest.mark.parametrize("kind", ["vector(3)", "halfvec(3)", "vector"])
def test_further_vectors_of_an_item_are_signals(table: Table, kind: str, distance: str) -> None:
    table.run(
        f"alter table docs add title {kind}, add image halfvec(2)",
        "update docs set title = case when id <> 'd' then embedding end, image = '[1,2]'",
        "update docs set image = '[0,0]' where id = 'a'",
    )
    store: Any = table.store(distance, signals=("image", "size", "title"))
    assert store.check() == 3
    image = np.array([2.0, 1.0], np.float32)
    asked = [
        Asked(X[0], None, None, {"title": 2.0**40 * X[1], "image": image}),
        Asked(X[0], 2.0 * X[0]),
        Asked(X[0], None, None, {"title": 0 * X[0]}),
    ]

    def shown(query: Asked) -> dict[str, list[float]]:
        (found,) = store.candidates([query], 10, None).found
        order = np.argsort(found.ids)
        return {name: values[order].tolist() for name, values in found.signals.items()}

    cosine = distance == "cosine"
    for _ in range(2):
        first, plain, zeros = map(shown, asked)
        own = X.astype(np.float64) @ (2.0**40 * X[1].astype(np.float64))
        if cosine:
            own /= np.linalg.norm(X, axis=1) * 2.0**40 * np.linalg.norm(X[1])
        assert first["title"][:3] == pytest.approx(own[:3].tolist(), rel=1e-3)
        assert np.isnan(first["title"][3])
        assert first["image"][1:] == pytest.approx([0.8 if cosine else 4.0] * 3, rel=1e-3)
        assert np.isnan(first["image"][0]) if cosine else first["image"][0] == 0.0
        assert first["size"] == [0.0, 1.0, 2.0, 3.0]
        # The query's vector has the size of titles, and not of images.
        assert plain["title"][:3] == pytest.approx(plain["similarity"][:3], rel=1e-3)
        assert "image" not in plain and "image" not in zeros
        assert all(map(np.isnan, zeros["title"])) if cosine else zeros["title"][:3] == [0.0] * 3
        # The columns may be others, in another order.
        table.run(
            "alter table docs drop image, drop size", "alter table docs add size int, add image halfvec(2)"
        )
        table.run(
            "update docs set size = ascii(id) - 97, image = '[1,2]'",
            "update docs set image = '[0,0]' where id = 'a'",
        )
    table.run("alter table docs drop title", "alter table docs add title float8")
    assert np.isnan(shown(asked[1])["title"]).all()
    for query, text in (
        (Asked(X[0], None, None, {"title": X[0]}), "docs.title is no column of vectors"),
        (Asked(X[0], None, None, {"image": X[0]}), "3 numbers; docs.image has 2"),
    ):
        with pytest.raises(BadVectors, match=text):
            store.candidates([query], 10, None)
    # A request that has vectors for a column finds it, whatever it was before.
    table.run("alter table docs drop title", "alter table docs add title vector(3)")
    table.run("update docs set title = embedding")
    assert shown(asked[0])["title"] == pytest.approx([*first["title"][:3], own[3]], rel=1e-3)
