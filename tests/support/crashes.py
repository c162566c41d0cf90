"""Crashes at random places of an in-process pipeline, and what has to be the same after them."""

from __future__ import annotations

import random
from pathlib import Path

from kinstream.streams import failpoints
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.records.identity import EMITTER, EPOCH, GENERATION, ORIGIN
from kinstream.streams.settings import Settings
from kinstream.streams.traces.spans import Spans
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent


def disturbed(
    spec: AgentSpec,
    config: Settings,
    log: MemoryLog,
    root: Path,
    rng: random.Random,
    spans: Spans | None = None,
) -> tuple[Agent, int]:
    """Run an agent over the log while it crashes at random places; returns it at its end, and how often it crashed."""
    places = sorted(n for n in failpoints.NAMES if not n.startswith(("producer.", "repartition.")))
    crashes = 0
    agent = Agent(spec, config, log, root, spans=spans)
    while any(log.read(agent.topic, p, r.machine.next_offset) for p, r in agent.runners.items()):
        place = rng.choice(places)
        with failpoints.installed(f"{place}=raise@{rng.randint(1, 6)}"):
            try:
                for partition in rng.sample(sorted(agent.runners), len(agent.runners)):
                    agent.step(partition, rng.randint(1, 9))
                    if rng.random() < 0.6:
                        agent.runners[partition].checkpoint()
            except RuntimeError:
                crashes += 1
                # Of what was in flight, some prefix had reached the broker.
                agent.sink.deliver(rng.randint(0, len(agent.sink.waiting)))
                agent = _restarted(spec, config, log, root, spans)
    agent.run()
    return agent, crashes


def _restarted(spec: AgentSpec, config: Settings, log: MemoryLog, root: Path, spans: Spans | None) -> Agent:
    # A crash may hit the restore too; the supervisor would try again.
    for _ in range(10):
        try:
            return Agent(spec, config, log, root, spans=spans)
        except RuntimeError:
            continue
    raise AssertionError("restore never succeeds")


def deduplicated(log: MemoryLog, topic: str) -> dict[tuple[bytes, bytes], list[bytes]]:
    """First appearances of each (emitter, space), as values; the rule is written anew here, without product code."""
    seen: set[tuple[bytes, ...]] = set()
    found: dict[tuple[bytes, bytes], list[bytes]] = {}
    for partition in range(log.partitions):
        for message in log.read(topic, partition, 0):
            headers = dict(message.headers)
            if EMITTER not in headers:
                continue
            identity = (
                message.key or b"",
                *(headers[name] or b"" for name in (EMITTER, GENERATION, EPOCH, ORIGIN)),
            )
            if identity not in seen:
                seen.add(identity)
                found.setdefault((headers[EMITTER] or b"", message.key or b""), []).append(
                    message.value or b""
                )
    return found


def letters(log: MemoryLog) -> set[tuple[bytes | None, ...]]:
    """What was refused, each part of a record once."""
    names = (
        "kinstream-dead-consumer",
        "kinstream-dead-refused",
        "kinstream-dead-reason",
        "kinstream-dead-rows",
    )
    found = set()
    for partition in range(log.partitions):
        for message in log.read("kinstream.dead-letters", partition, 0):
            headers = dict(message.headers)
            found.add(tuple(headers[name] for name in names))
    return found
