"""Linear discriminants against a transcription in plain numpy, and what they do on data."""

from __future__ import annotations

import doctest
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kinstream.learners.base.learner import Outcomes
from kinstream.learners.kernels.ensembles.vector_hashes import hashes
from kinstream.learners.kernels.events import measure
from kinstream.learners.kernels.one_modality import lda
from kinstream.learners.one_modality import lda as lda_module
from kinstream.learners.one_modality.lda import LDA
from kinstream.learners.warm_up import warm_up
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import ConstraintBlock, Kind
from kinstream.testing.blocks import block, rows_of
from kinstream.testing.learners import digest, digest_of_outcomes

Matrix = NDArray[np.float64]
Index = NDArray[np.int64]


class Plain:
    """The sums difference by difference, and the map by generalised eigenvectors."""

    def __init__(self, d: int, rank: int | None, shrinkage: float, window: int | None, subspace: int) -> None:
        self.rank, self.shrinkage, self.window, self.subspace = rank, shrinkage, window, subspace
        self.basis = np.eye(d) if d <= subspace else None
        self.first: list[tuple[Matrix, Matrix, int]] = []
        self.waiting: dict[int, list[Matrix]] = {1: [], -1: []}
        self.taken: dict[int, list[Matrix]] = {1: [], -1: []}
        self.due = 0
        self.M = np.eye(d)
        self.maps = 0

    def constraint(self, *pairs: tuple[Matrix, Matrix, int]) -> None:
        if self.basis is None:
            self.first += pairs
            known = np.unique([v for x, y, _ in self.first for v in (x, y)], axis=0)
            if len(known) < 2 * self.subspace and len(self.first) < 8 * self.subspace:
                return
            self.basis = np.linalg.svd(known - known.mean(axis=0))[2][: min(self.subspace, len(known))]
            pairs = tuple(self.first)
        for x, y, sign in pairs:
            if np.array_equal(x, y):
                continue
            self.waiting[sign].append(self.basis @ (x - y))
            if len(self.waiting[sign]) == 32:
                self.taken[sign] += self.waiting[sign]
                self.waiting[sign] = []
        n = len(self.taken[1]) + len(self.taken[-1])
        if self.taken[1] and self.taken[-1] and n >= self.due:
            self.due = n + min(n // 4, 10_000)
            self.solve()

    def scatter(self, sign: int) -> Matrix:
        Z = np.array(self.taken[sign])
        factor = 1.0 if self.window is None else 1.0 - 1.0 / self.window
        weights = factor ** np.arange(len(Z) - 1, -1, -1)
        return np.asarray((weights[:, None] * Z).T @ Z / weights.sum())

    def solve(self) -> None:
        assert self.basis is not None
        S, B = self.scatter(1), self.scatter(-1)
        S += self.shrinkage * np.trace(S) / len(S) * np.eye(len(S))
        # S v = mu^-1 B v through a Cholesky factor: another way than by the symmetric root.
        C = np.linalg.inv(np.linalg.cholesky(S))
        mu, U = np.linalg.eigh(C @ B @ C.T)
        order = np.argsort(mu)[::-1][: self.rank]
        gain = np.maximum(mu[order] - 1.0, 0.0)
        if gain.max() > 0.0:
            self.M = np.sqrt(gain / (1.0 + gain))[:, None] * (U[:, order].T @ C) @ self.basis
            self.maps += 1


def classes(seed: int, d: int, n: int, k: int = 3) -> tuple[Matrix, Index]:
    """Rows of k classes that differ in the first two features; the others are louder, and noise."""
    draw = np.random.default_rng([seed, d])
    label = draw.integers(0, k, n)
    X = 2.0 * draw.normal(size=(n, d))
    X[:, :2] = 0.3 * X[:, :2] + np.column_stack([np.cos(2.1 * label), np.sin(2.1 * label)])[:, : min(d, 2)]
    return X.astype(np.float32).astype(np.float64), label


def triplets(label: Index, seed: int) -> Index:
    """(n, 3) of each row with the latest of its class and the latest of another one."""
    draw, found = np.random.default_rng(seed), []
    latest: dict[int, int] = {}
    for row, own in enumerate(label.tolist()):
        others = [k for k in latest if k != own]
        if own in latest and others:
            found.append((row, latest[own], latest[int(draw.choice(others))]))
        latest[own] = row
    return np.array(found)


def pairs(label: Index, seed: int, m: int = 1500) -> tuple[Index, NDArray[np.int8]]:
    index = np.random.default_rng(seed).integers(0, len(label), (m, 2))
    return index, np.where(label[index[:, 0]] == label[index[:, 1]], 1, -1).astype(np.int8)


def stream(kind: Kind, seed: int, d: int, n: int = 900) -> ConstraintBlock:
    X, label = classes(seed, d, n)
    if kind is Kind.TRIPLET:
        return block(X, triplets(label, seed))
    index, signs = pairs(label, seed)
    return block(X, index, Kind.PAIR, "test", signs)


def learned(model: LDA, message: ConstraintBlock, cuts: list[int]) -> list[Outcomes]:
    ends = [0, *cuts, len(message)]
    return [model.learn(rows_of(message, slice(a, b))) for a, b in pairwise(ends)]


def squares(M: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(M.T @ M)


SETTINGS: list[tuple[int, dict[str, Any]]] = [
    (1, {}),
    (6, {}),
    (6, {"rank": 2, "shrinkage": 0.5}),
    (6, {"window": 100}),
    (12, {"subspace": 4}),
    (12, {"subspace": 5, "rank": 3, "window": 64}),
]


@pytest.mark.parametrize("kind", [Kind.TRIPLET, Kind.PAIR])
@pytest.mark.parametrize(("d", "settings"), SETTINGS)
def test_maps_are_those_of_the_formulas(d: int, settings: dict[str, Any], kind: Kind) -> None:
    message = stream(kind, 1, d)
    given = {"rank": None, "shrinkage": 0.1, "window": None, "subspace": 256} | settings
    model, plain = LDA(**given), Plain(d, **given)
    X = message.tables[0].vectors.astype(np.float64)
    different = 0
    for t, row in enumerate(message.index):
        if kind is Kind.TRIPLET:
            plain.constraint((X[row[0]], X[row[1]], 1), (X[row[0]], X[row[2]], -1))
        else:
            plain.constraint((X[row[0]], X[row[1]], int(message.signs[t])))
        if t % 97 == 50:
            model.learn(rows_of(message, slice(different, t + 1)))
            different = t + 1
            wanted = squares(plain.M)
            np.testing.assert_allclose(
                squares(model.map), wanted, rtol=1e-9, atol=1e-9 * np.abs(wanted).max()
            )
    assert plain.maps > 4
    assert len(model.map) == min(d, *(v for n, v in given.items() if n in ("rank", "subspace") and v))


@pytest.mark.parametrize("kind", [Kind.TRIPLET, Kind.PAIR])
def test_distances_are_likelihood_ratios(kind: Kind) -> None:
    """With all directions, and normal differences of which the dissimilar are the wider ones."""
    draw = np.random.default_rng(2)
    wide = np.array([2.0, 3.0, 1.5])
    x, near, far = np.zeros((20_000, 3)), *draw.normal(size=(2, 20_000, 3))
    far *= wide
    model = LDA(shrinkage=1e-9)
    if kind is Kind.TRIPLET:
        model.learn_triplets(x, near, far)
    else:
        signs = np.repeat(np.array([1, -1], np.int8), len(x))
        found = model.learn_pairs(np.vstack([x, x]), np.vstack([near, far]), signs)
        assert set(found.mistake[-20:].tolist()) <= {0, 1}
    z = draw.normal(size=(50, 3))
    ratio = np.sum(z**2 - (z / wide) ** 2, axis=1)
    np.testing.assert_allclose(model.distance(z, 0.0 * z), ratio, rtol=0.1, atol=0.1)
    assert model.threshold == pytest.approx(2.0 * np.log(wide).sum(), rel=0.05)


@pytest.mark.parametrize("kind", [Kind.TRIPLET, Kind.PAIR])
@pytest.mark.parametrize(("d", "settings"), [(5, {}), (12, {"subspace": 4, "window": 80})])
def test_any_cut_into_blocks_gives_the_same_bits(kind: Kind, d: int, settings: dict[str, Any]) -> None:
    message = stream(kind, 3, d, 500)
    whole = LDA(**settings)
    verdicts = digest_of_outcomes(whole.learn(message))
    draw = np.random.default_rng(4)
    for _ in range(5):
        model = LDA(**settings)
        cuts = np.sort(draw.choice(np.arange(1, len(message)), 20, replace=False)).tolist()
        found = Outcomes.blank(len(message))
        for rows, one in zip(
            np.split(np.arange(len(message)), cuts), learned(model, message, cuts), strict=True
        ):
            for name in Outcomes.__dataclass_fields__:
                getattr(found, name)[rows] = getattr(one, name)
        assert digest(model.state()) == digest(whole.state())
        assert digest_of_outcomes(found) == verdicts


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_it_continues_from_any_point(dtype: str) -> None:
    message = stream(Kind.TRIPLET, 5, 9, 160)
    settings: dict[str, Any] = {"subspace": 6, "dtype": dtype}
    model, other = LDA(**settings), LDA(**settings)
    for t in range(len(message)):
        single = rows_of(message, slice(t, t + 1))
        restored = LDA(**settings)
        restored.restore(other.state())
        model.learn(single)
        restored.learn(single)
        other = restored
        assert digest(other.state()) == digest(model.state())
    assert model.threshold is not None


def test_pairs_and_triplets_of_the_same_differences_give_the_same_map() -> None:
    X, label = classes(6, 5, 600)
    index = triplets(label, 6)
    both = np.concatenate([index[:, [0, 1]], index[:, [0, 2]]], axis=1).reshape(-1, 2)
    one, other = LDA(), LDA()
    one.learn(block(X, index))
    other.learn(block(X, both, Kind.PAIR, "test", np.tile([1, -1], len(index))))
    for name in ("similar", "dissimilar", "pending"):
        np.testing.assert_array_equal(one.state()[name], other.state()[name])
    mixed = LDA()
    mixed.learn(block(X, index[:100]))
    mixed.learn(block(X, both[200:], Kind.PAIR, "test", np.tile([1, -1], len(index) - 100)))
    np.testing.assert_array_equal(mixed.state()["similar"], one.state()["similar"])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("noise", "settings"), [(0, {}), (19, {"rank": 2}), (19, {"subspace": 12})])
def test_neighbours_are_better_than_without_learning(
    noise: int, settings: dict[str, Any], dtype: str
) -> None:
    X, label = waves(7, 3000, noise)
    model = LDA(**settings, dtype=dtype)
    model.learn(block(X, triplets(label[:2000], 8)))
    assert wrong(model.transform(X), label) < wrong(X, label) - 0.01


def waves(seed: int, n: int, noise: int) -> tuple[Matrix, Index]:
    """Three classes of 21 features, each a mixture of two of three triangles, and some more of noise alone."""
    draw = np.random.default_rng(seed)
    label, share = draw.integers(0, 3, n), draw.uniform(size=(n, 1))
    shape = np.array([np.maximum(6.0 - np.abs(np.arange(1, 22) - top), 0.0) for top in (7, 15, 11)])
    X = share * shape[label] + (1.0 - share) * shape[(label + 1) % 3]
    return np.hstack([X, np.zeros((n, noise))]) + draw.normal(size=(n, 21 + noise)), label


def wrong(X: NDArray[Any], label: Index) -> float:
    """Share of the last 1,000 rows that the five nearest of the first 2,000 put into another class."""
    apart = np.sum(X[:2000] ** 2, axis=1) - 2.0 * X[2000:] @ X[:2000].T
    votes = label[:2000][np.argsort(apart, axis=1)[:, :5]]
    return float(np.mean([np.bincount(v).argmax() for v in votes] != label[2000:]))


def test_a_subspace_bounds_the_state_and_projects() -> None:
    message = stream(Kind.TRIPLET, 9, 60, 400)
    model = LDA(subspace=8)
    model.learn(rows_of(message, slice(0, 5)))
    held = model.state()
    assert len(np.asarray(held["buffer_vectors"])) == len(np.unique(message.index[:5]))
    assert np.array_equal(model.map, np.eye(60))
    model.learn(rows_of(message, slice(5, len(message))))
    state = model.state()
    assert np.asarray(state["similar"]).shape == (8, 8) and len(np.asarray(state["buffer_vectors"])) == 0
    basis = np.asarray(state["basis"])
    np.testing.assert_allclose(basis @ basis.T, np.eye(8), atol=1e-12)
    np.testing.assert_allclose(model.map @ basis.T @ basis, model.map, rtol=1e-9, atol=1e-12)


def test_few_vectors_that_come_again_fix_the_subspace_too() -> None:
    draw = np.random.default_rng(10)
    X, label = draw.normal(size=(12, 30)), np.arange(12) % 3
    index, signs = pairs(label, 11, 500)
    model = LDA(subspace=20)
    model.learn(block(X, index, Kind.PAIR, "test", signs))
    assert np.asarray(model.state()["basis"]).shape == (12, 30)
    assert np.isfinite(model.map).all()


@pytest.mark.parametrize("subspace", [256, 3])
def test_equal_vectors_teach_nothing(subspace: int) -> None:
    message = stream(Kind.TRIPLET, 12, 5, 300)
    model = LDA(subspace=subspace)
    model.learn(message)
    before = {name: value for name, value in model.state().items() if name != "accepted"}
    same = np.ones((50, 5))
    found = model.learn_triplets(same, same, same)
    assert found.degenerate.all() and not found.utilised.any() and (found.mistake == 1).all()
    assert model.learn_triplets(0.0 * same, same, same).degenerate.all()
    assert model.learn_pairs(0.0 * same, -0.0 * same).degenerate.all()
    assert digest({name: value for name, value in model.state().items() if name != "accepted"}) == digest(
        before
    )
    found = model.learn_triplets(same, same, 2.0 * same)
    assert found.utilised.all() and not found.degenerate.any()


def test_data_of_equal_vectors_alone_leave_the_identity() -> None:
    same = np.ones((200, 3))
    model = LDA()
    model.learn_triplets(same, same, same)
    np.testing.assert_array_equal(model.map, np.eye(3))
    assert model.threshold is None


@pytest.mark.parametrize("scale", [1e-160, 1e-30, 1e-6, 1e6, 1e30, 1e70, 1e75])
def test_the_scale_of_the_features_plays_no_part(scale: float) -> None:
    X, label = classes(13, 4, 600)
    index = triplets(label, 13)
    one, other = LDA(), LDA()
    plain = one.learn_triplets(*X[index.T])
    found = other.learn_triplets(*(scale * X[index.T]))
    assert not found.rejected.any() and np.isfinite(found.loss).all()
    assert all(np.isfinite(value).all() for value in other.state().values())
    if scale > 1e-150:
        np.testing.assert_allclose(squares(scale * other.map), squares(one.map), rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(found.margin[-100:], plain.margin[-100:], rtol=1e-6, atol=1e-9)


def test_nothing_becomes_non_finite() -> None:
    draw = np.random.default_rng(14)
    for dtype in ("float64", "float32"):
        limit = float(np.finfo(dtype).max)
        for subspace in (256, 3):
            model = LDA(dtype=dtype, subspace=subspace)
            for power in draw.uniform(-1.0, 1.0, 60):
                T = draw.normal(size=(3, 20, 5)) * limit ** min(float(power), 0.99)
                found = model.learn_triplets(*T)
                assert np.isfinite(found.loss).all() and (found.loss[found.utilised] > 0.0).all()
            assert all(np.isfinite(value).all() for value in model.state().values())
            assert np.isfinite(model.map).all()
            before = model.map
            assert model.learn_triplets(
                *(np.full((1, 5), 0.9 * limit) * k for k in (1, -1, 0.5))
            ).rejected.all()
            np.testing.assert_array_equal(model.map, before)


@pytest.mark.parametrize("subspace", [256, 6])
@pytest.mark.parametrize("value", [1e9, 9.97e36])
@pytest.mark.parametrize("row", [3, 700])
def test_one_row_with_a_fill_value_does_not_become_the_scatter(row: int, value: float, subspace: int) -> None:
    draw = np.random.default_rng(8)
    label = draw.integers(0, 3, 1_500)
    X = draw.normal(size=(1_500, 8))
    X[:, 0] += 4.0 * label
    rows = [np.flatnonzero(label == one) for one in range(3)]
    triplets = [(x, draw.choice(rows[label[x]]), draw.choice(rows[(label[x] + 1) % 3])) for x in range(1_000)]
    errors = []
    for fill in (None, value):
        made = X.copy()
        if fill is not None:
            made[row, 4] = fill
        model = LDA(subspace=subspace)
        counts = model.learn_triplets(*(made[list(side)] for side in zip(*triplets, strict=True))).counts()
        assert (counts.clipped > 0) == (fill is not None)
        mapped = model.transform(X[1_000:])
        apart = ((mapped[:, None] - mapped[None]) ** 2).sum(axis=2)
        np.fill_diagonal(apart, np.inf)
        errors.append(float((label[1_000:][apart.argmin(axis=1)] != label[1_000:]).mean()))
    assert errors[0] < 0.1 and errors[1] < errors[0] + 0.05, errors


def test_without_a_discriminating_direction_the_map_stays() -> None:
    draw = np.random.default_rng(15)
    near, far = draw.normal(size=(2, 500, 4))
    model = LDA(shrinkage=1.0)
    model.learn_triplets(0.0 * near, near, 0.5 * far)
    np.testing.assert_array_equal(model.map, np.eye(4))


def test_verdicts_and_losses() -> None:
    X, label = classes(16, 4, 900)
    model = LDA()
    model.learn(block(X, triplets(label, 16)))
    assert model.threshold is not None
    state = model.state()
    index = triplets(label, 17)[:20]
    found = model.learn(block(X, index))
    model.restore(state)
    near, far = (model.distance(X[index[:, 0]], X[index[:, k]]) for k in (1, 2))
    np.testing.assert_allclose(found.margin, far - near, rtol=1e-9)
    np.testing.assert_allclose(found.loss, np.logaddexp(0.0, near - far), rtol=1e-9)
    np.testing.assert_array_equal(found.mistake, near >= far)
    index, signs = pairs(label, 18, 20)
    found = model.learn(block(X, index, Kind.PAIR, "test", signs))
    model.restore(state)
    gap = model.distance(X[index[:, 0]], X[index[:, 1]]) - model.threshold
    np.testing.assert_allclose(found.loss, np.logaddexp(0.0, 0.5 * signs * gap), rtol=1e-9)
    np.testing.assert_array_equal(found.mistake, (gap > 0.0) == (signs > 0))
    first = LDA().learn(block(X, index, Kind.PAIR, "test", signs))
    assert (first.mistake == -1).all() and first.loss == pytest.approx(np.log(2.0))


def test_a_window_follows_a_change() -> None:
    X, label = classes(19, 6, 4000)
    index = triplets(label, 19)
    turned = X[:, ::-1]
    settled, moving = LDA(rank=2), LDA(rank=2, window=200)
    for model in (settled, moving):
        model.learn(block(X, index))
        model.learn(block(turned, index))
    new = [np.sum(model.map[:, -2:] ** 2) / np.sum(model.map**2) for model in (settled, moving)]
    assert new[1] > 0.95 > new[0]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_all_kernels_are_compiled_before_a_record_comes(dtype: str) -> None:
    warm_up("lda", {"dtype": dtype})
    kernels: list[Any] = [lda.differing, lda.collect, lda.gather, lda.lengths, measure, hashes]
    before = [len(kernel.signatures) for kernel in kernels]
    assert all(before)
    for d, subspace in ((6, 256), (9, 6)):
        for kind in (Kind.TRIPLET, Kind.PAIR):
            LDA(dtype=dtype, subspace=subspace).learn(stream(kind, 21, d))
    assert [len(kernel.signatures) for kernel in kernels] == before


def test_settings_out_of_range_are_refused() -> None:
    wrong_ones: list[dict[str, Any]] = [
        {"rank": 0},
        {"shrinkage": 0.0},
        {"shrinkage": -1.0},
        {"window": 31},
        {"subspace": 0},
        {"dtype": "int8"},
    ]
    for settings in wrong_ones:
        with pytest.raises(SettingsError):
            LDA(**settings)
    model = LDA(subspace=8)
    message = stream(Kind.TRIPLET, 20, 10, 100)
    model.learn(rows_of(message, slice(0, 4)))
    with pytest.raises(SettingsError, match="subspace is 2"):
        LDA(subspace=2).restore(model.state())
    model.learn(message)
    with pytest.raises(SettingsError, match="subspace is 7, but the state to restore holds 8"):
        LDA(subspace=7).restore(model.state())
    with pytest.raises(SettingsError, match="float64"):
        LDA(dtype="float32").restore(model.state())


def test_the_example_of_the_docstring_runs() -> None:
    found = doctest.testmod(lda_module)
    assert (found.attempted > 5, found.failed) == (True, 0)
