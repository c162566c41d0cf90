"""The text of a JSON event: bounded nesting, valid UTF-8 in every string, no duplicate name."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

import numpy as np

from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.foreign.framing import is_framed

#: No documented event is nested deeper than this, with room to spare.
MAX_DEPTH: Final = 32

#: A string; an unterminated one extends to the end.
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_NO_BRACKET: Final = bytes(set(range(256)) - set(b"[{]}"))
#: The escape of a surrogate; a pair of them may be one character.
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_SHOWN: Final = 40


def parse(value: bytes) -> dict[str, Any]:
    """Read a JSON object.

    Raises
    ------
    BadRecord : it is not a JSON object, nested too deep, names a field twice, or a string in it has no form in UTF-8.
    """
    if value.lstrip()[:1] != b"{":
        framed = (
            "; it begins with a schema's id of Confluent: a source reads such topics"
            if is_framed(value)
            else ""
        )
        raise BadRecord(Reason.UNDECODABLE, f"neither an Avro single object nor a JSON object{framed}")
    # With so few brackets, nothing is nested deeper.
    brackets = value.count(b"[") + value.count(b"{")
    if brackets > MAX_DEPTH and (deepest := depth(value)) > MAX_DEPTH:
        raise BadRecord(Reason.UNDECODABLE, f"JSON nested {deepest} deep")
    try:
        # The parser itself accepts other encodings, and half a surrogate pair encoded as UTF-8.
        text = value.decode()
    except UnicodeDecodeError as error:
        raise BadRecord(Reason.UNDECODABLE, f"not UTF-8: {error}") from error
    try:
        body = json.loads(text, parse_constant=_constant, object_pairs_hook=unique)
    except ValueError as error:
        raise BadRecord(Reason.UNDECODABLE, f"not JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadRecord(Reason.UNDECODABLE, "not a JSON object")
    if _SURROGATE.search(value):
        check_text(body)
    return body


def depth(value: bytes) -> int:
    """How deep lists and objects are nested; brackets inside strings do not count."""
    brackets = np.frombuffer(_STRING.sub(b"", value).translate(None, _NO_BRACKET), np.uint8)
    if not len(brackets):
        return 0
    opens = (brackets == ord("[")) | (brackets == ord("{"))
    return max(0, int(np.cumsum(np.where(opens, 1, -1)).max()))


def check_text(value: Any, place: str = "") -> None:
    """Refuse a string with half a surrogate pair, anywhere in parsed JSON.

    Raises
    ------
    BadRecord : there is one; the message names the place.
    """
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            code = f"U+{ord(value[error.start]):04X}"
            raise BadRecord(
                Reason.UNDECODABLE,
                f"{place or 'a name'} is not valid UTF-8: {code}, half of a surrogate pair, at character {error.start}",
            ) from error
    elif isinstance(value, dict):
        for name, inner in value.items():
            check_text(name)
            check_text(inner, f"{place}.{name[:_SHOWN]}" if place else name[:_SHOWN])
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            if not isinstance(inner, float):
                check_text(inner, f"{place}[{number}]")


def _constant(name: str) -> float:
    # The rows of a block are checked one by one, so NaN must pass the parser and reach the finiteness check.
    return math.nan if name == "NaN" else math.inf


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object from its pairs.

    Raises
    ------
    BadRecord : a name appears twice.
    """
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise BadRecord(Reason.BAD_SHAPE, f"the field {name[:_SHOWN]!r} appears twice")
            seen.add(name)
    return made
