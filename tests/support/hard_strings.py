"""Strings that programs stumble over, as bytes of JSON and of Avro, and records that hold one of them somewhere.

What is said of them here rests on the definition of UTF-8 and on the documented bounds, not on the decoder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.values import (
    Action,
    Click,
    ClickBlock,
    Control,
    Declaration,
    ItemBlock,
    ItemClick,
    LoadPosition,
    Record,
    Relation,
    RelationBlock,
    SampleBlock,
    Table,
)

LONGEST: Final = 4096
LONGEST_LOAD_ID: Final = 200

#: Each is text, however odd.
TEXTS: Final = (
    "",
    " ",
    "\0",
    "a\0b\0",
    "\x01\x1f\x7f\x85\u2028\u2029",
    '"\\/[{]}[[[[{{{{' * 20,
    "\\ud83d",
    "../../etc/passwd",
    "__metadata__",
    "\ufeffbom",
    "\ufffd\uffff\ufffe",
    "\U0001f44d\U0001f3fd\u200d\U0001f9d1",
    "\U0010ffff",
    "e\u0301\u0301\u0301 \u00e9",
    "Z" + "\u0335\u0353" * 200,
    "\u202eltr\u202c \u2066\u2069 \u0627\u0644\u0639",
    "NaN",
    "null",
    "%2E%2e~@.",
    "x" * LONGEST,
    "\U0001f600" * LONGEST,
)
#: Bytes that are no UTF-8: halves of surrogate pairs, overlong forms, beyond the last character, cut short.
NO_TEXT: Final = (
    b"\xed\xa0\xbd",
    b"\xed\xb8\x80",
    b"\xed\xa0\xbd\xed\xb8\x80",
    b"\xc0\x80",
    b"\xe0\x80\xaf",
    b"\xf0\x80\x80\x80",
    b"\xf4\x90\x80\x80",
    b"\xff\xfe",
    b"caf\xe9",
    b"\xe2\x82",
)
#: Halves of surrogate pairs as JavaScript writes them.
HALVES: Final = (r"\ud83d", r"a\udc00b", r"\ude00\ud83d", r"\uD83D\\ude00", r"\ud83d\ud83d\ude00")

#: Stands in a record for what takes its place in the bytes.
_MARK: Final = "\u00a7mark\u00a7"


@dataclass(frozen=True, slots=True)
class Sent:
    """A record with one odd string.

    Parameters
    ----------
    where : the kind and the field.
    text : the string, or None where the bytes hold none.
    fits : whether such a string is documented to be taken there.
    """

    where: str
    key: bytes
    value: bytes
    text: str | None
    fits: bool


def _bound(field: str) -> int:
    return LONGEST_LOAD_ID if field.endswith("load_id") else LONGEST


# ---- JSON -----------------------------------------------------------------------------------------------------------

_LOAD: Final = {"load": {"load_id": "l", "sequence": 0}}
_CLICK: Final = {
    "list_id": "l",
    "items": ["cup", "pan", "pot"],
    "clicks": [{"item": "pan", "time_ms": 7}],
    "shown_at_ms": 5,
}


def _json_events() -> Iterator[tuple[str, dict[str, Any]]]:
    samples = {"kind": "samples", "vectors": [[1, 2]], "labels": ["a"], "time_ms": 5}
    items = {"kind": "items", "ids": ["cup"], "vectors": [[1, 2]], "time_ms": 5}
    click = {"kind": "click", **_CLICK}
    relation = {"kind": "relation", "left": "cup", "right": "pan", "similar": True, "time_ms": 5}
    yield "samples label", samples | {"labels": [_MARK]}
    yield "samples id", samples | {"ids": [_MARK]}
    yield "samples modality", samples | {"vectors": {_MARK: [[1, 2]]}}
    yield "samples load_id", samples | {"load": {"load_id": _MARK, "sequence": 0}}
    yield "items id", items | {"ids": [_MARK]}
    yield "items tombstone", items | {"tombstones": [_MARK]}
    yield "items modality", items | {"vectors": {_MARK: [[1, 2]]}}
    yield "click list_id", click | {"list_id": _MARK}
    yield "click item", click | {"items": ["cup", "pan", _MARK]}
    yield "click clicked", click | {"items": ["cup", _MARK], "clicks": [{"item": _MARK, "time_ms": 7}]}
    yield "click session", click | {"session": _MARK}
    yield "click user", click | {"user": _MARK}
    yield "click query_item", click | {"query_item": _MARK}
    yield "click query modality", click | {"query_vector": {_MARK: [1, 2]}}
    yield "relation left", relation | {"left": _MARK}
    yield "relation right", relation | {"right": _MARK}
    yield "relation source", relation | {"source": _MARK}
    yield "relation load_id", relation | {"load": {"load_id": _MARK, "sequence": 0}}


# ---- Avro -----------------------------------------------------------------------------------------------------------


def _table(name: str) -> tuple[Table, ...]:
    return (Table(name, np.array([[1, 2]], np.float32)),)


def _click_block(
    space: str, ids: tuple[str, ...], list_id: str, actor: str, modality: str = ""
) -> ClickBlock:
    one = np.zeros(1, np.int32)
    return ClickBlock(
        space,
        ids,
        (list_id,),
        (actor,),
        one,
        one - 1,
        one - 1,
        one if modality else one - 1,
        _table(modality) if modality else (),
        np.array([5], np.int64),
        np.array([0, 3], np.int32),
        np.array([0, 1, 2], np.int32),
        np.array([0, 1, 2], np.int32),
        np.array([1], np.int32),
        np.array([7], np.int64),
        np.array([-1], np.int64),
    )


def _relations(space: str, id_: str, source: str) -> RelationBlock:
    one = np.zeros(1, np.int32)
    return RelationBlock(
        space, (id_, "pan"), one, one + 1, np.ones(1, np.bool_), np.array([5], np.int64), (source,), one
    )


def _records(s: str) -> Iterator[tuple[str, Record]]:
    position = LoadPosition(_MARK, 0)
    yield "SampleBlock label", SampleBlock(s, _table("x"), (_MARK,), 5)
    yield "SampleBlock id", SampleBlock(s, _table("x"), ("a",), 5, (_MARK,))
    yield "SampleBlock modality", SampleBlock(s, _table(_MARK), ("a",), 5)
    yield "SampleBlock load_id", SampleBlock(s, _table("x"), ("a",), 5, None, position)
    yield "ItemBlock id", ItemBlock(s, (_MARK,), _table("x"), 5)
    yield "ItemBlock tombstone", ItemBlock(s, (), (), 5, (_MARK,))
    yield "ItemBlock modality", ItemBlock(s, ("cup",), _table(_MARK), 5)
    items, ranks, clicks = ("cup", "pan", _MARK), (0, 1, 2), (ItemClick("pan", 7),)
    plain = ("cup", "pan", "pot")
    yield "Click item", Click(s, "l", items, ranks, clicks, 5)
    yield "Click clicked", Click(s, "l", items, ranks, (ItemClick(_MARK, 7),), 5)
    yield "Click action", Click(s, "l", plain, ranks, (ItemClick("pan", 7, None, _MARK),), 5)
    yield "Click list_id", Click(s, _MARK, plain, ranks, clicks, 5)
    yield "Click session", Click(s, "l", plain, ranks, clicks, 5, _MARK)
    yield "Click user", Click(s, "l", plain, ranks, clicks, 5, None, _MARK)
    yield "Click query_item", Click(s, "l", plain, ranks, clicks, 5, None, None, _MARK)
    yield "ClickBlock id", _click_block(s, items, "l", "a")
    yield "ClickBlock list_id", _click_block(s, plain, _MARK, "a")
    yield "ClickBlock actor", _click_block(s, plain, "l", _MARK)
    yield "ClickBlock modality", _click_block(s, plain, "l", "a", _MARK)
    yield "Relation left", Relation(s, _MARK, "pan", True, 5)
    yield "Relation right", Relation(s, "cup", _MARK, False, 5)
    yield "Relation source", Relation(s, "cup", "pan", True, 5, _MARK)
    yield "Relation load_id", Relation(s, "cup", "pan", True, 5, None, position)
    yield "RelationBlock id", _relations(s, _MARK, "a")
    yield "RelationBlock source", _relations(s, "cup", _MARK)
    yield "Control modality", Control(s, Action.CREATE, 5, Declaration(((_MARK, 2),)))


def _with_bytes(value: bytes, found: bytes) -> bytes:
    """The Avro record in which `found` stands for the mark: a string is preceded by its length as a varint."""
    mark = _MARK.encode()
    old = bytes([2 * len(mark)]) + mark
    assert old in value
    return value.replace(old, _varint(2 * len(found)) + found)


def _varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


# ---- all of them ----------------------------------------------------------------------------------------------------


def sent(pick: Callable[[int], bool] = lambda number: True) -> Iterator[Sent]:
    """Every odd string in every field, each field in a space of its own.

    Parameters
    ----------
    pick : which of them, by their number.
    """
    for number, found in enumerate(_all()):
        if pick(number):
            yield found


def _all() -> Iterator[Sent]:
    for place, (field, event) in enumerate(_json_events()):
        space = f"json-{place}"
        key = space.encode()
        text = json.dumps({"space": space, **event}, ensure_ascii=False)
        quoted = f'"{_MARK}"'
        assert quoted in text
        for odd in (*TEXTS, "m" * 1_000_000):
            fits = len(odd) <= _bound(field)
            for ascii_ in (False, True):
                value = text.replace(quoted, json.dumps(odd, ensure_ascii=ascii_)).encode()
                yield Sent(field, key, value, odd, fits)
        for half in HALVES:
            yield Sent(field, key, text.replace(quoted, f'"{half}"').encode(), None, False)
        for raw in NO_TEXT:
            yield Sent(field, key, text.encode().replace(_MARK.encode(), raw), None, False)
    for place, (field, record) in enumerate(_records("?")):
        space = f"avro-{place}"
        value = encode(record).replace(b"\x02?", bytes([2 * len(space)]) + space.encode(), 1)
        for odd in (*TEXTS, "m" * 1_000_000):
            fits = len(odd) <= _bound(field)
            yield Sent(field, space.encode(), _with_bytes(value, odd.encode()), odd, fits)
        for raw in NO_TEXT:
            yield Sent(field, space.encode(), _with_bytes(value, raw), None, False)


def spaces() -> Iterator[Sent]:
    """Records whose space itself is odd: text that is printable and not too long is a name."""
    for odd in TEXTS:
        fits = 0 < len(odd) <= 200 and odd.isprintable()
        event = {"kind": "samples", "space": odd, "vectors": [[1, 2]], "labels": ["a"], "time_ms": 5}
        yield Sent("json space", odd.encode(), json.dumps(event).encode(), odd, fits)
        block = SampleBlock(odd, _table("x"), ("a",), 5)
        yield Sent("avro space", odd.encode(), encode(block), odd, fits)
        yield Sent("control space", odd.encode(), encode(Control(odd, Action.CREATE, 5)), odd, fits)
    for raw in NO_TEXT:
        body = b'{"kind":"samples","space":"' + raw + b'","vectors":[[1,2]],"labels":["a"],"time_ms":5}'
        yield Sent("json space", raw, body, None, False)
    for half in HALVES:
        body = b'{"kind":"samples","space":"%s","vectors":[[1,2]],"labels":["a"],"time_ms":5}' % half.encode()
        yield Sent("json space", b"s", body, None, False)
