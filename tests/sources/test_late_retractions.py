"""From feedback to the model through every agent: an action that is taken back late, with all that repeats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kinstream.learners.agent import learner_spec
from kinstream.learners.ranking.learner import Ranking
from kinstream.processors.agent import builder_spec
from kinstream.streams.agents.machine import Machine, Place
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.checkpoints.state_bytes import to_bytes
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.lists.feedback import Feedback
from kinstream.streams.records.message import Message, Output
from kinstream.streams.records.values import Click, ItemBlock, Table
from kinstream.streams.settings import Settings
from tests.sources.shop import machine
from tests.sources.test_feedback import MINUTE, SECOND, SOURCE, START, did, id_at

ITEMS = ("a", "b", "c")
SETTINGS = Settings.model_validate(
    {
        "builders": {"clicks": {"kind": "clicks"}},
        "learners": {"ranking": {"kind": "ranking", "from": ["clicks"], "remember": 50, "held_out": 0.0}},
    }
)
DEAD = "kinstream.dead-letters"
LATER = START + 20 * MINUTE


class Chain:
    """Source, builder and learner of one partition each, and the logs between them."""

    def __init__(self) -> None:
        self.source = machine(SOURCE, 1)
        self.builder = _machine(builder_spec(SETTINGS, "clicks"), "events", "constraints")
        self.learner = _machine(learner_spec(SETTINGS, "ranking"), "constraints", "outcomes")
        self.events: list[Output] = []
        self.dead: list[Output] = []
        vectors = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
        catalogue = ItemBlock("docs", ITEMS, (Table("x", vectors),), START)
        self.send([Output("kinstream.events", b"docs", encode(catalogue), (), 0)], START)

    def give(self, log_ms: int, *records: Any) -> None:
        """Records of feedback, of which the source makes events at once."""
        for record in records:
            at = self.source.next_offset
            one = Message("kinstream.feedback", 0, at, log_ms, b"docs", encode(record), (), at - 1)
            self.send([*self.source.step(one), *self.source.flush()], log_ms)

    def send(self, events: Sequence[Output], log_ms: int) -> None:
        """Events to the builder, and what it makes of them to the learner."""
        for event in events:
            if event.topic == DEAD:
                self.dead.append(event)
                continue
            self.events.append(event)
            for made in _step(self.builder, event, log_ms, self.dead):
                _step(self.learner, made, log_ms, self.dead)

    def chosen(self, query: int) -> list[float] | None:
        """How often the items of a list were chosen for a query; None where nothing is known of it."""
        space = self.learner.find("docs")
        assert space is not None and isinstance(space.core, Ranking) and space.core.remembered is not None
        found = space.core.remembered.recall(vector(query)[0].vectors[0])
        return None if found is None else np.sort(found.clicks[found.clicks > 0.0]).tolist()

    def state(self) -> list[bytes]:
        space = self.learner.find("docs")
        assert space is not None and isinstance(space.core, Ranking)
        return [to_bytes(space.core.state())]


def _machine(spec: AgentSpec, topic: str, output: str) -> Machine:
    place = Place(spec.name, 1, f"kinstream.{topic}", 0, 1, f"kinstream.{output}", 1, DEAD)
    return spec.make_machine(place, lambda name: {})


def _step(agent: Machine, record: Output, log_ms: int, dead: list[Output]) -> list[Output]:
    at = agent.next_offset
    message = Message(record.topic, 0, at, log_ms, record.key, record.value, tuple(record.headers), at - 1)
    outputs = agent.step(message)
    dead += [one for one in outputs if one.topic == DEAD]
    return [one for one in outputs if one.topic != DEAD]


def vector(query: int) -> tuple[Table, ...]:
    return (Table("x", np.random.default_rng(100 + query).normal(size=(1, 4)).astype(np.float32)),)


def name_of(query: int) -> str:
    return id_at(START + query, query.to_bytes(6, "big"))


def used(query: int, item: str, at: int = START) -> tuple[Click, Feedback]:
    """A list of a query, and a click on an item in it."""
    name = id_at(at + query, query.to_bytes(6, "big"))
    shown = Click("docs", name, ITEMS, (0, 1, 2), (), at + query, "s", f"u{query}", None, vector(query))
    return shown, did(item, list_id=name, time_ms=at + query + 1)


def back(query: int, item: str) -> Feedback:
    return did(item, list_id=name_of(query), time_ms=LATER, retract=True)


def closed(chain: Chain, at: int, query: int) -> None:
    """A later list, which closes all that are older by the window, and is closed itself."""
    chain.give(at, *used(query, "c", at))
    chain.give(at + 2 * MINUTE, *used(query + 1, "c", at + 2 * MINUTE)[:1])


def test_what_is_taken_back_late_is_forgotten() -> None:
    chain = Chain()
    chain.give(START + SECOND, *used(1, "a"), *used(2, "b"))
    closed(chain, START + 5 * MINUTE, 10)
    assert (chain.chosen(1), chain.chosen(2), chain.chosen(10)) == ([1.0], [1.0], [1.0])
    chain.give(LATER, back(1, "a"), back(2, "c"))
    assert chain.chosen(1) == [1.0]
    closed(chain, LATER + 5 * MINUTE, 20)
    assert (chain.chosen(1), chain.chosen(2), chain.chosen(10)) == (None, [1.0], [1.0])
    assert not chain.dead


def test_it_is_taken_once_whatever_repeats() -> None:
    once, often = Chain(), Chain()
    for chain, times in ((once, 1), (often, 3)):
        chain.give(START + SECOND, *used(1, "a"), *used(2, "b"))
        closed(chain, START + 5 * MINUTE, 10)
        for _ in range(times):
            chain.give(LATER, back(1, "a"))
        if chain is often:
            # A source that starts again writes its last events once more.
            chain.send(chain.events[-3:], LATER)
        closed(chain, LATER + 5 * MINUTE, 20)
    assert often.builder.counts["duplicates"] == 3
    assert often.chosen(1) is None and often.chosen(2) == once.chosen(2)
    assert once.state() == often.state()
    assert not once.dead and not often.dead
