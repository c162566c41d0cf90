"""What a block would add to a builder's vectors is known before any is taken; over the limit it is refused alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kinstream.processors.agent import builder_spec
from kinstream.processors.base.builder import Growing, Origin
from kinstream.streams.agents.machine import Machine, Place
from kinstream.streams.agents.space import Space
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.message import Message
from kinstream.streams.records.values import ItemBlock, SampleBlock, Table
from tests.support.pipeline import settings

MOST = 1_000_000
D = 500
#: Those that hold vectors by name or by class; adjacent pairs hold one sample.
KINDS = {
    "clicks": {},
    "closure": {},
    "one-pass": {},
    "random-pairs": {"reservoir": 10_000},
    "random-triplets": {"reservoir": 10_000},
}


def machine(kind: str) -> Machine:
    made = settings(builders={"it": {"kind": kind, **KINDS[kind]}}, learners={})
    worker = made.worker.model_copy(update={"max_resident_bytes": MOST})
    place = Place("it", 1, "events", 0, 1, "constraints", 1, "dead-letters")
    return builder_spec(made.model_copy(update={"worker": worker}), "it").make_machine(place, no_file)


def no_file(name: str) -> Any:
    raise KeyError(name)


def block(kind: str, number: int, space: str, rows: int = 40) -> Any:
    vectors = np.random.default_rng(number).normal(size=(rows, D)).astype(np.float32)
    names = tuple(f"item {number * rows + row}" for row in range(rows))
    tables = (Table("x", vectors),)
    if kind in ("clicks", "closure"):
        return ItemBlock(space, names, tables, time_ms=0)
    return SampleBlock(space, tables, names if kind == "one-pass" else names[:1] * rows, time_ms=0)


def step(agent: Machine, offset: int, record: Any) -> list[str]:
    message = Message("events", 0, offset, 0, record.space.encode(), encode(record), (), offset - 1)
    letters = [one for one in agent.step(message) if one.topic == "dead-letters"]
    return [
        (value or b"").decode()
        for one in letters
        for name, value in one.headers
        if b"space '" in (value or b"")
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_beyond_the_memory_of_a_space_is_refused_and_others_go_on(kind: str) -> None:
    agent = machine(kind)
    refused = [number for number in range(20) if step(agent, number, block(kind, number, "full"))]
    assert refused and refused == list(range(refused[0], 20)) and refused[0] > 1
    assert agent.dead == {"too-large": len(refused)}
    (text,) = step(agent, 20, block(kind, 20, "full"))
    assert "space 'full': its vectors would take about 1 MiB, and a space may take 1 MiB" in text
    # Other spaces go on, and so does this one with what it holds already.
    assert not step(agent, 21, block(kind, 0, "other"))
    if kind in ("clicks", "closure", "one-pass"):
        assert not step(agent, 22, block(kind, 0, "full"))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_asked_is_what_is_held_and_the_same_after_a_restore(kind: str) -> None:
    agent, again = machine(kind), machine(kind)
    for number in range(3):
        step(agent, number, block(kind, number, "s"))
    space = agent.find("s")
    assert space is not None and isinstance(space.core, Growing)
    core: Any = space.core
    following = block(kind, 3, "s")
    state = core.state()
    twin: Any = again.make_core("s", space)
    twin.restore(state)
    if hasattr(twin, "restore_segments"):
        twin.restore_segments(core.segment)
    asked = core.space_bytes(following)
    assert asked == twin.space_bytes(following) >= 4 * 40 * D * 4
    core.process(following, Origin(offset=9))
    held = sum(value.nbytes for value in core.state().values() if isinstance(value, np.ndarray))
    assert held <= asked


@pytest.mark.parametrize("kind", KINDS)
def test_a_space_that_gets_no_memory_is_refused_alone(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = machine(kind)
    core: Any = type(agent.make_core("s", Space()))

    def none_left(*arguments: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(core, "process", none_left)
        assert step(agent, 0, block(kind, 0, "s")) == ["space 's': there is no memory for its vectors"]
    assert agent.dead == {"too-large": 1} and agent.find("s") is None
    assert not step(agent, 1, block(kind, 0, "s"))
    # A builder that may be half changed is left to its checkpoint.
    monkeypatch.setattr(core, "process", none_left)
    with pytest.raises(MemoryError):
        step(agent, 2, block(kind, 1, "s"))
    assert agent.next_offset == 2
