"""The scan finds what a plain calculation finds; what every way of searching promises about what goes in and out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from kinstream.search.index.create import MODES, create
from kinstream.search.index.lsh import kernels
from kinstream.search.index.online import lengths
from kinstream.search.index.warm_up import warm_up
from kinstream.streams.errors import SettingsError
from tests.search.model import Plain, steps

DTYPES = ("float64", "float32")
EVERYTHING: dict[str, Any] = {"candidates": 1e6}


@pytest.mark.parametrize("dtype", DTYPES)
@given(
    seed=st.integers(0, 10_000),
    d=st.sampled_from((1, 2, 5, 33)),
    scale=st.sampled_from((1e-4, 1.0, 1e3)),
    rank=st.integers(1, 3),
)
@settings(max_examples=25)
def test_scan_is_brute_force_after_any_steps(dtype: str, seed: int, d: int, scale: float, rank: int) -> None:
    draw = np.random.default_rng(seed)
    index, plain = create("linear", dtype=dtype), Plain(d)
    X = (scale * draw.normal(size=(60, d)) + scale).astype(dtype)
    ids = [f"i{row}" for row in range(60)]
    index.put(ids, X)
    plain.put(ids, X)
    for turn in range(12):
        U, V = steps(draw, d, 0.3, rank)
        index.step(U, V)
        plain.step(U, V)
        if turn % 4 == 1:
            gone = [f"i{row}" for row in draw.integers(0, 80, 9)]
            index.drop(gone)
            plain.drop(gone)
        if turn % 4 == 2:
            fresh = [f"i{row}" for row in draw.choice(80, 7, replace=False)]
            rows = (scale * draw.normal(size=(7, d))).astype(dtype)
            # A dropped and new id comes last in the order of both.
            index.put(fresh, rows)
            plain.put(fresh, rows)
        if turn % 3 == 0:
            q = scale * draw.normal(size=(2, d))
            found = index.search(q, 7)
            for row in range(2):
                names, squared = plain.search(q[row], 7)
                assert found.ids[row] == names
                np.testing.assert_allclose(found.distances[row], squared, rtol=1e-9)
                assert found.examined[row] == len(index) == len(plain.rows)


def test_scan_agrees_with_scikit_learn() -> None:
    draw = np.random.default_rng(1)
    X, Q, G = draw.normal(size=(500, 12)), draw.normal(size=(40, 12)), draw.normal(size=(5, 12))
    index = create("linear")
    index.put([str(row) for row in range(500)], X)
    index.remap(G)
    found = index.search(Q, 9)
    distances, rows = NearestNeighbors(n_neighbors=9, algorithm="brute").fit(X @ G.T).kneighbors(Q @ G.T)
    assert found.ids == [[str(row) for row in one] for one in rows]
    np.testing.assert_allclose(np.sqrt(found.distances), distances, rtol=1e-9)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_all_ways_are_exact_when_they_look_at_everything(mode: str, dtype: str) -> None:
    draw = np.random.default_rng(2)
    index, plain = create(mode, dtype=dtype, **EVERYTHING), Plain(8)
    G, offset = draw.normal(size=(8, 8)), draw.normal(size=8)
    index.remap(G, offset)
    plain.remap(G, offset)
    X = draw.normal(size=(300, 8)).astype(dtype)
    ids = [str(row) for row in range(300)]
    index.put(ids, X)
    plain.put(ids, X)
    for _ in range(5):
        U, V = steps(draw, 8, 0.2)
        index.step(U, V)
        if mode != "static":
            plain.step(U, V)
        q = draw.normal(size=8)
        found = index.search(q[None], 20)
        names, squared = plain.search(q, 20)
        assert found.ids == [names]
        np.testing.assert_allclose(found.distances[0], squared, rtol=1e-9)


@pytest.mark.parametrize("mode", MODES)
def test_few_items_and_none(mode: str) -> None:
    index = create(mode)
    assert len(index) == 0
    found = index.search(np.zeros((2, 3)), 4)
    assert found.ids == [[], []] and np.isinf(found.distances).all() and not found.examined.any()
    index.drop(["unknown"])
    index.put([], np.zeros((0, 3)))
    index.put(["a", "b"], np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    index.drop(["unknown"])
    found = index.search(np.zeros((1, 3)), 4)
    assert found.ids == [["b", "a"]]
    assert found.distances.tolist() == [[0.0, 1.0, np.inf, np.inf]]
    index.drop(["a", "b", "a"])
    assert len(index) == 0 and index.search(np.zeros((1, 3)), 1).ids == [[]]
    index.put(["a"], np.ones((1, 3)))
    assert index.search(np.zeros((1, 3)), 1).ids == [["a"]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_distances_come_in_the_order_of_insertion(mode: str, dtype: str) -> None:
    draw = np.random.default_rng(3)
    index = create(mode, dtype=dtype, **EVERYTHING)
    one = draw.normal(size=(1, 40)).astype(dtype)
    index.put([f"{row}" for row in range(50)], np.repeat(one, 50, axis=0))
    index.put(["other"], one + 1.0)
    index.drop(["7", "3"])
    index.put(["3"], one)
    index.remap(draw.normal(size=(40, 40)))
    found = index.search(one + draw.normal(size=(1, 40)) * 1e-3, 49)
    kept = [f"{row}" for row in range(50) if row not in (3, 7)]
    assert found.ids[0][:49] == [*kept, "3"]
    assert len(set(found.distances[0].tolist())) == 1
    # An item finds itself at no distance.
    assert index.search(one, 1).distances[0, 0] == 0.0


@pytest.mark.parametrize("mode", MODES)
def test_what_is_wrong_is_named_and_changes_nothing(mode: str) -> None:
    index = create(mode, dtype="float32")
    X = np.ones((3, 2))
    index.put(["a"], X[:1])
    for bad, word in (
        (np.nan, "row 1 of X"),
        (np.inf, "row 1 of X"),
        (1e300, "row 1 of X is not finite in float32"),
    ):
        wrong = X.copy()
        wrong[1, 1] = bad
        with pytest.raises(ValueError, match=word):
            index.put(["b", "c", "d"], wrong)
        with pytest.raises(ValueError, match=r"row 0 of Q") if bad != 1e300 else pytest.raises(ValueError):
            index.search(wrong[1:] if bad != 1e300 else np.ones((1, 3)), 1)
    with pytest.raises(ValueError, match=r"\(n, 2\)"):
        index.put(["b"], np.ones((1, 3)))
    with pytest.raises(ValueError, match="2 ids for 1 rows"):
        index.put(["b", "c"], X[:1])
    with pytest.raises(ValueError, match="k must be at least 1"):
        index.search(X, 0)
    with pytest.raises(ValueError, match="matrix"):
        index.remap(np.ones((2, 3)))
    with pytest.raises(ValueError, match="offset"):
        index.remap(np.eye(2), np.zeros(3))
    with pytest.raises(ValueError, match="columns"):
        index.step(np.ones((2, 1)), np.ones((1, 4)))
    with pytest.raises(ValueError, match="rows"):
        index.step(np.ones((3, 1)), np.ones((1, 2)))
    with pytest.raises(ValueError, match="row 0 of U"):
        index.step(np.full((2, 1), np.nan), np.ones((1, 2)))
    index.step(np.ones((2, 0)), np.ones((0, 2)))
    assert len(index) == 1
    found = index.search(np.zeros((1, 2)), 1)
    assert found.ids == [["a"]] and found.distances.tolist() == [[2.0]]


def test_settings_are_checked() -> None:
    for wrong, word in (
        ({"mode": "quick"}, "linear, naive, lazy, static"),
        ({"bit": 64}, "no setting 'bit'"),
        ({"bits": 0}, "bits"),
        ({"eps": 0.0}, "eps"),
        ({"candidates": -1.0}, "candidates"),
        ({"stale": "monitored"}, "stale was removed: lazy follows .* use the index exact"),
        ({"limit": 0.1}, "limit was removed"),
        ({"monitor": 129}, "monitor"),
        ({"sample": 0}, "sample"),
        ({"rule": "often"}, "rule"),
        ({"dtype": "float16"}, "dtype"),
    ):
        with pytest.raises(SettingsError, match=word):
            create(**wrong)


def test_static_stays_with_the_metric_of_its_first_item() -> None:
    draw = np.random.default_rng(4)
    index, plain = create("static", **EVERYTHING), Plain(6)
    first = draw.normal(size=(6, 6))
    index.remap(first)
    plain.remap(first, np.zeros(6))
    X = draw.normal(size=(100, 6))
    ids = [str(row) for row in range(100)]
    index.put(ids, X)
    plain.put(ids, X)
    index.remap(draw.normal(size=(6, 6)))
    index.step(draw.normal(size=(6, 1)), draw.normal(size=(1, 6)))
    q = draw.normal(size=6)
    assert index.search(q[None], 10).ids == [plain.search(q, 10)[0]]
    assert index.stats.rebuilds == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("settings", ({"monitor": 64, "sample": None}, {"sample": 50}), ids=str)
def test_after_a_warm_up_nothing_is_left_to_compile(settings: dict[str, Any], dtype: str) -> None:
    def compiled() -> dict[str, int]:
        loops = vars(kernels) | vars(lengths)
        functions = {name: getattr(value, "signatures", None) for name, value in loops.items()}
        return {name: len(found) for name, found in functions.items() if found is not None}

    options = {"dtype": dtype, "bits": 64, **settings}
    warm_up("lazy", options)
    before = compiled()
    assert before["estimates"] and before["squared_lengths"] and before["sign_bits"]
    draw = np.random.default_rng(20)
    index = create("lazy", **options)
    index.put([str(row) for row in range(5_000)], draw.normal(size=(5_000, 150)))
    for size in (1e-4, 1e-4, 0.3):
        index.step(*steps(draw, 150, size))
        index.search(draw.normal(size=(2, 150)), 5)
    assert compiled() == before
