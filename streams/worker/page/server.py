"""`/healthz`, `/readyz` and `/metrics` of a worker, on their own threads: a busy event loop does not delay them.

It is meant for probes and Prometheus inside a trusted network, and listens on loopback by default.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self, cast

from prometheus_client.registry import CollectorRegistry

from kinstream.streams.processes.listening import bound, cannot_listen
from kinstream.streams.worker.page.metrics_text import RenderedMetrics

log = logging.getLogger("kinstream.http")

#: Connections at the same time. One more closes the connection that has waited longest for its request.
MAX_CONNECTIONS: Final = 64
#: Longest wait for a client to send or take something, and longest life of a connection.
IDLE_SECONDS: Final = 5.0
CONNECTION_SECONDS: Final = 30.0
#: Bytes of a request line, and of all headers together.
MAX_LINE_BYTES: Final = 4_096
MAX_HEADER_BYTES: Final = 16_384
#: Bytes that a client may still send after an early answer, so that it can read the answer.
_LINGER_SECONDS: Final = 1.0
_LINGER_BYTES: Final = 16 * 2**20
#: Seconds between two looks for connections that are too old, while one is open.
_SWEEP_SECONDS: Final = 0.2
#: Answers to requests that may not be fully read.
_UNREAD: Final = frozenset({400, 405, 413, 414, 431, 505})
_JSON: Final = "application/json; charset=utf-8"

Value = bool | int | float | None


@dataclass(frozen=True, slots=True)
class Check:
    """One condition that must hold.

    Parameters
    ----------
    value : reads it now, from any thread and without blocking. None means that it never happened, and fails.
    limit : True: the value must be true; a number: the value must not be above it.
    message : what to do if it does not hold; None if the name is enough.
    """

    name: str
    value: Callable[[], Value]
    limit: float | bool = True
    message: Callable[[], str | None] = lambda: None

    def run(self) -> dict[str, Any]:
        """Name, value, limit, result, and what to do on failure. A check that raises fails and is logged."""
        try:
            value = self.value()
        except Exception:
            log.exception("health check %r failed to answer", self.name)
            value = None
        if isinstance(value, float) and not math.isfinite(value):
            value = None
        ok = value is not None and (bool(value) if self.limit is True else value <= self.limit)
        answer = {"name": self.name, "ok": ok, "value": value, "limit": self.limit}
        message = None if ok else self.message()
        return answer if message is None else {**answer, "message": message}


class Health:
    """The liveness and the readiness of the process.

    Parameters
    ----------
    live : conditions that a restart would repair; none that waits for a broker.
    ready : conditions that must hold before the worker counts as ready.
    about : the source of the answer: agent, generation, process.
    notes : what a person should know although the process is ready; left out of the answer if there is none.
    """

    def __init__(
        self,
        live: Iterable[Check] = (),
        ready: Iterable[Check] = (),
        about: Mapping[str, str | int | None] | None = None,
        notes: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._notes = notes
        self._live = tuple(live)
        self._ready = tuple(ready)
        self._about = dict(about or {})

    def live(self) -> tuple[bool, dict[str, Any]]:
        """Whether every check of `live` holds, and the answer as text."""
        return self._answer(self._live)

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Whether every check of `live` and `ready` holds, and the answer as text."""
        ok, body = self._answer((*self._live, *self._ready))
        notes = list(self._notes())
        return ok, body | {"notes": notes} if notes else body

    def _answer(self, checks: Iterable[Check]) -> tuple[bool, dict[str, Any]]:
        results = [check.run() for check in checks]
        ok = all(result["ok"] for result in results)
        return ok, {"status": _status(ok), **self._about, "checks": results}


class SharedHealth(Health):
    """The liveness and the readiness of a process with several agents: it is well if each of them is.

    Parameters
    ----------
    agents : the health of each.
    """

    def __init__(self, agents: Iterable[Health], about: Mapping[str, str | int | None]) -> None:
        super().__init__(about=about)
        self._agents = tuple(agents)

    def live(self) -> tuple[bool, dict[str, Any]]:
        return self._all([agent.live() for agent in self._agents])

    def ready(self) -> tuple[bool, dict[str, Any]]:
        return self._all([agent.ready() for agent in self._agents])

    def _all(self, answers: list[tuple[bool, dict[str, Any]]]) -> tuple[bool, dict[str, Any]]:
        ok = all(well for well, _ in answers)
        return ok, {"status": _status(ok), **self._about, "agents": [body for _, body in answers]}


