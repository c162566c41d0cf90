"""The bytes of a dead letter for a person: JSON as JSON, text as text, the rest described."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinstream.streams.records.payload import payload_lines


def lines(data: bytes) -> list[str]:
    return list(payload_lines(data))


def test_json_is_shown_as_json_with_lists_of_numbers_on_one_line() -> None:
    value: dict[str, object] = {
        "kind": "samples",
        "ids": ["é", "日本"],
        "vectors": [[1, 2.5], [3, 4]],
        "more": {},
        "none": None,
    }
    first, *rest = lines(json.dumps(value).encode())
    assert first == f"value: {len(json.dumps(value))} bytes of JSON"
    assert json.loads("\n".join(rest)) == value
    assert '  "ids": ["é", "日本"],' in rest and "    [1, 2.5]," in rest


def test_what_breaks_the_json_is_shown_as_text() -> None:
    data = b'{"kind": "samples",\n "vectors": [[1, 2'
    assert lines(data) == [f"value: {len(data)} bytes of text", '{"kind": "samples",', ' "vectors": [[1, 2']
    long = b"[" + b"1," * 10_000
    assert lines(long)[-1] == f"... {len(long) - 4_000} characters more"


def test_a_key_that_stands_twice_is_not_hidden() -> None:
    data = b'{"a": 1, "a": 2}'
    assert lines(data) == ["value: 16 bytes of JSON, as it was sent: a key appears twice", data.decode()]


@pytest.mark.parametrize("data", [bytes(range(256)), b"\x00\x01\x02\x03" * 10, b"\xff\xfe{}"])
def test_what_is_no_text_is_described_and_dumped(data: bytes) -> None:
    first, second, *_ = lines(data)
    assert first == f"value: {len(data)} bytes, not text"
    assert second.startswith(f"00000000  {data[:8].hex(' ')}")


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": "\\ud83d"}',  # half a surrogate pair
        b'{"a": "\\u001b[2J\\u009b2J\\u202e"}',
        '{"a": "\u202e\u2028\x9b"}'.encode(),
        b"\x1b[2J plain text that goes on for a while and is not JSON",
        b"[" * 100_000,
        b'{"a": ' + b"9" * 5_000 + b"}",
        b'{"a": NaN}',
        b"",
    ],
)
def test_nothing_reaches_the_terminal_as_a_control_character(data: bytes) -> None:
    for line in lines(data):
        assert line.isprintable()
        line.encode()


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(), lambda inner: (
    st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
), max_leaves=20))  # fmt: skip
def test_whatever_is_json_comes_out_as_the_same_json(value: object) -> None:
    first, *rest = lines(json.dumps(value).encode())
    assert first.endswith("bytes of JSON") and all(line.isprintable() for line in rest)
    assert json.loads("\n".join(rest)) == value
