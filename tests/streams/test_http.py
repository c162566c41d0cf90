"""The probes and the metrics page answer whatever the event loop and the clients do."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kinstream.streams.errors import SettingsError
from kinstream.streams.worker.page import server as server_module
from kinstream.streams.worker.page.server import Check, Health, HttpServer, worker_health
from tests.support import processes

until = partial(processes.until, seconds=60.0)


class Page(Collector):
    """One gauge, or an error."""

    def __init__(self) -> None:
        self.broken = False

    def describe(self) -> list[Any]:
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        if self.broken:
            raise RuntimeError("secret-path")
        yield GaugeMetricFamily("kinstream_test", "A test.", value=1)


@pytest.fixture
def page() -> Page:
    return Page()


@pytest.fixture
def values() -> dict[str, Any]:
    return {"loop": 0.1, "assigned": True, "restored": True, "poll": 0.5, "checkpoint": 3.0, "left": 0}


@pytest.fixture
def server(page: Page, values: dict[str, Any]) -> Iterator[HttpServer]:
    registry = CollectorRegistry()
    registry.register(page)
    health = worker_health(
        loop_age=lambda: values["loop"],
        assigned=lambda: values["assigned"],
        restored=lambda: values["restored"],
        poll_age=lambda: values["poll"],
        checkpoint_age=lambda: values["checkpoint"],
        catching_up=lambda: values["left"],
        loop_limit_seconds=10,
        poll_limit_seconds=20,
        checkpoint_limit_seconds=30,
    )
    with HttpServer(health, registry) as running:
        yield running


def ask(server: HttpServer, path: str, method: str = "GET", **more: Any) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=10)
    try:
        connection.request(method, path, **more)
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def raw(server: HttpServer, data: bytes) -> bytes:
    with socket.create_connection((server.host, server.port), timeout=10) as connection:
        connection.sendall(data)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_a_worker_that_works_is_alive_and_ready(server: HttpServer) -> None:
    status, headers, body = ask(server, "/readyz")
    assert status == 200
    assert headers["content-type"].startswith("application/json")
    answer = json.loads(body)
    assert answer["status"] == "ok"
    assert {"name": "last_poll_age_seconds", "ok": True, "value": 0.5, "limit": 20} in answer["checks"]
    assert {"name": "assigned", "ok": True, "value": True, "limit": True} in answer["checks"]
    assert ask(server, "/healthz")[0] == 200


@pytest.mark.parametrize(
    ("name", "value", "alive"),
    [
        ("assigned", False, True),
        ("restored", False, True),
        ("poll", 21.0, True),
        ("poll", None, True),
        ("checkpoint", 31.0, True),
        ("checkpoint", float("nan"), True),
        ("loop", 11.0, False),
    ],
)
def test_each_fault_makes_it_unready_and_only_a_stuck_loop_dead(
    server: HttpServer, values: dict[str, Any], name: str, value: Any, alive: bool
) -> None:
    values[name] = value
    status, _, body = ask(server, "/readyz")
    assert status == 503
    failing = [check["name"] for check in json.loads(body)["checks"] if not check["ok"]]
    assert len(failing) == 1
    assert name in failing[0]
    assert ask(server, "/healthz")[0] == (200 if alive else 503)


def test_a_value_at_its_limit_holds(server: HttpServer, values: dict[str, Any]) -> None:
    values["poll"] = 20
    assert ask(server, "/readyz")[0] == 200


def test_a_check_that_raises_fails_without_telling_why() -> None:
    def broken() -> bool:
        raise RuntimeError("secret-path")

    ok, answer = Health(ready=[Check("broken", broken)]).ready()
    assert not ok
    assert answer["checks"] == [{"name": "broken", "ok": False, "value": None, "limit": True}]


def test_a_check_that_does_not_hold_says_what_to_do() -> None:
    values = iter((0, 2))
    health = Health(ready=[Check("partitions", lambda: next(values), 0, lambda: "take them into use")])
    assert health.ready() == (
        True,
        {"status": "ok", "checks": [{"name": "partitions", "ok": True, "value": 0, "limit": 0}]},
    )
    assert health.ready()[1]["checks"] == [
        {"name": "partitions", "ok": False, "value": 2, "limit": 0, "message": "take them into use"}
    ]


def test_the_metrics_are_served_in_the_format_that_was_asked_for(server: HttpServer) -> None:
    status, headers, body = ask(server, "/metrics")
    assert (status, b"kinstream_test 1.0" in body) == (200, True)
    assert headers["content-type"].startswith("text/plain; version=")
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    _, headers, body = ask(server, "/metrics?debug=1", headers=accept)
    assert headers["content-type"].startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_head_has_the_headers_of_get_and_no_body(server: HttpServer) -> None:
    for path in ("/healthz", "/readyz", "/metrics", "/nothing"):
        status, headers, body = ask(server, path)
        without = ask(server, path, "HEAD")
        assert (without[0], without[1]["content-length"], without[2]) == (status, str(len(body)), b"")
        assert headers["content-length"] == str(len(body))


@pytest.mark.parametrize("path", ["/", "/metrics/", "/../etc/passwd", "/%2e%2e/", "/healthz/x"])
def test_there_is_nothing_else(server: HttpServer, path: str) -> None:
    status, _, body = ask(server, path)
    assert status == 404
    assert path.encode() not in body or path == "/"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_other_methods_are_refused(server: HttpServer, method: str) -> None:
    status, headers, _ = ask(server, "/metrics", method)
    assert (status, headers["allow"]) == (405, "GET, HEAD")


def test_a_body_is_refused_unread(server: HttpServer) -> None:
    for header in (b"Content-Length: 99999999", b"Transfer-Encoding: chunked"):
        assert raw(server, b"GET /healthz HTTP/1.1\r\n" + header + b"\r\n\r\n").split()[1] == b"413"


def test_what_is_no_http_ends_with_a_short_answer(server: HttpServer) -> None:
    long_line = raw(server, b"GET /" + b"a" * 65_535 + b" HTTP/1.0\r\n\r\n")
    assert long_line.split(b"\r\n")[0].split()[1] == b"414"
    many = b"".join(b"X-%d: 1\r\n" % number for number in range(200))
    assert raw(server, b"GET /healthz HTTP/1.0\r\n" + many + b"\r\n").split()[1] == b"431"
    for noise in (b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET\r\n\r\n", b"A B C D E\r\n\r\n", b"\r\n"):
        assert b"Traceback" not in raw(server, noise)
    assert ask(server, "/healthz")[0] == 200


def test_an_error_of_ours_reaches_the_log_and_not_the_client(
    server: HttpServer, page: Page, caplog: pytest.LogCaptureFixture
) -> None:
    page.broken = True
    status, headers, body = ask(server, "/metrics")
    assert status == 500
    assert b"secret-path" not in body
    assert b"Traceback" not in body
    assert "Python" not in headers["server"]
    assert "secret-path" in caplog.text
    page.broken = False
    assert ask(server, "/metrics")[0] == 200


def test_it_answers_while_the_event_loop_is_stuck(server: HttpServer) -> None:
    answered = threading.Event()

    def probe() -> None:
        if ask(server, "/healthz")[0] == 200:
            answered.set()

    async def stuck() -> None:
        thread = threading.Thread(target=probe)
        thread.start()
        assert answered.wait(10)  # blocks the loop itself
        thread.join()

    asyncio.run(stuck())


@pytest.mark.parametrize("sent", [b"", b"GET /he", b"GET /healthz HTTP/1.1\r\nX: "])
def test_it_answers_beside_clients_that_send_nothing(server: HttpServer, sent: bytes) -> None:
    """The one that has waited longest makes room, and there are no more threads than places."""
    before = threading.active_count()
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            client = stack.enter_context(socket.create_connection((server.host, server.port), timeout=10))
            with contextlib.suppress(ConnectionError):
                client.sendall(sent)
        for path in ("/healthz", "/readyz", "/metrics"):
            assert ask(server, path)[0] == 200
        until(lambda: threading.active_count() <= before + server_module.MAX_CONNECTIONS)
    until(lambda: threading.active_count() <= before)


def test_silent_clients_are_dropped(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.ExitStack() as stack:
        address = (server.host, server.port)
        silent = [stack.enter_context(socket.create_connection(address, timeout=10)) for _ in range(20)]
        monkeypatch.setattr(server_module, "CONNECTION_SECONDS", 0.0)
        for connection in silent:
            assert connection.recv(1) == b""


def refused(server: HttpServer) -> bool:
    try:
        return ask(server, "/healthz")[0] != 200
    except (OSError, http.client.HTTPException):
        return True


def test_where_every_connection_is_being_answered_one_more_is_closed(
    server: HttpServer, values: dict[str, Any]
) -> None:
    go = threading.Event()
    values["slow"] = go
    server._server.health = Health(live=[Check("slow", lambda: go.wait(10))])
    request = b"GET /healthz HTTP/1.0\r\n\r\n"
    with contextlib.ExitStack() as stack:
        address = (server.host, server.port)
        for _ in range(server_module.MAX_CONNECTIONS):
            client = stack.enter_context(socket.create_connection(address, timeout=10))
            client.sendall(request)
        most = server_module.MAX_CONNECTIONS
        until(lambda: len(server._server._open) == most and not server._server._waiting)
        assert refused(server)
        go.set()
        assert client.recv(100).startswith(b"HTTP/1.0 200")
    until(lambda: not refused(server))


@pytest.mark.parametrize(
    ("start", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 5000000\r\n\r\n", b"405"),
        (b"GET /metrics HTTP/1.1\r\nContent-Length: 5000000\r\n\r\n", b"413"),
        (b"GET /", b"414"),
        (b"GET /metrics HTTP/1.1\r\nX: ", b"431"),
    ],
)
def test_who_sends_all_before_reading_gets_the_answer(
    server: HttpServer, start: bytes, status: bytes
) -> None:
    assert raw(server, start + b"x" * 5_000_000).split()[1] == status


def test_a_slow_client_is_cut_off_and_leaves_no_thread(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "CONNECTION_SECONDS", 0.3)
    before = threading.active_count()
    with socket.create_connection((server.host, server.port), timeout=10) as connection:
        ended = False
        limit = time.monotonic() + 10
        while not ended and time.monotonic() < limit:
            try:
                connection.sendall(b"G")
                connection.settimeout(0.05)
                ended = connection.recv(1) == b""
            except TimeoutError:
                continue
            except OSError:
                ended = True
        assert ended
    until(lambda: threading.active_count() <= before)


def test_it_stops_cleanly_with_a_client_hanging_on() -> None:
    before = threading.active_count()
    running = HttpServer(Health(), CollectorRegistry())
    with socket.create_connection((running.host, running.port), timeout=10) as connection:
        until(lambda: threading.active_count() >= before + 2)
        began = time.monotonic()
        running.close()
        running.close()
        assert time.monotonic() - began < 3
        assert connection.recv(1) == b""
    until(lambda: threading.active_count() <= before)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((running.host, running.port), timeout=1)


def test_without_a_connection_nothing_wakes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float | None] = []

    class Selector(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> Any:
            waits.append(timeout)
            return super().select(timeout)

    used = SimpleNamespace(DefaultSelector=Selector, EVENT_READ=selectors.EVENT_READ)
    monkeypatch.setattr(server_module, "selectors", used)
    with HttpServer(Health(), CollectorRegistry()) as running:
        until(lambda: waits == [None])
        with socket.create_connection((running.host, running.port), timeout=10):
            until(lambda: len(waits) > 3)
            assert None not in waits[1:]
        until(lambda: waits[-1] is None)


def test_a_port_that_is_taken_is_a_settings_error(server: HttpServer) -> None:
    with pytest.raises(SettingsError, match=r"worker\.http_port"):
        HttpServer(Health(), CollectorRegistry(), port=server.port)


def test_it_listens_on_loopback_unless_told_otherwise(server: HttpServer) -> None:
    assert server.host == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.port}"
