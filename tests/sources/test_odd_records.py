"""Records as other systems write them: each becomes its row as it was meant, or a dead letter with the reason."""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import fastavro
import pytest

from kinstream.streams.records.message import Message
from tests.sources.rows import rows_of_event
from tests.sources.shop import machine, message

ITEMS: Final[dict[str, Any]] = {
    "topic": "shop.search",
    "kind": "items",
    "space": "shop",
    "fields": {"id": "id", "vector": "v"},
}
KEYED: Final[dict[str, Any]] = {**ITEMS, "fields": {"id": "@key", "vector": "v"}}
LISTS: Final[dict[str, Any]] = {
    "topic": "shop.search",
    "kind": "clicks",
    "space": "shop",
    "fields": {"items": "i", "clicks": "c", "user": "u"},
}


def become(source: dict[str, Any], *records: Message) -> list[Any]:
    """What each record becomes: its rows, or the reason why it is a dead letter that keeps its bytes."""
    agent = machine(source)
    found: list[Any] = []
    for offset, record in enumerate(records):
        made = [*agent.step(record._replace(offset=offset, previous=offset - 1)), *agent.flush()]
        if made and made[0].topic == "kinstream.dead-letters":
            headers = dict(made[0].headers)
            assert (made[0].value, made[0].key) == (record.value, record.key)
            found.append(str(headers["kinstream-dead-reason"], "ascii"))
        else:
            found.append([row for one in made for row in rows_of_event(one.value)])
    assert agent.next_offset == len(records)
    return found


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (b' \r\n{"id": "a",\r\n"v": [1]}\r\n', "a"),
        (b'{"\\u0069d": "a", "v": [1]}', "a"),
        (b'{"id": "\\ud83d\\ude00", "v": [1]}', "\U0001f600"),
        ('{"id": "\U0001f600", "v": [1]}'.encode(), "\U0001f600"),
        ('{"id": "e\u0301", "v": [1]}'.encode(), "e\u0301"),
        (b'{"id": 9007199254740993, "v": [1]}', "9007199254740993"),
        (b'{"id": 18446744073709551615, "v": [1]}', "18446744073709551615"),
        (b'{"id": -9223372036854775808, "v": [1]}', "-9223372036854775808"),
        # As in the parsers of other languages, the last one of equal names counts.
        (b'{"id": "first", "id": "a", "v": [1]}', "a"),
        # A parser makes a float of it, and a float is no name: it is never rounded to another item's.
        (b'{"id": 18446744073709551616, "v": [1]}', "bad-shape"),
        (b'{"id": 1.0, "v": [1]}', "bad-shape"),
        (b'{"id": true, "v": [1]}', "bad-shape"),
        (b'{"id": "", "v": [1]}', "bad-shape"),
        (b'{"id": null, "v": [1]}', "bad-shape"),
        (b'{"id": "half \\ud83d", "v": [1]}', "undecodable"),
        (b'{"id": "half \xed\xa0\xbd", "v": [1]}', "undecodable"),
        (b'{"id": "latin \xe9", "v": [1]}', "undecodable"),
        ('{"id": "a", "v": [1]}'.encode("utf-16"), "undecodable"),
        (b'{"id": "a", "v": [NaN]}', "undecodable"),
        (b'{"id": "a", "v": [Infinity]}', "undecodable"),
        (b'{"id": "a", "v": [1e400]}', "undecodable"),
        (b'{"id": "a", "v": [1e39]}', "not-finite"),
        (b'{"id": "a", "v": ["NaN"]}', "bad-shape"),
        (b'{"id": "a", "v": [null]}', "bad-shape"),
        (b'{"id": "a", "v": []}', "bad-shape"),
        (b"{'id': 'a', 'v': [1]}", "undecodable"),
        (b'{"id": "a", "v": [1]}{"id": "b", "v": [1]}', "undecodable"),
        (b'{"id": "a", "v": [1]}\x00', "undecodable"),
        (b"", "undecodable"),
        (b" ", "undecodable"),
        (b"null", "bad-shape"),
        (b'"{}"', "bad-shape"),
        (b"{}", "bad-shape"),
        (b"[]", "bad-shape"),
    ],
)
def test_json_is_read_as_written_or_is_a_dead_letter(value: bytes, wanted: str) -> None:
    good = message({"id": "before", "v": [1]})
    before, found, after = become(ITEMS, good, message(value), good)
    assert before == after == [("before", [1.0])]
    assert found == wanted if "-" in wanted[1:] or wanted == "undecodable" else found == [(wanted, [1.0])]


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        (b"a", b'{"v": [1]}', [("a", [1.0])]),
        (b"a", None, [("a", None)]),
        ("\u00e9 \U0001f600".encode(), None, [("\u00e9 \U0001f600", None)]),
        (b"7", b'{"v": [1]}', [("7", [1.0])]),
        (None, b'{"v": [1]}', "bad-shape"),
        (None, None, "bad-shape"),
        (b"", None, "bad-shape"),
        (b"\xff\xfe", b'{"v": [1]}', "undecodable"),
        # As Confluent's serializer for JSON writes it; and as that for long numbers does.
        (b'\x00\x00\x00\x00\x07"a"', None, [("a", None)]),
        (b"\x00\x00\x00\x00\x00\x00\x00\x07", None, "undecodable"),
        (b"a", b"", "undecodable"),
    ],
)
def test_a_key_is_a_name_and_a_record_without_a_value_a_deletion(
    key: bytes | None, value: bytes | None, wanted: Any
) -> None:
    assert become(KEYED, message(value, key=key)) == [wanted]


