"""A recorded span, and its receiver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol

from kinstream.streams.traces.context import TraceContext


class Span(NamedTuple):
    """One step of a trace.

    Parameters
    ----------
    context : its ids.
    parent : span id of its cause; None for the first of a trace.
    start_ns, end_ns : since the epoch.
    links : other spans that it comes from, or that it used.
    error : why it failed; None if it did not.
    """

    name: str
    kind: Literal["producer", "consumer", "server"]
    context: TraceContext
    parent: str | None
    start_ns: int
    end_ns: int
    attributes: Mapping[str, str | int]
    links: tuple[TraceContext, ...] = ()
    error: str | None = None


class Spans(Protocol):
    """The receiver of spans."""

    def add(self, span: Span) -> None:
        """Take a span. It never waits and never raises; a span for which there is no room is dropped and counted."""
