"""Log records as JSON, one object a line, for stores that search logs by field."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from kinstream.streams.secrets import hide

#: Fields of every line of this process: the application and generation of its agent.
_of_process: dict[str, Any] = {}
_of_context: ContextVar[dict[str, Any] | None] = ContextVar("log_fields", default=None)


def describe_process(**fields: str | int) -> None:
    """Add fields to every line from now on."""
    _of_process.update(fields)


@contextmanager
def fields(**found: str | int) -> Iterator[None]:
    """Add fields to the lines of the body, on the thread or in the task that runs it."""
    token = _of_context.set({**(_of_context.get() or {}), **found})
    try:
        yield
    finally:
        _of_context.reset(token)


def within(call: Callable[..., Any], arguments: tuple[Any, ...] = ()) -> Callable[[], Any]:
    """A call that logs with the fields of the present context, whichever thread makes it."""
    found = _of_context.get()

    def run() -> Any:
        with fields(**(found or {})):
            return call(*arguments)

    return run


def name_agent(record: logging.LogRecord) -> bool:
    """A filter that passes every record: those of one agent of several have its name as `agent`, after a space."""
    name = (_of_context.get() or {}).get("application")
    record.agent = f" {name}" if name and name != _of_process.get("application") else ""
    return True


class JsonFormatter(logging.Formatter):
    """Lines with `time` (UTC), `level`, `logger`, `message`, the fields that are known, and `traceback`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            # Secrets are hidden before the text is quoted: a quoted secret is another text.
            "message": hide(record.getMessage()),
            **_of_process,
            **(_of_context.get() or {}),
        }
        if record.exc_info:
            line["traceback"] = hide(self.formatException(record.exc_info))
        if record.stack_info:
            line["stack"] = hide(self.formatStack(record.stack_info))
        return json.dumps(line, ensure_ascii=False)
