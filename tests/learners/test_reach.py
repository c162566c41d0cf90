"""No row ruins a model: what lies absurdly far from the first vectors makes no scale, and is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_wine
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.blocks import constraint_block
from kinstream.learners.base.adaptive_scaler import Following
from kinstream.learners.base.first_vectors import scales_of, tempered, within
from kinstream.learners.base.scaler import MinMax, Scaler, ZScore
from kinstream.learners.base.targets import Targets
from kinstream.learners.drift import Drift
from kinstream.learners.kernels.ensembles.windows import is_even
from kinstream.learners.mixture.learner import Mixture
from kinstream.learners.mixture.views import OneScale
from kinstream.learners.registry import create
from kinstream.learners.sklearn import MetricLearner
from kinstream.testing.learners import digest

Matrix = NDArray[np.float64]
#: What a broken producer has in a row, or in one column of it.
FAR = [1e8, 1e12, -1e20, 9.97e36, -3.4e38]


def first(seed: int = 1, n: int = 40, d: int = 5) -> Matrix:
    """Vectors with features of different scales, and one that is constant."""
    X = np.random.default_rng(seed).normal(size=(n, d)) * 10.0 ** np.arange(-2, d - 2) + 3.0
    X[:, 1] = 7.0
    return np.asarray(X)


def with_far(X: Matrix, value: float, column: int | None, place: int) -> Matrix:
    odd = X[:1].copy()
    odd[0, slice(None) if column is None else column] = value
    return np.concatenate([X[:place], odd, X[place:]])


def _following(name: str, rows: int) -> Scaler:
    return Following(name, rows, centred=True)


SCALERS: dict[str, Callable[..., Scaler]] = {
    "zscore": ZScore,
    "minmax": MinMax,
    "mixture": OneScale,
    **{f"following {name}": partial(_following, name) for name in ("none", "zscore", "minmax")},
}


@pytest.mark.parametrize("column", [None, 1, 2], ids=["row", "constant column", "column"])
@pytest.mark.parametrize("value", FAR)
@pytest.mark.parametrize("name", SCALERS)
def test_a_far_row_makes_no_scale(name: str, value: float, column: int | None) -> None:
    n = 32 if name == "following none" else 40
    X = first(n=n)
    usual = SCALERS[name](n)
    for row in X:
        usual.observe(row[None])
    for place in (0, 20):
        scaler = SCALERS[name](n + (name != "following none"))
        seen = [scaler.observe(row[None]) for row in with_far(X, value, column, place) if not scaler.ready]
        assert scaler.ready
        # It is refused in the warm-up, once there is something to compare it with, and after it.
        assert seen.count(False) == (place > 0)
        later = with_far(X, value, column, 0)
        assert scaler.within(later).tolist() == [False] + [True] * n
        varies = np.ptp(X, axis=0) > 0.0
        ratio = (np.ptp(scaler.apply(X), axis=0) / np.ptp(usual.apply(X), axis=0).clip(1e-300))[varies]
        np.testing.assert_allclose(ratio, 1.0, rtol=0.2)


@pytest.mark.parametrize("value", [1e3, 1e5])
def test_a_row_within_reach_does_not_decide_the_scale_either(value: float) -> None:
    X = np.random.default_rng(2).normal(size=(127, 3))
    scaler = OneScale(128)
    for row in with_far(X, value, None, 5):
        scaler.observe(row[None])
    assert np.ptp(scaler.apply(X), axis=0).min() > 0.2


def _softmax(Z: Matrix) -> Matrix:
    p = np.exp(Z - Z.max(axis=1, keepdims=True))
    return np.asarray(p / p.sum(axis=1, keepdims=True))


#: Features that are nearly one value in most vectors, (n, 6) each; in the last two, exactly one.
ROUNDED: dict[str, Callable[[np.random.Generator, int], Matrix]] = {
    "flags": lambda draw, n: 1e-9 * draw.normal(size=(n, 6)) + (draw.random((n, 6)) < 0.2),
    "classes": lambda draw, n: 1e-9 * draw.normal(size=(n, 6)) + np.eye(20)[draw.integers(20, size=n), :6],
    "shares": lambda draw, n: _softmax(30.0 * draw.normal(size=(n, 6))),
    "amounts": lambda draw, n: (
        np.where(draw.random((n, 6)) < 0.8, 1e-4 * draw.normal(size=(n, 6)), draw.normal(size=(n, 6))) + 1.0
    ),
    # Of all-MiniLM-L6-v2 in float16, brought to length 1: a number that half precision hardly has, or 0.
    "embeddings": lambda draw, n: np.column_stack(
        [
            (5.96e-8 + 3e-11 * draw.normal(size=n)) * (draw.random(n) < 0.95),
            (5.96e-8 + 3e-11 * draw.normal(size=n)) * (draw.random(n) < 0.8),
            0.05 * draw.normal(size=(n, 4)),
        ]
    ),
    "counts": lambda draw, n: np.column_stack([draw.poisson(0.2, (n, 5)), draw.normal(size=n)]),
    "one-hot": lambda draw, n: np.column_stack([np.eye(5)[draw.integers(5, size=n)], draw.normal(size=n)]),
}


@pytest.mark.parametrize("rows", ROUNDED)
@pytest.mark.parametrize("name", SCALERS)
def test_a_scale_is_not_that_of_rounding(name: str, rows: str) -> None:
    n = 32 if name == "following none" else 128
    X = ROUNDED[rows](np.random.default_rng(9), n)
    scaler = SCALERS[name](n)
    assert all(scaler.observe(row[None]) for row in X)
    assert scaler.ready and scaler.within(X).all()
    found, varies = scaler.apply(X), np.ptp(X, axis=0) > 0.0
    if name == "zscore":
        np.testing.assert_allclose(found.std(axis=0, ddof=1)[varies], 1.0, rtol=1e-6)
    if name == "minmax":
        np.testing.assert_allclose(np.ptp(found, axis=0)[varies], 1.0, rtol=1e-6)


@pytest.mark.parametrize("name", ["mixture", "opml", "opml zscore", "lego", "itml"])
def test_shares_are_learned_from(name: str) -> None:
    X = ROUNDED["shares"](np.random.default_rng(10), 900)
    kind, *scaler = name.split()
    model = create(kind, **({"scaler": scaler[0]} if scaler else {}))
    block = constraint_block({"a": X.astype(np.float32)}, np.arange(900, dtype=np.int32).reshape(3, 300).T)
    assert not model.learn(block).rejected.any()


def test_a_row_within_reach_does_not_decide_the_scale_of_what_is_nearly_one_value() -> None:
    X = ROUNDED["amounts"](np.random.default_rng(11), 127)
    scaler = ZScore(128)
    for row in with_far(X, 1e5, None, 5):
        scaler.observe(row[None])
    assert np.ptp(scaler.apply(X), axis=0).min() > 0.2


def test_statistics_without_a_far_row_are_what_they_were() -> None:
    X = np.random.default_rng(3).exponential(size=(300, 4))
    X[:, 3] = X[:, 3] > 2.0
    assert tempered(X) is X


@pytest.mark.parametrize(
    "X",
    [
        [[1.0], [1.0 + 1e-7], [0.0]],
        # Amounts of which most are zero, beside flags.
        np.column_stack([np.where(np.arange(40) % 5, 0.0, 1e8 + np.arange(40)), np.arange(40) % 2]),
        # A time in nanoseconds beside a ratio.
        np.column_stack([1.7e18 + 1e9 * np.arange(40.0), 1e-3 * np.arange(40)]),
    ],
)
def test_what_differs_much_is_not_far(X: Any) -> None:
    table = np.asarray(X, np.float64)
    assert within(table, *scales_of(table)).all()


def test_a_majority_is_never_far() -> None:
    X = np.concatenate([first(n=20), 1e9 * first(n=50)])
    scaler = ZScore(70)
    for row in X:
        scaler.observe(row[None])
    assert scaler.within(1e9 * first(4)).all()


@pytest.mark.parametrize("value", FAR)
def test_targets_are_those_of_the_others(value: float) -> None:
    X = first(n=24)
    usual, other = (Targets("own", None, None, n) for n in (24, 25))
    for targets, rows in ((usual, X), (other, with_far(X, value, None, 3))):
        for row in rows:
            targets.observe(row[None], lambda Z: Z, True)
    assert (other.similar, other.dissimilar) == (usual.similar, usual.dissimilar)


@pytest.mark.parametrize("value", FAR)
def test_a_far_row_renews_no_scale_and_hides_no_drift(value: float) -> None:
    draw = np.random.default_rng(4)
    X = draw.normal(size=(2_000, 3))
    scaler, drift = Following("zscore", 64, centred=True), Drift()
    index = np.arange(2_000, dtype=np.int32)[:, None]
    rows = X.copy()
    rows[[10, 500, 1_100]] = value
    for row in rows[:64]:
        scaler.observe(row[None])
    assert scaler.follow(rows, index[64:]) == len(index) - 64
    assert not scaler.due
    assert drift.until(rows, index, None, 0) == len(index)
    assert drift.until(5.0 + rows, index, None, 0) < len(index)
    assert drift.due


@pytest.mark.long
@pytest.mark.parametrize(
    "bad", [(None, 1e12), (None, -1e20), (3, 9.97e36), (0, -3.4e38), (None, 1e5), (3, -9_999.0)]
)
@pytest.mark.parametrize("passes", [1, 4])
def test_a_mixture_is_as_good_with_a_row_from_a_broken_producer(
    bad: tuple[int | None, float], passes: int
) -> None:
    X, y = load_wine(return_X_y=True)
    order = np.random.default_rng(5).permutation(len(X))
    X, y, U, v = X[order[:100]], y[order[:100]], X[order[100:]], y[order[100:]]
    Z = X.copy()
    Z[7, slice(None) if bad[0] is None else bad[0]] = bad[1]
    model = MetricLearner("mixture", passes=passes).fit(Z, y)
    vote = KNeighborsClassifier(5).fit(model.transform(X), y)
    assert np.mean(vote.predict(model.transform(U)) != v) < 0.09


def test_what_is_refused_in_the_warm_up_is_counted() -> None:
    draw = np.random.default_rng(6)
    x, near, far = draw.normal(size=(3, 60, 4))
    x[[30, 50]] = 1e12
    model = Mixture(warm_up=100)
    assert np.flatnonzero(model.learn_triplets(x, near, far).rejected).tolist() == [30, 50]


@pytest.mark.parametrize("name", ["mixture", "opml", "opml zscore", "lomdml zscore"])
@pytest.mark.parametrize("several", [False, True], ids=["each its own event", "events"])
def test_one_among_the_first_vectors_is_counted_once_it_can_be_told(name: str, several: bool) -> None:
    draw = np.random.default_rng(8)
    x, near, far = draw.normal(size=(3, 60, 4)).astype(np.float32)
    far[1] = 1e12
    kind, *scaler = name.split()
    tables = {"a": np.concatenate([x, near, far])}
    if kind == "lomdml":
        tables["b"] = draw.normal(size=(180, 3)).astype(np.float32)
    block = constraint_block(tables, np.arange(180, dtype=np.int32).reshape(3, 60).T)
    if several:
        block = replace(block, events=np.arange(60, dtype=np.int32) // 4 + 1)
    settings = {"scaler": scaler[0]} if scaler else {}
    found = create(kind, **settings).learn(block)
    assert np.flatnonzero(found.rejected).tolist() == [1]
    assert (found.mistake[1], found.loss[1], found.utilised[1]) == (-1, 0.0, False)


def test_a_warm_up_goes_on_from_its_state() -> None:
    rows = with_far(np.random.default_rng(7).normal(size=(59, 4)), 1e12, None, 4)
    for make in SCALERS.values():
        one = make(50)
        for row in rows:
            if one.ready:
                break
            other = make(50)
            other.restore(one.state())
            assert digest(other.state()) == digest(one.state())
            near = one.observe(row[None]), other.observe(row[None])
            assert near[0] == near[1] and digest(other.state()) == digest(one.state())


DRAWS: dict[str, Callable[[np.random.Generator, int, int], Matrix]] = {
    "normal": lambda draw, n, d: draw.normal(size=(n, d)) * 10.0 ** draw.integers(-8, 8, d),
    "heavy tails": lambda draw, n, d: draw.standard_cauchy((n, d)),
    "mostly zero": lambda draw, n, d: np.where(draw.random((n, d)) < 0.9, 0.0, draw.normal(size=(n, d))),
    "nearly one value": lambda draw, n, d: np.where(
        draw.random((n, d)) < 0.8,
        10.0 ** draw.integers(-12, -2) * draw.normal(size=(n, d)),
        10.0 ** draw.integers(-2, 6) * draw.normal(size=(n, d)),
    ),
    "whole numbers": lambda draw, n, d: np.round(draw.normal(size=(n, d))),
    "sparse and far": lambda draw, n, d: np.where(
        draw.random((n, d)) < 0.97, 5.0, draw.standard_t(1.2, (n, d)) * 10.0 ** draw.integers(0, 9)
    ),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_window_is_even_if_tempering_leaves_it_as_it_is(name: str) -> None:
    draw = np.random.default_rng(7)
    found = set()
    for _ in range(200):
        X = np.ascontiguousarray(DRAWS[name](draw, int(draw.integers(8, 60)), int(draw.integers(1, 7))))
        if draw.random() < 0.3:
            X[draw.integers(len(X)), 0] *= 10.0 ** draw.integers(1, 10)
        with np.errstate(all="ignore"):
            even = tempered(X) is X
        assert is_even(X) == even
        found.add(even)
    assert found == {True, False}
