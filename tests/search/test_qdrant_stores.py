"""Qdrant by its URL or its folder: what a connection means, who is to blame, and collections that change."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from qdrant_client import QdrantClient, models

from kinstream.search.stores import kinds
from kinstream.search.stores.base import Asked, BadFilter, BadVectors, Place, Store, StoreAway
from kinstream.search.stores.qdrant import Qdrant, connected
from kinstream.streams.errors import SettingsError
from kinstream.vectors.sinks.qdrant import QdrantWriter
from tests.search.store_service import near, running, section, served

X = np.eye(3, dtype=np.float32)
PATHS = ("a[", "a..b", "", "a[x]", '"a', ".", "a]", "[]", "a.[0]")


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Two collections of a folder; a point has no payload, and one no vector of the name."""
    client = QdrantClient(path=str(tmp_path / "store"))
    params = models.VectorParams(size=3, distance=models.Distance.COSINE)
    client.create_collection("docs", params)
    client.create_collection("named", {"text": params})
    for n, x in enumerate(X.tolist()):
        payload = {"lang": "en", "size": n} if n else None
        client.upsert("docs", [models.PointStruct(id=n, vector=x, payload=payload)])
        client.upsert("named", [models.PointStruct(id=n, vector={"text": x} if n else {})])
    client.close()
    return str(tmp_path / "store")


def store(where: str, collection: str = "docs", **options: Any) -> Store:
    return kinds.create("qdrant", Place(where, collection, "cosine", ("lang",), options=options))


def key(path: str) -> dict[str, Any]:
    return {"must": [{"key": path, "match": {"value": "en"}}]}


@pytest.mark.parametrize(
    ("connection", "address"),
    [
        ("https://cloud.example.org", "https://cloud.example.org:443"),
        ("https://:key@cloud.example.org", "https://cloud.example.org:443"),
        ("https://cloud.example.org/store", "https://cloud.example.org:443/store"),
        ("https://cloud.example.org/store/", "https://cloud.example.org:443/store"),
        ("HTTPS://cloud.example.org", "https://cloud.example.org:443"),
        ("https://[::1]", "https://[::1]:443"),
        ("https://cloud.example.org:6333", "https://cloud.example.org:6333"),
        ("http://qdrant", "http://qdrant:6333"),
        ("http://qdrant:80", "http://qdrant:80"),
    ],
)
def test_a_url_without_a_port_means_that_of_its_scheme(connection: str, address: str) -> None:
    client = connected(Place(connection, "docs", "cosine"))
    assert client._client.rest_uri == address  # type: ignore[attr-defined]
    client.close()


@pytest.mark.parametrize(
    "connection",
    [
        "host:6333",
        "localhost",
        "localhost:6333",
        "qdrant.example.org:6333/prefix",
        ":secret-key@qdrant:6333",
        "127.0.0.1:6333",
        "[::1]:6333",
        "http:/qdrant:6333",
        "qdrant:6333/",
        "grpc://qdrant:6334",
        "http://:6333",
        "http://qdrant:port",
        "http://qdrant:99999",
        "http://qdrant 1:6333",
        "http://qdrant,other:6333",
        "https://secret-key@qdrant:6333",
        "https://qdrant:6333?api_key=secret-key",
        "https://qdrant:6333#docs",
        "data",
        ":memory:",
        "",
    ],
)
def test_what_is_neither_a_url_nor_a_folder_is_refused_and_makes_no_folder(
    connection: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for make in (lambda: store(connection), lambda: QdrantWriter(connection, "docs")):
        with pytest.raises(SettingsError, match="connection") as error:
            make()
        assert "secret-key" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["qdrant:6333", "[::1]:6333"])