def _status(ok: bool) -> str:
    return "ok" if ok else "failing"


def worker_health(
    *,
    loop_age: Callable[[], float | None],
    assigned: Callable[[], bool],
    restored: Callable[[], bool],
    poll_age: Callable[[], float | None],
    checkpoint_age: Callable[[], float | None],
    catching_up: Callable[[], int],
    loop_limit_seconds: float,
    poll_limit_seconds: float,
    checkpoint_limit_seconds: float,
    more: Iterable[Check] = (),
    about: Mapping[str, str | int | None] | None = None,
) -> Health:
    """The checks of a worker.

    Parameters
    ----------
    loop_age : seconds since the event loop last ran a heartbeat.
    assigned : the group has assigned partitions to this worker; a spare worker may have none.
    restored : the checkpoints of all of them are loaded.
    poll_age : seconds since the client last asked the broker for records.
    checkpoint_age : greatest age of a partition, as `kinstream_checkpoint_age_seconds`; 0 for a spare worker.
    catching_up : records to apply until everything is emitted again that a killed run may have emitted.
    more : other conditions before the worker is ready.
    """
    return Health(
        live=[Check("event_loop_age_seconds", loop_age, loop_limit_seconds)],
        ready=[
            Check("assigned", assigned),
            Check("restored", restored),
            Check("last_poll_age_seconds", poll_age, poll_limit_seconds),
            Check("last_checkpoint_age_seconds", checkpoint_age, checkpoint_limit_seconds),
            Check("catching_up_records", catching_up, 0, message=lambda: "catching up with its own outputs"),
            *more,
        ],
        about=about,
    )


class HttpServer:
    """Serves until closed. A context manager.

    Parameters
    ----------
    port : 0 for any free one; `port` holds the one in use.
    listener : a socket that is already bound to them.

    Raises
    ------
    CannotListen : it cannot listen on the address.
    """

    def __init__(
        self,
        health: Health,
        registry: CollectorRegistry,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        listener: socket.socket | None = None,
    ) -> None:
        own = listener or bound(host, port, "worker")
        try:
            self.metrics = RenderedMetrics(registry)
            self._server = _Server(own, health, self.metrics)
        except OSError as error:
            own.close()
            raise cannot_listen(host, port, "worker", error) from error
        self.host = host
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="kinstream-http", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Address without a path."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def close(self) -> None:
        """Stop listening and end the connections that are open. It may be called twice."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    #: The client of a connection beyond this tries again after a second or more.
    request_queue_size = 512

    def __init__(self, listener: socket.socket, health: Health, metrics: RenderedMetrics) -> None:
        self.health = health
        self.metrics = metrics
        #: When each connection was opened, the oldest first; and those whose request has not come yet.
        self._open: dict[socket.socket, float] = {}
        self._waiting: dict[socket.socket, None] = {}
        self._guard = threading.Lock()
        self._ending = False
        self._wakes, self._woken = socket.socketpair()
        self.address_family = listener.family
        address = listener.getsockname()
        # The base class does not bind it, because it would query the name server for this host; that can take seconds.
        super().__init__(address[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_address = address
        self.server_name, self.server_port = str(address[0]), int(address[1])
        self.server_activate()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        with self._guard:
            if len(self._open) >= MAX_CONNECTIONS:
                oldest = next(iter(self._waiting), None)
                if oldest is None:
                    return False
                # Its thread closes it, once it sees the end.
                self._forget(oldest)
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
            self._open[request] = time.monotonic()
            self._waiting[request] = None
        return True

    def answers(self, request: socket.socket) -> None:
        """The request of a connection has come."""
        with self._guard:
            self._waiting.pop(request, None)

    def lingers(self, request: socket.socket) -> None:
        """A connection is answered, and waits for its client's end."""
        with self._guard:
            if request in self._open:
                self._waiting[request] = None

    def _forget(self, request: socket.socket) -> None:
        self._open.pop(request, None)
        self._waiting.pop(request, None)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._forget(request)
        super().shutdown_request(request)

    def serve_forever(self, poll_interval: float = _SWEEP_SECONDS) -> None:
        """Serve until `shutdown`. The base class wakes at every interval, whether or not a connection is open."""
        with selectors.DefaultSelector() as selector:
            for one in (self, self._woken):
                selector.register(one, selectors.EVENT_READ)
            while not self._ending:
                found = selector.select(poll_interval if self._open else None)
                if any(key.fileobj is self for key, _ in found) and not self._ending:
                    cast(Any, self)._handle_request_noblock()
                self.service_actions()

    def shutdown(self) -> None:
        self._ending = True
        # It may be called twice.
        with contextlib.suppress(OSError):
            self._wakes.send(b"\0")

    def service_actions(self) -> None:
        self._end_connections(time.monotonic() - CONNECTION_SECONDS)

    def server_close(self) -> None:
        super().server_close()
        self._wakes.close()
        self._woken.close()
        self._end_connections(math.inf)

    def _end_connections(self, opened_before: float) -> None:
        with self._guard:
            for connection, opened in self._open.items():
                if opened <= opened_before:
                    try:
                        connection.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        # The client went away or was too slow; the handler answers errors of the routes.
        log.debug("connection of %s ended: %r", client_address, sys.exception())