@pytest.mark.parametrize(
    "headers",
    [
        (("a", None),),
        (("a", b""), ("a", b"1"), ("a", None)),
        (("", b"1"),),
        (("\u00e9", b"\xff\x00"),),
        (("traceparent", b"00-zz-1-01"), ("traceparent", None)),
        # Other systems may use our names too.
        (("kinstream-emitter", b"x"), ("kinstream-emitter", None), ("kinstream-dead-consumer", b"\xff")),
        tuple((f"h{n}", bytes(100)) for n in range(1_000)),
    ],
)
def test_no_header_changes_a_record(headers: tuple[tuple[str, bytes | None], ...]) -> None:
    good, bad = (message({"id": "a", "v": v})._replace(headers=headers) for v in ([1], "x"))
    assert become(ITEMS, good, bad, good) == [[("a", [1.0])], "bad-shape", [("a", [1.0])]]


def test_the_time_of_a_record_is_its_own_or_there_is_none() -> None:
    shown = {"i": ["a", "b"], "c": ["b"]}
    stamps = (1_777_636_800_000, -1)
    found = become(LISTS, *[message(shown, time_ms=stamp) for stamp in stamps])
    assert [one if isinstance(one, str) else one[0]["shown_at_ms"] for one in found] == [
        stamps[0],
        "bad-shape",
    ]


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({}, [("b", 1_777_636_800_000)]),
        ({"c": None}, []),
        ({"c": []}, []),
        ({"c": ["b", "b"]}, [("b", 1_777_636_800_000)] * 2),
        ({"i": [1, "2", 3], "c": ["1"]}, [("1", 1_777_636_800_000)]),
        ({"c": ["z"]}, "bad-shape"),
        ({"c": "b"}, "bad-shape"),
        ({"i": "ab"}, "bad-shape"),
        ({"i": []}, "empty"),
        ({"u": {"id": 1}}, "bad-shape"),
        ({"u": ""}, [("b", 1_777_636_800_000)]),
    ],
)
def test_a_list_is_what_was_shown_or_a_dead_letter(change: dict[str, Any], wanted: Any) -> None:
    (found,) = become(LISTS, message({"i": ["a", "b"], "c": ["b"], "u": "u", **change}))
    assert (found if isinstance(found, str) else found[0]["clicks"]) == wanted


