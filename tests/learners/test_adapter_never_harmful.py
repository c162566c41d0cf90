"""The adapter by its defaults does not make rankings of queries worse that nobody has asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.data import arrays
from benchmarks.real_embeddings.corpora import Corpus, opened
from benchmarks.real_embeddings.trial import learned, trial
from benchmarks.studies.adapter_defaults import CONDITIONS
from kinstream.learners.adapter.learner import Adapter

SIZES = (500, 1_000, 2_000)
SPLITS = (200, 201)
#: Percent: in the mean of the splits, and in each of them.
MEAN, EACH = -0.5, -1.0


def test_embeddings_that_fit_already_stay_as_good() -> None:
    draw = np.random.default_rng(1)
    items = draw.normal(size=(600, 64))
    queries = items + 1.5 * draw.normal(size=items.shape)
    unit = [one / np.linalg.norm(one, axis=1, keepdims=True) for one in (queries, items)]
    one = trial(Corpus("fits", *(rows.astype(np.float32) for rows in unit)), 1, 1, 1_000, asked=200)
    before = one.quality()
    assert before.never > 0.95
    for quality in learned(Adapter(), one, (500, 1_000)).values():
        assert quality.change(before).never > EACH


@pytest.mark.long
@pytest.mark.parametrize("condition", ["500 queries", "a fifth poisoned"])
def test_queries_that_nobody_asked_are_not_ranked_worse(condition: str, data_folder: Path) -> None:
    assert arrays("minilm_docs") is not None, f"minilm_docs.npz is not in {data_folder}"
    people, found = CONDITIONS[condition], []
    for split in SPLITS:
        one = trial(opened("scientific"), split, split, SIZES[-1], people.who, asked=people.asked)
        before = one.quality()
        after = learned(Adapter(seed=split), one, SIZES)
        found.append([after[size].change(before) for size in SIZES])
    never, asked = np.moveaxis(np.array(found), -1, 0)
    assert never.mean(axis=0).min() > MEAN, never
    assert never.min() > EACH, never
    assert asked[:, -1].min() > (8.0 if people.asked else 1.0), asked
