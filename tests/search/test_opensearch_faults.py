"""The store of OpenSearch before servers that answer wrongly, late, in part, or not at all; and its filters."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinstream.search.stores import kinds
from kinstream.search.stores.base import Asked, BadFilter, BadText, BadVectors, Place, Store, StoreAway
from kinstream.search.stores.opensearch_filters import filter_of
from kinstream.streams.errors import SettingsError
from tests.kafka.certificates import Authority, missing

FIELDS = {
    "embedding": {"type": "knn_vector", "dimension": 2, "method": {"space_type": "cosinesimil"}},
    "title": {"type": "text", "fields": {"exact": {"type": "keyword"}}},
    "shop": {"properties": {"price": {"type": "float"}}},
    "image": {"type": "knn_vector", "dimension": 4, "method": {"space_type": "innerproduct"}},
}
Answer = tuple[int, dict[str, str], bytes]


def found(*hits: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"timed_out": False, "_shards": {"failed": 0}, "hits": {"hits": list(hits)}, **more}


def refusal(kind: str, reason: str) -> dict[str, Any]:
    shards = [{"reason": {"type": kind, "reason": reason}}]
    error = {"type": "search_phase_execution_exception", "reason": "all failed", "failed_shards": shards}
    return {"error": error, "status": 400}


class Server:
    """A server that answers what a test says."""

    def __init__(self) -> None:
        self.mapping: Any = {"docs": {"mappings": {"properties": FIELDS}}}
        #: What it answers to searches, given how many there are.
        self.answer: Callable[[int], Answer | None] = lambda n: told({"responses": [found()] * n})
        #: Sends an answer itself, if a test sets it.
        self.slowly: Callable[[Callable[[bytes], Any]], None] | None = None
        self.asked: list[tuple[str, list[Any]]] = []
        self.logins: set[str | None] = set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server.logins.add(self.headers.get("authorization"))
                self._send(told(server.mapping))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                lines = [json.loads(line) for line in body.splitlines()]
                server.asked.append((self.path, lines))
                if server.slowly is not None:
                    self.close_connection = True
                    with contextlib.suppress(OSError):
                        server.slowly(self.wfile.write)
                    return
                self._send(server.answer(len(lines) // 2))

            def _send(self, answer: Answer | None) -> None:
                if answer is None:
                    self.close_connection = True
                    return
                status, headers, content = answer
                self.send_response(status)
                for name, value in ({"content-length": str(len(content))} | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.port = self.http.server_address[1]

    def store(self, **more: Any) -> Any:
        given: dict[str, Any] = {"connection": f"http://me:s3cret%21@127.0.0.1:{self.port}", "seconds": 2.0}
        return kinds.create(
            "opensearch", Place(**(given | {"collection": "docs", "distance": "cosine"} | more))
        )


def told(body: Any, status: int = 200, **headers: str) -> Answer:
    return status, headers, body if isinstance(body, bytes) else json.dumps(body).encode()


@contextmanager
def answering(context: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server()
    if context is not None:
        server.http.socket = context.wrap_socket(server.http.socket, server_side=True)
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()
        thread.join(30)
        server.http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    with answering() as found:
        yield found


Q = np.array([[1.0, 0.5]], np.float32)


def asked(store: Any, text: str | None = None, where: Any = None) -> Any:
    return store.candidates([Asked(Q[0], None, text)], 3, where)


FAULTS: list[tuple[Callable[[int], Answer | None], str]] = [
    (lambda n: told(b"", 302, location="http://elsewhere/"), "302: it names another address"),
    (lambda n: told({"error": "no", "status": 401}, 401), "401: no"),
    (
        lambda n: told({"error": {"type": "x", "reason": "no such index"}, "status": 404}, 404),
        "no such index",
    ),
    (lambda n: told(b"<html>", 500), "500: the answer is not JSON"),
    (lambda n: told(b"[]"), "not a JSON object"),
    (lambda n: told(b'{"responses": ['), "the answer is not JSON"),
    (lambda n: told({}), "not an answer to 1 searches"),
    (lambda n: told({"responses": [found()] * (n + 1)}), "not an answer to 1 searches"),
    (lambda n: told({"responses": [{}]}), "not an answer to a search"),
    (lambda n: told({"responses": [None]}), "not an answer to a search"),
    (lambda n: told({"responses": [found({"_score": 1.0})]}), "not an answer to a search"),
    (lambda n: told({"responses": [found(timed_out=True)]}), "not all of the index"),
    (lambda n: told({"responses": [found(_shards={"failed": 1})]}), "not all of the index"),
    (lambda n: told({"responses": [{"error": {"reason": "queue is full"}, "status": 429}]}), "queue is full"),
    (lambda n: told({"responses": [refusal("x", "shards say no")]}), "shards say no"),
    (lambda n: (200, {"content-length": "100"}, b"{"), "timed out|no answer"),
    (lambda n: None, "Connection aborted|Remote end closed"),
]


@pytest.mark.parametrize("fault", range(len(FAULTS)))
def test_what_is_no_whole_answer_is_a_store_that_is_away(server: Server, fault: int) -> None:
    server.answer, text = FAULTS[fault]
    store = server.store()
    with pytest.raises(StoreAway, match=text) as error:
        asked(store)
    assert "s3cret" not in str(error.value)
    store.close()


@pytest.mark.parametrize(
    ("kind", "where", "text", "wanted"),
    [
        ("number_format_exception", {"term": {"price": "much"}}, None, BadFilter),
        ("too_many_clauses", {"term": {"a": 1}}, "words", BadText),
        ("illegal_argument_exception", None, None, StoreAway),
    ],
)
def test_a_refusal_is_of_what_the_request_says(
    server: Server, kind: str, where: Any, text: str | None, wanted: type[Exception]
) -> None:
    server.answer = lambda n: told({"responses": [refusal(kind, "the cause")] * n})
    store = server.store(text="title")
    with pytest.raises(wanted, match="the cause") as error:
        asked(store, text, where)
    assert type(error.value) is wanted
    store.close()


def test_vectors_of_another_length_are_refused_as_such(server: Server) -> None:
    server.answer = lambda n: told({"responses": [refusal("illegal_argument_exception", "invalid")] * n})
    store = server.store()
    with pytest.raises(BadVectors, match="3 numbers; docs has 2"):
        store.candidates([Asked(np.ones(3, np.float32))], 3, {"term": {"a": 1}})
    store.close()


@pytest.mark.parametrize("beginning", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n"])
def test_a_server_that_is_silent_or_sends_a_little_at_a_time_is_given_up(
    server: Server, beginning: bytes
) -> None:
    given_up = threading.Event()

    def slowly(send: Callable[[bytes], Any]) -> None:
        send(beginning)
        while not given_up.wait(0.02):
            send(b" " if beginning else b"")

    server.slowly = slowly
    store = server.store(seconds=0.5)
    began = time.monotonic()
    with pytest.raises(StoreAway, match=r"timed out|no answer"):
        asked(store)
    # A loaded machine may take longer to notice; the server never answers.
    assert time.monotonic() - began < 30
    given_up.set()
    store.close()


def test_a_connection_that_the_server_has_ended_is_replaced_unseen(server: Server) -> None:
    store = server.store()
    ends = iter([told({"responses": [found()]}), None, told({"responses": [found()]})])
    server.answer = lambda n: next(ends)
    for _ in range(2):
        assert asked(store).found[0].ids == []
    assert len(server.asked) == 3
    store.close()


def test_numbers_come_from_one_value_and_what_is_none_is_missing(server: Server) -> None:
    fields = [{"shop.price": [2.5]}, {"shop.price": [1, 2]}, {}, {"shop.price": ["NaN"]}]
    hits = [
        {"_id": str(n), "fields": one, "_source": {"shop": {"name": "a"}}} for n, one in enumerate(fields)
    ]

    def answer(n: int) -> Answer:
        if len(server.asked) == 1:
            return told({"responses": [found(*({"_id": str(n)} for n in range(4)))] * n})
        scores = found({"_id": "0", "_score": 0.75}, {"_id": "1", "_score": None})
        words = found({"_id": "3", "_score": 2.0})
        return told({"responses": [found(*hits), scores, words]})

    server.answer = answer
    store = server.store(text="title", signals=("shop.price",), columns=("shop.name",))
    assert store.check() == 2
    (one,) = asked(store, "a").found
    np.testing.assert_array_equal(one.signals["similarity"], [0.5, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(one.signals["shop.price"], [2.5, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(one.signals["text"], [0, 0, 0, 2.0])
    assert one.fields == [{"shop.name": "a"}] * 4 and "adapted" not in one.signals
    store.close()


def test_the_login_is_sent_and_a_text_is_a_value_within_the_body(server: Server) -> None:
    store = server.store(text="title", collection="a/../b")
    server.mapping = {"x": {"mappings": {"properties": FIELDS}}}
    store.check()
    text = '"}}}\n{"match_all": {}} OR *:*'
    asked(store, text, {"bool": {"must_not": {"term": {"title.exact": "x"}}}})
    assert server.logins == {"Basic " + base64.b64encode(b"me:s3cret!").decode()}
    ((path, lines),) = server.asked
    assert path == "/a%2F..%2Fb/_msearch" and len(lines) == 4
    assert lines[3]["query"]["bool"]["must"] == {"match": {"title": {"query": text}}}
    store.close()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"options": {"vector": "title"}}, "of the type text, not knn_vector"),
        ({"options": {"vector": "no"}}, "of the type None, not knn_vector"),
        ({"distance": "inner-product"}, "compares by cosinesimil"),
        ({"text": "body"}, "has no text body"),
        ({"signals": ("title",)}, "has no numbers title"),
        ({"signals": ("shop",)}, "has no numbers shop"),
        ({"signals": ("image",)}, "compares by innerproduct, and the settings say distance = 'cosine'"),
    ],
)
def test_a_check_says_what_the_index_does_not_have(server: Server, change: dict[str, Any], text: str) -> None:
    store: Store = server.store(**change)
    with pytest.raises(StoreAway, match=text):
        store.check()
    store.close()


def test_a_check_of_what_is_no_mapping_is_a_store_that_is_away(server: Server) -> None:
    mappings: list[Any] = [
        {},
        {"docs": 5},
        {"docs": {}},
        {"docs": {"mappings": {"properties": {"embedding": 1}}}},
    ]
    for mapping in mappings:
        server.mapping = mapping
        with pytest.raises(StoreAway):
            server.store().check()


@pytest.mark.parametrize(
    "connection", ["", "db:9200", "ftp://db", "http://", "http://db:port", "http://db?x=s3cret"]
)
def test_what_is_no_server_is_refused_without_its_password(connection: str) -> None:
    with pytest.raises(SettingsError) as error:
        kinds.create("opensearch", Place(connection, "docs", "cosine"))
    assert "s3cret" not in str(error.value)


def test_a_certificate_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    authority = Authority(tmp_path / "authority")
    signed = authority.sign("server", "IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(signed.certificate, signed.key)
    with answering(context) as server:
        place = {"connection": f"https://me:s3cret@127.0.0.1:{server.port}"}
        with pytest.raises(StoreAway, match="certificate"):
            server.store(**place).check()
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
        assert server.store(**place).check() == 2


@pytest.mark.parametrize(
    "where",
    [
        {"term": {"lang": "en"}},
        {"terms": {"lang": ["en", "de"]}},
        {"bool": {"must": [{"range": {"year": {"gte": 2020}}}], "must_not": {"exists": {"field": "x"}}}},
        {"nested": {"path": "a", "query": {"term": {"a.b": 1}}}},
    ],
)
def test_filters_are_queries_that_look_at_an_item(where: Any) -> None:
    assert filter_of(where) == where


@pytest.mark.parametrize(
    "where",
    [
        {},
        [],
        {"lang": "en"},
        {"term": {"lang": "en"}, "ids": {}},
        {"script": {"script": "while (true) {}"}},
        {"bool": {"filter": [{"script_score": {}}]}},
        {"bool": {"should": {"bool": {"must": {"percolate": {}}}}}},
        {"terms": {"user": {"index": "secrets", "id": "1", "path": "user"}}},
        {"nested": {"path": "a"}},
        {"term": "lang"},
        {"query_string": {"query": "*:*"}},
    ],
)
def test_scripts_other_indexes_and_what_is_no_query_are_refused(where: Any) -> None:
    with pytest.raises(BadFilter):
        filter_of(where)


def test_a_filter_that_is_too_deep_is_refused() -> None:
    where: Any = {"term": {"a": 1}}
    for _ in range(50):
        where = {"bool": {"filter": where}}
    with pytest.raises(BadFilter):
        filter_of(where)
