"""Vote, verification and retrieval: by hand, by scikit-learn, and by the definitions pair by pair."""

from __future__ import annotations

import tracemalloc
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import (
    average_precision_score,
    classification_report,
    label_ranking_average_precision_score,
    roc_auc_score,
)
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

from kinstream.evaluation.measures.held_out_rows import knn_error
from kinstream.evaluation.measures.quality import (
    ROC_POINTS,
    Retrieval,
    Verification,
    Vote,
    evaluation_pairs,
    graded,
    knn,
    retrieval,
    verification,
)

Table = NDArray[Any]
NOTHING: Final = Vote(None, None)

seeds = st.integers(0, 2**32 - 1)


def random_rows(seed: int, n: int, d: int = 3, classes: int = 4) -> tuple[Table, Table]:
    draw = np.random.default_rng(seed)
    return draw.normal(size=(n, d)), draw.integers(0, classes, n)


# ---- vote ------------------------------------------------------------------------------------------------------------


def test_a_vote_by_hand() -> None:
    x = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2], [9.0]])
    y = np.array(["a", "a", "a", "b", "b", "b", "c"])
    u = np.array([[0.05], [5.05], [0.15], [9.0]])
    # The last two are named b and, by two of three voters, b: of the classes of the test rows c is never found.
    found = knn(x, y, u, np.array(["a", "b", "b", "c"]), neighbours=3)
    assert found.error == 0.5
    # a: precision 1/2, recall 1; b: precision 1/2, recall 1/2; c: nothing found.
    assert found.macro_f1 == pytest.approx((2 / 3 + 1 / 2 + 0.0) / 3)


def test_macro_f1_is_over_the_classes_of_the_test_rows() -> None:
    # "z" is found and not there: it costs "a" its recall, and is no class of its own.
    found = graded(np.array(["a", "z"]), np.array(["a", "a"]))
    assert found.error == 0.5
    assert found.macro_f1 == pytest.approx(2 / 3)
    assert graded(np.array(["z"]), np.array(["a"])) == Vote(1.0, 0.0)
    assert graded(np.array([1, 2]), np.array([1, 2])) == Vote(0.0, 1.0)


@settings(max_examples=30)
@given(seeds, st.integers(1, 8))
def test_a_vote_is_that_of_replay(seed: int, neighbours: int) -> None:
    x, y = random_rows(seed, 30)
    u, v = random_rows(seed + 1, 20)
    found = knn(x, y, u, v, neighbours)
    assert found.error == knn_error(x, y, u, v, neighbours)
    report = classification_report(
        v, _voted(x, y, u, neighbours), labels=np.unique(v), output_dict=True, zero_division=0.0
    )
    assert found.macro_f1 == pytest.approx(report["macro avg"]["f1-score"])


def _voted(x: Table, y: Table, u: Table, neighbours: int) -> Table:
    near = NearestNeighbors(n_neighbors=neighbours).fit(x).kneighbors(u, return_distance=False)
    return np.array([np.bincount(y[row]).argmax() for row in near])


def test_all_rows_vote_where_there_are_few() -> None:
    x, y = np.zeros((2, 1)), np.array([1, 1])
    assert knn(x, y, np.ones((1, 1)), np.array([1])) == Vote(0.0, 1.0)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 1e300])
def test_rows_without_distances_have_no_measure(wrong: float) -> None:
    x, y = random_rows(1, 8)
    broken = x.copy()
    broken[3, 1] = wrong
    assert knn(broken, y, x, y) == knn(x, y, broken, y) == NOTHING
    for query, gallery in ((broken, x), (x, broken)):
        assert retrieval(query, gallery, y, y, (1,), False) == Retrieval((1,), None, None, None, 0, 0)


def test_nothing_is_measured_on_nothing() -> None:
    x, y = random_rows(1, 8)
    assert knn(x[:0], y[:0], x, y) == knn(x, y, x[:0], y[:0]) == graded(y[:0], y[:0]) == NOTHING
    assert retrieval(x[:0], x, y[:0], y, (1,), False) == Retrieval((1,), None, None, None, 0, 0)
    assert retrieval(x, x[:0], y, y[:0], (1,), False) == Retrieval((1,), None, None, None, 0, 8)


