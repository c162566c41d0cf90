"""A schema registry may answer anything: the record is refused, or waits; credentials go to no other address."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kinstream.producers.sources.schemas.registry import RegistryUnavailable
from kinstream.streams.agents.machine import Machine
from tests.sources.rows import rows_of_event
from tests.sources.shop import machine, message

ITEM = {
    "type": "record",
    "name": "shop.Item",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "vector", "type": {"type": "array", "items": "float"}},
    ],
}
BODY = b"\x02a" + b"\x02" + struct.pack("<f", 0.5) + b"\x00"
#: Path -> status, headers, body.
Answer = Callable[[str], tuple[int, dict[str, str], bytes]]


@contextmanager
def server(answer: Answer) -> Iterator[ThreadingHTTPServer]:
    """A server on this machine; `asked` holds path and Authorization of each request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append((self.path, self.headers.get("Authorization")))  # type: ignore[attr-defined]
            status, headers, body = answer(self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        found.asked = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield found
        finally:
            found.shutdown()
            thread.join()


def agent_of(registry: ThreadingHTTPServer, folder: Path) -> Machine:
    (folder / "password").write_text("secret\n")
    (folder / "password").chmod(0o600)
    return machine(
        {
            "topic": "shop.items",
            "kind": "items",
            "space": "shop",
            "format": "avro",
            "fields": {"id": "id", "vector": "vector"},
            "registry": f"http://127.0.0.1:{registry.server_port}",
            "registry_username": "kinstream",
            "registry_password_file": str(folder / "password"),
        }
    )


def framed(number: int) -> bytes:
    return struct.pack(">BI", 0, number) + BODY


def referring(references: Any) -> bytes:
    return json.dumps({"schema": json.dumps(ITEM), "references": references}).encode()


_ROUND = [{"name": "a.A", "subject": "round", "version": 1}]
REFUSED = {
    "no schema": b"{}",
    "a schema that is a number": b'{"schema": 5}',
    "a schema that is no text": b'{"schema": {"type": "string"}}',
    "a schema that is no JSON": b'{"schema": "record"}',
    "a schema without a type": b'{"schema": "{}"}',
    "our own form of references": json.dumps(
        {"schema": json.dumps({"references": [], "schema": "string"})}
    ).encode(),
    "a schema as deep as its text": json.dumps({"schema": "[" * 100_000}).encode(),
    "types as deep as a stack": json.dumps(
        {"schema": '{"type": "array", "items": ' * 300 + '"int"' + "}" * 300}
    ).encode(),
    "a size that is no number": b'{"schema": "{\\"type\\": \\"fixed\\", \\"name\\": \\"F\\", \\"size\\": \\"x\\"}"}',
    "a size below zero": b'{"schema": "{\\"type\\": \\"fixed\\", \\"name\\": \\"F\\", \\"size\\": -1}"}',
    "fields that are a number": b'{"schema": "{\\"type\\": \\"record\\", \\"name\\": \\"R\\", \\"fields\\": 5}"}',
    "another kind": b'{"schema": "{}", "schemaType": "JSON"}',
    "a kind that is a list": b'{"schema": "{}", "schemaType": []}',
    "references that are a number": referring(7),
    "references that are an object": referring({"name": "a.A"}),
    "a reference that is text": referring(["a.A"]),
    "a reference without a subject": referring([{"name": "a.A", "version": 1}]),
    "a reference without a version": referring([{"name": "a.A", "subject": "s"}]),
    "a version that is text": referring([{"name": "a.A", "subject": "s", "version": "newest"}]),
    "a version without end": b'{"schema": "{}", "references": [{"name": "a", "subject": "s", "version": 1e999}]}',
    "a subject that is half a character": referring([{"name": "a", "subject": "\ud800", "version": 1}]),
    "references in a circle": referring(_ROUND),
    "a text without end": b'{"schema": "' + b"a" * 4_100_000,
}
WAITS = {
    "a page of a proxy": b"<html>sign in</html>",
    "half of an answer": b'{"schema": "',
    "no answer": b"",
    "a list": b"[]",
    "lists in lists": b"[" * 100_000,
    "nothing": b"null",
    "bytes of another encoding": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=list(REFUSED))
def test_an_odd_answer_refuses_the_record_alone(body: bytes, tmp_path: Path) -> None:
    answers = {"/schemas/ids/5": body, "/subjects/round/versions/1": referring(_ROUND)}
    good = json.dumps({"schema": json.dumps(ITEM)}).encode()
    with server(lambda path: (200, {}, answers.get(path, good))) as registry:
        agent = agent_of(registry, tmp_path)
        agent.step(message(framed(5), 0))
        agent.step(message(framed(6), 1))
    assert agent.dead == {"unknown-schema": 1} and agent.counts["applied"] == 1


@pytest.mark.parametrize("body", WAITS.values(), ids=list(WAITS))
def test_what_is_no_answer_of_a_registry_lets_the_record_wait(body: bytes, tmp_path: Path) -> None:
    with server(lambda path: (200, {}, body)) as registry:
        agent = agent_of(registry, tmp_path)
        with pytest.raises(RegistryUnavailable):
            agent.step(message(framed(5)))
    assert agent.next_offset == 0 and not agent.dead


def test_an_answer_that_is_no_http_lets_the_record_wait(tmp_path: Path) -> None:
    with server(lambda path: (200, {"Content-Length": "99"}, b"{}")) as registry:
        agent = agent_of(registry, tmp_path)
        with pytest.raises(RegistryUnavailable, match="does not answer"):
            agent.step(message(framed(5)))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_credentials_follow_no_redirect(status: int, tmp_path: Path) -> None:
    good = json.dumps({"schema": json.dumps(ITEM)}).encode()
    with server(lambda path: (200, {}, good)) as elsewhere:
        there = f"http://localhost:{elsewhere.server_port}/schemas/ids/5"
        with server(lambda path: (status, {"Location": there}, b"")) as registry:
            agent = agent_of(registry, tmp_path)
            with pytest.raises(RegistryUnavailable, match="redirects are not followed"):
                agent.step(message(framed(5)))
        assert elsewhere.asked == []  # type: ignore[attr-defined]


def test_the_id_of_a_schema_may_be_in_a_header(tmp_path: Path) -> None:
    guid = UUID("0197a0c4-6b1e-7f1e-8a51-3d1c4a2b9c01")
    good = json.dumps({"schema": json.dumps(ITEM)}).encode()
    with server(lambda path: (200, {}, good)) as registry:
        agent = agent_of(registry, tmp_path)
        for offset, header in enumerate((b"\x00\x00\x00\x00\x07", b"\x01" + guid.bytes, b"\x02", None)):
            agent.step(message(BODY, offset)._replace(headers=(("__value_schema_id", header),)))
        agent.step(message(framed(9), 4))
        asked = [path for path, _ in registry.asked]  # type: ignore[attr-defined]
    assert asked == ["/schemas/ids/7", f"/schemas/guids/{guid}", "/schemas/ids/9"]
    assert agent.counts["applied"] == 3 and agent.dead == {"undecodable": 2}
    assert rows_of_event(agent.flush()[0].value)[0] == ("a", [0.5])


def test_json_may_be_behind_the_id_of_its_schema() -> None:
    agent = machine(
        {"topic": "t", "kind": "items", "space": "shop", "fields": {"id": "@key", "vector": "vector"}}
    )
    frame = struct.pack(">BI", 0, 12)
    agent.step(message(frame + b'{"vector": [0.5]}', 0, key=frame + b'"sku-1"'))
    agent.step(message(b'{"vector": [0.25]}', 1, key=b"sku-2"))
    (made,) = agent.flush()
    assert rows_of_event(made.value) == [("sku-1", [0.5]), ("sku-2", [0.25])]
    agent.step(message(frame, 2, key=b"sku-1"))
    assert agent.dead == {"undecodable": 1}
