"""Every record once: crashes, zombies and re-packed blocks change no row, and builders apply each row once."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from kinstream.processors.agent import builder_spec
from kinstream.producers.sources import packing
from kinstream.producers.sources.agent import source_spec
from kinstream.streams.agents.letter import redrive
from kinstream.streams.operations.letters import Letter, plan
from kinstream.streams.settings import Settings
from tests.sources.rows import numbered
from tests.sources.shop import SEARCH, machine, meaning, message, search
from tests.support.crashes import disturbed, letters
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent, settings

BUILDERS: dict[str, Any] = {"clicks": {"kind": "clicks", "rules": ["co-click"], "co_click_support": 1}}
BAD = (b"{", b'{"meta": 1}', None, b"\xff", b"[]")


def _settings() -> Settings:
    return settings(builders=BUILDERS, learners={}, sources={"shop": SEARCH})


def _fill(log: MemoryLog, records: int, seed: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Records on any partition, some of them unusable; returns what they mean, by space and partition."""
    rng = random.Random(seed)
    wanted: dict[str, list[dict[str, Any]]] = {}
    for number in range(records):
        partition = rng.randrange(log.partitions)
        if rng.random() < 0.1:
            log.append("shop.search", b"any", rng.choice(BAD), partition=partition)
            continue
        record = search(number, rng)
        log.append("shop.search", f"k{number}".encode(), json.dumps(record).encode(), partition=partition)
        wanted.setdefault(f"{record['meta']['tenant']}/{partition}", []).append(meaning(record))
    return wanted


def _events(log: MemoryLog) -> list[Any]:
    return [m for p in range(log.partitions) for m in log.read("kinstream.events", p, 0)]


def _by_partition(log: MemoryLog) -> tuple[dict[str, list[dict[str, Any]]], int]:
    rows, repeated = numbered(_events(log))
    found = {
        f"{space}/{load.rpartition('/')[2]}": [some[number] for number in sorted(some)]
        for (space, load), some in rows.items()
    }
    return found, repeated


@pytest.mark.parametrize("seed", range(10))
def test_random_crashes_lose_and_repeat_no_row(seed: int, tmp_path: Path) -> None:
    config, log = _settings(), MemoryLog()
    wanted = _fill(log, 120, seed)
    _, crashes = disturbed(source_spec(config, "shop"), config, log, tmp_path, random.Random(seed))
    assert crashes
    found, _ = _by_partition(log)
    assert found == wanted
    calm = MemoryLog()
    _fill(calm, 120, seed)
    Agent(source_spec(config, "shop"), config, calm, tmp_path / "calm").run()
    assert letters(log) == letters(calm) != set()
    # A builder behind it counts the lists of each run alike.
    fates = []
    for one, name in ((log, "rough"), (calm, "quiet")):
        agent = Agent(builder_spec(config, "clicks"), config, one, tmp_path / name)
        agent.run()
        counts = [runner.machine.counts for runner in agent.runners.values()]
        fates.append([{n: v for n, v in c.items() if n.startswith("fate.")} for c in counts])
    assert fates[0] == fates[1]
    assert any(number for counts in fates[0] for number in counts.values())


def test_a_block_that_is_packed_again_is_applied_from_the_first_row_that_is_new(tmp_path: Path) -> None:
    config, log = _settings(), MemoryLog(partitions=1)
    wanted = _fill(log, 30, 7)
    spec = source_spec(config, "shop")
    zombie = Agent(spec, config, log, tmp_path)
    zombie.step(0, 7)
    zombie.sink.confirm()
    zombie.step(0, 3)
    # Without a checkpoint its successor begins at the start, and packs other blocks.
    successor = Agent(spec, config, log, tmp_path)
    successor.step(0, 9)
    successor.sink.deliver(1)
    zombie.step(0, 1)
    zombie.sink.confirm()
    successor.run()
    found, repeated = _by_partition(log)
    assert found == wanted and repeated > 0
    builder = Agent(builder_spec(config, "clicks"), config, log, tmp_path)
    builder.run()
    calm = MemoryLog(partitions=1)
    _fill(calm, 30, 7)
    Agent(spec, config, calm, tmp_path / "calm").run()
    other = Agent(builder_spec(config, "clicks"), config, calm, tmp_path / "calm")
    other.run()
    mine, theirs = (
        {n: v for n, v in a.runners[0].machine.counts.items() if n.startswith("fate.")}
        for a in (builder, other)
    )
    assert mine == theirs and builder.runners[0].machine.counts["duplicates"] > 0


def test_spaces_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MAX_SPACES", 2)
    agent = machine(SEARCH)
    for number in range(6):
        # Before and after they are packed.
        agent.step(message(search(number, random.Random(number), tenants=3), number))
        if number == 2:
            agent.flush()
    assert agent.dead == {"space-limit": 2} and agent.counts["applied"] == 4


def test_nothing_is_redriven_to_a_compacted_topic() -> None:
    topics = ("shop.search", "shop.products")
    letters_ = [
        Letter(0, n, 0, "shop", "bad-shape", "", topic, 0, n, None, "", 1, False)
        for n, topic in enumerate(topics)
    ]
    planned = plan(letters_, topics, lambda letter: True, {"shop.products"})
    assert [letter.topic for letter in planned.send] == ["shop.search"]
    assert [why for why in planned.left_out if "compacted" in why] and planned.left_out.popitem()[1] == 1


def test_a_redriven_record_becomes_rows_of_its_own(tmp_path: Path) -> None:
    config, log = _settings(), MemoryLog(partitions=1)
    record = search(1, random.Random(1))
    broken = json.dumps(record).replace('"ts": ', '"ts": null, "was": ')
    log.append("shop.search", b"k", broken.encode(), partition=0)
    log.append("shop.search", b"k", json.dumps(search(2, random.Random(2))).encode(), partition=0)
    agent = Agent(source_spec(config, "shop"), config, log, tmp_path)
    agent.run()
    (letter,) = log.read("kinstream.dead-letters", 0, 0)
    headers = dict(letter.headers)
    assert letter.value == broken.encode() and letter.key == b"k"
    assert headers["kinstream-dead-refused"] == b"shop.search/0/0"
    assert headers["kinstream-dead-detail"] == b"time (meta.ts): is missing"
    # The mapping is corrected in a new generation, which inherits the refusal.
    fixed = {**SEARCH, "fields": {**SEARCH["fields"], "time": "meta.was"}}
    later = settings(builders=BUILDERS, learners={}, sources={"shop": fixed})
    state = agent.runners[0].machine.partition_state()
    successor = Agent(source_spec(later, "shop"), later, log, tmp_path, generation=2)
    successor.runners[0].machine.inherit(state, {})
    successor.runners[0].machine.next_offset = 2
    for _ in range(2):
        again = redrive(letter)
        log.append(again.topic, again.key, again.value, again.headers, again.partition)
    successor.run()
    counts = successor.runners[0].machine.counts
    assert (counts["redriven"], counts["redrives_ignored"]) == (1, 1)
    rows, _ = numbered(_events(log))
    loads = {load: list(some.values()) for (_, load), some in rows.items()}
    assert loads["source/shop/2/0"] == [meaning(record)]
