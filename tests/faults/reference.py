"""What must come out: the events through the machines in this process, and the rule for copies written anew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kinstream.learners.agent import learner_spec
from kinstream.processors.agent import builder_spec
from kinstream.streams.checkpoints.state_bytes import to_bytes
from kinstream.streams.records.codec.codec import decode_outcome, encode
from kinstream.streams.records.message import Message
from kinstream.streams.records.values import LoadPosition, Outcome, SampleBlock, Table
from kinstream.streams.settings import Settings
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent

Chain = tuple[str, str]


def blocks(
    space: str,
    count: int,
    *,
    start: int = 0,
    rows: int = 16,
    d: int = 8,
    classes: int = 3,
    load: str = "load",
) -> Iterator[tuple[str, bytes]]:
    """Keys and values of `count` sample blocks of one load, from its sequence `start` on."""
    for sequence in range(start, start + count):
        rng = np.random.default_rng([sum(space.encode()), sequence])
        labels = rng.integers(0, classes, rows)
        vectors = (rng.normal(size=(rows, d)) + labels[:, None]).astype(np.float32)
        block = SampleBlock(
            space, (Table("x", vectors),), labels, 1_000 + sequence, None, LoadPosition(load, sequence)
        )
        yield space, encode(block)


@dataclass
class Copies:
    """Outputs by (emitter, space), each identity once, in the order of their first appearance.

    Parameters
    ----------
    repeated : identities that came again.
    breaks : outputs whose predecessor had not appeared before them.
    """

    values: dict[Chain, list[bytes]] = field(default_factory=dict)
    repeated: int = 0
    breaks: list[str] = field(default_factory=list)


def copies(messages: Iterable[Message]) -> Copies:
    """Apply the rule of the first appearance, by the headers alone and without product code."""
    found = Copies()
    seen: set[tuple[str, ...]] = set()
    for message in messages:
        said = {name: (value or b"").decode() for name, value in message.headers}
        if "kinstream-emitter" not in said:
            continue
        chain = said["kinstream-emitter"], (message.key or b"").decode()
        offset, part = said["kinstream-origin"].rsplit("/", 2)[1:]
        position = "/".join((said["kinstream-generation"], said["kinstream-epoch"], offset, part))
        if (*chain, position) in seen:
            found.repeated += 1
            continue
        before = said.get("kinstream-previous")
        if before is not None and (*chain, before) not in seen:
            found.breaks.append(f"{chain} {position} follows {before}")
        seen.add((*chain, position))
        found.values.setdefault(chain, []).append(message.value or b"")
    return found


@dataclass
class Expected:
    """States as bytes by space, outputs by chain."""

    builder: dict[str, bytes]
    learner: dict[str, bytes]
    constraints: dict[Chain, list[bytes]]
    outcomes: dict[Chain, list[bytes]]

    def constraint_count(self) -> int:
        """How many constraints the outcomes have seen."""
        records = [decode_outcome(value) for values in self.outcomes.values() for value in values]
        return sum(record.counts.seen for record in records if isinstance(record, Outcome))


def expected(settings: Settings, events: Iterable[Message], folder: Path) -> Expected:
    """An undisturbed run in one process."""
    log = MemoryLog(settings.topics.partitions)
    for event in events:
        while log.end(event.topic, event.partition) < event.offset:
            log.hole(event.topic, event.partition)
        headers = tuple((name, value or b"") for name, value in event.headers)
        log.append(event.topic, event.key, event.value, headers, event.partition)
    states = []
    for spec in (builder_spec(settings, "one-pass"), learner_spec(settings, "opml")):
        agent = Agent(spec, settings, log, folder)
        agent.run()
        states.append({name: to_bytes(state) for name, state in agent.states().items()})
    constraints, outcomes = (_chains(log, settings.topic(role)) for role in ("constraints", "outcomes"))
    return Expected(states[0], states[1], constraints, outcomes)


def _chains(log: MemoryLog, topic: str) -> dict[Chain, list[bytes]]:
    return copies(m for p in range(log.partitions) for m in log.read(topic, p, 0)).values
