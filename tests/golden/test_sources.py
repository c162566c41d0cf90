"""Records of other systems become the same events in every version, byte for byte; old states are continued.

Version 2 numbers the rows of a load by their offsets, so the place in the load is not compared.
"""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from kinstream.streams.checkpoints.state_bytes import from_bytes
from kinstream.streams.records.codec.every_kind import decode_event, encode
from kinstream.streams.records.message import Output
from tests.golden.write_sources import FILE, cases
from tests.sources.shop import machine, message

GOLDEN: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _event(value: bytes | None) -> bytes:
    event: Any = decode_event(value)
    return encode(replace(event, load=None))


def _same(made: list[Output], wanted: list[str | None]) -> bool:
    if made and made[0].topic == "kinstream.dead-letters":
        return [one.value for one in made] == [_bytes(one) for one in wanted]
    return [_event(one.value) for one in made] == [_event(_bytes(one)) for one in wanted]


def _log_ms(value: bytes | None) -> int:
    """The time of a record in its log: that of the query or event in it, as their lists close by the log's time."""
    record = {} if value is None else json.loads(value)
    at = record.get("timestamp", "2026-05-01T12:00:00Z")
    return int(datetime.fromisoformat(at).timestamp() * 1000)


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("name", GOLDEN)
def test_the_events_are_those_of_the_version_that_wrote_them(name: str, begun: bool) -> None:
    golden = GOLDEN[name]
    agent = machine(golden["source"])
    first = golden["state_after"] + 1 if begun else 0
    if begun:
        agent.restore(first, None, from_bytes(_bytes(golden["state"]) or b""), ())
    for offset, ((key, value), wanted) in enumerate(zip(golden["records"], golden["outputs"], strict=True)):
        if offset >= first:
            data = _bytes(value)
            made = [*agent.step(message(data, offset, _bytes(key), _log_ms(data))), *agent.flush()]
            assert _same(made, wanted), offset
    assert agent.next_offset == len(golden["records"])


def test_every_kind_is_there() -> None:
    assert GOLDEN.keys() == cases().keys()
    assert all(any(golden["outputs"]) for golden in GOLDEN.values())
