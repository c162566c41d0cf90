"""The judge of whole lists against the truth, in small spaces; see benchmarks.studies.judged_lists."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.real_embeddings.corpora import Corpus
from benchmarks.studies.judged_lists import Found, space
from kinstream.streams.compute.blas_threads import one_blas_thread

pytestmark = pytest.mark.long

#: Learners that help, and learners that do harm.
SPACES = [
    (name, people, seed)
    for name in ("default", "rank 64, step 1", "opml", "random")
    for people in ("2 % wrong", "15 % wrong", "poisoned")
    for seed in range(2)
]


def corpus(seed: int, n: int = 1_200, d: int = 24) -> Corpus:
    """Items in topics, and queries near them that lack two directions."""
    draw = np.random.default_rng(seed)
    topics = draw.normal(size=(60, d))
    items = topics[draw.integers(60, size=n)] + 0.7 * draw.normal(size=(n, d))
    lost = np.linalg.qr(draw.normal(size=(d, 4)))[0]
    queries = items - 1.6 * (items @ lost) @ lost.T + 0.35 * draw.normal(size=(n, d))
    queries, items = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in (queries, items))
    return Corpus("made", queries.astype(np.float32), items.astype(np.float32))


def looks(name: str, people: str, seed: int) -> list[Found]:
    with one_blas_thread():
        return list(space(corpus(seed), name, people, (1_000, 3_000), seed))


def test_the_sign_is_right_and_never_significantly_wrong() -> None:
    found = [one for some in SPACES for one in looks(*some)]
    told = [one for one in found if one.judged is not None and abs(one.truth) > 0.02]
    assert len(told) > 25
    assert {one.truth > 0.0 for one in told} == {True, False}
    assert sum(one.right for one in told) >= 0.95 * len(told), [one for one in told if not one.right]
    assert not [one for one in told if one.significantly_wrong]
