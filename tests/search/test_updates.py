"""Whatever comes of a learner's update records, a replica serves a map that the learner had, or says it is behind."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kinstream.learners import updates as publishing
from kinstream.learners.updates import Before, UpdateOrigin
from kinstream.search.updates.replica import At, Changed, MapReplica, Remapped
from kinstream.streams.records.codec.codec import decode_update, encode
from kinstream.streams.records.values import ModelUpdate
from kinstream.testing.blocks import pair_blocks
from tests.learners.published_unit import LEGO

D, M = 7, 6
Maps = dict[At, NDArray[Any]]


def run(generation: int, epoch: int, messages: int, seed: int) -> tuple[Maps, list[ModelUpdate]]:
    """A life of a model: its map at every step that a block ends at, and its records, of several parts each."""
    core = LEGO(1e-3, loss="squared", y_similar=2.0, y_dissimilar=20.0)
    maps, records, step = {}, [], 0
    for offset, block in enumerate(pair_blocks(seed, D, messages, M)):
        before = Before(core)
        outcomes = core.learn(block)
        after = step + outcomes.counts().seen
        origin = UpdateOrigin("s", "lego", generation, epoch, "c", 0, offset, step, after, 5)
        for record in before.updates(origin, block, outcomes):
            records.append(decode_update(encode(record)))
        step = after
        maps[At(generation, epoch, step)] = core.map
    return maps, records


@cache
def world() -> tuple[Maps, list[ModelUpdate]]:
    """A model, the same after a reset, and the next generation; what each run published, at two directions a part."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publishing, "MAX_BLOCK_BYTES", publishing._NAMES_BYTES + 2 * 2 * D * 8)
        lives = [run(1, 0, 8, 1), run(1, 9, 6, 2), run(2, 9, 6, 3)]
    return {at: G for maps, _ in lives for at, G in maps.items()}, [r for _, found in lives for r in found]


def check(replica: MapReplica, followed: NDArray[Any] | None) -> None:
    if replica.at is None:
        assert followed is None
        return
    at, found = replica.current
    wanted = world()[0][at]
    assert np.linalg.norm(found - wanted) <= 1e-12 * np.linalg.norm(wanted)
    assert followed is not None and np.linalg.norm(followed - wanted) <= 1e-12 * np.linalg.norm(wanted)
    assert not found.flags.writeable
    assert replica.behind == (replica.newest is not None and at < replica.newest)


def follow(index: NDArray[Any] | None, told: list[Changed | Remapped]) -> NDArray[Any] | None:
    """What an index does with what it is told."""
    for one in told:
        if isinstance(one, Remapped):
            index = one.map
        else:
            assert index is not None
            index = index + one.U @ one.V
    return index


def test_the_records_are_of_several_parts_and_begin_with_one_that_is_not_whole() -> None:
    _, records = world()
    assert {r.parts for r in records} == {1, 2}
    assert max(len(r.V) for r in records) == 2
    broken = [r for r in records if not r.whole]
    assert [(r.generation, r.epoch, r.base_step, r.rank) for r in broken] == [
        (1, 0, 0, 0),
        (1, 9, 0, 0),
        (2, 9, 0, 0),
    ]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_whatever_arrives_the_map_is_one_that_the_learner_had(data: st.DataObject) -> None:
    maps, records = world()
    known = st.one_of(
        st.integers(0, len(records) - 1).map(lambda i: ("take", records[i])),
        st.sampled_from(sorted(maps)).map(lambda at: ("announce", at)),
    )
    steady = data.draw(st.integers(0, len(records)))
    arrivals: list[tuple[str, Any]] = [("take", record) for record in records[steady:]]
    for place, arrival in data.draw(st.lists(st.tuples(st.integers(0, 60), known), max_size=60)):
        arrivals.insert(place, arrival)
    replica = MapReplica("s", "lego", max_waiting_bytes=data.draw(st.sampled_from([0, 5_000, 10**6])))
    index: NDArray[Any] | None = None
    newest: At | None = None
    for what, value in arrivals:
        told = replica.take(value) if what == "take" else replica.announce(value, maps[value])
        index = follow(index, told)
        heard = At(value.generation, value.epoch, value.step) if what == "take" else value
        newest = heard if newest is None else max(newest, heard)
        assert replica.newest == newest
        check(replica, index)
    assert replica.foreign == replica.unusable == 0


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 7))
def test_when_everything_has_come_it_is_not_behind(random: Any, model: int) -> None:
    maps, records = world()
    first = [r for r in records if (r.generation, r.epoch) == (1, 0)]
    at = sorted(maps)[model]
    arrivals: list[Any] = first * 2 + [at]
    random.shuffle(arrivals)
    replica = MapReplica("s", "lego")
    index = None
    for one in arrivals:
        told = replica.announce(one, maps[one]) if isinstance(one, At) else replica.take(one)
        index = follow(index, told)
    assert not replica.behind and replica.at == max(a for a in maps if a[:2] == (1, 0))
    check(replica, index)


