"""Clients that are idle, slow, greedy or wrong: each is answered or closed, and the probes answer all the while."""

from __future__ import annotations

import asyncio
import contextlib
import json
import select
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import httpx
import numpy as np
import pytest

from kinstream.search.service import connections
from tests.search.index_service import Agent, items, running, served
from tests.support import processes
from tests.support.virtual_time import VirtualTime

SECONDS = 60.0
until = partial(processes.until, seconds=SECONDS)
HEADERS = b"POST /search HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
QUESTION = b'{"vectors": [1, 0], "k": 1}'
ASK = HEADERS + b"Content-Length: %d\r\n\r\n" % len(QUESTION) + QUESTION
#: Nothing is closed by these in a test that is not about them.
PATIENT: dict[str, Any] = {"request_seconds": 600.0}


@contextmanager
def serving(idle_seconds: int = 600, **limits: Any) -> Iterator[tuple[str, int]]:
    """The address of an agent with an item."""
    with (
        mock.patch.multiple(connections, IDLE_SECONDS=idle_seconds),
        running(spaces={"shop": {"learner": "opml"}}, threads=2, **(PATIENT | limits)) as agent,
    ):
        agent.events.append(items("shop", ["a", "b"], np.eye(2)))
        with served(agent) as url:
            host, port = url.removeprefix("http://").split(":")
            yield host, int(port)


@contextmanager
def clients(address: tuple[str, int], number: int, sent: bytes = b"") -> Iterator[list[socket.socket]]:
    """Connections that send this and no more."""
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(number):
            client = stack.enter_context(socket.create_connection(address, timeout=SECONDS))
            with contextlib.suppress(ConnectionError):
                client.sendall(sent)
            found.append(client)
        yield found


def get(address: tuple[str, int], path: str) -> httpx.Response:
    return httpx.get(f"http://{address[0]}:{address[1]}{path}", timeout=SECONDS)


def ask(address: tuple[str, int]) -> httpx.Response:
    url = f"http://{address[0]}:{address[1]}/search"
    return httpx.post(url, content=QUESTION, headers={"content-type": "application/json"}, timeout=SECONDS)


