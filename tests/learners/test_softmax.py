"""The softmax learner against its formulas in plain loops, and what it does on data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kinstream.learners.base.learner import State
from kinstream.learners.one_modality.softmax import BATCH, FALLS, LATE, Softmax
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import ConstraintBlock
from kinstream.testing.blocks import block

Matrix = NDArray[np.float64]


class Plain:
    """Softmax over a memory, vector by vector: lists of (vector, group, when it was last named)."""

    def __init__(
        self, d: int, rank: int, step: float, memory: int, per_group: int, buffer: int, chains: bool
    ) -> None:
        self.d, self.rank, self.step, self.size, self.per_group = d, rank, step, memory, per_group
        self.buffer, self.chains = buffer, chains
        self.memory: list[dict[str, Any]] = []
        self.waiting: list[tuple[Matrix, int]] = []
        self.clock = self.fresh = self.k = 0
        self.W = self.A = self.m = self.v = np.empty((0, d))
        self.unit = self.usual = 0.0

    def triplet(self, x: Matrix, near: Matrix, far: Matrix) -> None:
        target, anchor = self.at(near), self.at(x)
        if target is None:
            goal = anchor["group"] if self.chains and anchor else self.group()
            self.put(near, goal)
        else:
            goal = target["group"]
            self.touch(target)
        if self.chains and anchor and anchor["group"] != goal:
            old = anchor["group"]
            for one in self.memory:
                one["group"] = goal if one["group"] == old else one["group"]
            self.waiting = [(row, goal if own == old else own) for row, own in self.waiting]
        if self.at(far) is None:
            self.put(far, self.group())
        if self.waiting and self.waiting[-1][1] == goal and np.array_equal(self.waiting[-1][0], x):
            return
        self.waiting.append((x, goal))
        if self.chains:
            found = self.at(x)
            self.put(x, goal) if found is None else self.touch(found)
        if len(self.waiting) == (BATCH if len(self.W) else self.buffer):
            if not len(self.W):
                self.begin()
            for first in range(0, len(self.waiting), BATCH):
                self.learn(self.waiting[first : first + BATCH])
            self.waiting = []

    def at(self, vector: Matrix) -> dict[str, Any] | None:
        return next((one for one in self.memory if np.array_equal(one["x"], vector)), None)

    def group(self) -> int:
        self.fresh += 1
        return self.fresh - 1

    def touch(self, one: dict[str, Any]) -> None:
        one["when"] = self.clock
        self.clock += 1

    def put(self, vector: Matrix, group: int) -> None:
        same = [one for one in self.memory if one["group"] == group]
        if self.chains and len(same) >= self.per_group:
            self.forget(same)
        elif len(self.memory) == self.size:
            self.forget(self.memory)
        self.memory.append({"x": vector, "group": group})
        self.touch(self.memory[-1])

    def forget(self, some: list[dict[str, Any]]) -> None:
        oldest = min(some, key=lambda one: one["when"])
        self.memory = [one for one in self.memory if one is not oldest]

    def begin(self) -> None:
        X = np.array([row for row, _ in self.waiting])
        W = np.eye(self.d)
        if self.d > self.rank:
            W = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][: self.rank]
        within = [
            float(np.sum((W @ (x - one["x"])) ** 2))
            for x, goal in self.waiting
            for one in self.memory
            if one["group"] == goal and not np.array_equal(one["x"], x)
        ]
        self.W = W * np.sqrt(4.0 / np.mean(within))
        self.A, self.m, self.v = self.W.copy(), np.zeros_like(self.W), np.zeros_like(self.W)
        self.unit = float(np.abs(self.W).max())

    def learn(self, rows: list[tuple[Matrix, int]]) -> None:
        gaps, factors = [], []
        for x, goal in rows:
            itself = np.array([np.array_equal(one["x"], x) for one in self.memory])
            own = np.array([one["group"] == goal for one in self.memory]) & ~itself
            if not own.any() or (own | itself).all():
                continue
            moved = np.array([x - one["x"] for one in self.memory])
            q = np.where(itself, 0.0, np.exp(-np.sum((moved @ self.W.T) ** 2, axis=1)))
            q /= q.sum()
            gaps.append(moved)
            factors.append(np.where(own, q / q[own].sum(), 0.0) - q)
        if not gaps:
            return
        # What is far from all of these rows has no part.
        part = np.abs(factors).max(axis=0) > 1e-3
        gradients = [
            2.0
            * self.W
            @ sum(
                (w * np.outer(z, z) for w, z in zip(s[part], moved[part], strict=True)), self.W.T @ self.W * 0
            )
            for s, moved in zip(factors, gaps, strict=True)
        ]
        G = np.mean(gradients, axis=0)
        length = float(np.linalg.norm(G))
        if self.k >= BATCH and length > 10.0 * self.usual:
            G *= 10.0 * self.usual / length
            length = 10.0 * self.usual
        self.k += 1
        self.usual += (length - self.usual) / min(self.k, 100)
        self.m = 0.9 * self.m + 0.1 * G
        self.v = 0.999 * self.v + 0.001 * G**2
        one, two = self.m / (1.0 - 0.9**self.k), self.v / (1.0 - 0.999**self.k)
        size = self.step * self.unit / np.sqrt(1.0 + self.k * BATCH / FALLS)
        self.W = self.W - size * one / (np.sqrt(two) + 1e-8 * np.sqrt(two.max()))
        self.A = self.A + (self.W - self.A) * LATE / (self.k + LATE - 1.0)


def classes(seed: int, d: int, n: int, k: int = 3) -> tuple[Matrix, NDArray[np.int64]]:
    """Rows of k classes that differ in the first two features; the others are louder, and noise."""
    draw = np.random.default_rng([seed, d])
    label = draw.integers(0, k, n)
    X = 2.0 * draw.normal(size=(n, d))
    X[:, :2] = 0.3 * X[:, :2] + np.column_stack([np.cos(2.1 * label), np.sin(2.1 * label)])[:, : min(d, 2)]
    return X.astype(np.float32).astype(np.float64), label


def one_pass(label: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Triplets (n, 3) of each row with the latest of its class and the latest of another one."""
    draw, found = np.random.default_rng(seed), []
    latest: dict[int, int] = {}
    for row, own in enumerate(label.tolist()):
        others = [k for k in latest if k != own]
        if own in latest and others:
            found.append((row, latest[own], latest[int(draw.choice(others))]))
        latest[own] = row
    return np.array(found)


