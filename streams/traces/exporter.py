"""Sends spans to a collector over OTLP/HTTP, on a thread of its own.

An agent never waits for a collector: `add` only appends to a queue of a fixed size. What does not fit, or is not
accepted, is dropped and counted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kinstream.streams.extras import importing
from kinstream.streams.settings import Settings
from kinstream.streams.traces.spans import Span

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan

log = logging.getLogger("kinstream.traces")

QUEUE_SPANS: Final = 4096
BATCH_SPANS: Final = 512
#: Seconds between two batches, unless one is full.
EVERY_SECONDS: Final = 1.0
#: Seconds for one batch, retries included.
SEND_SECONDS: Final = 5.0
#: Seconds for which a fault is not logged again.
QUIET_SECONDS: Final = 60.0
_REDIRECTS: Final = range(300, 400)

#: Sends a batch, and returns whether the collector has accepted it.
Send = Callable[[Sequence[Span]], bool]


class Exporter:
    """A queue of spans, and the thread that sends them.

    Attributes
    ----------
    exported, dropped : spans so far.
    """

    def __init__(self, send: Send, *, room: int = QUEUE_SPANS) -> None:
        self.exported = self.dropped = 0
        self._send = send
        self._room = room
        self._queue: deque[Span] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._quiet_until = 0.0
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def add(self, span: Span) -> None:
        # The count may be short by one where two threads drop at the same moment; a lock would be on the agents' way.
        if len(self._queue) >= self._room:
            self.dropped += 1
            return
        self._queue.append(span)
        if len(self._queue) >= BATCH_SPANS:
            self._wake.set()

    def close(self, seconds: float = 1.0) -> None:
        """Send what is left, for so long at most."""
        self._closing = True
        self._wake.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            self._wake.wait(EVERY_SECONDS)
            self._wake.clear()
            closing = self._closing
            while self._queue:
                self._send_batch()
            if closing:
                return

    def _send_batch(self) -> None:
        batch = [self._queue.popleft() for _ in range(min(len(self._queue), BATCH_SPANS))]
        try:
            accepted, why = self._send(batch), "the collector did not accept them"
        # A library may raise anything here; the spans are counted, and the agent works on.
        except Exception as error:
            accepted, why = False, repr(error)
        if accepted:
            self.exported += len(batch)
            return
        self.dropped += len(batch)
        if time.monotonic() >= self._quiet_until:
            self._quiet_until = time.monotonic() + QUIET_SECONDS
            log.warning("%d spans of traces were dropped, %d so far: %s", len(batch), self.dropped, why)


def open_exporter(settings: Settings, service: str) -> Exporter | None:
    """The exporter of `[traces] endpoint`; None if it is empty.

    Parameters
    ----------
    service : `service.name` of its spans.

    Raises
    ------
    PackageMissing : the extra `otel` is not installed.
    """
    endpoint = settings.traces.endpoint
    return Exporter(otlp(endpoint, service)) if endpoint else None


def otlp(endpoint: str, service: str) -> Send:
    """Sends to `ENDPOINT/v1/traces`. Headers and certificates are those of OpenTelemetry's own variables.

    Raises
    ------
    PackageMissing : the extra `otel` is not installed.
    """
    with importing("[traces] endpoint", "otel"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import SpanExportResult
        from requests import HTTPError, Response, Session

    def refuse_redirect(answer: Response, *_: Any, **__: Any) -> None:
        # The client would send the credentials of the headers along, or take the spans for delivered.
        if answer.status_code in _REDIRECTS:
            raise HTTPError(f"the collector answers {answer.status_code}: redirects are not followed")

    session = Session()
    session.hooks["response"].append(refuse_redirect)
    exporter = OTLPSpanExporter(
        endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=SEND_SECONDS, session=session
    )
    resource = Resource.create({"service.name": service})

    def send(batch: Sequence[Span]) -> bool:
        found = exporter.export([_readable(span, resource) for span in batch])
        return found is SpanExportResult.SUCCESS

    return send


def _readable(span: Span, resource: Resource) -> ReadableSpan:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

    def context(trace_id: str, span_id: str) -> SpanContext:
        flags = TraceFlags(TraceFlags.SAMPLED)
        return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=flags)

    own = span.context
    return ReadableSpan(
        name=span.name,
        context=context(own.trace_id, own.span_id),
        parent=None if span.parent is None else context(own.trace_id, span.parent),
        resource=resource,
        attributes=dict(span.attributes),
        links=[Link(context(link.trace_id, link.span_id)) for link in span.links],
        kind=SpanKind[span.kind.upper()],
        status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error),
        start_time=span.start_ns,
        end_time=span.end_ns,
    )
