"""The adapter by its defaults does not make rankings of queries worse that nobody has asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.data import arrays
from benchmarks.real_embeddings.corpora import Corpus, opened, with_common
from benchmarks.real_embeddings.trial import learned, trial
from benchmarks.studies.adapter_defaults import CONDITIONS
from kinstream.learners.adapter.learner import Adapter


def unit(rows: Any) -> Any:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


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


@pytest.mark.parametrize("rank", [0, 8])
def test_what_all_vectors_have_in_common_is_not_taken_for_what_was_sought(rank: int) -> None:
    """Many encoders put all texts close together: what ranks is as without, and so is what can be learned."""
    draw = np.random.default_rng(1)
    items = draw.normal(size=(1_000, 64))
    plain = Corpus("noisy", unit(items + 2.0 * draw.normal(size=items.shape)), unit(items))
    changes = []
    for corpus in (plain, with_common(plain)):
        one = trial(corpus, 1, 1, 1_000, asked=200)
        (after,) = learned(Adapter(rank), one, (1_000,)).values()
        changes.append(after.change(one.quality()))
    assert changes[0].asked > 5.0
    assert changes[1].never > changes[0].never - 1.0 and changes[1].asked > 0.8 * changes[0].asked, changes


@pytest.mark.parametrize("rank", [0, 8])
@pytest.mark.parametrize("product", ["cosine", "dot"])
def test_what_all_vectors_have_in_common_is_not_moved(rank: int, product: str) -> None:
    draw = np.random.default_rng(2)
    common = 2.0 * np.eye(24)[3]
    queries, items = (unit(0.4 * draw.normal(size=(1_000, 24)) + common) for _ in range(2))
    model = Adapter(rank, product=product, memory=64)
    model.learn_pairs(queries, 3.0 * items if product == "dot" else items)
    moved = model.W - np.eye(24)
    # The last step leaves nothing along the mean of what is remembered, which is near the common direction.
    assert np.abs(moved[3]).max() < 0.2 * np.abs(moved).max()
    assert np.abs(moved).max() > 1e-3


@pytest.mark.long
@pytest.mark.parametrize(
    ("corpus", "condition"),
    [
        ("scientific", "500 queries"),
        ("scientific", "a fifth poisoned"),
        ("scientific common", "500 queries"),
        ("scientific common", "a fifth poisoned"),
    ],
)
def test_queries_that_nobody_asked_are_not_ranked_worse(
    corpus: str, condition: str, data_folder: Path
) -> None:
    assert arrays("minilm_docs") is not None, f"minilm_docs.npz is not in {data_folder}"
    people, found = CONDITIONS[condition], []
    for split in SPLITS:
        one = trial(opened(corpus), split, split, SIZES[-1], people.who, asked=people.asked)
        before = one.quality()
        after = learned(Adapter(seed=split), one, SIZES)
        found.append([after[size].change(before) for size in SIZES])
    never, asked = np.moveaxis(np.array(found), -1, 0)
    assert never.mean(axis=0).min() > MEAN, never
    assert never.min() > EACH, never
    assert asked[:, -1].min() > (8.0 if people.asked else 1.0), asked