def test_a_host_with_a_port_is_no_folder_even_if_there_is_one(
    name: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client makes a folder of any name: one of an earlier version may still be there."""
    monkeypatch.chdir(os.path.dirname(folder))
    os.rename(folder, name)
    for make in (lambda: store(name), lambda: QdrantWriter(name, "docs")):
        with pytest.raises(SettingsError, match="connection"):
            make()
    assert store(f"./{name}").check() == 3


def test_a_folder_that_is_read_is_not_made(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "nowhere"):
        one = store(str(tmp_path / name))
        with pytest.raises(StoreAway, match=name):
            one.check()
        one.close()
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["empty"]


def test_spaces_share_a_folder_by_any_of_its_names(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    above, name = os.path.split(folder)
    monkeypatch.chdir(above)
    os.symlink(name, "link")
    own = {
        space: section(backend="qdrant", connection=where, collection=collection, distance="cosine", **more)
        for space, where, collection, more in (
            ("a", folder, "docs", {}),
            ("b", f"./{name}", "docs", {"columns": ["lang"]}),
            ("c", name, "named", {"options": {"vector": "text"}}),
            ("d", "./link", "docs", {}),
        )
    }
    for _ in range(2):
        with running(own) as gateway:
            for space in gateway.service.stores.values():
                assert near(space, X[1:2], 1) == ["1"]
        # The folder is free again.
        QdrantClient(path=folder).close()


def test_one_space_may_end_while_another_goes_on(folder: str) -> None:
    first, second = store(folder), store(folder)
    assert first.check() == second.check() == 3
    first.close()
    assert second.search(X[2:], 1, None).hits[0][0].id == "2"
    second.close()
    second.close()
    QdrantClient(path=folder).close()


@pytest.mark.long
@pytest.mark.parametrize("path", PATHS)
def test_a_bad_path_in_a_filter_is_the_requests_fault_and_the_store_stays_ready(
    folder: str, path: str
) -> None:
    own = section(backend="qdrant", connection=folder, collection="docs", distance="cosine")
    with running({"docs": own}) as gateway, served(gateway) as base, httpx.Client(base_url=base) as client:
        body = {"vectors": X[0].tolist(), "filter": key(path)}
        told = client.post("/search", json=body)
        assert (told.status_code, told.json()["place"]) == (422, "filter"), told.text
        assert client.get("/readyz").status_code == 200


def damage_meta(folder: Path) -> None:
    (folder / "meta.json").write_text('{"collections": {"docs": ')


def damage_meta_text(folder: Path) -> None:
    (folder / "meta.json").write_bytes(b"\xff\x00")


def damage_meta_shape(folder: Path) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    meta["collections"]["docs"] = [1]
    (folder / "meta.json").write_text(json.dumps(meta))


def damage_rows(folder: Path) -> None:
    (folder / "collection/docs/storage.sqlite").write_bytes(b"not a database" * 1_000)


def damage_point(folder: Path) -> None:
    with sqlite3.connect(folder / "collection/docs/storage.sqlite") as connection:
        connection.execute("update points set point = ?", (b"\x80\x04K",))
    connection.close()


@pytest.mark.parametrize(
    "damage", [damage_meta, damage_meta_text, damage_meta_shape, damage_rows, damage_point]
)
def test_damaged_files_are_the_stores_trouble(folder: str, damage: Callable[[Path], None]) -> None:
    damage(Path(folder))
    one = store(folder)
    for _ in range(2):
        with pytest.raises(StoreAway):
            one.check()
        with pytest.raises(StoreAway):
            one.search(X[:1], 1, key("a["))
    one.close()


def test_points_without_payload_or_vector_are_no_fault(folder: str) -> None:
    one = store(folder)
    assert {hit.id: hit.fields for hit in one.search(X[:1], 9, None).hits[0]} == {
        "0": {"lang": None},
        "1": {"lang": "en"},
        "2": {"lang": "en"},
    }
    one.close()
    other = store(folder, "named", vector="text")
    assert {hit.id for hit in other.search(X[:1], 9, None).hits[0]} == {"1", "2"}
    other.close()


def test_further_vectors_that_are_compared_otherwise_are_the_stores_trouble() -> None:
    client = QdrantClient(":memory:")
    kinds_of = {"": models.Distance.COSINE, "image": models.Distance.DOT}
    sizes = {name: models.VectorParams(size=2, distance=one) for name, one in kinds_of.items()}
    client.create_collection("docs", sizes)
    store: Any = Qdrant(Place("http://memory", "docs", "cosine", signals=("image",)))
    store._client = client
    with pytest.raises(StoreAway, match="compares by Dot, and the settings say distance = 'cosine'"):
        store.candidates([Asked(np.ones(2, np.float32))], 3, None)
    store.close()


def test_a_search_that_finds_fewer_than_k_says_so(folder: str) -> None:
    own = section(backend="qdrant", connection=folder, collection="docs", distance="cosine")
    with running({"docs": own}) as gateway, served(gateway) as base, httpx.Client(base_url=base) as client:

        def found(**more: Any) -> list[tuple[int, str | None]]:
            answer = client.post("/search", json={"vectors": X[:2].tolist(), **more}).json()
            return [(len(one["neighbours"]), one.get("fewer")) for one in answer["results"]]

        assert found(k=3) == [(3, None)] * 2
        assert found(k=4) == found(k=4, filter={}) == [(3, "store")] * 2
        assert found(k=2, filter=key("lang")) == [(2, None)] * 2
        assert found(k=3, filter=key("lang")) == [(2, "filter")] * 2
        assert found(k=3, filter=key("nothing")) == [(0, "filter")] * 2


@contextmanager
def server(answer: Callable[[str], tuple[int, Any]]) -> Iterator[str]:
    """A server of Qdrant that answers as told, by the path."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            status, body = answer(self.path)
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _answer

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{made.server_port}"
        finally:
            made.shutdown()
            thread.join()


def collection(vectors: Any) -> Any:
    """How a server describes one."""
    return {
        "result": {
            "status": "green",
            "optimizer_status": "ok",
            "segments_count": 1,
            "config": {
                "params": {"vectors": vectors},
                "hnsw_config": {"m": 16, "ef_construct": 100, "full_scan_threshold": 10_000},
                "optimizer_config": {
                    "deleted_threshold": 0.2,
                    "vacuum_min_vector_number": 1_000,
                    "default_segment_number": 0,
                    "flush_interval_sec": 5,
                },
            },
            "payload_schema": {},
        },
        "status": "ok",
        "time": 0.0,
    }


SOUND = {"size": 3, "distance": "Cosine"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("now", "where", "blamed"),
    [
        (SOUND, key("a["), BadFilter),
        (SOUND, None, StoreAway),
        (SOUND | {"size": 4}, key("a"), BadVectors),
        (SOUND | {"size": 4}, None, BadVectors),
        (SOUND | {"distance": "Dot"}, key("a"), StoreAway),
        ({"text": SOUND}, key("a"), StoreAway),
    ],
)
def test_a_server_that_refuses_a_request_is_asked_who_is_to_blame(now: Any, where: Any, blamed: Any) -> None:
    refusal = {"status": {"error": "Wrong input"}, "time": 0.0}
    with server(lambda path: (400, refusal) if "query" in path else (200, collection(now))) as url:
        one = store(url)
        with pytest.raises(blamed) as error:
            one.search(X[:1], 2, where)
        assert type(error.value) is blamed
        one.close()


@pytest.mark.long
@pytest.mark.parametrize(
    "answer", [(404, {}), (500, b"oh"), (403, {}), (200, b"<html>"), (200, {"result": 3})]
)
def test_a_server_that_answers_strangely_is_away(answer: tuple[int, Any]) -> None:
    with server(lambda path: answer) as url:
        one = store(url)
        for where in (None, key("a")):
            with pytest.raises(StoreAway):
                one.search(X[:1], 2, where)
        with pytest.raises(StoreAway):
            one.check()
        one.close()
