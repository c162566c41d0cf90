"""The gateway over real stores: exact rankings, filters, nothing written, one model and one state in every answer."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray
from qdrant_client import QdrantClient, models

from kinstream.search.stores import kinds, qdrant
from kinstream.search.stores.base import Place, Store, StoreAway
from tests.search.store_service import bilinear, near, running, section, served
from tests.support.postgres import postgres
from tests.support.processes import SECONDS, until

D = 24
ITEMS = 2_000
FEW = 60
draw = np.random.default_rng(7)
X = draw.normal(size=(ITEMS, D)).astype(np.float32)
X /= np.linalg.norm(X, axis=1, keepdims=True) * draw.uniform(0.5, 2.0, (ITEMS, 1)).astype(np.float32)
NAMES = [f"doc-{n}" for n in range(ITEMS)]
LANGUAGES = ("en", "de", "fr")
#: Relative error of a sum of D products in float32, with room.
ROUNDING = 1e-6


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgres() as found:
        found.fill("docs", NAMES, X, LANGUAGES)
        yield found.url


def filled(client: QdrantClient, items: int) -> QdrantClient:
    """Collections of the first items, by both distances."""
    for name, distance in (("dot", models.Distance.DOT), ("cosine", models.Distance.COSINE)):
        client.create_collection(name, models.VectorParams(size=D, distance=distance))
        client.upsert(
            name,
            [
                models.PointStruct(id=n, vector=x, payload={"lang": LANGUAGES[n % 3], "size": n})
                for n, x in enumerate(X[:items].tolist())
            ],
        )
    return client


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Some items in the client's local mode."""
    found = str(tmp_path_factory.mktemp("qdrant"))
    filled(QdrantClient(path=found), FEW).close()
    return found


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> str:
    """All items; the client's local mode takes long to write them to a folder."""
    client = filled(QdrantClient(":memory:"), ITEMS)
    monkeypatch.setattr("kinstream.search.stores.qdrant.connected", lambda place: client)
    return "http://memory"


def space(kind: str, where: str, distance: str, **more: Any) -> dict[str, Any]:
    if kind == "pgvector":
        return section(backend=kind, connection=where, collection="docs", distance=distance, **more)
    collection = "dot" if distance == "inner-product" else "cosine"
    return section(backend=kind, connection=where, collection=collection, distance=distance, **more)