# ---- Avro -----------------------------------------------------------------------------------------------------------


def _record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Product", "fields": list(fields)}


FLOATS: Final = {"type": "array", "items": "float"}
#: The same record as its writers changed it, by the schema's id, and what each of them wrote.
VERSIONS: Final[dict[int, tuple[dict[str, Any], dict[str, Any]]]] = {
    1: (_record({"name": "id", "type": "int"}, {"name": "v", "type": FLOATS}), {"id": 1, "v": [1]}),
    # Promoted, with a new field before the others, one that has a default, and one that is left out.
    2: (
        _record(
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "id", "type": ["null", "string", "long"]},
            {"name": "v", "type": {"type": "array", "items": "double"}},
        ),
        {"note": "n", "id": 2**40, "v": [2]},
    ),
    3: (
        _record(
            {"name": "v", "type": ["null", FLOATS]},
            {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            },
        ),
        {"v": [3], "id": UUID(int=3), "kind": "OLD", "price": Decimal("0.10")},
    ),
}


def _framed(number: int, schema: dict[str, Any], body: dict[str, Any]) -> bytes:
    out = BytesIO()
    out.write(struct.pack(">BI", 0, number))
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), body)
    return out.getvalue()


@pytest.fixture
def avro(tmp_path: Path) -> dict[str, Any]:
    """The source of all versions at once."""
    for number, (schema, _) in VERSIONS.items():
        (tmp_path / f"{number}.avsc").write_text(json.dumps(schema))
    files = {str(number): str(tmp_path / f"{number}.avsc") for number in VERSIONS}
    return {**ITEMS, "format": "avro", "schemas": files}


def test_every_version_of_a_schema_is_read_as_it_was_written(avro: dict[str, Any]) -> None:
    values = {number: _framed(number, *written) for number, written in VERSIONS.items()}
    order = (1, 2, 1, 3, 2, 1)
    names = {1: "1", 2: str(2**40), 3: str(UUID(int=3))}
    found = become(avro, *[message(values[number]) for number in order])
    assert found == [[(names[number], [float(number)])] for number in order]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (b"", "undecodable"),
        (b"\x00\x00\x00\x00", "undecodable"),
        (b"\x00\x00\x00\x00\x01", "undecodable"),
        (b"\x01\x00\x00\x00\x01\x02\x00", "undecodable"),
        (b"\x00\x00\x00\x00\x09\x02\x00", "unknown-schema"),
        (b"\x00\xff\xff\xff\xff\x02\x00", "unknown-schema"),
        (b'{"id": 1, "v": [1]}', "undecodable"),
        (_framed(1, *VERSIONS[1]) + b"\x00", "undecodable"),
        (_framed(1, *VERSIONS[1])[:-1], "undecodable"),
        (_framed(1, VERSIONS[1][0], {"id": 1, "v": [float("nan")]}), "not-finite"),
        # A branch, a symbol and a length that are not there.
        (b"\x00\x00\x00\x00\x02\x06", "undecodable"),
        (b"\x00\x00\x00\x00\x03\x00\x02a\x08\x00", "undecodable"),
        (b"\x00\x00\x00\x00\x01\x02\x01", "undecodable"),
        (_framed(3, VERSIONS[3][0], {**VERSIONS[3][1], "v": None}), "bad-shape"),
        (_framed(2, VERSIONS[2][0], {"id": None, "v": [1.0]}), "bad-shape"),
    ],
)
def test_avro_that_is_not_of_its_schema_is_a_dead_letter(
    avro: dict[str, Any], value: bytes, wanted: str
) -> None:
    good = message(_framed(1, *VERSIONS[1]))
    assert become(avro, good, message(value), good) == [[("1", [1.0])], wanted, [("1", [1.0])]]