def test_a_vote_does_not_depend_on_the_number_of_threads() -> None:
    # On a grid, where nearly all distances are those of several rows.
    draw = np.random.default_rng(5)
    x, u = (draw.integers(0, 3, (n, 4)).astype(np.float32) for n in (3_000, 200))
    y, v = draw.integers(0, 5, 3_000), draw.integers(0, 5, 200)
    found = set()
    for threads in (1, 2, 4):
        with threadpool_limits(threads):
            found.add(knn(x, y, u, v))
    assert len(found) == 1


# ---- verification ----------------------------------------------------------------------------------------------------


def test_verification_by_hand() -> None:
    # Of four comparisons two are right, one is wrong, one is a tie.
    found = verification(np.array([1.0, 3.0, 2.0, 3.0]), np.array([True, True, False, False]))
    assert found.auc == (2 + 0.5) / 4
    assert (found.fpr[0], found.tpr[0]) == (0.0, 0.0)
    assert (found.fpr[-1], found.tpr[-1]) == (1.0, 1.0)
    assert (0.0, 0.5) in zip(found.fpr, found.tpr, strict=True)
    assert (0.5, 0.5) in zip(found.fpr, found.tpr, strict=True)


@pytest.mark.parametrize("same", [[True, True], [False, False], []])
def test_one_sort_of_pairs_has_no_curve(same: list[bool]) -> None:
    assert verification(np.arange(len(same)), np.array(same, np.bool_)) == Verification(None)


def test_infinity_is_far_and_nan_is_nothing() -> None:
    same = np.array([True, False, False])
    assert verification(np.array([1.0, np.inf, 1e308]), same).auc == 1.0
    assert verification(np.array([np.inf, np.inf, 1.0]), same).auc == 0.25
    assert verification(np.array([1.0, np.nan, 2.0]), same) == Verification(None)


@given(seeds, st.integers(2, 40), st.booleans())
def test_auc_counts_pairs(seed: int, n: int, ties: bool) -> None:
    draw = np.random.default_rng(seed)
    distances = draw.integers(0, 4, n).astype(float) if ties else draw.random(n)
    same = draw.random(n) < 0.5
    same[:2] = True, False
    right = [1.0 if a < b else 0.5 if a == b else 0.0 for a in distances[same] for b in distances[~same]]
    found = verification(distances, same)
    assert found.auc == pytest.approx(np.mean(right))
    assert found.auc == pytest.approx(roc_auc_score(same, -distances))
    # The curve holds what the measure says.
    assert np.trapezoid(found.tpr, found.fpr) == pytest.approx(found.auc)


def test_a_long_curve_is_thinned_to_points_of_it() -> None:
    draw = np.random.default_rng(3)
    same = draw.random(20_000) < 0.5
    distances = draw.normal(size=20_000) + np.where(same, -1.0, 0.0)
    found = verification(distances, same)
    assert 150 < len(found.fpr) == len(found.tpr) <= ROC_POINTS
    assert (found.fpr[0], found.tpr[0], found.fpr[-1], found.tpr[-1]) == (0.0, 0.0, 1.0, 1.0)
    assert np.all(np.diff(found.fpr) >= 0) and np.all(np.diff(found.tpr) >= 0)
    for fpr, tpr in zip(found.fpr[1:-1], found.tpr[1:-1], strict=True):
        # A threshold that lets so many wrong pairs through lets so many right ones through.
        others = np.sort(distances[~same])
        count = round(fpr * len(others))
        low, high = (others[count - 1] if count else -np.inf), others[count]
        shares = [np.mean(distances[same] <= low), np.mean(distances[same] < high)]
        assert shares[0] - 1e-12 <= tpr <= shares[1] + 1e-12
    # Steps are so short that little of the area is lost.
    assert np.trapezoid(found.tpr, found.fpr) == pytest.approx(found.auc, abs=1e-3)


# ---- retrieval -------------------------------------------------------------------------------------------------------


