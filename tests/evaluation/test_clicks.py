"""From simulated clicks to a recommendation: rankings of lists that were held out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinstream.evaluation.experiment.contenders import UNLEARNED, ComparisonRequest, of_log
from kinstream.evaluation.experiment.data import Recorded
from kinstream.evaluation.experiment.plan import Plan
from kinstream.evaluation.experiment.splits import scaled_blocks
from kinstream.evaluation.runner.run import evaluate
from kinstream.producers.simulated.load import simulated_load
from kinstream.producers.simulated.settings import START_MS, Simulation
from kinstream.producers.simulated.simulator import ClickSimulator
from kinstream.streams.settings import Settings
from tests.clicks.stream import SPACE, builder_stream, constraint_blocks

SETTINGS = Settings.model_validate(
    {
        "builders": {"clicks": {"kind": "clicks", "rules": ["click-skip-above"]}},
        "learners": {"lda": {"kind": "lda", "from": ["clicks"], "unranked_lists": True}},
    }
)


def recorded(lists: int = 2_500) -> Recorded:
    """Clicks on items of 20 topics, which three features tell and 20 louder ones hide."""
    draw = np.random.default_rng(0)
    topics = np.arange(300) % 20
    centres = 6.0 * draw.normal(size=(20, 3))
    signal = centres[topics] + draw.normal(size=(300, 3))
    items = np.hstack([signal, 8.0 * draw.normal(size=(300, 20))]).astype(np.float32)
    simulation = Simulation(lists=lists, relevant=0.3, noise=0.05, seed=1)
    builder = builder_stream(START_MS + 10**9)
    blocks = [
        made
        for block in simulated_load(ClickSimulator(items, topics, simulation), SPACE, 64).blocks()
        for made in constraint_blocks(builder(block))
    ]
    return Recorded("clicks", {"clicks": tuple(blocks)})


@pytest.mark.long
def test_held_out_lists_of_clicks_recommend_by_ndcg(tmp_path: Path) -> None:
    plan = Plan("clicks", of_log(SETTINGS, ComparisonRequest()), splits=3, hold_out=0.15)
    result: dict[str, Any] = evaluate(plan, [recorded()], tmp_path)
    means = {(one["metric"], one["measure"]): one["mean"] for one in result["summary"]}
    assert {name for name, measure in means if measure == "ndcg_at_10"} == {*UNLEARNED, "lda"}
    assert all(means[name, "mrr"] > 0.0 for name in UNLEARNED)
    (line,) = result["recommendation"]
    assert (line["measure"], line["metric"]) == ("ndcg_at_10", "lda")
    assert line["gain"]["low"] > 0.0
    assert {"recall_at_1", "recall_at_10", "held_out_mistakes"} <= set(result["cells"][-1]["measures"])
    assert result["cells"][-1]["columns"] is not None


def test_recorded_vectors_are_scaled_by_those_that_are_learned_from() -> None:
    """The last block does not count: with its vectors the deviations would be others."""
    blocks = list(recorded(200).streams["clicks"])
    found = scaled_blocks(blocks, len(blocks) - 1, "zscore")
    known = np.concatenate([block.tables[0].vectors for block in found[:-1] if block is not None])
    assert np.allclose(known.mean(axis=0), 0.0, atol=1e-4) and np.allclose(known.std(axis=0), 1.0, atol=1e-2)
    last, scaled = blocks[-1], found[-1]
    assert last is not None and scaled is not None
    before = np.concatenate([block.tables[0].vectors for block in blocks[:-1] if block is not None])
    expected = (last.tables[0].vectors - before.mean(axis=0)) / before.std(axis=0, ddof=1)
    assert np.allclose(scaled.tables[0].vectors, expected, atol=1e-3)
    assert scaled_blocks(blocks, 1, "none") == blocks
