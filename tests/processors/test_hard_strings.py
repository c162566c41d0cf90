"""Odd strings in every field of every record, through every builder: applied exactly, or refused and kept.

Every builder meets every field; which of the odd strings each meets there is drawn, and all together meet all.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kinstream.processors import registry
from kinstream.processors.agent import builder_spec
from kinstream.streams.agents.letter import CONSUMER, REASON, REFUSED, redrive
from kinstream.streams.checkpoints.state_bytes import from_bytes, to_bytes
from kinstream.streams.errors import BadRecord
from kinstream.streams.records.codec.codec import decode_constraints, decode_event, encode
from kinstream.streams.records.message import Message
from kinstream.streams.records.values import ConstraintBlock, SampleBlock, Table
from kinstream.streams.settings import Settings
from tests.support import hard_strings
from tests.support.hard_strings import Sent
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent

#: What is refused because of how a record is written, not because of what a builder thinks of it.
WRITTEN = {b"undecodable", b"bad-shape", b"wrong-key", b"too-large"}
KINDS = registry.names()
SHARE = 4


@pytest.mark.parametrize(
    "sent", [*hard_strings.sent(lambda n: n % 7 == 0), *hard_strings.spaces()], ids=lambda s: s.where
)
def test_a_string_is_decoded_exactly_or_the_record_is_refused(sent: Sent) -> None:
    try:
        record = decode_event(sent.value)
    except BadRecord as error:
        assert not sent.fits, (sent.where, sent.text)
        error.detail.encode()
    else:
        assert sent.fits, (sent.where, sent.text)
        assert sent.text is not None
        assert repr(sent.text) in repr(record)


def _append(log: MemoryLog, sent: Sent) -> int:
    return log.append("kinstream.events", sent.key, sent.value, (("trace", b"1"),), partition=0)


def _letters(log: MemoryLog) -> list[Message]:
    return [m for p in range(log.partitions) for m in log.read("kinstream.dead-letters", p, 0)]


def _written(letters: list[Message]) -> dict[int, Message]:
    """Dead letters about the form of a record, by the offset that was refused."""
    found = {}
    for letter in letters:
        said = dict(letter.headers)
        if said[REASON] in WRITTEN:
            assert said[REFUSED] is not None
            found[int(said[REFUSED].decode().rsplit("/", 1)[1])] = letter
    return found


def _settings(kind: str) -> Settings:
    return Settings.model_validate({"builders": {"b": {"kind": kind}}})


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_every_builder_applies_or_refuses_checkpoints_and_redrives(kind: str, tmp_path: Path) -> None:
    """Uninterrupted, and restored from a checkpoint again and again: same state, same outputs, same letters."""
    draw = np.random.default_rng(KINDS.index(kind))
    chosen = [s for n, s in enumerate(hard_strings.sent()) if n % SHARE == KINDS.index(kind) % SHARE]
    chosen += list(hard_strings.spaces())
    order = draw.permutation(len(chosen))
    settings = _settings(kind)
    spec = builder_spec(settings, "b")
    logs = [MemoryLog(partitions=1) for _ in range(2)]
    for log in logs:
        for at in order:
            _append(log, chosen[at])
    calm = Agent(spec, settings, logs[0], tmp_path / "calm")
    calm.run()
    restless = Agent(spec, settings, logs[1], tmp_path / "restless")
    while restless.step(0, int(draw.integers(20, 60))):
        restless.runners[0].checkpoint()
        restless = Agent(spec, settings, logs[1], tmp_path / "restless")
    machines = [agent.runners[0].machine for agent in (calm, restless)]
    states = [{name: to_bytes(state) for name, state in agent.states().items()} for agent in (calm, restless)]
    assert states[0] == states[1]
    assert all(to_bytes(from_bytes(state)) == state for state in states[0].values())
    held = [to_bytes(machine.partition_state()) for machine in machines]
    assert held[0] == held[1]
    assert machines[0].dead == machines[1].dead
    for topic in ("kinstream.constraints", "kinstream.dead-letters"):
        outputs = [[(m.key, m.value, m.headers) for m in log.read(topic, 0, 0)] for log in logs]
        assert outputs[0] == outputs[1]

    # Exactly those that hold no such string are refused, each with its own bytes, and all is counted.
    letters = _letters(logs[0])
    found = _written(letters)
    own = {offset for offset, at in enumerate(order) if not chosen[at].fits}
    assert set(found) == own, {o: chosen[order[o]].where for o in set(found) ^ own}
    for offset in own:
        sent = chosen[order[offset]]
        kept = found[offset]
        said = dict(kept.headers)
        assert said[CONSUMER] == b"b" and said["trace"] == b"1"
        assert kept.value == (sent.value if len(sent.value) <= 960_000 else sent.value[: 64 * 1024])
        assert kept.key == sent.key[: 8 * 1024]
    assert sum(machines[0].dead.values()) == len(letters)

    # Outputs name modalities as they came.
    given = {s.text for s in chosen if s.where.endswith("modality") and s.fits} | {"x"}
    for output in logs[0].read("kinstream.constraints", 0, 0):
        block = decode_constraints(output.value)
        if isinstance(block, ConstraintBlock):
            assert {t.name for t in block.tables} <= given

    # A redrive of a record that cannot be read is refused again, whatever it holds.
    before = len(letters)
    sendable = [found[offset] for offset in sorted(own) if len(chosen[order[offset]].value) <= 960_000]
    for letter in sendable:
        sent_back = redrive(letter)
        logs[0].append("kinstream.events", sent_back.key, sent_back.value, sent_back.headers, partition=0)
    calm.run()
    assert machines[0].counts["redriven"] == len(sendable)
    assert len(_letters(logs[0])) == before + len(sendable)
    again = Agent(spec, settings, logs[0], tmp_path / "calm")
    assert again.runners[0].machine.dead == machines[0].dead


def test_labels_are_the_same_strings_after_a_checkpoint(tmp_path: Path) -> None:
    settings = _settings("one-pass")
    log = MemoryLog(partitions=1)
    spec = builder_spec(settings, "b")
    fit = tuple(text for text in hard_strings.TEXTS if len(text) <= hard_strings.LONGEST)
    vectors = np.eye(len(fit), dtype=np.float32)
    log.append("kinstream.events", b"s", encode(SampleBlock("s", (Table("x", vectors),), fit, 5)), (), 0)
    agent = Agent(spec, settings, log, tmp_path)
    agent.run()
    core = agent.states()["s"]
    restored = Agent(spec, settings, log, tmp_path).states()["s"]
    assert to_bytes(core) == to_bytes(restored)
    assert tuple(json.loads(str(restored["classes"]))) == fit
