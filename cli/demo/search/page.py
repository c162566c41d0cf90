"""The page of the demonstration: three rankings side by side, served to this machine alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel, ValidationError

HOST: Final = "127.0.0.1"
#: Bytes of a request's body, and characters of a query.
LARGEST: Final = 16_384
LONGEST: Final = 2_000
#: What is served besides answers, by path.
_FILES: Final = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class PageClick(BaseModel):
    """A click on the page: the query, the rows that were shown, and the one that was clicked."""

    query: str
    shown: list[int]
    clicked: int


#: Answers as JSON. A ValueError becomes an answer with status 400 and its text.
Answer = Callable[..., dict[str, Any]]


class Page:
    """An HTTP server on 127.0.0.1.

    It answers requests that name this address as their host, so that a page of another site cannot reach it under a
    name of its own; and clicks only come from this page.

    Parameters
    ----------
    port : 0 for any that is free.
    state : what the page shows beside the rankings.
    search : the rankings of a text.
    click : takes a text, the rows that were shown, and the one that was clicked.

    Raises
    ------
    OSError : the port is taken.
    """

    def __init__(self, port: int, state: Answer, search: Answer, click: Answer) -> None:
        answers = {"state": state, "search": search, "click": click}
        self._server = ThreadingHTTPServer((HOST, port), partial(_Handler, answers))
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30

    def __init__(self, answers: dict[str, Answer], *given: Any) -> None:
        self._answers = answers
        super().__init__(*given)

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if not self._is_ours():
            return
        if parts.path in _FILES:
            name, kind = _FILES[parts.path]
            self._send(HTTPStatus.OK, (Path(__file__).parent / name).read_bytes(), kind)
        elif parts.path == "/state":
            self._answer("state")
        elif parts.path == "/search":
            self._answer("search", parse_qs(parts.query).get("q", [""])[0][:LONGEST])
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    def do_POST(self) -> None:
        if not self._is_ours():
            return
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > LARGEST:
            # The body stays unread.
            self.close_connection = True
            self._refuse(HTTPStatus.BAD_REQUEST, f"a body of at most {LARGEST} bytes is expected")
            return
        body = self.rfile.read(int(length))
        if self.path != "/click" or self.headers.get("Content-Type") != "application/json":
            self._refuse(HTTPStatus.BAD_REQUEST, "only clicks as JSON are expected")
            return
        try:
            given = PageClick.model_validate_json(body, strict=True)
        except ValidationError:
            self._refuse(HTTPStatus.BAD_REQUEST, "a click has a query, shown and clicked")
            return
        self._answer("click", given.query[:LONGEST], given.shown, given.clicked)

    def _is_ours(self) -> bool:
        port = self.connection.getsockname()[1]
        hosts = {f"{name}:{port}" for name in (HOST, "localhost")}
        origin = self.headers.get("Origin")
        if self.headers.get("Host") in hosts and (origin is None or origin.removeprefix("http://") in hosts):
            return True
        self.close_connection = True
        self._refuse(HTTPStatus.FORBIDDEN, f"this page is served to http://{HOST}:{port} alone")
        return False

    def _answer(self, name: str, *given: Any) -> None:
        try:
            found = self._answers[name](*given)
        except ValueError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
            return
        self._send(HTTPStatus.OK, json.dumps(found).encode(), "application/json")

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        self._send(status, json.dumps({"error": text}).encode(), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in ({"Content-Type": kind, "Content-Length": str(len(body))} | _HEADERS).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not printed: the terminal shows figures."""