def place(kind: str, request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue("url" if kind == "pgvector" else "memory")
    return found


def scores(Q: NDArray[Any], learner: Any, distance: str) -> NDArray[np.float64]:
    """The exact scan under q^T W x, or its cosine with the items, in float64; W is None for the identity."""
    mapped = np.asarray(Q, np.float64)
    if learner is not None:
        mapped = mapped @ learner.W.astype(np.float64)
    found = mapped @ X.T.astype(np.float64)
    if distance == "cosine":
        found /= np.linalg.norm(mapped, axis=1)[:, None] * np.linalg.norm(X.astype(np.float64), axis=1)
    return np.asarray(found)


def row_of(name: str) -> int:
    return int(name.removeprefix("doc-"))


def agrees(answer: dict[str, Any], true: NDArray[np.float64], k: int) -> int:
    """Check the ids of an answer against the exact scores, and return how many rows are equal to the scan's list.

    A row may differ in items whose exact scores differ by less than the rounding of float32.
    """
    equal = 0
    for row, result in zip(true, answer["results"], strict=True):
        found = [row_of(one["id"]) for one in result["neighbours"]]
        wanted = np.argsort(-row, kind="stable")[:k].tolist()
        rounding = ROUNDING * max(1.0, float(np.abs(row).max()))
        assert len(set(found)) == k
        np.testing.assert_allclose(row[found], row[wanted], rtol=0, atol=rounding)
        told = [one["similarity"] for one in result["neighbours"]]
        np.testing.assert_allclose(told, row[found], rtol=0, atol=rounding)
        equal += found == wanted
    return equal


@pytest.mark.parametrize("number", [50, pytest.param(1_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("distance", ["inner-product", "cosine"])
@pytest.mark.parametrize("kind", ["pgvector", "qdrant"])
def test_the_top_ten_are_those_of_the_exact_scan(
    request: pytest.FixtureRequest, kind: str, distance: str, number: int
) -> None:
    learner = bilinear(D, 3, scaler="unit" if distance == "cosine" else "none")
    Q = np.random.default_rng(8).normal(size=(number, D)).astype(np.float32)
    own = space(kind, place(kind, request), distance)
    if kind == "qdrant":
        own |= {"options": {"exact": True}}
    # Qdrant's local mode looks at all items for a query, in Python: a hundred take seconds on a busy machine.
    with (
        running({"docs": own}, request_seconds=120.0) as gateway,
        served(gateway) as base,
        httpx.Client(base_url=base) as client,
    ):
        for model in (None, learner):
            if model is not None:
                gateway.announced.announce("docs", learner, 5)
                gateway.settle()
            equal, wanted = 0, scores(Q, model, distance)
            for rows in np.split(np.arange(len(Q)), 10):
                answer = client.post("/search", json={"vectors": Q[rows].tolist()}, timeout=60)
                assert answer.status_code == 200, answer.text
                assert answer.json()["model"]["adapted"] is (model is not None)
                equal += agrees(answer.json(), wanted[rows], 10)
            # The rest agrees to the rounding of float32, in which stores hold vectors.
            assert equal >= 0.998 * len(Q)


@pytest.mark.parametrize("kind", ["pgvector", "qdrant"])
def test_beside_the_largest_requests_it_stays_ready_and_answers_small_ones(
    request: pytest.FixtureRequest, kind: str
) -> None:
    """Sixteen clients with requests for 256,000 neighbours each, which come again when they are told to."""
    own = space(kind, place(kind, request), "inner-product")
    large = json.dumps({"vectors": X[:256].tolist(), "k": 1_000})
    stop, answered = threading.Event(), threading.Event()
    told: list[int] = []

    def ask(base: str) -> None:
        with httpx.Client(base_url=base, timeout=700.0) as client:
            while not stop.is_set():
                one = client.post("/search", content=large, headers={"content-type": "application/json"})
                told.append(one.status_code)
                if one.status_code == 200:
                    answered.set()
                else:
                    stop.wait(float(one.headers.get("retry-after", 1.0)))

    # A request that is given up goes on in the store: on a busy machine none would ever be answered.
    limits = {"request_seconds": 1200.0}
    with running({"docs": own}, **limits) as gateway, served(gateway) as base:
        threads = [threading.Thread(target=ask, args=(base,)) for _ in range(16)]
        for thread in threads:
            thread.start()
        try:
            polls, small = [], []
            ends = time.monotonic() + 5.0
            while not answered.is_set() or time.monotonic() < ends:
                polls.append(httpx.get(f"{base}/readyz", timeout=SECONDS).status_code)
                body = {"vectors": X[:1].tolist(), "k": 10}
                small.append(httpx.post(f"{base}/search", json=body, timeout=SECONDS).status_code)
        finally:
            stop.set()
            for thread in threads:
                thread.join(SECONDS)
    assert set(polls) == {200} and set(small) == {200}
    assert set(told) == {200, 503}


def in_qdrant(found: dict[str, Any]) -> list[int]:
    return [int(one["id"]) for one in found["results"][0]["neighbours"]]


def test_filters_of_pgvector_are_conditions_on_named_columns(url: str) -> None:
    own = space("pgvector", url, "inner-product", columns=["lang", "size"])
    true = scores(X[:1], None, "inner-product")[0]
    sizes = np.arange(ITEMS)
    cases: list[tuple[Any, NDArray[np.bool_]]] = [
        ({"lang": "de"}, sizes % 3 == 1),
        ({"lang": ["de", "fr"]}, sizes % 3 != 0),
        ({"size": {"gte": 10, "lt": 40}}, (sizes >= 10) & (sizes < 40)),
        ({"size": [3, 5]}, (sizes == 3) | (sizes == 5)),
        ({"lang": "en", "size": {"gt": 1_000}}, (sizes % 3 == 0) & (sizes > 1_000)),
        ({"lang": "'; drop table docs; --"}, np.zeros(ITEMS, bool)),
    ]
    with running({"docs": own}) as gateway, served(gateway) as base, httpx.Client(base_url=base) as client:
        for where, allowed in cases:
            answer = client.post("/search", json={"vectors": X[0].tolist(), "k": 8, "filter": where}).json()
            near = answer["results"][0]["neighbours"]
            order = [n for n in np.argsort(-true, kind="stable").tolist() if allowed[n]][:8]
            assert [row_of(one["id"]) for one in near] == order, where
            assert all(
                one["fields"] == {"lang": LANGUAGES[n % 3], "size": n}
                for one, n in zip(near, order, strict=True)
            )
        for where in (
            {"id": "doc-1"},
            {"lang": None},
            {"lang": {"like": "d"}},
            {"size": "many"},
            {"lang": 3},
        ):
            told = client.post("/search", json={"vectors": X[0].tolist(), "filter": where})
            assert (told.status_code, told.json()["place"]) == (422, "filter"), told.text


def test_filters_of_qdrant_are_its_own(folder: str) -> None:
    own = space("qdrant", folder, "inner-product", columns=["lang"])
    with running({"docs": own}) as gateway, served(gateway) as base, httpx.Client(base_url=base) as client:
        where = {"must": [{"key": "lang", "match": {"value": "de"}}]}
        answer = client.post("/search", json={"vectors": X[0].tolist(), "k": 8, "filter": where}).json()
        true = scores(X[:1], None, "inner-product")[0]
        order = [n for n in np.argsort(-true[:FEW], kind="stable").tolist() if n % 3 == 1][:8]
        assert in_qdrant(answer) == order
        assert {one["fields"]["lang"] for one in answer["results"][0]["neighbours"]} == {"de"}
        told = client.post("/search", json={"vectors": X[0].tolist(), "filter": {"lang": "de"}})
        assert (told.status_code, told.json()["place"]) == (422, "filter")


def test_half_precision_and_a_view_over_an_index_on_an_expression(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table halves (id int, embedding halfvec(24))")
        connection.execute("insert into halves select size, embedding::halfvec(24) from docs")
        connection.execute("create view narrow as select id, embedding::halfvec(24) as embedding from docs")
    Q = np.random.default_rng(9).normal(size=(3, D)).astype(np.float32)
    for table in ("halves", "narrow"):
        own = space("pgvector", url, "cosine") | {"collection": table}
        store = kinds.create("pgvector", Place(url, table, "cosine"))
        assert store.check() == D
        store.close()
        with running({"docs": own}) as gateway, served(gateway) as base:
            answer = httpx.post(f"{base}/search", json={"vectors": Q.tolist()}).json()
        true = scores(Q, None, "cosine")
        for row, result in zip(true, answer["results"], strict=True):
            found = [int(str(one["id"]).removeprefix("doc-")) for one in result["neighbours"]]
            np.testing.assert_allclose(row[found], np.sort(row)[::-1][:10], atol=2e-3)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"collection": "nowhere"}, "does not exist"),
        ({"options": {"vector": "lang"}}, "of the type text, not vector or halfvec"),
        ({"options": {"vector": "no"}}, "has no column no"),
        ({"columns": ("colour",)}, "colour"),
        ({"connection": "postgresql://127.0.0.1:1/x"}, "refused"),
    ],
)
def test_a_store_of_pgvector_that_cannot_answer_says_why(url: str, change: dict[str, Any], text: str) -> None:
    found: dict[str, Any] = {"connection": url, "collection": "docs", "distance": "cosine"} | change
    store = kinds.create("pgvector", Place(**found))
    with pytest.raises(StoreAway, match=text):
        store.check()
    store.close()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"collection": "nowhere"}, "nowhere"),
        ({"collection": "cosine"}, "compares by Cosine, and the settings say"),
        ({"options": {"vector": "no"}}, "vectors? .*no.*"),
        ({"connection": "http://127.0.0.1:1"}, "refused"),
    ],
)
def test_a_store_of_qdrant_that_cannot_answer_says_why(
    folder: str, change: dict[str, Any], text: str
) -> None:
    found: dict[str, Any] = {"connection": folder, "collection": "dot", "distance": "inner-product"} | change
    store = kinds.create("qdrant", Place(**found, seconds=1.0))
    try:
        with pytest.raises(StoreAway, match=text):
            store.check()
            store.search(X[:1], 3, None)
    finally:
        store.close()


