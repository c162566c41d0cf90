"""W3C trace context in Kafka headers, and ids of spans that are the same in every run.

An id is a hash of what a span is about, never drawn: a run after a crash emits the same headers, and sends the same
spans. Source: https://www.w3.org/TR/trace-context/
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from kinstream.streams.records.identity import Headers

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
#: The lengths that the recommendation asks readers to accept.
_LONGEST_PARENT: Final = 256
_LONGEST_STATE: Final = 512
#: Versions after 00 may append fields, which are not passed on.
_FORM: Final = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED: Final = 1


class TraceContext(NamedTuple):
    """A span of another process: ids in hexadecimal digits, the flags, and the `tracestate` of other vendors."""

    trace_id: str
    span_id: str
    flags: int = _SAMPLED
    state: bytes = b""

    @property
    def sampled(self) -> bool:
        """Whether the producer wants the trace to be recorded."""
        return bool(self.flags & _SAMPLED)

    def headers(self) -> Headers:
        """As Kafka headers."""
        parent = (TRACEPARENT, f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}".encode())
        return (parent, (TRACESTATE, self.state)) if self.state else (parent,)


def context_of(headers: Iterable[tuple[str, bytes | None]]) -> TraceContext | None:
    """The context in Kafka headers; None if there is none, more than one, or one that cannot be read."""
    parent: bytes | None = None
    state = b""
    for name, value in headers:
        if name == TRACEPARENT:
            if parent is not None:
                return None
            parent = value or b""
        elif name == TRACESTATE and value and len(value) <= _LONGEST_STATE and not state:
            state = value
    return None if parent is None else _parsed(parent, state)


def _parsed(parent: bytes, state: bytes) -> TraceContext | None:
    found = _FORM.fullmatch(parent) if len(parent) <= _LONGEST_PARENT else None
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    if version == b"ff" or (version == b"00" and more) or not trace.strip(b"0") or not span.strip(b"0"):
        return None
    return TraceContext(trace.decode(), span.decode(), int(flags, 16), state)


def span_id_of(*about: str | int) -> str:
    """The id of the span about these."""
    return _digest(*about)[:16]


def root_of(*about: str | int) -> TraceContext:
    """The first span of a trace of its own, about these."""
    digest = _digest(*about)
    return TraceContext(digest[:32], digest[32:48])


def model_context(space: str, learner: str, generation: int, epoch: int, step: int) -> TraceContext:
    """The span of the announcement of a model: its ids follow from the model's name alone."""
    return root_of("model", space, learner, generation, epoch, step)


def _digest(*about: str | int) -> str:
    # No part holds the separator: names are checked, and Kafka's topics cannot.
    return hashlib.sha256("\0".join(map(str, about)).encode("utf-8", "backslashreplace")).hexdigest()
