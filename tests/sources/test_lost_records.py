"""A log may lose records between a crash and the next start: rows keep their numbers, and no new row is a duplicate."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinstream.processors.agent import builder_spec
from kinstream.producers.sources.agent import source_spec
from kinstream.streams.records.codec.codec import decode_event
from kinstream.streams.settings import Settings
from tests.sources.rows import numbered
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent, settings

TOPIC = "products"
PRODUCTS: dict[str, Any] = {
    "topic": TOPIC,
    "kind": "items",
    "fields": {"space": "tenant", "id": "ids[*]", "vector": "v[*]"},
}
SPACES = ("books", "shop")


def _settings() -> Settings:
    return settings(builders={"clicks": {"kind": "clicks"}}, learners={}, sources={"products": PRODUCTS})


def _put(log: MemoryLog, first: int, count: int) -> dict[str, str]:
    """Records of one to three items, each item once; some records are none. Returns the space of each item."""
    made: dict[str, str] = {}
    for number in range(first, first + count):
        names = [f"{number}-{row}" for row in range(1 + number % 3)]
        space, vectors = SPACES[number % 2], [[number, row] for row in range(len(names))]
        value = json.dumps({"tenant": space, "ids": names, "v": vectors}).encode()
        if number % 7:
            made |= dict.fromkeys(names, space)
        else:
            value = b"{"
        log.append(TOPIC, f"k{number}".encode(), value, partition=0)
    return made


def _emitted(log: MemoryLog) -> set[str]:
    events: list[Any] = [decode_event(m.value) for m in log.read("kinstream.events", 0, 0)]
    return {name for event in events for name in event.ids}


def _clean(log: MemoryLog, end: int, rng: random.Random) -> None:
    """Drop some records up to there, as a cleaner may that runs while nobody reads; none whose items would be lost."""
    emitted = _emitted(log)
    for message in log.read(TOPIC, 0, 0):
        value = message.value or b""
        names = set() if value == b"{" else set(json.loads(value)["ids"])
        if message.offset < end and names <= emitted and rng.random() < 0.4:
            log.lose(TOPIC, 0, message.offset)


def _taken(config: Settings, log: MemoryLog, folder: Path) -> dict[str, int]:
    """How many items a builder has taken into the catalogue of each space."""
    builder = Agent(builder_spec(config, "clicks"), config, log, folder)
    builder.run()
    return {
        name: len(np.asarray(state["catalogue.tail.keys"]))
        for name, state in sorted(builder.states().items())
    }


@pytest.mark.parametrize("seed", range(12))
def test_no_new_row_is_taken_for_one_that_was_seen(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    config, log = _settings(), MemoryLog(partitions=1)
    spec = source_spec(config, "products")
    wanted: dict[str, str] = {}
    for turn in range(6):
        wanted |= _put(log, 12 * turn, 12)
        killed = Agent(spec, config, log, tmp_path)
        while killed.step(0, rng.randint(1, 6)):
            killed.sink.deliver(rng.randrange(4))
            if rng.random() < 0.2:
                killed.runners[0].checkpoint()
        killed.sink.deliver(rng.randrange(10))
        _clean(log, killed.runners[0].machine.next_offset, rng)
    Agent(spec, config, log, tmp_path).run()
    assert _emitted(log) == set(wanted)
    _, repeated = numbered(log.read("kinstream.events", 0, 0))
    assert repeated
    assert _taken(config, log, tmp_path) == {
        name: sum(space == name for space in wanted.values()) for name in SPACES
    }


def test_a_zombie_that_packs_older_rows_beside_its_successor_repeats_none(tmp_path: Path) -> None:
    config, log = _settings(), MemoryLog(partitions=1)
    spec = source_spec(config, "products")
    wanted = _put(log, 0, 30)
    zombie = Agent(spec, config, log, tmp_path)
    zombie.step(0, 12)
    successor = Agent(spec, config, log, tmp_path)
    for _ in range(6):
        # It packs the same rows in other blocks.
        successor.step(0, 1)
    successor.sink.confirm()
    zombie.sink.confirm()
    successor.run()
    assert _taken(config, log, tmp_path) == {
        name: sum(space == name for space in wanted.values()) for name in SPACES
    }