def written(url: str) -> tuple[Any, ...]:
    """Rows inserted, updated and deleted in the table since it was made."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select pg_stat_force_next_flush()")
        found = connection.execute(
            "select n_tup_ins, n_tup_upd, n_tup_del from pg_stat_user_tables where relname = 'docs'"
        ).fetchone()
    assert found is not None
    return found


def test_while_fifty_models_are_published_no_answer_mixes_them_and_nothing_is_written(url: str) -> None:
    own = space("pgvector", url, "inner-product")
    before = written(url)
    answers: list[tuple[NDArray[np.float32], dict[str, Any]]] = []
    stop = threading.Event()

    def ask(base: str, seed: int) -> None:
        rng = np.random.default_rng([5, seed])
        with httpx.Client(base_url=base, timeout=30) as client:
            while not stop.is_set():
                Q = rng.normal(size=(3, D)).astype(np.float32)
                answer = client.post("/search", json={"vectors": Q.tolist(), "k": 5})
                assert answer.status_code == 200, answer.text
                answers.append((Q, answer.json()))

    with running({"docs": own}) as gateway, served(gateway) as base, ThreadPoolExecutor(3) as pool:
        asking = [pool.submit(ask, base, seed) for seed in range(3)]
        try:
            for step in range(1, 51):
                count = len(answers)
                gateway.announced.announce("docs", bilinear(D, step), step)
                gateway.settle()
                gateway.wait(
                    lambda count=count: len(answers) > count or any(one.done() for one in asking),  # type: ignore[misc]
                    "it answers",
                )
        finally:
            stop.set()
        for one in asking:
            one.result(30)
        learners = dict(gateway.announced.learners)
    steps = set()
    for Q, answer in answers:
        model = answer["model"]
        steps.add(model["step"])
        learner = learners["docs", 1, 0, model["step"]] if model["adapted"] else None
        agrees(answer, scores(Q, learner, "inner-product"), 5)
    assert len(steps) > 25
    assert written(url) == before


def test_the_rows_of_an_answer_are_of_one_snapshot_which_it_names(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table moving (id text primary key, embedding vector(2))")
        connection.execute("insert into moving values ('a', '[0,0]'), ('b', '[0,0]')")
    store: Store = kinds.create("pgvector", Place(url, "moving", "inner-product"))
    store.check()
    stop = threading.Event()

    def move() -> None:
        # Both items have one length at any time.
        with psycopg.connect(url, autocommit=True) as connection:
            for step in range(10**9):
                if stop.is_set():
                    return
                connection.execute("update moving set embedding = %s::vector", (f"[{step % 1000},0]",))

    thread = threading.Thread(target=move)
    thread.start()
    try:
        versions: set[str | None] = set()
        searches, limit = 0, time.monotonic() + SECONDS
        # 300 answers may have come before the other connection stands.
        while searches < 300 or (len(versions) <= 10 and time.monotonic() < limit):
            searches += 1
            found = store.search(np.array([[1.0, 0.0]] * 8, np.float32), 2, None)
            lengths = {hit.similarity for hits in found.hits for hit in hits}
            assert len(found.hits) == 8 and len(lengths) == 1
            versions.add(found.version)
    finally:
        stop.set()
        thread.join(30)
        store.close()
    assert len(versions) > 10 and None not in versions


def test_an_index_is_used(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table indexed as select * from docs")
        connection.execute("create index on indexed using hnsw (embedding vector_cosine_ops)")
        connection.execute("analyze indexed")
        before = scans(connection)
        store = kinds.create(
            "pgvector", Place(f"{url}&options=-c%20enable_seqscan%3Doff", "indexed", "cosine")
        )
        try:
            assert len(store.search(X[:2], 5, None).hits) == 2
        finally:
            store.close()
        # The store's session counts its scans when it has ended, which is a moment after it was closed.
        until(lambda: scans(connection) > before, "the index was scanned")


def scans(connection: psycopg.Connection[Any]) -> int:
    connection.execute("select pg_stat_clear_snapshot()")
    connection.execute("select pg_stat_force_next_flush()")
    found = connection.execute(
        "select idx_scan from pg_stat_user_indexes where indexrelname = 'indexed_embedding_idx'"
    ).fetchone()
    assert found is not None
    return int(found[0])


def test_connections_that_the_server_has_ended_are_replaced_unseen() -> None:
    with postgres() as server:
        server.fill("docs", NAMES[:10], X[:10])
        own = space("pgvector", server.url, "cosine")
        with running({"docs": own}, request_seconds=4.0) as gateway:
            found = gateway.space("docs")
            assert found.ready
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where pid <> pg_backend_pid() and backend_type = 'client backend'"
                )
            assert len(near(found, X[:1], 3)) == 3


def test_a_server_that_hangs_is_given_up_in_time_and_used_again_when_it_answers() -> None:
    with postgres() as server:
        server.fill("docs", NAMES[:10], X[:10])
        store = kinds.create("pgvector", Place(server.url, "docs", "cosine", seconds=1.0))
        assert store.check() == D
        with server.frozen():
            for limit in (
                3.0,
                5.0,
            ):  # with a connection, and without one: libpq takes at least 2 s to give up
                began = time.monotonic()
                with pytest.raises(StoreAway, match=r"no answer within 1 s|timeout"):
                    store.search(X[:1], 3, None)
                assert time.monotonic() - began < limit
        assert len(store.search(X[:1], 3, None).hits[0]) == 3
        store.close()


def test_a_server_of_qdrant_that_hangs_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []

    def client(**options: Any) -> QdrantClient:
        limits.append(options["timeout"])
        return QdrantClient(**options)

    monkeypatch.setattr(qdrant, "QdrantClient", client)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        place = Place(f"http://:key@127.0.0.1:{port}", "docs", "cosine", seconds=1.0)
        store = kinds.create("qdrant", place)
        began = time.monotonic()
        with pytest.raises(StoreAway) as error:
            store.search(X[:1], 3, None)
        # A loaded machine may take longer to notice; the server never answers.
        assert time.monotonic() - began < 30.0
        assert limits == [1]
        assert "key" not in str(error.value)
        store.close()