def test_retrieval_by_hand() -> None:
    gallery = np.array([[1.0], [2.0], [3.0], [4.0]])
    labels = np.array(["a", "b", "a", "b"])
    # Found in this order: a b a b, and b a b a; the last query has no row of its class.
    found = retrieval(
        np.array([[0.0], [5.0], [0.0]]), gallery, np.array(["a", "a", "?"]), labels, (1, 2, 3, 10), False
    )
    assert found.recall == (0.5, 1.0, 1.0, 1.0)
    assert found.precision == ((1 + 0) / 2, (1 + 1) / 4, (2 + 1) / 6, (2 + 2) / 20)
    assert found.mean_average_precision == pytest.approx(((1 + 2 / 3) / 2 + (1 / 2 + 2 / 4) / 2) / 2)
    assert (found.queries, found.left_out) == (2, 1)


def test_no_query_finds_itself() -> None:
    X = np.array([[0.0], [0.0], [7.0], [1.0]])
    found = retrieval(X, X, np.array([1, 1, 2, 2]), np.array([1, 1, 2, 2]), (1,), True)
    # Both rows of class 1 find each other though they are where they are; those of class 2 find them first or second.
    assert found.recall == (3 / 4,)
    assert found.mean_average_precision == pytest.approx((1 + 1 + 1 + 1 / 3) / 4)
    lonely = retrieval(X, X, np.array([1, 1, 1, 2]), np.array([1, 1, 1, 2]), (1,), True)
    assert (lonely.queries, lonely.left_out) == (3, 1)


def test_equal_distances_go_by_row_number() -> None:
    query, gallery = np.zeros((1, 2)), np.array([[3.0, 4.0], [-4.0, 3.0], [0.0, 5.0]])
    for place in range(3):
        labels = np.zeros(3, int)
        labels[place] = 1
        found = retrieval(query, gallery, np.array([1]), labels, (1, 2, 3), False)
        assert found.recall == tuple(float(k > place) for k in (1, 2, 3))
        assert found.mean_average_precision == 1 / (place + 1)


def test_what_retrieval_refuses() -> None:
    X, y = random_rows(1, 4)
    with pytest.raises(ValueError, match="K is at least 1"):
        retrieval(X, X, y, y, (1, 0), False)
    with pytest.raises(ValueError, match="3 queries and 4 rows"):
        retrieval(X[:3], X, y[:3], y, (1,), True)


def by_definition(
    query: Table, gallery: Table, asked: Table, labels: Table, ks: tuple[int, ...], same_rows: bool
) -> Retrieval:
    recall, precision, average = [], [], []
    for i, row in enumerate(query):
        others = [j for j in range(len(gallery)) if not (same_rows and i == j)]
        others.sort(key=lambda j: (float(np.square(row - gallery[j]).sum()), j))
        relevant = [bool(labels[j] == asked[i]) for j in others]
        if not any(relevant):
            continue
        recall.append([any(relevant[:k]) for k in ks])
        precision.append([sum(relevant[:k]) / k for k in ks])
        at = [place for place, hit in enumerate(relevant, 1) if hit]
        average.append(np.mean([count / place for count, place in enumerate(at, 1)]))
    if not average:
        return Retrieval(ks, None, None, None, 0, len(query))
    means = [tuple(np.mean(values, axis=0)) for values in (recall, precision)]
    return Retrieval(ks, means[0], means[1], float(np.mean(average)), len(average), len(query) - len(average))


@given(seeds, st.integers(1, 12), st.integers(1, 12), st.integers(1, 4), st.booleans(), st.booleans())
def test_retrieval_is_what_it_says(
    seed: int, q: int, n: int, classes: int, same_rows: bool, grid: bool
) -> None:
    draw = np.random.default_rng(seed)
    n = q if same_rows else n
    X = draw.integers(0, 3, (q + n, 2)).astype(np.float32) if grid else draw.normal(size=(q + n, 2))
    y = draw.integers(0, classes, q + n)
    query, asked = (X[:n], y[:n]) if same_rows else (X[n:], y[n:])
    ks = (1, 2, 5, 20)
    found = retrieval(query, X[:n], asked, y[:n], ks, same_rows)
    expected = by_definition(query, X[:n], asked, y[:n], ks, same_rows)
    assert (found.queries, found.left_out) == (expected.queries, expected.left_out)
    if (
        expected.recall is None
        or expected.precision is None
        or found.recall is None
        or found.precision is None
    ):
        assert found == expected
        return
    assert found.recall == pytest.approx(expected.recall)
    assert found.precision == pytest.approx(expected.precision)
    assert found.mean_average_precision == pytest.approx(expected.mean_average_precision)


