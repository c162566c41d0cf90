"""The connections of a service: limits on their number and on their waiting times.

A connection is busy from the end of a request's headers to the end of the answer, and waits otherwise. If there are too
many, the one that has waited longest is closed, so that probes are answered in spite of many idle clients.
"""

from __future__ import annotations

import asyncio
import http
import json
import sys
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from kinstream.search.service.metrics import ServiceMetrics
from kinstream.search.service.refusals import Refused, Why
from kinstream.streams.settings import ServeSettings

#: Bytes of a request line and its headers together.
MAX_HEADER_BYTES: Final = 16_384
#: How long a connection may be idle, or leave an answer unread.
IDLE_SECONDS: Final = 15


class Connections:
    """The open connections.

    Parameters
    ----------
    limits : the most connections, waiting or busy, and their time limit.
    """

    def __init__(self, limits: ServeSettings, metrics: ServiceMetrics) -> None:
        self.limits = limits
        self._metrics = metrics
        self._open: set[Connection] = set()
        #: Those without a request, the one that has waited longest first.
        self._waiting: dict[Connection, None] = {}

    def add(self, one: Connection) -> None:
        """Accept a connection; if there are too many, close the one that has waited longest."""
        self._open.add(one)
        self.waits(one)
        if len(self._open) > self.limits.max_connections:
            # If all are busy, this is the new one, which may be a probe: requests have a limit of their own.
            first = next(iter(self._waiting))
            if first is not one:
                self.count("evicted")
                self.remove(first)
                first.drop()
        self._metrics.connections.set(len(self._open))

    def remove(self, one: Connection) -> None:
        self._open.discard(one)
        self._waiting.pop(one, None)
        self._metrics.connections.set(len(self._open))

    def waits(self, one: Connection) -> None:
        """Mark it as waiting, if it is not already."""
        if one in self._open:
            self._waiting.setdefault(one)

    def is_busy(self, one: Connection) -> None:
        self._waiting.pop(one, None)

    def count(self, reason: str) -> None:
        """Note why a connection is closed."""
        self._metrics.closed.labels(reason).inc()


class _Transport(asyncio.Transport):
    """A transport whose `close` lets the client read the answer, although it is still sending.

    The head of an answer is sent with the first part of its body: one packet, for which the client wakes once.
    """

    def __init__(self, real: asyncio.Transport, connection: Connection) -> None:
        super().__init__()
        self.real = real
        self._connection = connection
        #: A head that waits, and the request whose head has been seen.
        self._head: bytes = b""
        self._answered: Any = None

    def close(self) -> None:
        self._send(b"")
        self._connection.end()

    def is_closing(self) -> bool:
        return self._connection.ending or self.real.is_closing()

    def abort(self) -> None:
        self.real.abort()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        connection = self._connection
        if connection.conn.our_state is h11.SEND_BODY and connection.cycle is not self._answered:
            self._answered, self._head = connection.cycle, bytes(data)
        else:
            self._send(data)

    def _send(self, data: bytes | bytearray | memoryview) -> None:
        head, self._head = self._head, b""
        if head or data:
            self.real.write(head + data if head else data)

    def pause_reading(self) -> None:
        self.real.pause_reading()

    def resume_reading(self) -> None:
        if not self.real.is_closing():
            self.real.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.real.get_extra_info(name, default)


class Connection(H11Protocol):
    """One connection, with time limits for headers, for unread answers, and for its end."""

    shared: Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.ending = False
        self._real = transport
        self._header_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        super().connection_made(_Transport(transport, self))
        self.shared.add(self)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ending = True
        self._cancel()
        self._unset_keepalive_if_required()
        self.shared.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self.ending:
            super().data_received(data)
            self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall_timer = self._stall_timer or self._later(IDLE_SECONDS, self._stalled)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall_timer is not None and not self.ending:
            self._stall_timer.cancel()
            self._stall_timer = None

    def shutdown(self) -> None:
        if self.ending:
            self._real.abort()
        else:
            super().shutdown()

    # ---- limits -------------------------------------------------------------------------------------------------

    @property
    def _busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _watch(self) -> None:
        """Start the time limit for the headers of a request, or for the rest of one that is answered."""
        if self._busy:
            self.shared.is_busy(self)
        else:
            self.shared.waits(self)
        if self._busy or self.ending:
            if self._header_timer is not None:
                self._header_timer.cancel()
                self._header_timer = None
        elif self._header_timer is None and self.timeout_keep_alive_task is None:
            self._header_timer = self._later(self.shared.limits.request_seconds, self._late)

    def _late(self) -> None:
        self.shared.count("slow")
        limits = self.shared.limits
        detail = f"no whole request within {limits.request_seconds:g} s (serve.request_seconds)"
        self._refuse(Refused(408, Why.TOO_SLOW, detail))

    def _stalled(self) -> None:
        if not self.ending:
            self.shared.count("stalled")
        self._real.abort()

    def _later(self, seconds: float, call: Any) -> asyncio.TimerHandle:
        return self.loop.call_later(seconds, call)

    def _cancel(self) -> None:
        for timer in (self._header_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        self._header_timer = self._stall_timer = None

    # ---- ends ---------------------------------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        """The base class calls this while it handles the error of invalid HTTP."""
        self.shared.count("invalid")
        error = sys.exception()
        status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        why = Why.TOO_LARGE if status == 431 else Why.INVALID
        self._refuse(Refused(status, why, str(error) if isinstance(error, h11.RemoteProtocolError) else msg))

    def _refuse(self, refused: Refused) -> None:
        """Answer instead of the application, if there is no answer yet, and close."""
        if self._busy:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        sent = bool(self.conn.trailing_data[0]) or self.conn.their_state is not h11.IDLE
        if sent and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps(refused.body()).encode()
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
            ]
            reason = http.HTTPStatus(refused.status).phrase.encode()
            for event in (
                h11.Response(status_code=refused.status, headers=headers, reason=reason),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self._real.write(self.conn.send(event) or b"")
        self.end(linger=sent)

    def end(self, linger: bool = False) -> None:
        """Close after everything written was sent.

        Closing a socket with unread input resets the connection, and the client loses the answer. So if the client may
        still be sending, this side only shuts down its writing, and ignores input for a while.
        """
        if self.ending:
            return
        self.ending = True
        self._cancel()
        self._unset_keepalive_if_required()
        # It is the first to be closed for others.
        self.shared.waits(self)
        lingers = linger or self.conn.their_state is h11.SEND_BODY
        seconds = self.shared.limits.request_seconds if lingers else IDLE_SECONDS
        self._stall_timer = self._later(seconds, self._stalled)
        if not lingers:
            self._real.close()
            return
        try:
            self._real.write_eof()
            self.flow.resume_reading()
        except OSError:  # the client is gone
            self._real.abort()

    def drop(self) -> None:
        """Close at once, to make room for another."""
        self.ending = True
        self._cancel()
        self._unset_keepalive_if_required()
        self._real.abort()


def protocol(connections: Connections) -> type[Connection]:
    """The factory of uvicorn for connections of one server."""
    return type("Connection", (Connection,), {"shared": connections})
