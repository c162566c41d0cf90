"""A collector of OTLP over HTTP, which keeps what it receives."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Collector:
    """`spans` are (service, span of OTLP); `logins` the header `Authorization` of each request.

    `status` is what it answers, `location` where a redirect leads; while `hold` is set, it does not answer.
    """

    url: str = ""
    status: int = 200
    location: str = ""
    hold: threading.Event = field(default_factory=threading.Event)
    spans: list[tuple[str, Any]] = field(default_factory=list)
    logins: list[str | None] = field(default_factory=list)

    def of(self, service: str) -> list[Any]:
        return [span for name, span in self.spans if name == service]


@contextmanager
def collecting(host: str = "127.0.0.1", port: int = 0) -> Iterator[Collector]:
    """A collector that listens there; port 0 stands for any free one."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.logins.append(self.headers["Authorization"])
            while found.hold.is_set():
                threading.Event().wait(0.01)
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if found.status == 200 and self.path == "/v1/traces":
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    names = {a.key: a.value.string_value for a in resource.resource.attributes}
                    for scope in resource.scope_spans:
                        found.spans += [(names["service.name"], span) for span in scope.spans]
            self.send_response(found.status if self.path == "/v1/traces" else 404)
            self.send_header("Content-Length", "0")
            if found.location:
                self.send_header("Location", found.location)
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found.url = f"http://{host}:{server.server_address[1]}"
    try:
        yield found
    finally:
        found.hold.clear()
        server.shutdown()
        server.server_close()
