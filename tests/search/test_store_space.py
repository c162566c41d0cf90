"""A space with a store over HTTP: what it answers, under which model, what it refuses and how."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from kinstream.learners.models.export import encode, export
from kinstream.search.service.service import Service
from kinstream.search.stores.base import StoreAway
from kinstream.streams.errors import PackageMissing, SettingsError
from kinstream.streams.records.values import ModelVersion
from kinstream.streams.settings import Settings
from tests.learners.published_unit import create as make_learner
from tests.search.store_service import Gateway, Memory, bilinear, running, section, served
from tests.support.processes import SECONDS

X = np.random.default_rng(4).normal(size=(60, 5)).astype(np.float32)
NAMES = [f"item/{n} ä" for n in range(60)]
Q = np.random.default_rng(5).normal(size=(4, 5)).astype(np.float32)


def exact(Q: Any, k: int, learner: Any = None) -> list[list[str]]:
    """The scan in float64 under q^T W x, or q^T x without a learner."""
    wide, items = np.asarray(Q, np.float64), X.astype(np.float64)
    scores = wide @ items.T if learner is None else wide @ learner.W.astype(np.float64) @ items.T
    return [[NAMES[i] for i in row] for row in np.argsort(-scores, axis=1, kind="stable")[:, :k]]


def ids(answer: dict[str, Any]) -> list[list[str]]:
    return [[one["id"] for one in result["neighbours"]] for result in answer["results"]]


@pytest.fixture
def store() -> Memory:
    return Memory(NAMES, X)


@pytest.fixture
def gateway(store: Memory) -> Iterator[Gateway]:
    with running({"docs": section()}, create=lambda *_: store) as found:
        yield found


@pytest.fixture
def client(gateway: Gateway) -> Iterator[httpx.Client]:
    with served(gateway) as url, httpx.Client(base_url=url, timeout=10) as found:
        yield found


def search(client: httpx.Client, **body: Any) -> httpx.Response:
    return client.post("/search", json={"space": "docs", "vectors": Q.tolist(), "k": 6, **body})


def test_without_a_model_queries_are_asked_as_they_are_and_the_answer_says_so(client: httpx.Client) -> None:
    answer = search(client)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert ids(found) == exact(Q, 6)
    assert found["model"] == {
        "learner": "adapter",
        "generation": 0,
        "epoch": -1,
        "step": 0,
        "digest": "",
        "adapted": False,
    }
    assert found["store"] == {"kind": "memory", "collection": "items", "version": "7"}
    assert found["space"] == "docs"


def test_the_newest_model_maps_queries_and_is_named(gateway: Gateway, client: httpx.Client) -> None:
    for step in (3, 9):
        learner = bilinear(5, step)
        gateway.announced.announce("docs", learner, step)
        gateway.settle()
        found = search(client).json()
        assert ids(found) == exact(Q, 6, learner) != exact(Q, 6)
        assert found["model"]["step"] == step and found["model"]["adapted"]
        assert found["model"]["digest"] == f"{step:064x}"
    gateway.announced.announce("docs", bilinear(5, 4), 4)  # an older one that arrives late
    gateway.settle()
    assert search(client).json()["model"]["step"] == 9


def test_after_a_reset_queries_are_asked_as_they_are(gateway: Gateway, client: httpx.Client) -> None:
    gateway.announced.announce("docs", bilinear(5, 1), 3)
    gateway.settle()
    gateway.announced.announce("docs", None, 0, epoch=8)
    gateway.settle()
    found = search(client).json()
    assert found["model"]["epoch"] == 8 and not found["model"]["adapted"] and ids(found) == exact(Q, 6)


def test_map_gives_what_the_store_would_be_asked_with(gateway: Gateway, client: httpx.Client) -> None:
    learner = bilinear(5, 1)
    gateway.announced.announce("docs", learner, 3)
    gateway.settle()
    found = client.post("/map", json={"vectors": Q.tolist()}).json()
    assert found["model"]["step"] == 3
    np.testing.assert_allclose(found["vectors"], Q.astype(np.float64) @ learner.W, rtol=1e-6, atol=1e-6)


def test_a_learner_without_a_query_map_is_left_out_and_reported(
    gateway: Gateway, client: httpx.Client
) -> None:
    gateway.announced.announce("docs", bilinear(5, 1), 3)
    gateway.settle()
    other = make_learner("opml")
    other.learn_triplets(*np.random.default_rng(1).normal(size=(3, 20, 5)))  # type: ignore[attr-defined]
    gateway.announced.announce("docs", other, 7)
    gateway.wait(
        lambda: client.get("/spaces").json()["spaces"][0]["announced"] == "1.0.7", "the announcement is known"
    )
    (space,) = client.get("/spaces").json()["spaces"]
    assert space["behind"] and space["model"]["step"] == 3
    series = 'kinstream_serve_model_failures_total{learner="adapter",reason="refused",space="docs"}'
    gateway.wait(lambda: f"{series} 1.0" in client.get("/metrics").text, "it is counted")
    assert search(client).json()["model"]["step"] == 3


def test_a_model_of_another_dimension_than_the_store_does_not_serve(
    gateway: Gateway, client: httpx.Client
) -> None:
    gateway.announced.announce("docs", bilinear(4, 1), 3)
    gateway.wait(lambda: gateway.space("docs").newest.name.step == 3, "it is loaded")
    found = search(client).json()
    assert not found["model"]["adapted"] and ids(found) == exact(Q, 6)
    (space,) = client.get("/spaces").json()["spaces"]
    assert space["behind"] and space["dimension"] == 5


def test_a_store_that_is_away_is_503_with_a_reason_and_not_ready(
    gateway: Gateway, client: httpx.Client, store: Memory
) -> None:
    store.away = "no route to db.internal"
    told = search(client)
    assert (
        told.status_code == 503 and told.json()["reason"] == "store" and "no route" in told.json()["detail"]
    )
    assert told.headers["retry-after"] == "1"
    gateway.wait(lambda: client.get("/readyz").status_code == 503, "it is seen that the store is away")
    assert client.get("/readyz").json()["waiting_for"] == ["the store of 'docs'"]
    assert client.get("/healthz").status_code == 200
    assert 'kinstream_serve_store_failures_total{space="docs"} 1.0' in client.get("/metrics").text
    store.away = None
    gateway.wait(lambda: client.get("/readyz").status_code == 200, "it is seen that the store is back")
    assert search(client).status_code == 200


def test_a_request_that_its_store_does_not_answer_says_nothing_of_the_store(
    gateway: Gateway, client: httpx.Client, store: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A heavy request that is late for itself, by any client; the check decides whether the store answers."""

    def late(*_: Any) -> Any:
        raise StoreAway("canceling statement due to statement timeout")

    checks, check = [0], store.check

    def counted() -> int | None:
        checks[0] += 1
        return check()

    monkeypatch.setattr(store, "check", counted)
    with monkeypatch.context() as patched:
        patched.setattr(store, "search", late)
        for _ in range(5):
            before = checks[0]
            told = search(client)
            assert (told.status_code, told.json()["reason"]) == (503, "store")
            assert client.get("/readyz").status_code == 200
            assert "kinstream_serve_ready 1.0" in client.get("/metrics").text
        # A request that failed hastens the next check.
        gateway.wait(lambda before=before: checks[0] > before, "the store is checked", 4.0)  # type: ignore[misc]
    assert search(client).status_code == 200


