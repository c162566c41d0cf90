"""States of `ranking` with weights of scores: every later version restores them and goes on from them.

That of version 1 was held by other priors, so only the map is what a fresh one has. Up to version 3
there was no memory; that of version 4 knew queries by others that are near, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pytest

from kinstream.learners.ranking.learner import Ranking
from kinstream.streams.checkpoints.state_bytes import from_bytes, to_bytes
from tests.learners.ranking.world import World

FIRST, SECOND, FILE = (Path(__file__).with_name(f"ranking-v{version}.state") for version in (1, 2, 4))
LISTS: Final = 80
MEMORY: Final = 16


def begun(remember: int) -> Ranking:
    return Ranking({"similarity": 0.5, "text": 0.5}, memory=MEMORY, remember=remember)


def fresh(lists: int, remember: int) -> Ranking:
    model = begun(remember)
    for block in [*World(lists + 20, missing=0.2).blocks(cut=10)][: lists // 10]:
        model.learn(block)
    return model


@pytest.mark.parametrize(("file", "remember"), [(FIRST, 0), (SECOND, 0), (FILE, 40)], ids=["1", "2", "4"])
def test_an_old_state_is_restored_and_goes_on(file: Path, remember: int) -> None:
    data, rounding = file.read_bytes(), 0.5 if file is FIRST else 1e-4
    model = begun(remember)
    model.restore(from_bytes(data))
    kept = {name: one for name, one in from_bytes(data).items() if not name.endswith("memory.asked")}
    assert to_bytes(model.state()) == to_bytes(kept)
    # The last bits of products of matrices differ between machines.
    wanted = fresh(LISTS, remember)
    assert model.learned_blend.names == wanted.learned_blend.names
    assert np.allclose(model.learned_blend.weights, wanted.learned_blend.weights, rtol=0, atol=rounding)
    assert np.allclose(model.W, wanted.W, rtol=0, atol=1e-4)
    for block in [*World(LISTS + 20, missing=0.2).blocks(cut=10)][LISTS // 10 :]:
        model.learn(block)
        wanted.learn(block)
    assert np.allclose(model.learned_blend.weights, wanted.learned_blend.weights, rtol=0, atol=rounding)
    assert model.accepted == wanted.accepted
    if model.remembered is not None and wanted.remembered is not None:
        assert np.array_equal(model.remembered.items, wanted.remembered.items)
        assert np.allclose(model.known_blend.weights, wanted.known_blend.weights, rtol=0, atol=rounding)


def test_a_state_without_a_memory_gets_one() -> None:
    model, old = begun(40), begun(0)
    model.restore(from_bytes(SECOND.read_bytes()))
    old.restore(from_bytes(SECOND.read_bytes()))
    assert model.remembered is not None and not len(model.remembered)
    for one in (model.blend, model.known_blend):
        assert one.names == old.blend.names and np.array_equal(one.weights, old.blend.weights)
    for block in [*World(LISTS + 20, missing=0.2).blocks(cut=10)][LISTS // 10 :]:
        model.learn(block)
    assert len(model.remembered) > 10
