"""What is taken back is as if nobody had chosen it: by the sums of what was added, and by logs without it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kinstream.learners.ranking.learner import Ranking
from kinstream.learners.ranking.memory import CLICKS, ITEMS, Memory
from kinstream.learners.ranking.remembered import bits_of
from kinstream.processors.base.builder import Origin
from kinstream.processors.clicks.clicks import Clicks
from kinstream.streams.checkpoints.state_bytes import from_bytes, to_bytes
from kinstream.streams.records.values import Click, ConstraintBlock, Feedback, ItemBlock, ItemClick, Table
from tests.learners.ranking.test_memory import D, one_list

EVERY = 0


class Sums:
    """Of one query: what each list added, one by one. Numbers are those of the class `Memory`, in words."""

    def __init__(self) -> None:
        self.turn = 0
        #: By item: (turn, list, clicks, looks) of each list, and looks that stay when its click is taken back.
        self.parts: dict[int, list[list[float]]] = {}

    def add(self, list_id: int, names: list[int], clicked: list[int], act: dict[int, float]) -> None:
        self.turn += 1
        for place, name in enumerate(names):
            look = (place + 1.0) ** -0.5
            if place in clicked:
                a = act.get(place, 1.0)
                part = [self.turn, list_id, min(1.0, 3.0 / len(clicked)) * a, (a - 1.0) * look, look]
                self.parts.setdefault(name, []).append(part)
            elif name in self.parts:
                self.parts[name].append([self.turn, -1, 0.0, 0.0, look])

    def take_back(self, list_id: int, name: int) -> None:
        for part in self.parts.get(name, []):
            if part[1] == list_id:
                part[1:4] = [-1, 0.0, 0.0]
        if not any(part[2] for part in self.parts.get(name, [])):
            self.parts.pop(name, None)

    def rate(self, name: int) -> float:
        faded = [(math.exp((part[0] - self.turn) / 100), part) for part in self.parts.get(name, [])]
        clicks = sum(left * part[2] for left, part in faded)
        return clicks / (1.0 + sum(left * (part[3] + part[4]) for left, part in faded))


def remember(
    memory: Memory, query: Any, list_id: int, names: list[int], clicked: list[int], **more: Any
) -> None:
    whole, own = one_list(names, clicked, **more)
    ids = np.array([list_id], np.uint64)
    memory.learn(whole, own, bits_of(np.asarray(query)[None]), np.zeros(1, np.int64), ids)


def forget(memory: Memory, *pairs: tuple[int, int]) -> None:
    memory.forget(np.array(pairs, np.uint64))


def rates(memory: Memory, query: Any, names: list[int]) -> list[float] | None:
    found = memory.remembered.recall(np.asarray(query))
    return None if found is None else found.rates(np.array(names, np.uint64)).tolist()


def test_sums_are_those_of_what_is_left() -> None:
    draw = np.random.default_rng(0)
    queries, every = draw.normal(size=(5, D)), [*range(1, 13)]
    memory, sums = Memory(100), [Sums() for _ in queries]
    clicks: list[tuple[int, int, int]] = []
    taken = 0
    for list_id in range(1, 500):
        of = int(draw.integers(5))
        names = (draw.permutation(12)[:6] + 1).tolist()
        clicked = np.flatnonzero(draw.random(6) < 0.3).tolist() or [0]
        act = {clicked[0]: 5.0} if draw.random() < 0.3 else {}
        remember(memory, queries[of], list_id, names, clicked, worth=act)
        sums[of].add(list_id, names, clicked, act)
        clicks = [*clicks, *((of, list_id, names[place]) for place in clicked)][-CLICKS * 100 :]
        if draw.random() < 0.3:
            of, list_id, name = clicks[int(draw.integers(len(clicks)))]
            forget(memory, (list_id, name))
            sums[of].take_back(list_id, name)
            taken += 1
        if list_id % 50 == 0:
            memory, before = Memory(100), memory
            memory.restore(from_bytes(to_bytes(before.state())))
        for query, wanted in zip(queries, sums, strict=True):
            found = rates(memory, query, every)
            assert (found is None) == (not wanted.parts)
            assert (found or [0.0] * 12) == pytest.approx([wanted.rate(n) for n in every], rel=1e-4, abs=1e-6)
    assert taken > 100


def test_a_query_is_unknown_after_its_only_click_is_taken_back() -> None:
    query, other = np.random.default_rng(1).normal(size=(2, D))
    memory = Memory(10)
    remember(memory, other, 7, [1, 2, 3], [0])
    wanted = rates(memory, other, [1, 2, 3])
    remember(memory, query, 8, [1, 2, 3], [1])
    remember(memory, query, 8, [1, 2, 3], [1])
    assert rates(memory, query, [2]) != [0.0]
    forget(memory, (8, 1), (9, 2))
    assert rates(memory, query, [2]) != [0.0]
    forget(memory, (8, 2))
    assert rates(memory, query, [2]) is None
    assert rates(memory, other, [1, 2, 3]) == wanted


def test_what_is_taken_back_twice_is_taken_once() -> None:
    query = np.random.default_rng(2).normal(size=D)
    memory, once = Memory(10), Memory(10)
    for one, times in ((memory, 3), (once, 1)):
        for list_id in (1, 2, 3):
            remember(one, query, list_id, [5, 6], [0])
        for _ in range(times):
            forget(one, (2, 5))
    assert to_bytes(memory.state()) == to_bytes(once.state())


def test_a_removed_item_is_forgotten_for_every_query() -> None:
    queries = np.random.default_rng(3).normal(size=(3, D))
    memory = Memory(10)
    for row, clicked in enumerate(([0], [0, 1], [1])):
        remember(memory, queries[row], row + 1, [5, 6], clicked)
    forget(memory, (EVERY, 5), (EVERY, 99))
    assert rates(memory, queries[0], [5]) is None
    for query in queries[1:]:
        found = rates(memory, query, [5, 6])
        assert found is not None and found[0] == 0.0 < found[1]
    # Nothing is left to be taken back later, when the item has come again.
    remember(memory, queries[1], 4, [5, 6], [0])
    again = rates(memory, queries[1], [5])
    forget(memory, (2, 5))
    assert rates(memory, queries[1], [5]) == again


def test_what_made_room_is_not_taken_from_the_query_that_came_after_it() -> None:
    queries = np.random.default_rng(4).normal(size=(3, D))
    memory = Memory(2)
    for row in range(3):
        remember(memory, queries[row], row + 1, [5, 6], [0])
    assert rates(memory, queries[0], [5]) is None
    wanted = [rates(memory, query, [5]) for query in queries[1:]]
    forget(memory, (1, 5))
    assert [rates(memory, query, [5]) for query in queries[1:]] == wanted
    assert None not in wanted


def test_what_made_room_is_not_taken_from_the_item_that_came_again() -> None:
    query = np.random.default_rng(9).normal(size=D)
    memory = Memory(20)
    remember(memory, query, 1, [5], [0])
    for name in range(100, 100 + ITEMS):
        for list_id in (name, 1_000 + name):
            remember(memory, query, list_id, [name], [0])
    assert rates(memory, query, [5]) == [0.0]
    remember(memory, query, 2, [5], [0])
    wanted = rates(memory, query, [5])
    forget(memory, (1, 5))
    assert rates(memory, query, [5]) == wanted != [0.0]
    forget(memory, (2, 5))
    assert rates(memory, query, [5]) == [0.0]


def test_the_last_clicks_alone_can_be_taken_back() -> None:
    query = np.random.default_rng(5).normal(size=D)
    memory = Memory(3)
    for list_id in range(1, CLICKS * 3 + 2):
        remember(memory, query, list_id, [list_id], [0])
    forget(memory, (1, 1), (2, 2))
    found = rates(memory, query, [1, 2])
    assert found is not None and found[0] > 0.0 == found[1]
    assert len(np.asarray(memory.state()["last.list"])) == CLICKS * 3


def test_lists_without_an_id_cannot_be_taken_back() -> None:
    query = np.random.default_rng(6).normal(size=D)
    memory = Memory(3)
    whole, own = one_list([5, 6], [0])
    memory.learn(whole, own, bits_of(query[None]), np.zeros(1, np.int64))
    forget(memory, (0, 6), (1, 5))
    assert rates(memory, query, [5]) != [0.0]


# ---- from events to the model ---------------------------------------------------------------------------------------

NAMES = tuple(f"i{n}" for n in range(12))
QUERIES = np.random.default_rng(7).normal(size=(6, D)).astype(np.float32)
_VECTORS = np.random.default_rng(8).normal(size=(12, D)).astype(np.float32)


def shown(list_id: str, query: int, clicked: str, at: int) -> Click:
    vector = (Table("x", QUERIES[query][None]),)
    return Click("s", list_id, NAMES, tuple(range(12)), (ItemClick(clicked, at),), at, query_vector=vector)


def taken_back(list_id: str, item: str) -> Feedback:
    return Feedback("s", list_id, item, "cited", 1.0, 50, "", True)


def blocks(*events: Any) -> list[ConstraintBlock]:
    builder, made = Clicks(), []
    catalogue = ItemBlock("s", NAMES, (Table("x", _VECTORS),), 0)
    for offset, event in enumerate((catalogue, *events)):
        made += builder.process(event, Origin(offset=offset, append_ms=100)).blocks
    return made


def learned(*events: Any) -> Ranking:
    model = Ranking(remember=50)
    for block in blocks(*events):
        model.learn(block)
    return model


def chosen(model: Ranking, query: int) -> Any:
    assert model.remembered is not None
    found = model.remembered.recall(QUERIES[query])
    return None if found is None else sorted(np.round(found.clicks[found.clicks > 0], 4).tolist())


LOG = (shown("a", 0, "i3", 1), shown("b", 1, "i4", 2), shown("c", 1, "i5", 3))
LATER = shown("d", 2, "i6", 4)


def test_an_action_that_is_taken_back_late_is_forgotten_with_the_next_list() -> None:
    model = learned(*LOG, taken_back("a", "i3"), taken_back("b", "i4"), LATER)
    without = learned(*LOG[2:], LATER)
    assert chosen(model, 0) is None
    assert [chosen(model, n) for n in (1, 2)] == [chosen(without, n) for n in (1, 2)]
    assert chosen(learned(*LOG, taken_back("a", "i3")), 0) == chosen(learned(*LOG), 0)


def test_a_tombstone_is_forgotten_with_the_next_list() -> None:
    gone = ItemBlock("s", (), (), 10, ("i4", "i3"))
    back = ItemBlock("s", ("i4", "i3"), (Table("x", _VECTORS[[4, 3]]),), 11)
    model = learned(*LOG, gone, back, LATER)
    assert chosen(model, 0) is None
    assert chosen(model, 1) == chosen(learned(*LOG[2:], LATER), 1)


def test_a_block_of_held_out_lists_is_forgotten_by_as_well() -> None:
    """The agent gives a learner the block without rows then."""
    model = learned(*LOG)
    (last,) = blocks(*LOG, taken_back("a", "i3"), LATER)[-1:]
    assert last.retracted is not None
    empty = replace(last.take(slice(0, 0)), lists=None)
    model.learn(empty)
    assert chosen(model, 0) is None


def test_learners_without_a_memory_learn_what_they_learned() -> None:
    plain, other = Ranking(), Ranking()
    for block in blocks(*LOG, taken_back("a", "i3"), LATER):
        plain.learn(block)
        other.learn(replace(block, retracted=None))
    assert to_bytes(plain.state()) == to_bytes(other.state())
