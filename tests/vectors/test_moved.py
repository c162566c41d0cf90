"""The measure of a map's movement, against a count by brute force."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from kinstream.vectors.embedding import Embedding
from kinstream.vectors.map_change import ASKED, moved
from tests.vectors.material import embedding, image


def by_hand(before: Embedding, after: Embedding, X: NDArray[np.float32], k: int) -> float:
    """The same share, one query and one item at a time."""
    changed = 0
    for row, x in enumerate(X):
        lists = []
        for one in (before, after):
            query = one.query.astype(np.float64) @ x if len(one.query) else x
            scored = [(-float(query @ image(one, y)), n) for n, y in enumerate(X) if n != row]
            lists.append({n for _, n in sorted(scored)[:k]})
        changed += k - len(lists[0] & lists[1])
    return changed / (k * len(X))


@pytest.mark.parametrize("product", ["cosine", "dot"])
@pytest.mark.parametrize("k", [None, 3])
def test_the_share_is_that_of_a_count_by_brute_force(product: str, k: int | None) -> None:
    X = np.random.default_rng(4).normal(size=(60, 6)).astype(np.float32)
    before, after = (embedding("docs", seed, k=k, product=product) for seed in (1, 2))
    share = moved(before, after, X, 5)
    assert share == pytest.approx(by_hand(before, after, X, 5), abs=1e-12)
    assert 0.2 < share < 1.0


def test_the_same_map_has_not_moved_and_a_small_change_moves_less_than_a_large_one() -> None:
    X = np.random.default_rng(5).normal(size=(ASKED * 3, 6)).astype(np.float32)
    one, other = embedding("docs", 1), embedding("docs", 2)
    assert moved(one, one, X) == 0.0
    near = Embedding(one.head, one.item + 0.02 * other.item, one.query)
    assert 0.0 < moved(one, near, X) < moved(one, other, X) / 2


@pytest.mark.parametrize("n", [0, 1])
def test_with_no_neighbours_nothing_has_moved(n: int) -> None:
    assert moved(embedding("docs", 1), embedding("docs", 2), np.ones((n, 6), np.float32)) == 0.0


def test_fewer_items_than_neighbours_are_compared_whole() -> None:
    X = np.random.default_rng(6).normal(size=(4, 6)).astype(np.float32)
    assert moved(embedding("docs", 1), embedding("docs", 2), X) == 0.0
