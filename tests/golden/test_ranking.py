"""States of `ranking` with weights of scores: every later version restores them and goes on from them.

That of version 1 was held by other priors, so only the map is what a fresh one has.
python -m tests.golden.test_ranking writes the state of version 2, where it is not there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pytest

from kinstream.learners.ranking.learner import Ranking
from kinstream.streams.checkpoints.state_bytes import from_bytes, to_bytes
from tests.learners.ranking.world import World

FIRST, FILE = (Path(__file__).with_name(f"ranking-v{version}.state") for version in (1, 2))
LISTS: Final = 80
MEMORY: Final = 16


def fresh(lists: int) -> Ranking:
    model = Ranking({"similarity": 0.5, "text": 0.5}, memory=MEMORY)
    for block in [*World(lists + 20, missing=0.2).blocks(cut=10)][: lists // 10]:
        model.learn(block)
    return model


@pytest.mark.parametrize("file", [FIRST, FILE], ids=["1", "2"])
def test_an_old_state_is_restored_and_goes_on(file: Path) -> None:
    data, rounding = file.read_bytes(), 1e-4 if file is FILE else 0.5
    model = Ranking({"similarity": 0.5, "text": 0.5}, memory=MEMORY)
    model.restore(from_bytes(data))
    assert to_bytes(model.state()) == data
    # The last bits of products of matrices differ between machines.
    wanted = fresh(LISTS)
    assert model.learned_blend.names == wanted.learned_blend.names
    assert np.allclose(model.learned_blend.weights, wanted.learned_blend.weights, rtol=0, atol=rounding)
    assert np.allclose(model.W, wanted.W, rtol=0, atol=1e-4)
    for block in [*World(LISTS + 20, missing=0.2).blocks(cut=10)][LISTS // 10 :]:
        model.learn(block)
        wanted.learn(block)
    assert np.allclose(model.learned_blend.weights, wanted.learned_blend.weights, rtol=0, atol=rounding)
    assert model.accepted == wanted.accepted


if __name__ == "__main__":
    FILE.exists() or FILE.write_bytes(to_bytes(fresh(LISTS).state()))
