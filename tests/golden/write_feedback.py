"""Writes `feedback-v1.json`: records of `kinstream.feedback`, what a worker made of them, and its state in their midst.

python -m tests.golden.write_feedback
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from kinstream.streams.agents.machine import Machine
from kinstream.streams.checkpoints.state_bytes import to_bytes
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.scores import Scores
from tests.sources.shop import machine, message
from tests.sources.test_feedback import LIST, SOURCE, START, did, end, shown

FILE = Path(__file__).with_name("feedback-v1.json")
#: After so many records the state is kept.
CUT = 5


def log() -> list[tuple[int, bytes]]:
    """Kafka times and values."""
    records: list[tuple[int, Any]] = [
        (START, did("b", 2.0, "cited")),
        (START, shown(scores=Scores.of({"bm25": [1.0, 2.0, None]}))),
        (START, did("c", key="1")),
        (START, did("c", key="1", retract=True)),
        (START, did(None, 0.75)),
        (START, did("a")),
        (START, did("c", key="1")),
        (START, did("z")),
        end(),
    ]
    return [(at, encode(record)) for at, record in records]


def outputs(agent: Machine, at: int, value: bytes) -> list[str]:
    """What a record makes, as text."""
    one = message(value, agent.next_offset, time_ms=at)._replace(appended=True)
    made = [*agent.step(one), *agent.flush()]
    return [base64.b64encode(output.value or b"").decode() for output in made]


def main() -> None:
    if FILE.exists():
        raise SystemExit(f"{FILE} is there")
    agent, found, state = machine(SOURCE), [], b""
    for number, (at, value) in enumerate(log()):
        found.append([at, base64.b64encode(value).decode(), outputs(agent, at, value)])
        if number + 1 == CUT:
            state = to_bytes(agent.partition_state())
    kept = {"list_id": LIST, "records": found, "state": base64.b64encode(state).decode()}
    FILE.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
