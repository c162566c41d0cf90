"""A record in words, with matrices as shapes, and bytes as a hex dump. The length is always bounded."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final

import numpy as np

from kinstream.streams.records.scores import Scores

_SHOWN: Final = 8
_LONGEST: Final = 200
DUMPED_BYTES: Final = 512
_WIDTH: Final = 16


def describe(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, np.ndarray):
        head = f"{value.dtype} {' x '.join(map(str, value.shape))}"
        return f"{head}: {_listed(value.tolist())}" if value.ndim == 1 else head
    if isinstance(value, Scores):
        return describe(_by_name(value))
    is_record = is_dataclass(value) and not isinstance(value, type)
    names = [f.name for f in fields(value)] if is_record else None
    if hasattr(value, "_asdict"):
        # Most parts of a named tuple that may be None are.
        names = [name for name, one in value._asdict().items() if one is not None]
    if names is not None:
        parts = (f"{name}={describe(getattr(value, name))}" for name in names)
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, tuple | list):
        return _listed(list(value))
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {describe(v)}" for k, v in list(value.items())[:_SHOWN]) + "}"
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text)} characters)"


def _listed(values: list[Any]) -> str:
    parts = ", ".join(describe(v) for v in values[:_SHOWN])
    return f"[{parts}]" if len(values) <= _SHOWN else f"[{parts}, ...] ({len(values)})"


def record_lines(record: Any) -> Iterator[str]:
    """The kind of a record, and each of its fields."""
    yield type(record).__name__
    for f in fields(record):
        yield f"  {f.name}: {describe(getattr(record, f.name))}"


def plain(value: Any) -> Any:
    """A record as values of JSON, whole: its kind and its fields, arrays as lists, bytes in base64."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Scores):
        return _by_name(value)
    if is_dataclass(value) and not isinstance(value, type):
        found = {f.name: plain(getattr(value, f.name)) for f in fields(value)}
        return {"record": type(value).__name__} | found
    if hasattr(value, "_asdict"):
        return {name: plain(one) for name, one in value._asdict().items()}
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    return b64encode(value).decode() if isinstance(value, bytes) else value


def _by_name(scores: Scores) -> dict[str, list[float | None]]:
    columns = zip(scores.names, scores.values.T.tolist(), strict=True)
    return {name: [None if one != one else one for one in column] for name, column in columns}


def hex_lines(data: bytes) -> Iterator[str]:
    """A hex dump of the first bytes, as `xxd` writes it."""
    for start in range(0, min(len(data), DUMPED_BYTES), _WIDTH):
        row = data[start : min(start + _WIDTH, DUMPED_BYTES)]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield f"{start:08x}  {row.hex(' '):<{_WIDTH * 3}} {text}"
    if len(data) > DUMPED_BYTES:
        yield f"... {len(data) - DUMPED_BYTES} bytes more"
