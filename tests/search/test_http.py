"""The agent over HTTP: what it answers, what it refuses and how, and its limits."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kinstream.search.service import answers
from tests.search.index_service import Agent, Truth, items, linear, running, served

X = np.random.default_rng(4).normal(size=(30, 4)).astype(np.float32)
NAMES = [f"item/{n} ä?#" for n in range(30)]
TWO = {"shop": {"learner": "opml"}, "a/../b ?": {"learner": "opml"}}


@pytest.fixture(scope="module")
def agent() -> Iterator[Agent]:
    """Two spaces; the limits are small enough to be met."""
    limits = {"max_body_bytes": 20_000, "max_concurrent": 4, "threads": 2}
    with mock.patch.multiple(answers, MAX_ROWS=10, MAX_K=20), running(spaces=TWO, **limits) as found:
        found.events.append(items("shop", NAMES, X), items("a/../b ?", ["only"], X[:1]))
        found.announced.announce("shop", linear(4, 3), 12)
        found.settle()
        yield found


@pytest.fixture(scope="module")
def client(agent: Agent) -> Iterator[httpx.Client]:
    with served(agent) as url, httpx.Client(base_url=url, timeout=10) as found:
        yield found


def search(client: httpx.Client, **body: Any) -> httpx.Response:
    return client.post("/search", json={"space": "shop", **body})


def test_the_nearest_of_a_batch(agent: Agent, client: httpx.Client) -> None:
    truth = Truth()
    truth.items.update(zip(NAMES, X, strict=True))
    truth.note(0)
    Q = X[:7] + np.float32(0.1)
    answer = search(client, vectors=Q.tolist(), k=6)
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    found = answer.json()
    assert found["model"] == {"learner": "opml", "generation": 1, "epoch": 0, "step": 12, "learned": True}
    assert found["catalogue"] == {"epoch": 0, "items": 30, "partition": 0, "offset": 0}
    truth.check(found, Q, 6, agent.announced.learners)
    assert [one["examined"] for one in found["results"]] == [30] * 7


def test_similar_items_leave_themselves_out(client: httpx.Client) -> None:
    from urllib.parse import quote

    whole = search(client, vectors=X[3].tolist(), k=6).json()["results"][0]["neighbours"]
    path = f"/similar/{quote(NAMES[3], safe='')}"
    by_path = client.get(path, params={"space": "shop", "k": 5}).json()
    assert by_path["results"][0]["neighbours"] == whole[1:] and whole[0]["id"] == NAMES[3]
    posted = client.post(path, json={"space": "shop", "k": 5}).json()
    batch = client.post("/similar", json={"space": "shop", "k": 5, "items": [NAMES[3], NAMES[4]]}).json()
    assert posted["results"] == by_path["results"] == batch["results"][:1] and len(batch["results"]) == 2


def test_a_space_name_is_a_name_and_no_path(client: httpx.Client) -> None:
    found = client.post("/search", json={"space": "a/../b ?", "vectors": X[0].tolist()}).json()
    assert [n["id"] for n in found["results"][0]["neighbours"]] == ["only"]
    answer = client.get("/similar/..%2F..%2Fetc%2Fpasswd", params={"space": "shop"})
    assert answer.status_code == 404 and answer.json()["reason"] == "unknown-item"


def test_map_gives_what_the_distances_are_of(agent: Agent, client: httpx.Client) -> None:
    found = client.post("/map", json={"space": "shop", "vectors": X[:3].tolist()}).json()
    learner = agent.announced.learners["shop", 1, 0, 12]
    assert np.allclose(found["vectors"], learner.transform(X[:3]), rtol=1e-5)


def test_spaces_and_probes(client: httpx.Client) -> None:
    shop, other = client.get("/spaces").json()["spaces"]
    assert shop["announced"] == "1.0.12" and not shop["behind"] and shop["ready"]
    assert shop["modalities"] == [{"name": "x", "dimension": 4}]
    assert other["space"] == "a/../b ?" and not other["model"]["learned"]
    assert client.get("/healthz").status_code == 200
    ready = client.get("/readyz")
    assert ready.status_code == 200 and ready.json()["waiting_for"] == []


BAD: list[tuple[bytes, int, str, str | None]] = [
    (b"", 400, "not-json", None),
    (b"{", 400, "not-json", None),
    (b"\xff\xfe", 400, "not-json", None),
    (b'{"vectors": [NaN, 1, 1, 1]}', 400, "not-json", None),
    (b'{"vectors": [Infinity, 1, 1, 1]}', 400, "not-json", None),
    (b"[" * 5000, 400, "not-json", None),
    (b"[]", 422, "invalid", None),
    (b"{}", 422, "invalid", "vectors"),
    (b'{"vectors": null}', 422, "invalid", "vectors"),
    (b'{"vectors": []}', 422, "invalid", "vectors"),
    (b'{"vectors": [[]]}', 422, "invalid", "vectors[0]"),
    (b'{"vectors": "1234"}', 422, "invalid", "vectors"),
    (b'{"vectors": [1, 2, 3, true]}', 422, "invalid", "vectors[3]"),
    (b'{"vectors": [[1, 2, 3, 4], [1, "2", 3, 4]]}', 422, "invalid", "vectors[1][1]"),
    (b'{"vectors": [1, 2, 3, 1e999]}', 422, "not-finite", "vectors[3]"),
    (b'{"vectors": [1, 2, 3, 1e39]}', 422, "too-large", "vectors[0][3]"),
    (b'{"vectors": [[1, 2, 3, 4], [1, 2, 3]]}', 422, "wrong-dimension", "vectors[1]"),
    (b'{"vectors": [[1, 2, 3]]}', 422, "wrong-dimension", "vectors[0]"),
    (b'{"vectors": {"y": [1, 2, 3, 4]}}', 422, "wrong-dimension", "vectors"),
    (b'{"vectors": {}}', 422, "invalid", "vectors"),
    (b'{"vectors": [1, 2, 3, 4], "k": 0}', 422, "invalid", "k"),
    (b'{"vectors": [1, 2, 3, 4], "k": 21}', 422, "too-large", "k"),
    (b'{"vectors": [1, 2, 3, 4], "k": 2.5}', 422, "invalid", "k"),
    (b'{"vectors": [1, 2, 3, 4], "K": 2}', 422, "invalid", "K"),
    (b'{"vectors": ' + json.dumps([[1, 2, 3, 4]] * 11).encode() + b"}", 422, "too-large", "vectors"),
]


@pytest.mark.parametrize(("body", "status", "reason", "place"), BAD)
def test_malformed_requests(
    client: httpx.Client, body: bytes, status: int, reason: str, place: str | None
) -> None:
    body = body.replace(b'{"', b'{"space": "shop", "', 1) if body.endswith(b"}") else body
    body = b'{"space": "shop"}' if body == b"{}" else body
    answer = client.post("/search", content=body, headers={"content-type": "application/json"})
    told = answer.json()
    assert (answer.status_code, told["reason"], told["place"]) == (status, reason, place), told["detail"]
    assert told["detail"]


def test_unknown_things(client: httpx.Client) -> None:
    told = search(client, space="nowhere", vectors=[0] * 4)
    assert told.status_code == 404 and told.json()["reason"] == "unknown-space"
    told = client.post("/search", json={"vectors": [0] * 4})
    assert told.status_code == 422 and told.json()["place"] == "space"
    told = client.post("/similar", json={"space": "shop", "items": [NAMES[0], "zz"]})
    assert told.status_code == 404 and told.json()["place"] == "items[1]"
    assert client.get("/nowhere").json()["reason"] == "not-found"
    assert client.get("/similar/zz", params={"space": "shop", "k": "many"}).status_code == 422
    told = client.get("/search")
    assert told.status_code == 405 and told.headers["allow"] == "POST" and told.json()["place"] is None
    told = client.post("/search", content=b"<x/>", headers={"content-type": "text/xml"})
    assert told.status_code == 415 and told.json()["reason"] == "media-type"


def test_large_bodies_are_refused_whether_they_say_so_or_not(client: httpx.Client) -> None:
    large = b" " * 20_001
    headers = {"content-type": "application/json"}
    told = client.post("/search", content=large, headers=headers)
    assert told.status_code == 413 and told.json()["reason"] == "too-large"

    def parts() -> Iterator[bytes]:
        for _ in range(21):
            yield b" " * 1_000

    told = client.post("/search", content=parts(), headers=headers)
    assert told.status_code == 413


def test_too_many_requests_at_once_are_told_to_come_again(agent: Agent, client: httpx.Client) -> None:
    searcher = agent.space("shop").searcher
    held = searcher._lock.write()
    held.__enter__()  # searches wait for this
    try:
        with ThreadPoolExecutor(4) as pool:
            waiting = [pool.submit(search, client, vectors=[0.0] * 4) for _ in range(4)]
            agent.wait(lambda: "progress 4.0" in client.get("/metrics").text, "four requests wait")
            told = search(client, vectors=[0.0] * 4)
            assert told.status_code == 503 and told.headers["retry-after"] == "1"
            assert told.json()["reason"] == "busy"
            assert client.get("/healthz").status_code == 200  # the loop is free
            held.__exit__(None, None, None)
            assert [one.result().status_code for one in waiting] == [200] * 4
    finally:
        if searcher._lock._writing:
            held.__exit__(None, None, None)
    assert search(client, vectors=[0.0] * 4).status_code == 200


def test_what_takes_too_long_is_given_up_and_keeps_its_place() -> None:
    with running(spaces={"shop": {"learner": "opml"}}, request_seconds=0.2, max_concurrent=1) as agent:
        agent.events.append(items("shop", NAMES, X))
        searcher = agent.space("shop").searcher
        with served(agent) as url, httpx.Client(base_url=url) as client:
            with searcher._lock.write():
                # Without a body, whose way here would count too.
                told = client.get(f"/similar/{NAMES[0]}")
                assert told.status_code == 504 and told.json()["reason"] == "timeout"
                assert search(client, vectors=[0.0] * 4).status_code == 503
            agent.wait(
                lambda: search(client, vectors=[0.0] * 4).status_code == 200, "the place is free again"
            )


def test_a_body_that_does_not_come_is_given_up() -> None:
    with running(spaces={"shop": {"learner": "opml"}}, request_seconds=0.2) as agent, served(agent) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as slow:
            slow.sendall(
                b"POST /search HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
            )
            assert slow.recv(100).startswith(b"HTTP/1.1 408")


def test_before_it_has_caught_up_it_is_not_ready_and_says_what_it_waits_for() -> None:
    agent = Agent(spaces={"shop": {"learner": "opml"}})
    agent.announced.caught_up = False
    agent.service.start()
    try:
        with served(agent) as url, httpx.Client(base_url=url) as client:
            told = client.get("/readyz")
            assert told.status_code == 503
            assert told.json()["waiting_for"] == ["models of 'shop' under 'opml'"]
            assert client.get("/healthz").status_code == 200
            told = search(client, vectors=[0.0])
            assert told.status_code == 503 and told.json()["reason"] == "not-ready"
            assert told.headers["retry-after"] == "1"
            agent.announced.caught_up = True
            agent.wait(lambda: client.get("/readyz").status_code == 200, "ready")
            assert search(client, vectors=[0.0]).status_code == 200
    finally:
        agent.service.stop()


def test_a_fault_is_told_without_its_text(
    agent: Agent, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(agent.space("shop").searcher, "search", broken)
    told = search(client, vectors=[0.0] * 4)
    assert told.status_code == 500 and told.json() == {
        "reason": "fault",
        "detail": "see the log of the server",
        "place": None,
    }


def test_metrics_count_requests_and_queries(agent: Agent, client: httpx.Client) -> None:
    def value(name: str, **labels: str) -> float:
        families = text_string_to_metric_families(client.get("/metrics").text)
        found = [
            s.value
            for f in families
            for s in f.samples
            if s.name == name and labels.items() <= s.labels.items()
        ]
        return sum(found)

    ok = {"route": "/search", "status": "200"}
    before = value("kinstream_serve_request_duration_seconds_count", **ok)
    queries = value("kinstream_serve_queries_total", space="shop")
    search(client, vectors=X[:3].tolist())
    search(client, vectors=[1])
    assert value("kinstream_serve_request_duration_seconds_count", **ok) == before + 1
    assert value("kinstream_serve_request_duration_seconds_count", route="/search", status="422") >= 1
    assert value("kinstream_serve_queries_total", space="shop") == queries + 3
    assert value("kinstream_serve_catalogue_items", space="shop") == 30
    assert value("kinstream_serve_model_step", space="shop", learner="opml") == 12
    assert value("kinstream_serve_ready") == 1
    client.get("/some/path/that/nobody/knows")
    routes = {
        s.labels["route"]
        for f in text_string_to_metric_families(client.get("/metrics").text)
        for s in f.samples
        if "route" in s.labels
    }
    assert routes <= {
        "/search",
        "/similar",
        "/similar/{item:path}",
        "/map",
        "/spaces",
        "/healthz",
        "/readyz",
        "/metrics",
        "/openapi.json",
        "other",
    }


def test_requests_at_once_get_their_own_answers(client: httpx.Client) -> None:
    alone = [search(client, vectors=X[n].tolist(), k=3).json()["results"] for n in range(30)]
    faults: list[BaseException] = []

    def ask(first: int) -> None:
        try:
            for n in range(first, first + 60):
                assert search(client, vectors=X[n % 30].tolist(), k=3).json()["results"] == alone[n % 30]
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=ask, args=(first,)) for first in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not faults
