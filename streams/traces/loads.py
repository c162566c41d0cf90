"""Traces that a producer begins: of some blocks of a load, by their numbers."""

from __future__ import annotations

import time
from typing import Final

from kinstream.streams.records.identity import Headers
from kinstream.streams.traces.context import TraceContext, root_of
from kinstream.streams.traces.spans import Span, Spans

#: One block in so many begins a trace, from the second one on: the first of a space may give no constraint.
EVERY: Final = 100


class LoadTraces:
    """Begins the traces of a load. A block that is sent again belongs to the same trace.

    Parameters
    ----------
    spans : receives a span for each traced block; None begins no traces.
    every : one block in so many begins one.
    """

    def __init__(self, spans: Spans | None = None, every: int = EVERY) -> None:
        self._spans = spans
        self._every = every

    def begin(self, load_id: str, space: str, sequence: int) -> TraceContext | None:
        """The trace of a block; None for a block that is not traced."""
        if self._spans is None or sequence % self._every != 1 % self._every:
            return None
        return root_of("load", load_id, space, sequence)

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
