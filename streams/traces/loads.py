"""Traces that a producer begins: a share of the blocks of a load, chosen by a hash of their identity."""

from __future__ import annotations

import time

from kinstream.streams.records.identity import Headers
from kinstream.streams.traces.context import TraceContext, root_of, share_of
from kinstream.streams.traces.spans import Span, Spans


class LoadTraces:
    """Begins the traces of a load. A block that is sent again belongs to the same trace.

    Parameters
    ----------
    share : of the blocks, from 0 to 1.
    spans : receives a span for each traced block; None if this process exports none.
    """

    def __init__(self, share: float = 0.0, spans: Spans | None = None) -> None:
        self._share = share
        self._spans = spans

    def begin(self, load_id: str, space: str, sequence: int) -> TraceContext | None:
        """The trace of a block; None for a block that is not traced."""
        about = ("load", load_id, space, sequence)
        return root_of(*about) if self._share and share_of(*about) < self._share else None

    def sent(self, context: TraceContext, topic: str, space: str, load_id: str, sequence: int) -> None:
        """Record that the block was handed over."""
        if self._spans is None:
            return
        now = time.time_ns()
        about: dict[str, str | int] = {
            "messaging.system": "kafka",
            "messaging.destination.name": topic,
            "kinstream.space": space,
            "kinstream.load": load_id,
            "kinstream.sequence": sequence,
        }
        self._spans.add(Span(f"send {topic}", "producer", context, None, now, now, about))


def headers_of(context: TraceContext | None) -> Headers:
    """The headers of a block."""
    return () if context is None else context.headers()
