"""A state of `ranking` with weights of scores: every later version restores it and goes on from it.

python -m tests.golden.test_ranking writes it, where it is not there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from kinstream.learners.ranking.learner import Ranking
from kinstream.streams.checkpoints.state_bytes import from_bytes, to_bytes
from tests.learners.ranking.world import World

FILE: Final = Path(__file__).with_name("ranking-v1.state")
LISTS: Final = 80
MEMORY: Final = 16


def fresh(lists: int) -> Ranking:
    model = Ranking({"similarity": 0.5, "text": 0.5}, memory=MEMORY)
    for block in [*World(lists + 20, missing=0.2).blocks(cut=10)][: lists // 10]:
        model.learn(block)
    return model


def test_an_old_state_is_restored_and_goes_on() -> None:
    data = FILE.read_bytes()
    model = Ranking({"similarity": 0.5, "text": 0.5}, memory=MEMORY)
    model.restore(from_bytes(data))
    assert to_bytes(model.state()) == data
    # The last bits of products of matrices differ between machines.
    wanted = fresh(LISTS)
    assert model.learned_blend.names == wanted.learned_blend.names
    assert np.allclose(model.learned_blend.weights, wanted.learned_blend.weights, rtol=0, atol=1e-4)
    for block in [*World(LISTS + 20, missing=0.2).blocks(cut=10)][LISTS // 10 :]:
        model.learn(block)
        wanted.learn(block)
    assert np.allclose(model.learned_blend.weights, wanted.learned_blend.weights, rtol=0, atol=1e-4)
    assert model.accepted == wanted.accepted


if __name__ == "__main__":
    FILE.exists() or FILE.write_bytes(to_bytes(fresh(LISTS).state()))