class _Limited:
    """The input of a client, up to the limits. The base class would accept lines of 64 KiB, and 100 lines."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._left = MAX_HEADER_BYTES
        self._first = True

    def readline(self, limit: int) -> bytes:
        """A line; for a request line that is too long, one that the base class also refuses.

        Raises
        ------
        LineTooLong : the headers are too long together, which the base class answers.
        """
        most = MAX_LINE_BYTES if self._first else self._left
        line: bytes = self._stream.readline(most + 1)
        if len(line) > most:
            if self._first:
                return line.ljust(limit, b" ")
            raise LineTooLong("header")
        if not self._first:
            self._left -= len(line)
        self._first = False
        return line

    def close(self) -> None:
        self._stream.close()


class _Handler(BaseHTTPRequestHandler):
    timeout = IDLE_SECONDS
    protocol_version = "HTTP/1.0"

    def parse_request(self) -> bool:
        whole = super().parse_request()
        cast(_Server, self.server).answers(self.connection)
        return whole

    def setup(self) -> None:
        super().setup()
        self.rfile = cast(Any, _Limited(self.rfile))

    def version_string(self) -> str:
        return "kinstream"

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("%s %s", self.address_string(), format % args)

    def do_GET(self) -> None:
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self._send(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _JSON, _message("a request has no body here"))
            return
        server = cast(_Server, self.server)
        path = self.path.partition("?")[0]
        try:
            if path == "/metrics":
                answer = HTTPStatus.OK, *server.metrics.page(self.headers.get("Accept", ""))
            elif path in ("/healthz", "/readyz"):
                ok, body = server.health.live() if path == "/healthz" else server.health.ready()
                status = HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE
                answer = status, _JSON, json.dumps(body).encode()
            else:
                answer = HTTPStatus.NOT_FOUND, _JSON, _message("the paths are /healthz, /readyz and /metrics")
        except Exception:
            log.exception("%s could not be answered", path)
            answer = HTTPStatus.INTERNAL_SERVER_ERROR, _JSON, _message("see the log of the worker")
        self._send(*answer)

    def do_HEAD(self) -> None:
        self.do_GET()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        # The base class calls this for unreadable requests and for unsupported methods.
        if code == HTTPStatus.NOT_IMPLEMENTED:
            code, message = HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD"
        self._send(HTTPStatus(code), _JSON, _message(message or HTTPStatus(code).phrase))

    def _send(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        if status in _UNREAD:
            self._linger()

    def _linger(self) -> None:
        """Discard further input: closing a socket with unread input would discard the answer too."""
        cast(_Server, self.server).lingers(self.connection)
        until, left = time.monotonic() + _LINGER_SECONDS, _LINGER_BYTES
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while left > 0 and (seconds := until - time.monotonic()) > 0:
                self.connection.settimeout(seconds)
                part = len(self.connection.recv(65_536))
                left = left - part if part else 0


def _message(text: str) -> bytes:
    return json.dumps({"status": text}).encode()
