"""Classification, verification and retrieval by several weighted metrics, against the rules pair by pair."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

from kinstream.learners.oahu import votes
from kinstream.learners.oahu.learner import OAHU

Rows = NDArray[np.floating[Any]]
Vector = NDArray[np.float64]


def distance(p: Rows, q: Rows) -> float:
    return float(np.sqrt(np.square(p.astype(np.float64) - q.astype(np.float64)).sum()))


def put_forward(
    weights: list[float], gallery: list[Rows], query: list[Rows], k: int
) -> list[tuple[int, float]]:
    """Rows and votes of one query, by metric and then by distance."""
    found = []
    for weight, near, asked in zip(weights, gallery, query, strict=True):
        ranked = sorted((distance(asked, near[i]), i) for i in range(len(near)))[:k]
        least, most = ranked[0][0], ranked[-1][0]
        for D, i in ranked:
            exponent = 0.0 if most - least < 1e-12 else (D - least) / (most - least)
            found.append((i, weight * float(np.exp(-exponent))))
    return found


def class_scores(found: list[tuple[int, float]], labels: NDArray[np.int64]) -> tuple[int, dict[int, float]]:
    scores = {int(label): 0.0 for label in np.unique(labels)}
    for i, vote in found:
        scores[int(labels[i])] += vote
    return min(scores, key=lambda label: (-scores[label], label)), scores


def retrieved(found: list[tuple[int, float]], top: int, repeated: str) -> list[tuple[int, float]]:
    scores: dict[int, float] = {}
    for i, vote in found:
        before = scores.get(i)
        if before is None:
            scores[i] = vote
        else:
            scores[i] = max(before, vote) if repeated == "best" else before + vote
    ranked = sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:top]
    return ranked + [(-1, -np.inf)] * (top - len(ranked))


def drawn(draw: np.random.Generator, kind: str, n: int, m: int, dtype: str) -> Rows:
    match kind:
        case "grid":
            X = draw.integers(0, 3, (n, m)).astype(np.float64)
        case "equal":
            X = np.ones((n, m))
        case "close":
            X = draw.normal(size=(1, m)) + 1e-4 * draw.normal(size=(n, m))
        case "outlier":
            X = draw.normal(size=(n, m))
            X[draw.integers(n) :: 5] *= 1e15
        case "tiny":
            X = 1e-30 * draw.normal(size=(n, m))
        case "huge":
            X = 1e18 * draw.normal(size=(n, m))
        case "far":
            X = 1e4 + draw.normal(size=(n, m))
        case _:
            X = draw.normal(size=(n, m))
    return X.astype(dtype)


@st.composite
def experts(draw: Any) -> tuple[list[float], list[Rows], NDArray[np.int64], list[Rows]]:
    """Weights, gallery, labels and queries; some rows of the gallery twice, some among the queries."""
    random = np.random.default_rng(draw(st.integers(0, 10_000)))
    n, q, E = draw(st.integers(1, 14)), draw(st.integers(0, 5)), draw(st.integers(1, 4))
    kinds = st.sampled_from(["grid", "normal", "equal", "close", "outlier", "tiny", "huge", "far"])
    gallery, queries = [], []
    for _ in range(E):
        m, dtype = draw(st.sampled_from([1, 2, 3, 9, 130])), draw(st.sampled_from(["float32", "float64"]))
        X = drawn(random, draw(kinds), n + q, m, dtype)
        X[random.integers(n + q, size=n // 3)] = X[0]
        gallery.append(X[:n])
        queries.append(X[n:])
    weights = random.dirichlet(np.ones(E)) if draw(st.booleans()) else np.full(E, 1.0 / E)
    labels = random.integers(0, draw(st.integers(1, 3)), n)
    return [float(w) for w in weights], gallery, labels, queries


@given(case=experts(), k=st.integers(1, 16))
@settings(max_examples=150, deadline=None)
def test_classes_are_those_of_the_rule(
    case: tuple[list[float], list[Rows], NDArray[np.int64], list[Rows]], k: int
) -> None:
    weights, gallery, labels, queries = case
    classes, scores = votes.class_scores(weights, gallery, labels, queries, k)
    given_labels = votes.classify(weights, gallery, labels, queries, k)
    assert classes.tolist() == sorted(set(labels.tolist())) and scores.shape == (
        len(queries[0]),
        len(classes),
    )
    for j in range(len(queries[0])):
        found = put_forward(weights, gallery, [X[j] for X in queries], k)
        wanted, by_class = class_scores(found, labels)
        assert scores[j].tolist() == list(by_class.values())
        assert given_labels[j] == wanted


@given(
    case=experts(),
    k=st.one_of(st.none(), st.integers(1, 16)),
    top=st.integers(1, 20),
    repeated=st.sampled_from(votes.REPEATED),
)
@settings(max_examples=150, deadline=None)
def test_what_is_retrieved_is_that_of_the_rule(
    case: tuple[list[float], list[Rows], NDArray[np.int64], list[Rows]],
    k: int | None,
    top: int,
    repeated: str,
) -> None:
    weights, gallery, _, queries = case
    items, scores = votes.retrieve(weights, gallery, queries, top, k, repeated)
    assert items.dtype == np.int64 and items.shape == scores.shape == (len(queries[0]), top)
    for j in range(len(items)):
        found = put_forward(weights, gallery, [X[j] for X in queries], k or top)
        wanted = retrieved(found, top, repeated)
        assert list(zip(items[j].tolist(), scores[j].tolist(), strict=True)) == wanted


#: Eighths add up without rounding, so that half of the weight is half.
eighths = st.lists(st.integers(0, 8), min_size=1, max_size=6).filter(any)


@given(
    parts=eighths,
    halves=st.lists(st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75, 1.0, 3.0]), min_size=6, max_size=6),
    threshold=st.sampled_from([0.1, 0.125, 0.2, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9]),
)
@settings(max_examples=300, deadline=None)
def test_a_pair_is_similar_where_half_of_the_weight_says_so(
    parts: list[int], halves: list[float], threshold: float
) -> None:
    weights = [part / 8 for part in parts]
    left = [np.zeros((1, 2)) for _ in weights]
    right = [np.array([[0.0, 2.0 * half]]) for half in halves[: len(weights)]]
    P = sum(w for w, half in zip(weights, halves, strict=False) if half < threshold)
    wanted = sum(weights) / 2 <= P
    score = votes.verification_score(weights, left, right)
    assert votes.verify(weights, left, right, threshold).tolist() == [wanted]
    assert (-score[0] < threshold) == wanted
    assert -1.0 <= score[0] <= 0.0


def test_half_of_the_weight_is_half_in_spite_of_rounding() -> None:
    # 0.1 + 0.2 + 0.3 of 1.2, where the sum in floating point is not 0.6.
    weights = [0.3, 0.1, 0.2, 0.6 + 1e-16]
    right = [np.full((1, 1), D) for D in (0.2, 0.2, 0.2, 1.8)]
    assert votes.verify(weights, [np.zeros((1, 1))] * 4, right, 0.5).all()


@given(seed=st.integers(0, 999), E=st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_closer_pairs_never_score_lower(seed: int, E: int) -> None:
    draw = np.random.default_rng(seed)
    weights = draw.dirichlet(np.ones(E)).tolist()
    left = [draw.normal(size=(20, 3)) for _ in range(E)]
    right = [draw.normal(size=(20, 3)) for _ in range(E)]
    nearer = [x + draw.uniform(size=(20, 1)) * (y - x) for x, y in zip(left, right, strict=True)]
    scores = votes.verification_score(weights, left, right)
    assert (votes.verification_score(weights, left, nearer) >= scores).all()
    for threshold in (0.2, 0.5, 0.7):
        assert (votes.verify(weights, left, right, threshold) == (scores > -threshold)).all()


APPLIED: Final[dict[str, Callable[..., Any]]] = {
    "classify": lambda w, g, y, q: [votes.classify(w, g, y, q)],
    "class_scores": lambda w, g, y, q: [votes.class_scores(w, g, y, q)[1]],
    "retrieve best": lambda w, g, y, q: votes.retrieve(w, g, q, 7),
    "retrieve sum": lambda w, g, y, q: votes.retrieve(w, g, q, 7, 5, "sum"),
    "verification_score": lambda w, g, y, q: [votes.verification_score(w, [X[: len(q[0])] for X in g], q)],
}


def several(kind: str) -> tuple[list[float], list[Rows], NDArray[np.int64], list[Rows]]:
    draw = np.random.default_rng(5)
    tables = [
        drawn(draw, kind, 260, m, dtype) for m, dtype in ((4, "float32"), (70, "float32"), (3, "float64"))
    ]
    return [0.3, 0.3, 0.4], [X[:200] for X in tables], draw.integers(0, 4, 200), [X[200:] for X in tables]


def bits(found: list[Any]) -> list[bytes]:
    return [np.ascontiguousarray(part).tobytes() for part in found]


@pytest.mark.parametrize("kind", ["normal", "grid", "close", "equal"])
@pytest.mark.parametrize("name", APPLIED)
def test_blocks_and_threads_change_no_bit(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weights, gallery, labels, queries = several(kind)
    apply = APPLIED[name]
    wanted = apply(weights, gallery, labels, queries)
    for least, product, differences, scores in ((1, 1, 1, 1), (7, 1000, 90, 10), (64, 1, 1 << 20, 3)):
        with monkeypatch.context() as patch:
            for setting, value in (
                ("_LEAST", least),
                ("_PRODUCT", product),
                ("_DIFFERENCES", differences),
                ("_SCORES", scores),
            ):
                patch.setattr(votes, setting, value)
            assert bits(apply(weights, gallery, labels, queries)) == bits(wanted)
    if name != "verification_score":
        one_by_one = [
            apply(weights, gallery, labels, [X[j : j + 1] for X in queries]) for j in range(len(queries[0]))
        ]
        assert bits([np.concatenate(part) for part in zip(*one_by_one, strict=True)]) == bits(wanted)
    monkeypatch.setattr(votes, "one_blas_thread", nullcontext)
    for threads in (1, 2, 3):
        with threadpool_limits(threads, user_api="blas"):
            assert bits(apply(weights, gallery, labels, queries)) == bits(wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("apart", [1e-7, 1e-4, 1.0])
def test_neighbours_that_are_next_to_equal_are_in_their_true_order(dtype: str, apart: float) -> None:
    draw = np.random.default_rng(2)
    centre = draw.normal(size=(1, 50)) / np.sqrt(50)
    X = (centre + apart * draw.normal(size=(400, 50))).astype(dtype)
    gallery, queries = X[:380], X[380:]
    rows, D = votes.nearest(gallery, queries, 9)
    long = np.sqrt(
        np.square(queries[:, None].astype(np.longdouble) - gallery.astype(np.longdouble)).sum(axis=2)
    )
    assert (rows == np.argsort(long, axis=1, kind="stable")[:, :9]).all()
    assert np.allclose(D, np.sort(long, axis=1)[:, :9].astype(np.float64), rtol=1e-14, atol=0.0)


def test_equal_distances_are_in_the_order_of_the_rows() -> None:
    gallery = np.array([[1.0], [-1.0], [0.0], [1.0], [-1.0], [3.0]] * 300)
    rows, D = votes.nearest(gallery, np.zeros((3, 1)), 303)
    assert rows[2, :300].tolist() == list(range(2, 1800, 6)) and rows[2, 300:].tolist() == [0, 1, 3]
    assert D[0, [0, 299, 300, 302]].tolist() == [0.0, 0.0, 1.0, 1.0]


def test_one_neighbour_and_equal_ones_count_whole() -> None:
    gallery, queries = [np.array([[0.0], [0.0], [5.0]])], [np.array([[0.0], [5.0]])]
    assert votes.candidates([0.25], gallery, queries, 1).votes.tolist() == [[[0.25]], [[0.25]]]
    assert votes.candidates([0.25], gallery, queries, 2).votes[0].tolist() == [[0.25, 0.25]]
    items, scores = votes.retrieve([1.0], gallery, queries, 2, 1)
    assert items.tolist() == [[0, -1], [2, -1]] and scores.tolist() == [[1.0, -np.inf], [1.0, -np.inf]]


def test_labels_may_be_words() -> None:
    gallery, queries = [np.array([[0.0], [1.0], [5.0]])], [np.array([[0.5], [4.0]])]
    found = votes.classify([1.0], gallery, np.array(["no", "maybe", "yes"]), queries, 2)
    assert found.tolist() == ["maybe", "yes"]


X, LABELS = np.zeros((4, 2)), np.arange(4)
REFUSED: Final[dict[str, tuple[Callable[[], Any], str]]] = {
    "an empty gallery": (lambda: votes.classify([1.0], [X[:0]], LABELS[:0], [X]), "empty"),
    "other columns": (lambda: votes.retrieve([1.0], [X], [X[:, :1]], 2), "columns"),
    "one row": (lambda: votes.retrieve([1.0], [X], [X[0]], 2), "shape"),
    "words": (lambda: votes.retrieve([1.0], [X], [X.astype(str)], 2), "numbers"),
    "no neighbour": (lambda: votes.classify([1.0], [X], LABELS, [X], 0), "k must be"),
    "half a neighbour": (lambda: votes.classify([1.0], [X], LABELS, [X], 1.5), "k must be"),  # type: ignore[arg-type]
    "no item": (lambda: votes.retrieve([1.0], [X], [X], 0), "top must be"),
    "another rule": (lambda: votes.retrieve([1.0], [X], [X], 2, None, "mean"), "repeated must be"),
    "too few labels": (lambda: votes.classify([1.0], [X], LABELS[:3], [X]), "label"),
    "labels that are not finite": (lambda: votes.classify([1.0], [X], LABELS / 0.0, [X]), "labels"),
    "another number of weights": (lambda: votes.classify([0.5, 0.5], [X], LABELS, [X]), "weights"),
    "tables of several lengths": (lambda: votes.retrieve([0.5, 0.5], [X, X], [X, X[:2]], 2), "rows"),
    "negative weights": (lambda: votes.classify([1.5, -0.5], [X, X], LABELS, [X, X]), "weights"),
    "no weight": (lambda: votes.verify([0.0], [X], [X], 0.5), "weights"),
    "NaN": (lambda: votes.classify([1.0], [X], LABELS, [X * np.nan]), "finite"),
    "infinity": (lambda: votes.retrieve([1.0], [X + np.inf], [X], 2), "finite"),
    "pairs of several lengths": (lambda: votes.verification_score([1.0], [X], [X[:2]]), "same shape"),
    "a threshold of 1": (lambda: votes.verify([1.0], [X], [X], 1.0), "threshold"),
    "a threshold of NaN": (lambda: votes.verify([1.0], [X], [X], np.nan), "threshold"),
    "no metrics": (lambda: votes.distances([], []), "tables"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore:(divide|invalid):RuntimeWarning")
def test_what_cannot_be_answered_is_refused(name: str) -> None:
    ask, words = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        ask()


@cache
def digits() -> tuple[Rows, NDArray[np.int64], Rows, NDArray[np.int64], OAHU]:
    """Training and test rows of digits, and a learner of one-pass triplets of the former."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = (X[order] / 16.0).astype(np.float32), y[order].astype(np.int64)
    draw = np.random.default_rng(1)
    learner = OAHU()
    anchors = draw.integers(0, 1000, 6000)
    positives = [draw.choice(np.flatnonzero(y[:1000] == y[a])) for a in anchors]
    negatives = [draw.choice(np.flatnonzero(y[:1000] != y[a])) for a in anchors]
    learner.learn_triplets(X[anchors], X[positives], X[negatives])
    return X[:1000], y[:1000], X[1000:], y[1000:], learner


