"""Traces of requests: the span of an answer, with a link to the announcement of each model that it comes from.

The caller decides: a request with a sampled `traceparent` has a span. The announcement is no parent of the answer: it
belongs to another trace, and one model answers many requests.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any, Final

from kinstream.streams.traces.context import TRACEPARENT, TRACESTATE, TraceContext, context_of, model_context
from kinstream.streams.traces.spans import Span, Spans

_NAMES: Final = (TRACEPARENT.encode(), TRACESTATE.encode())


class _Answer:
    """What is known of an answer while it is made."""

    def __init__(self) -> None:
        self.links: list[TraceContext] = []
        self.about: dict[str, str | int] = {}


_answer: ContextVar[_Answer | None] = ContextVar("answer", default=None)


def note_model(space: str, learner: str | None, generation: int, epoch: int, step: int) -> None:
    """Say that the present answer comes from a learned model."""
    answer = _answer.get()
    if answer is None or learner is None:
        return
    if not answer.links:
        answer.about |= {
            "kinstream.space": space,
            "kinstream.learner": learner,
            "kinstream.generation": generation,
            "kinstream.epoch": epoch,
            "kinstream.step": step,
        }
    answer.links.append(model_context(space, learner, generation, epoch, step))


class Traced:
    """Middleware that records the span of each request whose trace is sampled."""

    def __init__(self, app: Any, spans: Spans) -> None:
        self._app, self._spans = app, spans

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        parent = _parent(scope["headers"]) if scope["type"] == "http" else None
        if parent is None or not parent.sampled:
            await self._app(scope, receive, send)
            return
        answer, status = _Answer(), 500
        token, began = _answer.set(answer), time.time_ns()

        async def noted(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            _answer.reset(token)
            route = getattr(scope.get("route"), "path", "other")
            about = {"http.request.method": scope["method"], "http.route": route} | answer.about
            # Drawn, because no request is answered a second time.
            own = parent._replace(span_id=os.urandom(8).hex())
            self._spans.add(
                Span(
                    f"{scope['method']} {route}",
                    "server",
                    own,
                    parent.span_id,
                    began,
                    time.time_ns(),
                    about | {"http.response.status_code": status},
                    tuple(answer.links),
                    f"status {status}" if status >= 500 else None,
                )
            )


def _parent(headers: Iterable[tuple[bytes, bytes]]) -> TraceContext | None:
    return context_of((name.decode(), value) for name, value in headers if name in _NAMES)