def fed(model: Softmax, X: Matrix, index: NDArray[np.int64]) -> Softmax:
    for rows in np.array_split(index, 7):
        model.learn(block(X, rows))
    return model


@pytest.mark.long
@pytest.mark.parametrize("groups", ["chains", "none"])
@pytest.mark.parametrize(("d", "rank", "memory"), [(2, 100, 512), (6, 100, 512), (12, 3, 512), (6, 100, 11)])
def test_steps_are_those_of_the_formulas(d: int, rank: int, memory: int, groups: str) -> None:
    X, label = classes(1, d, 400)
    index = one_pass(label, 2)
    if groups == "none":
        index = np.repeat(index, 3, axis=0)
        index[:, 2] = np.random.default_rng(3).integers(0, len(X), len(index))
        index = index[(index[:, 1] != index[:, 2]) & (index[:, 0] != index[:, 2])]
    settings: dict[str, Any] = {"rank": rank, "step": 0.03, "memory": memory, "per_group": 3, "buffer": 32}
    model = fed(Softmax(**settings, groups=groups, dtype="float64"), X, index)
    plain = Plain(d, **settings, chains=groups == "chains")
    for a, p, n in index:
        plain.triplet(X[a], X[p], X[n])
    assert plain.k > 10
    state = model.state()
    np.testing.assert_allclose(state["W"].T @ state["W"], plain.W.T @ plain.W, rtol=1e-7, atol=1e-9)  # type: ignore[union-attr]
    np.testing.assert_allclose(model.map.T @ model.map, plain.A.T @ plain.A, rtol=1e-7, atol=1e-9)


def test_the_gradient_is_that_of_the_loss() -> None:
    X, label = classes(4, 4, 60)
    plain = Plain(4, 100, 0.01, 512, 5, 32, True)
    draw = np.random.default_rng(5)
    plain.W = plain.A = draw.normal(size=(4, 4))
    # Nothing is left out of it.
    plain.W *= 0.1
    plain.m, plain.v, plain.unit = np.zeros((4, 4)), np.zeros((4, 4)), 1.0
    for row, own in enumerate(label[:12].tolist()):
        plain.put(X[row], own)
    x, goal = X[20], int(label[20])

    def loss(W: Matrix) -> float:
        q = np.array([np.exp(-np.sum((W @ (x - one["x"])) ** 2)) for one in plain.memory])
        own = np.array([one["group"] == goal for one in plain.memory])
        return float(-np.log(q[own].sum() / q.sum()))

    numeric = np.zeros((4, 4))
    for i in range(4):
        for j in range(4):
            shift = np.zeros((4, 4))
            shift[i, j] = 1e-6
            numeric[i, j] = (loss(plain.W + shift) - loss(plain.W - shift)) / 2e-6
    before = plain.W.copy()
    plain.learn([(x, goal)])
    np.testing.assert_allclose(plain.m / 0.1, numeric, rtol=1e-5, atol=1e-7)
    assert not np.array_equal(before, plain.W)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_neighbours_are_better_than_without_learning(dtype: str) -> None:
    X, label = classes(6, 8, 3000)
    model = fed(Softmax(dtype=dtype), X[:2000], one_pass(label[:2000], 7))
    raw, known = wrong(X, label), wrong(X[:, :2], label)
    assert wrong(model.transform(X), label) < known + 0.3 * (raw - known)