def test_digits_are_read_better_than_by_euclidean_distance() -> None:
    X, y, U, v, learner = digits()

    def accuracies(labelled: int) -> tuple[float, float]:
        near, labels = X[:labelled], y[:labelled]
        plain = votes.classify([1.0], [near], labels, [U])
        return float((learner.classify(near, labels, U) == v).mean()), float((plain == v).mean())

    learned, plain = accuracies(100)
    assert learned > plain + 0.01 and plain > 0.9
    # With all of them, plain distance errs on 1 in 70 already, and the vote is as good within chance.
    learned, plain = accuracies(1000)
    assert learned > plain - 0.01 and plain > 0.98
    classes, scores = learner.class_scores(X, y, U)
    assert (classes[scores.argmax(axis=1)] == learner.classify(X, y, U)).all()


def test_digits_that_are_alike_are_found_and_told_from_others() -> None:
    X, y, U, v, learner = digits()
    items, scores = learner.retrieve(X, U, 10)
    assert (y[items[:, 0]] == v).mean() > 0.95
    assert (np.diff(scores, axis=1) <= 0.0).all() and (items >= 0).all()
    added, _ = learner.retrieve(X, U, 10, repeated="sum")
    assert (y[added] == v[:, None]).mean() > 0.9
    similar = learner.verification_score(X[: len(U)], U)
    same = y[: len(U)] == v
    assert similar[same].mean() > similar[~same].mean() + 0.1
    assert (learner.verify(X[: len(U)], U, 0.5) == (similar > -0.5)).all()
    assert learner.verify(U, U, 1e-6).all()


def test_all_metrics_vote_with_their_weights_and_their_multiples_concatenate_to_the_learned_distance() -> (
    None
):
    X, y, U, _, learner = digits()
    weights, near, asked = list(learner.weights.values()), learner.embed(X), learner.embed(U)
    assert len(weights) == len(near) == len(learner.anchors) + learner.layers + 1
    assert np.isclose(sum(weights), 1.0)
    assert (votes.classify(weights, near, y, asked) == learner.classify(X, y, U)).all()
    D = votes.distances(learner.embed(X[: len(U)]), asked)
    assert np.allclose(D**2 @ learner.factors**2, learner.distance(X[: len(U)], U), rtol=1e-4, atol=1e-6)


def test_before_anything_was_learned_there_is_no_vote() -> None:
    with pytest.raises(ValueError, match="has no metric yet"):
        OAHU().classify(X, LABELS, X)


def test_features_that_are_no_numbers_are_refused() -> None:
    X, y, U, _, learner = digits()
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="finite"):
            learner.classify(X, y, np.where(np.arange(64) == 3, np.float32(bad), U))
    with pytest.raises(ValueError, match="shape"):
        learner.verify(X, U[:, :5], 0.5)
