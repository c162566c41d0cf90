"""The window keeps the latest constraints, whatever they are, and names vectors once."""

from __future__ import annotations

from collections import deque

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinstream.learners.base.learner import Outcomes
from kinstream.learners.base.one_modality import Batch
from kinstream.learners.baselines.chunklets import chunklets, of_size
from kinstream.learners.baselines.window import ConstraintWindow
from kinstream.streams.errors import SettingsError

D = 2
#: Constraints of one batch: whether they are triplets, and the rows, sign and fate of each.
BATCHES = st.lists(
    st.tuples(
        st.booleans(),
        st.lists(st.tuples(*[st.integers(0, 5)] * 3, st.sampled_from([-1, 1]), st.booleans()), max_size=9),
    ),
    max_size=6,
)


def batch_of(
    triplets: bool, rows: list[tuple[int, int, int, int, bool]], X: np.ndarray
) -> tuple[Batch, Outcomes]:
    group = 2 if triplets else 1
    index = np.array([[(a, p), (a, n)][:group] for a, p, n, _, _ in rows], np.int32).reshape(-1, 2)
    signs = np.array([[1, -1] if triplets else [s] for *_, s, _ in rows], np.int8).reshape(-1)
    outcomes = Outcomes.blank(len(index))
    outcomes.rejected[:] = np.repeat([not kept for *_, kept in rows], group)
    return Batch(X, index, np.ones(len(index), np.bool_), signs, group=group), outcomes


@pytest.mark.long
@given(BATCHES, st.integers(2, 7))
@settings(max_examples=150)
def test_the_window_is_a_queue(
    batches: list[tuple[bool, list[tuple[int, int, int, int, bool]]]], size: int
) -> None:
    X = np.random.default_rng(0).normal(size=(6, D))
    X[5], X[4] = X[0], -0.0
    X[3] = 0.0
    window = ConstraintWindow(size, D, "float64")
    queue: deque[list[tuple[int, int, int]]] = deque(maxlen=size)
    for triplets, rows in batches:
        batch, outcomes = batch_of(triplets, rows, X)
        middle = len(rows) // 2 * batch.group
        window.add(batch, outcomes, slice(0, middle))
        window.add(batch, outcomes, slice(middle, len(batch)))
        for a, p, n, s, kept in rows:
            if kept:
                queue.append([(a, p, 1), (a, n, -1)] if triplets else [(a, p, s)])
    other = ConstraintWindow(size, D, "float64")
    other.restore(window.state())
    for one in (window, other):
        assert len(one) == len(queue)
        pairs = one.pairs()
        assert len({row.tobytes() for row in pairs.X}) == len(pairs.X)
        found = [
            (*map(tuple, pairs.X[index].tolist()), sign)
            for index, sign in zip(pairs.index, pairs.signs.tolist(), strict=True)
        ]
        assert found == [(tuple(X[a]), tuple(X[p]), s) for kept in queue for a, p, s in kept]
        # In the order in which constraints name them.
        assert pairs.index.size == 0 or pairs.index[0, 0] == 0


def test_pairs_alone_take_two_vectors_each() -> None:
    X = np.eye(D)
    window = ConstraintWindow(4, D, "float32")
    rows = [(0, 1, 0, 1, True)] * 5
    window.add(*batch_of(False, rows, X.astype(np.float32)), slice(None))
    assert window.state()["vectors"].shape == (4, 2, D)  # type: ignore[union-attr]
    window.add(*batch_of(True, rows[:1], X.astype(np.float32)), slice(None))
    assert window.state()["vectors"].shape == (4, 3, D)  # type: ignore[union-attr]
    assert window.state()["vectors"].dtype == np.float32  # type: ignore[union-attr]
    with pytest.raises(
        SettingsError, match="4 constraints of type float32, and this learner keeps 3 of type float64"
    ):
        ConstraintWindow(3, D, "float64").restore(window.state())


@given(
    st.integers(1, 12).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2)))
    )
)
@settings(max_examples=100)
def test_chunklets_are_connected_components(case: tuple[int, list[tuple[int, int]]]) -> None:
    n, edges = case
    labels = chunklets(n, np.array(edges, np.intp).reshape(-1, 2))
    graph = networkx.Graph(edges)
    graph.add_nodes_from(range(n))
    wanted = sorted(map(sorted, networkx.connected_components(graph)))
    assert [np.flatnonzero(labels == k).tolist() for k in range(labels.max() + 1)] == wanted
    sizes = [len(group) for group in wanted]
    assert of_size(labels, 2).sum() == sum(size for size in sizes if size >= 2)
