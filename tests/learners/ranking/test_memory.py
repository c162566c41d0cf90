"""What was chosen for queries: it is that of a transcription, bounded, fading, and the same where it is served."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kinstream.learners.ranking.learner import Ranking
from kinstream.learners.ranking.memory import ITEMS, Memory
from kinstream.learners.ranking.remembered import BITS, Remembered, bits_of
from kinstream.learners.ranking.weights import Whole
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.scores import REMEMBERED
from tests.learners.ranking.test_ranking import HALF, bits, learned
from tests.learners.ranking.world import World
from tests.learners.transcriptions.remembered import Remembering

D = 24


def one_list(
    names: list[int], clicked: list[int], actor: int = 0, worth: dict[int, float] | None = None
) -> Any:
    """A list of these items, of which some are clicked."""
    acts = np.ones(len(names))
    for place, weight in (worth or {}).items():
        acts[place] = weight
    whole = Whole(
        (),
        np.empty((len(names), 0)),
        np.array([0, len(names)], np.int32),
        np.isin(np.arange(len(names)), clicked),
        np.array([1], np.uint64),
        np.array([actor], np.uint64),
        0.5,
        acts,
    )
    return whole, np.array(names, np.uint64)


def remember(
    memory: Memory, query: Any, names: list[int], clicked: list[int], **more: Any
) -> tuple[list[float], bool]:
    whole, own = one_list(names, clicked, **more)
    said, knows = memory.learn(whole, own, bits_of(np.asarray(query)[None]), np.zeros(1, np.int64))
    return said.tolist(), bool(knows[0])


def around(draw: Any, centres: Any) -> Any:
    """A query that is equal or near to one of some, or none of them."""
    step = draw.choice([0.0, 0.001, 0.01, 0.02, 0.05])
    query = centres[draw.integers(len(centres))] + step * draw.normal(size=D)
    return query * draw.uniform(0.5, 2.0)


def test_it_says_what_a_transcription_says() -> None:
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(12, D))
    memory, written = Memory(1_000), Remembering()
    known = 0
    for _ in range(400):
        query = around(draw, centres)
        names = (draw.permutation(14)[:8] + 1).tolist()
        clicked = np.flatnonzero(draw.random(8) < 0.25).tolist() or [0]
        actor, act = int(draw.integers(4)), {clicked[0]: 5.0} if draw.random() < 0.2 else {}
        wanted = written.says(bits_of(query[None])[0], names)
        said = remember(memory, query, names, clicked, actor=actor, worth=act)
        assert said[0] == pytest.approx(wanted[0], rel=1e-5, abs=1e-9)
        assert said[1] == wanted[1]
        acts = [act.get(place, 1.0) for place in range(len(names))]
        written.add(bits_of(query[None])[0], names, clicked, actor, acts)
        known += said[1]
    assert 100 < known < 400


def test_what_is_served_is_what_was_said() -> None:
    """Bit for bit, for each list before it is learned."""
    draw = np.random.default_rng(1)
    centres = draw.normal(size=(12, D)).astype(np.float32)
    memory = Memory(15)
    for _ in range(200):
        query = around(draw, centres).astype(np.float32)
        names = (draw.permutation(40)[:8] + 1).tolist()
        found = memory.remembered.recall(query)
        said, knows = remember(memory, query, names, [int(draw.integers(8))])
        assert (found is not None) == knows
        if found is not None:
            assert found.rates(np.array(names, np.uint64)).tolist() == said


def test_the_queries_that_came_last_are_kept() -> None:
    draw = np.random.default_rng(2)
    queries = draw.normal(size=(6, D))
    memory = Memory(4)
    for row in (0, 1, 2, 3, 0, 4, 5):
        remember(memory, queries[row], [1, 2], [0])
    assert [memory.remembered.recall(one) is not None for one in queries] == [
        True,
        False,
        False,
        True,
        True,
        True,
    ]
    assert len(memory.remembered) == 4


def test_an_item_of_a_low_rate_makes_room() -> None:
    query = np.random.default_rng(3).normal(size=D)
    memory = Memory(4)
    for name in range(1, ITEMS + 1):
        for _ in range(1 + (name != 7)):
            remember(memory, query, [name], [0])
    remember(memory, query, [100], [0])
    found = memory.remembered.recall(query)
    assert found is not None
    there = found.times(np.arange(101, dtype=np.uint64)) > 0.0
    assert np.flatnonzero(there).tolist() == [1, 2, 3, 4, 5, 6, *range(8, ITEMS + 1), 100]
    assert found.rates(np.zeros(0, np.uint64)).tolist() == []
    twice = found.rates(np.array([100, 7, 100], np.uint64)).tolist()
    assert twice[0] == twice[2] > twice[1] == 0.0


def test_what_is_shown_and_not_chosen_any_more_loses_its_rate() -> None:
    query = np.random.default_rng(4).normal(size=D)
    memory = Memory(4)
    for _ in range(10):
        remember(memory, query, [1, 2], [0])
    before = remember(memory, query, [1, 2], [1])[0]
    for _ in range(60):
        remember(memory, query, [1, 2], [1])
    after = remember(memory, query, [1, 2], [1])[0]
    assert before[0] > 0.8 and before[1] == 0.0
    assert after[0] < 0.2 and after[1] > 0.8


def test_one_user_counts_little() -> None:
    query = np.random.default_rng(5).normal(size=D)

    def times(actors: list[int]) -> float:
        memory = Memory(4)
        for actor in actors:
            remember(memory, query, [1, 2], [1], actor=actor)
        found = memory.remembered.recall(query)
        assert found is not None
        return float(found.times(np.array([2], np.uint64))[0])

    assert times([3] * 40) < 0.2 * times([*range(100, 140)])


def test_an_action_that_weighs_much_is_as_so_many_clicks() -> None:
    query = np.random.default_rng(8).normal(size=D)

    def rate(worth: dict[int, float], times: int) -> float:
        memory = Memory(4)
        for _ in range(times):
            remember(memory, query, [1, 2], [0], worth=worth)
        return remember(memory, query, [1, 2], [0])[0][0]

    # Sums fade a little from one click to the next.
    assert rate({0: 5.0}, 1) == pytest.approx(rate({}, 5), abs=0.01)
    assert rate({}, 1) < rate({0: 100.0}, 1) < 1.0


def test_queries_of_other_lengths_are_the_same_and_of_one_without_direction_nothing_is_remembered() -> None:
    query = np.random.default_rng(6).normal(size=(5, D))
    assert np.array_equal(bits_of(query), bits_of(1e-3 * query))
    memory = Memory(4)
    for one in ([0.0] * D, [np.nan] * D):
        assert (bits_of(np.array([one])) == 0).all()
        for _ in range(3):
            assert remember(memory, one, [1, 2], [0]) == ([0.0, 0.0], False)
        assert not len(memory.remembered) and memory.remembered.recall(np.array(one)) is None


def test_a_query_of_other_precision_is_the_same_and_one_of_other_words_is_not() -> None:
    draw = np.random.default_rng(9)
    memory = Memory(500)
    queries = draw.normal(size=(200, 384))
    for query in queries:
        remember(memory, query, [1, 2], [0])
    largest = np.abs(queries).max(axis=1, keepdims=True)
    for same, least in ((queries.astype(np.float16), 200), (np.rint(127 * queries / largest), 195)):
        assert sum(memory.remembered.recall(one.astype(np.float64)) is not None for one in same) >= least
    # As embedders of few words have them: another word, and a cosine of .99.
    other = queries + np.sqrt(0.02) * draw.normal(size=queries.shape)
    assert sum(memory.remembered.recall(one) is not None for one in other) == 0
    for query in queries.astype(np.float16).astype(np.float64):
        remember(memory, query, [1, 2], [0])
    assert len(memory.remembered) == 200


def test_the_share_of_other_bits_estimates_the_angle() -> None:
    draw = np.random.default_rng(7)
    left = draw.normal(size=(200, D))
    right = left + draw.uniform(0.0, 1.5, size=(200, 1)) * draw.normal(size=(200, D))
    cosine = (left * right).sum(axis=1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
    apart = np.bitwise_count(bits_of(left) ^ bits_of(right)).sum(axis=1) / BITS
    assert np.abs(apart - np.arccos(cosine) / np.pi).max() < 5 * 0.5 / math.sqrt(BITS)
    assert (apart - np.arccos(cosine) / np.pi).mean() == pytest.approx(0.0, abs=0.005)


def test_a_ranking_that_is_asked_again_goes_by_what_was_chosen() -> None:
    model = learned(World(400).blocks(), start=HALF, remember=1_000)
    assert REMEMBERED in model.known_blend.names and REMEMBERED not in model.blend.names
    assert model.weights[REMEMBERED] > 0.0
    queries = World(1).queries
    assert model.remembered is not None
    assert sum(model.remembered.recall(one) is not None for one in queries) > 100


def test_queries_of_which_nothing_is_known_are_ranked_as_without_a_memory() -> None:
    def nameless(block: Any) -> Any:
        return replace(block, lists=replace(block.lists, names=None))

    none = learned(World(200).blocks(), start=HALF)
    assert none.remembered is None and not any("memory" in name.partition(".")[2] for name in none.state())
    wanted = {name: np.asarray(one).tolist() for name, one in none.state().items()}
    for change, known in ((nameless, False), (lambda block: block, True)):
        model = learned(map(change, World(200).blocks()), start=HALF, remember=1_000)
        assert model.remembered is not None and (len(model.remembered) > 0) == known
        assert (
            wanted.items() <= {name: np.asarray(one).tolist() for name, one in model.state().items()}.items()
        )


def test_a_state_of_more_queries_than_there_is_room_for_is_refused() -> None:
    model = learned(World(90).blocks(), start=HALF, remember=1_000)
    other = Ranking(start=HALF, remember=5)
    with pytest.raises(SettingsError, match="remember is 5"):
        other.restore(model.state())


def test_a_full_memory_goes_on_bit_for_bit() -> None:
    whole = bits(learned(World(120).blocks(cut=120), start=HALF, remember=10))
    model = Ranking(start=HALF, remember=10)
    for block in World(120).blocks(cut=7):
        again = Ranking(start=HALF, remember=10)
        again.restore(model.state())
        again.learn(block)
        model = again
    assert bits(model) == whole


@pytest.mark.parametrize("change", [{"clicks": -1.0}, {"seen": np.nan}, {"clicks": np.inf}])
def test_numbers_that_are_none_are_refused(change: dict[str, float]) -> None:
    memory = Memory(3)
    remember(memory, np.ones(D), [1, 2], [0])
    found = memory.remembered
    arrays = {name: getattr(found, name).copy() for name in ("bits", "items", "clicks", "seen")}
    assert len(Remembered(**arrays)) == 1
    for name, value in change.items():
        arrays[name][0] = value
    with pytest.raises(ValueError, match="finite"):
        Remembered(**arrays)