def test_retrieval_agrees_with_scikit_learn() -> None:
    X, y = random_rows(8, 300, d=5)
    U, v = random_rows(9, 80, d=5)
    found = retrieval(U, X, v, y, (1, 5), False)
    D = np.sqrt(np.square(U[:, None] - X[None]).sum(axis=2))
    relevant = v[:, None] == y[None]
    each = [average_precision_score(hit, -far) for hit, far in zip(relevant, D, strict=True)]
    assert found.mean_average_precision == pytest.approx(np.mean(each))
    assert found.mean_average_precision == pytest.approx(label_ranking_average_precision_score(relevant, -D))
    near = NearestNeighbors(n_neighbors=5).fit(X).kneighbors(U, return_distance=False)
    hits = y[near] == v[:, None]
    assert found.recall is not None and found.precision is not None
    assert found.recall == pytest.approx([hits[:, 0].mean(), hits.any(axis=1).mean()])
    assert found.precision == pytest.approx([hits[:, 0].mean(), hits.mean()])


@pytest.mark.long
def test_memory_does_not_grow_with_the_queries() -> None:
    X, y = random_rows(2, 5_000, d=2)
    peaks = []
    for q in (1_000, 5_000):
        tracemalloc.start()
        retrieval(X[:q], X, y[:q], y, (1,), False)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # All distances at once would be 200 MB.
    assert peaks[1] < 1.1 * peaks[0] < 40e6


@pytest.mark.long
def test_ten_thousand_by_ten_thousand_in_less_than_a_gigabyte() -> None:
    X, y = random_rows(2, 10_000, d=8)
    tracemalloc.start()
    found = retrieval(X, X, y, y, (1, 10), True)
    assert tracemalloc.get_traced_memory()[1] < 200e6
    tracemalloc.stop()
    assert found.queries == 10_000


# ---- pairs -----------------------------------------------------------------------------------------------------------


@given(seeds, st.integers(0, 12), st.integers(1, 4), st.integers(0, 80))
def test_pairs_are_halves_or_all(seed: int, n: int, classes: int, count: int) -> None:
    labels = np.random.default_rng(seed).integers(0, classes, n)
    left, right, same = evaluation_pairs(labels, count, seed)
    pairs = list(zip(left.tolist(), right.tolist(), strict=True))
    everything = [(i, j) for i in range(n) for j in range(i + 1, n)]
    alike = sum(bool(labels[i] == labels[j]) for i, j in everything)
    assert len(set(pairs)) == len(pairs) == min(count, len(everything))
    assert set(pairs) <= set(everything)
    assert same.tolist() == [bool(labels[i] == labels[j]) for i, j in pairs]
    unlike = len(everything) - alike
    if len(pairs) == count and alike >= count // 2 and unlike >= count - count // 2:
        assert same.sum() == count // 2


def test_pairs_are_drawn_from_all_alike_and_by_the_seed() -> None:
    labels = np.array(["b", "a"] * 10 + ["c"] * 5)
    drawn = [evaluation_pairs(labels, 40, seed) for seed in range(300)]
    assert all(np.array_equal(a, b) for a, b in zip(drawn[7], evaluation_pairs(labels, 40, 7), strict=True))
    counts = np.zeros((25, 25))
    for left, right, _ in drawn:
        counts[left, right] += 1
    upper = np.triu_indices(25, 1)
    alike = labels[upper[0]] == labels[upper[1]]
    # 20 of 100 pairs of one class and 20 of 200 others are in each draw: five standard deviations.
    for share, number in ((20 / 100, alike), (20 / 200, ~alike)):
        found = counts[upper][number]
        assert np.all(np.abs(found / 300 - share) < 5 * np.sqrt(share * (1 - share) / 300))
        assert found.sum() == 300 * 20
