"""The bytes of a record for display: JSON as JSON, other text as text, the rest as a hex dump.

Nothing in them reaches a terminal as a control character.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from kinstream.streams.records.description import hex_lines

#: Characters shown of text that is not JSON; the fault is mostly near its start or its end.
TEXT_CHARACTERS: Final = 4_000
_INDENT: Final = "  "


class _Repeated(ValueError):
    """A key appears twice in one object: formatting it again would hide one of the two."""


def payload_lines(data: bytes) -> Iterator[str]:
    """The kind of the bytes, and the bytes."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        yield f"value: {len(data)} bytes, not text"
        yield from hex_lines(data)
        return
    try:
        value = json.loads(text, object_pairs_hook=_once)
        lines = list(_formatted(value, "", ""))
    except _Repeated:
        yield f"value: {len(data)} bytes of JSON, as it was sent: a key appears twice"
        yield from _as_text(text, len(text))
    except (ValueError, RecursionError):
        if not _is_text(text):
            yield f"value: {len(data)} bytes, not text"
            yield from hex_lines(data)
            return
        yield f"value: {len(data)} bytes of text"
        yield from _as_text(text, TEXT_CHARACTERS)
    else:
        yield f"value: {len(data)} bytes of JSON"
        yield from lines


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Repeated
    return found


def _formatted(value: Any, before: str, after: str, indent: str = "") -> Iterator[str]:
    """JSON with a line for each field; a list of plain values takes one."""
    nested = isinstance(value, dict) or (isinstance(value, list) and any(_holds(one) for one in value))
    if not nested or not value:
        yield f"{indent}{before}{_dumped(value)}{after}"
        return
    is_table = isinstance(value, dict)
    parts = list(value.items()) if is_table else [(None, one) for one in value]
    yield f"{indent}{before}{'{' if is_table else '['}"
    for number, (key, one) in enumerate(parts, 1):
        name = "" if key is None else f"{_dumped(key)}: "
        yield from _formatted(one, name, "," if number < len(parts) else "", indent + _INDENT)
    yield f"{indent}{'}' if is_table else ']'}{after}"


def _holds(value: Any) -> bool:
    return isinstance(value, dict | list)


def _dumped(value: Any) -> str:
    return escaped(json.dumps(value, ensure_ascii=False))


def escaped(text: str) -> str:
    """The text with control and invisible characters escaped as in JSON."""
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


def _is_text(text: str) -> bool:
    strange = sum(1 for one in text if not one.isprintable() and one not in "\r\n\t")
    return strange * 20 <= len(text)


def _as_text(text: str, longest: int) -> Iterator[str]:
    for line in text[:longest].splitlines():
        yield escaped(line)
    if len(text) > longest:
        yield f"... {len(text) - longest} characters more"
