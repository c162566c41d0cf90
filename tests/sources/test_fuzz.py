"""100,000 mutated records: nothing stops, everything is counted, nothing is lost."""

from __future__ import annotations

import copy
import json
import random
import struct
from collections import Counter
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest

from kinstream.producers.sources.agent import SourceMachine
from kinstream.streams.agents.machine import Machine
from kinstream.streams.records.message import Message
from tests.sources.rows import rows_of_event
from tests.sources.shop import SEARCH, machine, search

NUMBER = 100_000
START = 1_777_636_800_000
MINUTE = 60_000
SCHEMA = {
    "type": "record",
    "name": "Product",
    "fields": [
        {"name": "id", "type": ["null", "long", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "vector", "type": {"type": "array", "items": "float"}},
        {"name": "attributes", "type": {"type": "map", "values": ["null", "double", "string", "bytes"]}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}
ITEMS: dict[str, Any] = {
    "topic": "shop.items",
    "kind": "items",
    "space": "shop",
    "fields": {"id": "id", "vector": "vector", "time": "at", "deleted": "attributes.gone"},
}
UBI: dict[str, Any] = {"topic": "ubi", "preset": "ubi", "space": "shop"}
#: Values that other systems send where something else is expected.
ODD: tuple[Any, ...] = (
    *(
        None,
        "",
        " ",
        "\u0000",
        "\ud83d\ude00",
        "x" * 5_000,
        "NaN",
        "2026-05-01",
        "-1",
        "99999999999999999999",
    ),
    *(0, -1, 1e308, -0.0, 2**63, 2**80, 0.5, True, False, [], {}, [[]], [None], {"a": {}}, [1, "a", None]),
)


def _mutated(value: Any, rng: random.Random) -> Any:
    """A JSON value with a few parts replaced, removed, repeated or renamed, anywhere in it."""
    value = json.loads(json.dumps(value))
    for _ in range(rng.randint(1, 3)):
        places = list(_places(value))
        holder, name = rng.choice(places)
        match rng.randrange(5):
            case 0:
                holder[name] = copy.deepcopy(rng.choice(ODD))
            case 1:
                del holder[name]
                if not places:
                    return value
            case 2 if isinstance(holder, list):
                holder.insert(rng.randrange(len(holder) + 1), holder[name])
            case 3 if isinstance(holder, dict):
                holder[rng.choice(["", "id", "a.b", f"{name}s"])] = holder.pop(name)
            case _:
                other, key = rng.choice(places)
                holder[name] = json.loads(json.dumps(other[key])) if _has(other, key) else None
        if not list(_places(value)):
            return value
    return value


def _has(holder: Any, name: Any) -> bool:
    return name in holder if isinstance(holder, dict) else name < len(holder)


def _places(value: Any) -> Any:
    if isinstance(value, dict):
        for name in value:
            yield value, name
            yield from _places(value[name])
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield value, number
            yield from _places(one)


def _bytes(value: bytes, rng: random.Random) -> bytes:
    """Bytes with some of them changed, cut off or repeated."""
    data = bytearray(value)
    match rng.randrange(4):
        case 0:
            return bytes(data[: rng.randrange(len(data) + 1)])
        case 1:
            at = rng.randrange(len(data))
            return bytes(data[:at] + data[at:][: rng.randint(1, 20)] * 2 + data[at:])
        case 2:
            return rng.randbytes(rng.randrange(40))
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def _walk(agent: Machine, values: list[bytes | None], rng: random.Random, step_ms: int = 0) -> Counter[str]:
    """Feed records, and check after each that it was counted once; returns what became of them.

    Parameters
    ----------
    step_ms : from the Kafka time of a record to that of the next.
    """
    rows = letters = 0
    batch = rng.randint(1, 64)
    for offset, value in enumerate(values):
        key = rng.choice([None, b"k", b"\xff", b'{"id": 1}'])
        outputs = agent.step(
            Message(agent.place.topic, 0, offset, START + offset * step_ms, key, value, (), offset - 1)
        )
        if offset % batch == 0:
            outputs += agent.flush()
        for one in outputs:
            if one.topic == "kinstream.events":
                rows += len(rows_of_event(one.value))
            else:
                assert one.value == value and dict(one.headers)["kinstream-dead-reason"]
                letters += 1
    rows += sum(len(rows_of_event(one.value)) for one in agent.flush())
    assert agent.next_offset == len(values)
    counts = agent.counts
    assert counts["applied"] + counts["not_followed"] + letters == len(values)
    assert letters == agent.dead.total() == len(agent.refusals)
    assert isinstance(agent, SourceMachine)
    numbers = json.loads(str(agent.partition_state()["packing.rows"]))
    assert sum(numbers.values()) == rows
    return Counter({"rows": rows, "letters": letters, "applied": counts["applied"]})


@pytest.mark.parametrize("depth", [500, 1_000, 1_023, 1_024, 5_000, 100_000])
def test_deep_nesting_is_refused(depth: int) -> None:
    deep = b"[" * depth + b"]" * depth
    record = b'{"meta": {"tenant": %s, "ts": %s}, "payload": {"results": [{"sku": %s}]}}' % (deep, deep, deep)
    found = _walk(machine(SEARCH), [record, deep, b'{"a":' * depth + b"1" + b"}" * depth], random.Random(0))
    assert found["letters"] == 3


@pytest.mark.parametrize("part", range(4))
def test_mutated_json_stops_nothing(part: int) -> None:
    rng = random.Random(part)
    good = [search(number, rng) for number in range(50)]
    values: list[bytes | None] = []
    for _ in range(NUMBER // 10):
        one = _mutated(rng.choice(good), rng)
        data = json.dumps(one, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
        values.append(data if rng.random() < 0.7 else _bytes(data, rng))
    found = _walk(machine(SEARCH), values, rng)
    assert found["applied"] > 500 and found["letters"] > 500


@pytest.mark.long
@pytest.mark.parametrize("part", range(3))
def test_mutated_avro_stops_nothing(part: int, tmp_path: Path) -> None:
    rng = random.Random(part)
    (tmp_path / "product.avsc").write_text(json.dumps(SCHEMA))
    schema = fastavro.parse_schema(SCHEMA)
    good = []
    for number in range(50):
        out = BytesIO()
        out.write(struct.pack(">BI", 0, 3))
        body = {
            "id": rng.choice([number, f"sku-{number}"]),
            "at": 1_777_636_800_000 + number,
            "vector": [rng.random() for _ in range(8)],
            "attributes": {"gone": None, "size": 1.5, "raw": b"\x00\x01"},
            "price": Decimal("0.12"),
        }
        fastavro.schemaless_writer(out, schema, body)
        good.append(out.getvalue())
    source = {**ITEMS, "format": "avro", "schemas": {"3": str(tmp_path / "product.avsc")}}
    values: list[bytes | None] = [
        _bytes(rng.choice(good), rng) if rng.random() < 0.9 else rng.choice(good) for _ in range(NUMBER // 10)
    ]
    values[100] = None
    found = _walk(machine(source), values, rng)
    assert found["applied"] > 500 and found["letters"] > 500


@pytest.mark.long
@pytest.mark.parametrize("part", range(3))
def test_mutated_insights_stop_nothing(part: int) -> None:
    rng = random.Random(part)
    values: list[bytes | None] = []
    for number in range(NUMBER // 10):
        at = f"2026-04-{1 + number * 28 // (NUMBER // 10):02d}T12:00:{number % 60:02d}Z"
        query = {"query_id": f"q-{number // 3}", "timestamp": at, "client_id": "c"}
        event = {
            **query,
            "action_name": rng.choice(["click", "view"]),
            "event_attributes": {"object": {"object_id": str(rng.randrange(8))}, "position": {"ordinal": 1}},
        }
        record = {**query, "query_response_hit_ids": [str(n) for n in range(6)]} if number % 3 == 0 else event
        values.append(json.dumps(_mutated(record, rng) if rng.random() < 0.5 else record).encode())
    found = _walk(machine(UBI), values, rng, MINUTE)
    assert found["applied"] > 500 and found["letters"] > 500 and found["rows"] > 100