def wrong(X: NDArray[Any], label: NDArray[np.int64]) -> float:
    """Share of the last 1,000 rows whose nearest of the first 2,000 is of another class."""
    apart = np.sum(X[:2000] ** 2, axis=1) - 2.0 * X[2000:] @ X[:2000].T
    return float(np.mean(label[:2000][apart.argmin(axis=1)] != label[2000:]))


def test_a_list_of_results_is_one_row() -> None:
    X, _ = classes(8, 5, 400)
    lists = np.arange(400).reshape(40, 10)
    index = np.array([(one[0], one[1], other) for one in lists for other in one[2:]])
    once = np.array([(one[0], one[1], one[2]) for one in lists])
    model, other = Softmax(groups="none", buffer=16), Softmax(groups="none", buffer=16)
    model.learn(block(X, index))
    other.learn(block(X, once))
    assert model.state()["steps"] == other.state()["steps"] == 40 // 16
    # More items that were not clicked are remembered.
    assert len(remembered(model.state())) > len(remembered(other.state()))


def remembered(state: State) -> NDArray[Any]:
    return np.asarray(state["memory_vectors"])


def test_memory_and_ring_are_bounded_and_hold_the_newest() -> None:
    X, label = classes(9, 3, 900)
    model = fed(Softmax(memory=40, per_group=4), X, one_pass(label, 10))
    state = model.state()
    groups = np.asarray(state["memory_groups"])
    assert np.unique(groups, return_counts=True)[1].tolist() == [4, 4, 4]
    newest = {tuple(row) for k in range(3) for row in X[label == k][-4:].astype(np.float32)}
    assert {tuple(row) for row in remembered(state)} == newest


def test_chains_that_meet_are_one_group() -> None:
    X = np.random.default_rng(11).normal(size=(8, 3)).astype(np.float32)
    model = Softmax()
    model.learn(block(X, np.array([(0, 1, 6), (2, 3, 7)])))
    apart = np.asarray(model.state()["memory_groups"])
    model.learn(block(X, np.array([(0, 2, 6)])))
    joined = np.asarray(model.state()["memory_groups"])
    assert len(np.unique(apart)) == 4 and len(np.unique(joined)) == 3


def test_vectors_without_squares_are_rejected_and_an_outlier_is_clipped() -> None:
    X, label = classes(12, 4, 600)
    model = fed(Softmax(dtype="float64"), X, one_pass(label, 13))
    before = model.map
    assert model.learn_triplets(*(np.full((1, 4), 1e200) * k for k in (1, 2, 3))).rejected.all()
    np.testing.assert_array_equal(model.map, before)
    draw = np.random.default_rng(14)
    far = 1e6 * draw.normal(size=(3, 32, 4))
    found = model.learn_triplets(*far)
    assert found.clipped.any() and np.isfinite(model.map).all()
    # Its moments would stop the learner for thousands of rows otherwise.
    assert np.abs(model.map - before).max() < 0.2 * np.abs(before).max()


def test_settings_out_of_range_are_refused() -> None:
    for wrong_one in (
        {"rank": 0},
        {"step": 0.0},
        {"memory": 1},
        {"per_group": 0},
        {"buffer": 15},
        {"groups": "all"},
    ):
        with pytest.raises(SettingsError):
            Softmax(**wrong_one)
    state = fed(Softmax(memory=30), *both(15)).state()
    with pytest.raises(SettingsError, match="memory is 20"):
        Softmax(memory=20).restore(state)
    with pytest.raises(SettingsError, match="float64"):
        Softmax(dtype="float32").restore(state)


def both(seed: int) -> tuple[Matrix, NDArray[np.int64]]:
    X, label = classes(seed, 4, 300, 9)
    return X, one_pass(label, seed)


def test_a_block_is_refused_whole() -> None:
    X, label = classes(16, 4, 300)
    whole: ConstraintBlock = block(X, one_pass(label, 17))
    model = Softmax()
    model.learn(whole)
    assert model.accepted == len(whole)