def value(address: tuple[str, int], series: str) -> float:
    lines = get(address, "/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith(f"{series} ")).rsplit(" ", 1)[1])


def one_answer(client: socket.socket) -> bytes:
    """The next answer, up to the end that its headers say."""
    found = b""
    while b"\r\n\r\n" not in found:
        part = client.recv(65_536)
        assert part, "closed without an answer"
        found += part
    head = found.partition(b"\r\n\r\n")[0].lower()
    size = int(head.partition(b"content-length:")[2].split()[0])
    while len(found) < len(head) + 4 + size:
        found += client.recv(65_536)
    return found


def everything(client: socket.socket) -> bytes:
    """All that comes until the server closes, in order and not by a reset."""
    client.settimeout(SECONDS)
    return b"".join(iter(lambda: client.recv(65_536), b""))


def answer(data: bytes) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Status, headers and JSON of the first answer."""
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
    return int(first.split()[1]), headers, json.loads(body[: int(headers["content-length"])])


def told(data: bytes, status: int, reason: str) -> None:
    found, headers, body = answer(data)
    assert (found, body["reason"], body["place"]) == (status, reason, None)
    assert headers["content-type"] == "application/json" and body["detail"]


# ---- many -------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ", b"GET /heal"])
def test_probes_and_questions_are_answered_beside_clients_that_send_nothing(sent: bytes) -> None:
    with serving(max_concurrent=12) as address, clients(address, 300, sent):
        for path in ("/healthz", "/readyz", "/metrics"):
            assert get(address, path).status_code == 200
        assert ask(address).status_code == 200
        assert value(address, "kinstream_serve_connections") <= 96
        assert value(address, 'kinstream_serve_connections_closed_total{reason="evicted"}') >= 200


def test_the_limit_of_the_default_is_above_what_took_the_agent_down() -> None:
    with serving() as address, clients(address, 300):
        assert get(address, "/healthz").status_code == 200
        assert ask(address).status_code == 200
        assert value(address, 'kinstream_serve_connections_closed_total{reason="evicted"}') == 0


def test_a_connection_that_is_in_use_is_not_the_one_to_go() -> None:
    with serving(max_concurrent=2) as address:
        with httpx.Client(base_url=f"http://{address[0]}:{address[1]}", timeout=SECONDS) as client:
            for _ in range(4):
                with clients(address, 12):
                    assert client.get("/spaces").status_code == 200
        until(lambda: value(address, "kinstream_serve_connections") <= 2, "all are gone")


def test_bodies_that_do_not_come_leave_places_for_questions() -> None:
    """More of them than `max_concurrent`, and fewer than connections."""
    body = HEADERS + b"Content-Length: 100\r\n\r\n{"
    with serving(max_concurrent=4) as address, clients(address, 25, body):
        assert ask(address).status_code == 200
        assert get(address, "/readyz").status_code == 200


def test_where_all_connections_are_busy_questions_are_told_to_come_again_and_probes_are_answered() -> None:
    body = HEADERS + b"Content-Length: 100\r\n\r\n{"
    with serving(max_concurrent=6) as address, clients(address, 300, body):
        until(lambda: ask(address).status_code == 503, "it is full")
        refused = ask(address)
        assert refused.headers["retry-after"] == "1" and refused.headers["connection"] == "close"
        assert (
            refused.json()["reason"] == "busy"
            and "48, eight times serve.max_concurrent" in refused.json()["detail"]
        )
        for path in ("/healthz", "/readyz", "/metrics"):
            assert get(address, path).status_code == 200
        assert value(address, "kinstream_serve_connections") <= 110


def test_bytes_of_bodies_are_bounded_together() -> None:
    part = HEADERS + b"Content-Length: 2000\r\n\r\n" + b" " * 1_500
    with serving(max_concurrent=2, max_body_bytes=2_048) as address, clients(address, 10, part) as some:
        waiting, refused = list(some), []

        def eight() -> bool:
            for client in select.select(waiting, [], [], 0.05)[0]:
                waiting.remove(client)
                refused.append(answer(one_answer(client))[0])
            return len(refused) >= 8

        until(eight, "all but two are refused")
        assert set(refused) == {503} and len(waiting) == 2, "two have room"
        for client in waiting:
            client.sendall(b" " * 500)
            told(one_answer(client), 400, "not-json")


# ---- slow -------------------------------------------------------------------------------------------------------


def test_a_client_that_sends_nothing_is_closed_and_one_that_begins_is_told() -> None:
    with serving(request_seconds=0.3) as address, clients(address, 3) as (silent, slow, slower):
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
        slower.sendall(b"GE")
        assert everything(silent) == b""
        told(everything(slow), 408, "too-slow")
        told(everything(slower), 408, "too-slow")
        until(
            lambda: value(address, 'kinstream_serve_connections_closed_total{reason="slow"}') == 3, "counted"
        )


def test_a_trickle_of_headers_does_not_put_the_end_off() -> None:
    with serving(request_seconds=0.5) as address, clients(address, 1) as (client,):
        client.sendall(b"GET /healthz HTTP/1.1\r\n")
        limit, found = time.monotonic() + SECONDS, b""
        client.settimeout(0.05)
        while not found:
            assert time.monotonic() < limit, "it is held for ever"
            with contextlib.suppress(TimeoutError):
                client.sendall(b"X: 1\r\n")
                found = one_answer(client)
        told(found, 408, "too-slow")


def test_an_answered_connection_may_rest_for_a_while_and_begin_again() -> None:
    with serving(idle_seconds=1, request_seconds=0.5) as address, clients(address, 2) as (one, two):
        for client in (one, two):
            client.sendall(ASK)
            assert one_answer(client).startswith(b"HTTP/1.1 200")
        two.sendall(b"POST /sea")
        assert everything(one) == b""
        told(everything(two), 408, "too-slow")


def test_the_head_of_an_answer_comes_with_its_body() -> None:
    with serving() as address, clients(address, 1) as (client,):
        for _ in range(50):
            client.sendall(ASK)
            head, _, body = client.recv(65_536).partition(b"\r\n\r\n")
            assert b"content-length: %d" % len(body) in head.lower().split(b"\r\n")


def test_a_client_that_does_not_read_its_answers_is_closed() -> None:
    with serving(idle_seconds=1) as address, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.settimeout(SECONDS)
        client.connect(address)
        limit = time.monotonic() + SECONDS
        with pytest.raises(ConnectionError):
            while time.monotonic() < limit:
                client.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
        stalled = 'kinstream_serve_connections_closed_total{reason="stalled"}'
        until(lambda: value(address, stalled) == 1, "counted")


# ---- large ------------------------------------------------------------------------------------------------------

LARGE = 10_000_000
BODIES = {
    "length": b"Content-Length: %d\r\n\r\n" % LARGE + b" " * LARGE,
    "length, and the connection ends": b"Connection: close\r\nContent-Length: %d\r\n\r\n" % LARGE
    + b" " * LARGE,
    "chunks": b"Transfer-Encoding: chunked\r\n\r\n"
    + (b"f4240\r\n" + b" " * 1_000_000 + b"\r\n") * 10
    + b"0\r\n\r\n",
    "chunks, and the connection ends": b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    + (b"f4240\r\n" + b" " * 1_000_000 + b"\r\n") * 10
    + b"0\r\n\r\n",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_body_that_is_sent_whole_before_the_answer_is_read_gets_the_answer(body: bytes) -> None:
    with serving() as address, clients(address, 1) as (client,):
        client.sendall(HEADERS + body)
        told(one_answer(client), 413, "too-large")
        if b"Connection: close" in body:
            assert everything(client) == b""
        else:
            # The connection is as good as before.
            client.sendall(ASK)
            assert one_answer(client).startswith(b"HTTP/1.1 200")


def test_chunks_without_end_are_told_and_closed() -> None:
    with serving(request_seconds=0.5, max_body_bytes=10_000) as address, clients(address, 1) as (client,):
        client.sendall(HEADERS + b"Transfer-Encoding: chunked\r\n\r\n")
        limit = time.monotonic() + SECONDS
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < limit:
                client.sendall(b"400\r\n" + b" " * 1_024 + b"\r\n")
                time.sleep(0.001)
        assert time.monotonic() < limit, "it is read for ever"


def test_headers_that_are_too_large_are_told_although_all_was_sent() -> None:
    for line in (
        b"GET /" + b"x" * 500_000,
        b"GET / HTTP/1.1\r\nX: " + b"x" * 500_000,
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 50_000,
    ):
        with serving() as address, clients(address, 1) as (client,):
            client.sendall(line)
            told(everything(client), 431, "too-large")
            assert get(address, "/healthz").status_code == 200


# ---- wrong ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\r\n" * 20,
        b"HELO\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
        HEADERS + b"Transfer-Encoding: chunked\r\n\r\nno size\r\n",
    ],
)
def test_what_is_no_http_is_told_in_the_one_form_and_closed(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with serving() as address, clients(address, 1) as (client,):
        client.sendall(sent)
        status, headers, body = answer(everything(client))
        assert status in (400, 501, 505) and body["reason"] == "invalid" and body["detail"]
        assert headers["content-type"] == "application/json"
        assert ask(address).status_code == 200
    assert "Traceback" not in caplog.text


def test_requests_that_are_sent_at_once_are_answered_in_their_order() -> None:
    ways = [ASK, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"]
    with serving(request_seconds=0.5, idle_seconds=1) as address, clients(address, 1) as (client,):
        client.sendall(b"".join(ways) * 50)
        found = everything(client)
    statuses = [
        int(part.split()[1])
        for part in found.replace(b"HTTP/1.1 ", b"\nHTTP/1.1 ").split(b"\n")
        if part.startswith(b"HTTP/1.1 ")
    ]
    assert statuses == [200, 200, 404] * 50


SMUGGLED = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"


#: Headers that say where the body ends, for some readers behind `SMUGGLED` and for others before it.
TWO_LENGTHS = [
    b"Content-Length: %d\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nContent-Length: %d",
    b"Content-Length: %d\r\nTransfer-Encoding: chunked, identity",
    b"Content-Length: %d\r\nTransfer-Encoding : chunked",
    b"Content-Length: %d\r\nTransfer-Encoding:\x0bchunked",
    b"Content-Length: 0\r\nContent-Length: %d",
    b"Content-Length: +%d",
    b"Content-Length: %d, 0",
    b"X: y\nContent-Length: %d",
    b"Content-Length: %d\r\n Content-Length: 0",
]


def test_a_request_within_the_body_of_another_is_never_answered() -> None:
    with serving() as address:
        for lengths in TWO_LENGTHS:
            head = HEADERS + lengths % (5 + len(SMUGGLED)) + b"\r\nConnection: close\r\n\r\n"
            with clients(address, 1, head + b"0\r\n\r\n" + SMUGGLED) as (client,):
                found = everything(client)
            assert found.count(b"HTTP/1.1 ") == 1 and b"openapi" not in found, lengths
            assert 400 <= int(found.split()[1]) < 600, lengths


def test_an_upgrade_is_a_request_like_any_other() -> None:
    upgrade = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    with serving() as address, clients(address, 1, upgrade) as (client,):
        assert one_answer(client).startswith(b"HTTP/1.1 200")


def test_a_server_with_clients_that_hang_on_ends() -> None:
    agent = Agent(spaces={"shop": {"learner": "opml"}}, **PATIENT)
    agent.service.start()
    try:
        with contextlib.ExitStack() as stack:
            with served(agent) as url:
                host, port = url.removeprefix("http://").split(":")
                address = host, int(port)
                silent = stack.enter_context(clients(address, 20))
                stack.enter_context(clients(address, 20, b"GET /h"))
                stack.enter_context(clients(address, 5, b"no http\r\n\r\n"))
                assert get(address, "/healthz").status_code == 200
            assert everything(silent[0]) == b""
    finally:
        agent.service.stop()


def test_without_requests_the_server_wakes_once_a_second_and_a_signal_ends_it_at_once() -> None:
    from kinstream.search.service.process import web_server

    server = web_server(cast(Any, SimpleNamespace(state=SimpleNamespace(connections=None))), 1)
    server.config.encoded_headers = []
    loop = VirtualTime()

    async def run() -> tuple[int, float]:
        serving = asyncio.create_task(server.main_loop())
        await asyncio.sleep(59.5)
        wakes = loop.wakes
        server.handle_exit(signal.SIGTERM, None)
        await serving
        return wakes, loop.now

    assert loop.run_until_complete(run()) == (60, 59.5)
