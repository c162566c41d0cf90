"""Writes `sources-v2.json`: records of other systems, the events that they became, and a state in the midst of them.

`sources-v1.json` is of the version before, which had no headers of rows, and the records' own times.

A file that is there is never written again.

python -m tests.golden.write_sources
"""

from __future__ import annotations

import base64
import json
import random
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from kinstream.streams.checkpoints.state_bytes import to_bytes
from tests.sources.shop import SEARCH, machine, message, search

FILE: Final = Path(__file__).with_name("sources-v2.json")
START: Final = 1_777_636_800_000

PRODUCTS: Final[dict[str, Any]] = {
    "topic": "products",
    "kind": "items",
    "space": "shop",
    "fields": {"id": "@key", "vector": "embedding", "time": "updated_at", "deleted": "gone"},
}
RATINGS: Final[dict[str, Any]] = {
    "topic": "ratings",
    "kind": "samples",
    "space": "films",
    "fields": {"vector": {"text": "t", "image": "i"}, "label": "genre", "id": "id"},
}
BOUGHT: Final[dict[str, Any]] = {
    "topic": "bought",
    "kind": "relations",
    "fields": {"space": "tenant", "left": "item", "right": "with[*].id", "similar": "with[*].same"},
    "when": {"type": ["purchase"]},
}
UBI: Final[dict[str, Any]] = {"topic": "ubi", "preset": "ubi", "space": "shop"}


def cases() -> dict[str, tuple[dict[str, Any], list[tuple[bytes | None, Any]]]]:
    """Settings, and (key, value) records, some of which are refused."""
    rng = random.Random(4)
    query = {"query_id": "q-1", "client_id": "c", "timestamp": "2026-05-01T12:00:00Z"}
    click = {"action_name": "click", "event_attributes": {"object": {"object_id": 2}}}
    late = {**query, "query_id": "q-2", "timestamp": "2026-05-01T13:00:00Z", "query_response_hit_ids": ["5"]}
    searches: list[tuple[bytes | None, Any]] = [(None, search(n, rng)) for n in range(5)]
    return {
        "clicks": (SEARCH, [*searches, (None, {"meta": {}})]),
        "items": (
            PRODUCTS,
            [
                (b"a", {"embedding": [0.25, -1], "updated_at": 1777636800.5}),
                (b"b", {"embedding": "AACAPgAAgL8=", "updated_at": "2026-05-01T12:00:00+02:00"}),
                (b"a", None),
                (b"c", {"embedding": [1e39], "updated_at": 1777636800}),
                (b"b", {"updated_at": 1777636800, "gone": True}),
            ],
        ),
        "samples": (
            RATINGS,
            [(None, {"t": [0.5], "i": [1, 2], "genre": "noir", "id": n}) for n in range(3)],
        ),
        "relations": (
            BOUGHT,
            [
                (None, {"type": "view"}),
                (None, {"type": "purchase", "tenant": "t", "item": 1, "with": [{"id": 2, "same": 1}] * 2}),
            ],
        ),
        "ubi": (
            UBI,
            [
                (None, {**query, "query_response_hit_ids": ["1", "2"]}),
                (None, {**query, **click}),
                (None, late),
            ],
        ),
    }


def log_ms(value: bytes | None) -> int:
    """The time of a record in its log: that of the query or event in it, as their lists close by the log's time."""
    record = {} if value is None else json.loads(value)
    return int(datetime.fromisoformat(record.get("timestamp", "2026-05-01T12:00:00Z")).timestamp() * 1000)


def text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def main() -> None:
    if FILE.exists():
        raise SystemExit(f"{FILE} is there")
    found = {}
    for name, (source, records) in cases().items():
        agent = machine(source)
        outputs, state = [], b""
        values = [(key, None if value is None else json.dumps(value).encode()) for key, value in records]
        for offset, (key, value) in enumerate(values):
            made = [*agent.step(message(value, offset, key, log_ms(value))), *agent.flush()]
            outputs.append(
                [[text(one.value), [[name, text(data)] for name, data in one.headers]] for one in made]
            )
            if offset == len(values) // 2:
                state = to_bytes(agent.partition_state())
        found[name] = {
            "source": source,
            "records": [[text(key), text(value)] for key, value in values],
            "outputs": outputs,
            "state_after": len(values) // 2,
            "state": text(state),
        }
    FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
