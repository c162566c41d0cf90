"""States of `ranking` with weights of scores: every later version restores them and goes on from them.

That of version 1 was held by other priors, so only the map is what a fresh one has. Up to version 3
there was no memory; that of version 4 knew queries by others that are near, too. In that of version 7, clicks can be
taken back, and some were.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray

from kinstream.learners.ranking.learner import Ranking
from kinstream.streams.checkpoints.state_bytes import from_bytes, to_bytes
from kinstream.streams.records.values import ConstraintBlock
from tests.learners.ranking.world import World

FIRST, SECOND, FILE, LAST = (
    Path(__file__).with_name(f"ranking-v{version}.state") for version in (1, 2, 4, 7)
)
LISTS: Final = 80
MEMORY: Final = 16
#: What states of versions before 7 do not have.
NEW: Final = tuple(f"ranking.memory.{name}" for name in ("turns", "begun", "last."))


def begun(remember: int) -> Ranking:
    return Ranking({"similarity": 0.5, "text": 0.5}, memory=MEMORY, remember=remember)


def fresh(lists: int, remember: int, *, taken_back: bool = False) -> Ranking:
    model = begun(remember)
    blocks = [*World(lists + 20, missing=0.2).blocks(cut=10)][: lists // 10]
    for number, block in enumerate(blocks):
        model.learn(
            replace(block, retracted=first_clicks(blocks[number - 1])) if taken_back and number else block
        )
    return model


def first_clicks(block: ConstraintBlock) -> NDArray[np.uint64]:
    """(k, 2) the first click of each list, to be taken back."""
    lists = block.lists
    assert lists is not None and lists.ids is not None and lists.names is not None
    places = [first + int(np.argmax(lists.clicked[first:])) for first in lists.starts[:-1].tolist()]
    return np.column_stack([lists.ids, lists.names[places]])


@pytest.mark.parametrize(
    ("file", "remember"), [(FIRST, 0), (SECOND, 0), (FILE, 40), (LAST, 40)], ids=["1", "2", "4", "7"]
)
def test_an_old_state_is_restored_and_goes_on(file: Path, remember: int) -> None:
    data, rounding = file.read_bytes(), 0.5 if file is FIRST else 1e-4
    model = begun(remember)
    model.restore(from_bytes(data))
    kept = {name: one for name, one in from_bytes(data).items() if not name.endswith("memory.asked")}
    now = {name: one for name, one in model.state().items() if file is LAST or not name.startswith(NEW)}
    assert to_bytes(now) == to_bytes(kept)
    # The last bits of products of matrices differ between machines.
    wanted = fresh(LISTS, remember, taken_back=file is LAST)
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
        assert np.allclose(model.remembered.clicks, wanted.remembered.clicks, rtol=1e-4, atol=1e-6)
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