@pytest.mark.long
def test_probes_tell_strangers_nothing_of_where_things_are(
    gateway: Gateway, client: httpx.Client, store: Memory
) -> None:
    store.away = "connection to server at db.internal, port 5432 failed: no table shop.items"
    gateway.wait(lambda: client.get("/readyz").status_code == 503, "it is seen that the store is away")
    for path in ("/readyz", "/healthz", "/metrics"):
        text = client.get(path).text
        assert not any(word in text for word in ("db.internal", "5432", "shop.items")), path


@pytest.mark.long
def test_a_check_that_hangs_is_a_broken_process_and_a_store_that_is_away_is_not(store: Memory) -> None:
    gateway = Gateway({"docs": section()}, create=lambda *_: store)
    hang = threading.Event()
    gateway.service.start()
    try:
        gateway.wait(lambda: gateway.service.ready, "ready")
        assert gateway.service.health.live()[0]
        store.away = "no route"
        gateway.wait(lambda: not gateway.service.ready, "the store is away")
        space = gateway.space("docs")
        assert gateway.service.health.live()[0]
        store.check = lambda: hang.wait(SECONDS)  # type: ignore[method-assign]
        gateway.wait(lambda: space.unchecked_seconds > 1.0, "the check hangs")
        space.turned -= 1_000.0
        assert not gateway.service.health.live()[0]
    finally:
        hang.set()
        gateway.service.stop()


