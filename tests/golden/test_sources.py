"""Records of other systems become the same events in every version, byte for byte; old states are continued.

Version 2 numbers the rows of a load by their offsets, so of version 1 the place in the load is not compared, nor are
headers.
"""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from kinstream.streams.checkpoints.state_bytes import from_bytes
from kinstream.streams.records.codec.codec import decode_event, encode
from kinstream.streams.records.message import Output
from tests.golden.write_sources import FILE, cases, log_ms
from tests.sources.shop import machine, message

GOLDEN: dict[int, Any] = {
    version: json.loads(FILE.with_name(f"sources-v{version}.json").read_text(encoding="utf-8"))
    for version in (1, 2)
}


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _event(value: bytes | None) -> bytes:
    event: Any = decode_event(value)
    return encode(replace(event, load=None))


def _same(made: list[Output], wanted: list[Any], version: int) -> bool:
    if version == 2:
        found = [(one.value, [(name, data) for name, data in one.headers]) for one in made]
        return found == [
            (_bytes(value), [(n, _bytes(data)) for n, data in headers]) for value, headers in wanted
        ]
    if made and made[0].topic == "kinstream.dead-letters":
        return [one.value for one in made] == [_bytes(one) for one in wanted]
    return [_event(one.value) for one in made] == [_event(_bytes(one)) for one in wanted]


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("name", cases())
@pytest.mark.parametrize("version", GOLDEN)
def test_the_events_are_those_of_the_version_that_wrote_them(version: int, name: str, begun: bool) -> None:
    golden = GOLDEN[version][name]
    agent = machine(golden["source"])
    first = golden["state_after"] + 1 if begun else 0
    if begun:
        agent.restore(first, None, from_bytes(_bytes(golden["state"]) or b""), ())
    for offset, ((key, value), wanted) in enumerate(zip(golden["records"], golden["outputs"], strict=True)):
        if offset >= first:
            data = _bytes(value)
            made = [*agent.step(message(data, offset, _bytes(key), log_ms(data))), *agent.flush()]
            assert _same(made, wanted, version), offset
    assert agent.next_offset == len(golden["records"])


@pytest.mark.parametrize("version", GOLDEN)
def test_every_kind_is_there(version: int) -> None:
    assert GOLDEN[version].keys() == cases().keys()
    assert all(any(golden["outputs"]) for golden in GOLDEN[version].values())