def of_life(generation: int, epoch: int) -> tuple[list[At], list[ModelUpdate]]:
    maps, records = world()
    mine = [r for r in records if (r.generation, r.epoch) == (generation, epoch)]
    return sorted(at for at in maps if at[:2] == (generation, epoch)), mine


def test_a_gap_is_reported_until_a_newer_model_closes_it() -> None:
    maps, _ = world()
    steps, records = of_life(1, 0)
    replica = MapReplica("s", "lego")
    replica.announce(steps[0], maps[steps[0]])
    lost = next(r for r in records if r.base_step == steps[1].step)
    for record in records:
        if record is not lost:
            replica.take(record)
    assert replica.at == steps[1] and replica.behind
    assert replica.announce(steps[0], maps[steps[0]]) == []
    told = replica.announce(steps[3], maps[steps[3]])
    assert isinstance(told[0], Remapped) and all(isinstance(one, Changed) for one in told[1:])
    assert replica.at == steps[-1] and not replica.behind


def test_parts_of_two_runs_are_never_put_together() -> None:
    maps, _ = world()
    steps, records = of_life(1, 0)
    replica = MapReplica("s", "lego")
    replica.announce(steps[0], maps[steps[0]])
    one, two = (r for r in records if r.base_step == steps[0].step)
    assert (one.part, two.part) == (0, 1)
    # Another machine may find another basis of the same directions.
    other = [replace(r, check=r.check ^ 1) for r in (one, two)]
    assert replica.take(one) == replica.take(other[1]) == []
    assert replica.behind and replica.at == steps[0]
    assert len(replica.take(two)) == 1 and replica.at == steps[1]


@pytest.mark.parametrize(
    "changes",
    [
        {"check": 7},
        {"first": 1},
        {"V": np.ones((2, D), np.float32), "U": np.ones((D, 2), np.float32)},
        {"V": np.ones((2, D + 1)), "U": np.ones((D + 1, 2)), "dimension": D + 1},
        {"parts": 1, "part": 0},
    ],
)
def test_what_does_not_fit_is_left_out_and_a_model_awaited(changes: dict[str, Any]) -> None:
    maps, _ = world()
    steps, records = of_life(1, 0)
    replica = MapReplica("s", "lego")
    replica.announce(steps[0], maps[steps[0]])
    for record in (r for r in records if r.base_step == steps[0].step):
        replica.take(replace(record, **changes))
    assert replica.at == steps[0] and replica.behind
    assert np.array_equal(replica.map, maps[steps[0]])
    replica.announce(steps[1], maps[steps[1]])
    assert not replica.behind


def test_records_of_others_are_left_out() -> None:
    _, records = world()
    replica = MapReplica("s", "lego")
    replica.take(replace(records[0], space="t"))
    replica.take(replace(records[0], learner="itml"))
    assert replica.foreign == 2 and replica.newest is None and not replica.behind


def test_what_waits_is_bounded() -> None:
    _, records = world()
    size = max(r.U.nbytes + r.V.nbytes for r in records) + 1_024
    replica = MapReplica("s", "lego", max_waiting_bytes=3 * size)
    for record in records:
        replica.take(record)
        assert len(replica._waiting) <= 6 and replica._size <= 3 * size
    assert replica.behind
    with pytest.raises(ValueError, match="no model of 's' under 'lego'"):
        _ = replica.map