def test_before_models_are_known_it_does_not_answer(store: Memory) -> None:
    gateway = Gateway({"docs": section()}, create=lambda *_: store)
    gateway.announced.caught_up = False
    gateway.service.start()
    try:
        with served(gateway) as url, httpx.Client(base_url=url) as client:
            told = search(client)
            assert told.status_code == 503 and told.json()["reason"] == "not-ready"
            assert "models of 'docs' under 'adapter'" in told.json()["detail"]
            gateway.announced.caught_up = True
            gateway.wait(lambda: client.get("/readyz").status_code == 200, "ready")
            assert search(client).status_code == 200
    finally:
        gateway.service.stop()
    assert store.closed


def test_an_exported_model_is_pinned_and_needs_no_brokers(store: Memory, tmp_path: Path) -> None:
    learner = bilinear(5, 2)
    version = ModelVersion("docs", "taste", "oasis/1", 2, 5, 70, "t", 0, 9, "", "ab" * 32, 1)
    file = tmp_path / "taste.npz"
    file.write_bytes(encode(export(learner, version, {}), "npz"))
    pinned = section(model=str(file)) | {"learner": None}
    settings = Settings.model_validate({"serve": {"http_port": 0, "spaces": {"docs": pinned}}})
    service = Service(settings, create=lambda *_: store)
    assert service.models is None
    gateway = object.__new__(Gateway)
    gateway.service, gateway.settings = service, settings
    service.start()
    try:
        gateway.wait(lambda: service.ready, "ready")
        with served(gateway) as url, httpx.Client(base_url=url) as client:
            found = search(client).json()
            assert ids(found) == exact(Q, 6, learner)
            assert found["model"] == {
                "learner": "taste",
                "generation": 2,
                "epoch": 5,
                "step": 70,
                "digest": "ab" * 32,
                "adapted": True,
            }
            (space,) = client.get("/spaces").json()["spaces"]
            assert space["announced"] is None and not space["behind"]
    finally:
        service.stop()


def refused(**space: Any) -> str:
    settings = Settings.model_validate({"serve": {"spaces": {"docs": section(**space)}}})
    with pytest.raises(SettingsError) as error:
        Service(settings)
    return str(error.value)


def test_what_cannot_be_served_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match="name a space"):
        Service(Settings())
    assert "serve.spaces.docs: no store is called 'memory'" in refused()
    assert "did you mean qdrant" in refused(backend="qdrent")
    assert "there is no tale" in refused(backend="pgvector", options={"tale": 1})
    monkeypatch.setattr("kinstream.streams.extras.installed", lambda package: package != "psycopg")
    assert "pip install 'kinstream[pgvector]'" in refused(backend="pgvector")
    settings = Settings.model_validate({"serve": {"spaces": {"docs": section(backend="pgvector")}}})
    with pytest.raises(PackageMissing):
        Service(settings)
    for section_ in ({"learner": None}, {"model": "x.npz"}):
        with pytest.raises(ValueError, match="set learner"):
            Settings.model_validate({"serve": {"spaces": {"docs": section(**section_)}}})
