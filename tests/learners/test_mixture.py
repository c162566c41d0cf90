"""The mixture: what members see, who is judged how, and that the metric follows those with good neighbours."""

from __future__ import annotations

import io
import json
import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_wine
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from kinstream.learners.kernels.ensembles import neighbours
from kinstream.learners.mixture.joint_map import joined
from kinstream.learners.mixture.learner import IN_LISTS, LEARNED, NARROW, UNLEARNED, Mixture
from kinstream.learners.mixture.neighbours import EVERY, Neighbours
from kinstream.learners.mixture.views import OneScale, View
from kinstream.learners.mixture.weights import weights
from kinstream.learners.models.export import encode, export
from kinstream.learners.sklearn import MetricLearner
from kinstream.streams.errors import CheckpointError
from kinstream.streams.records.values import DEFAULT_MODALITY, ConstraintBlock, Kind, ModelVersion, Table
from kinstream.testing.learners import digest

Matrix = NDArray[np.float64]


def rows(seed: int, n: int, d: int = 6) -> Matrix:
    """Vectors with features of very different scales and means."""
    draw = np.random.default_rng(seed)
    return np.asarray(draw.normal(size=(n, d)) * 10.0 ** np.arange(-2, d - 2) + np.arange(d) * 7.0)


def scales_of(X: Matrix) -> OneScale:
    scales = OneScale(len(X))
    for row in X:
        scales.observe(row[None])
    assert scales.ready
    return scales


def apart(X: Matrix) -> Matrix:
    return np.asarray(np.square(X[:, None] - X).sum(axis=2))


@pytest.mark.parametrize("name", ["one-scale", "zscore", "guarded", "minmax", "cosine", "zscore-cosine"])
def test_views_are_the_scalings_of_their_names_up_to_one_factor(name: str) -> None:
    X = rows(1, 50)
    scales = scales_of(X)
    found = scales.views()[name].apply(scales.apply(X))
    deviation, reach = X.std(axis=0, ddof=1), np.ptp(X, axis=0)
    z = (X - X.mean(axis=0)) / deviation
    wanted = {
        "one-scale": X,
        "zscore": z,
        "guarded": X / np.maximum(deviation, reach / 6),
        "minmax": X / reach,
        "cosine": X / np.linalg.norm(X, axis=1, keepdims=True),
        "zscore-cosine": z / np.linalg.norm(z, axis=1, keepdims=True),
    }[name]
    ratio = apart(found)[0, 1:] / apart(wanted)[0, 1:]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-9)
    if "cosine" not in name:
        assert np.square(found).sum(axis=1).mean() == pytest.approx(1.0)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_what_members_see_while_they_learn_is_what_transform_shows(dtype: str) -> None:
    X = rows(12, 60, 13)
    X[7], X[8, 3] = 0.0, np.nan
    scales = scales_of(np.where(np.isfinite(X), X, 1.0))
    Z = scales.apply(np.concatenate([X, 1e5 * X]))
    for name, view in scales.views().items():
        shown = view.apply(Z)
        # Where a number is missing, nothing is learned and nothing is known.
        whole = np.isfinite(Z).all(axis=1)
        rounding = 1e-12 if dtype == "float64" else 1e-6
        np.testing.assert_allclose(view.seen(Z, dtype)[whole], shown[whole], rtol=rounding, atol=rounding)
        if "cosine" not in name:
            np.testing.assert_array_equal(np.isnan(view.seen(Z, dtype)), np.isnan(shown))
    far = View(np.zeros(3), np.ones(3), directions=True)
    np.testing.assert_allclose(far.seen(np.array([[3e200, 4e200, 0.0]]), dtype), [[0.6, 0.8, 0.0]], rtol=1e-6)


def test_a_scale_from_few_vectors_makes_no_later_one_huge() -> None:
    X = rows(3, 40)
    scales = scales_of(X)
    far = X[:1] + 1000.0 * np.ptp(X, axis=0)
    for name in ("zscore", "guarded", "minmax"):
        view = scales.views()[name]
        inside = np.abs(view.apply(scales.apply(X))).max(axis=0)
        assert (np.abs(view.apply(scales.apply(far)))[0] < 4.0 * inside).all()


def test_a_feature_that_never_varied_keeps_the_one_scale() -> None:
    X = rows(2, 40)
    X[:, 3] = 5.0
    scales = scales_of(X)
    for view in scales.views().values():
        assert np.isfinite(view.apply(scales.apply(X))).all()
        assert view.factor[3] > 0.0


#: No query has a list.
NOBODY = np.zeros((60, neighbours.AGAINST), np.uint64)


def test_the_vote_is_that_of_the_five_nearest() -> None:
    draw = np.random.default_rng(3)
    window, new = draw.normal(size=(200, 3)), draw.normal(size=(60, 3))
    y, y_new = (draw.integers(0, 2, n) for n in (200, 60))
    # Two classes and five votes: no ties.
    wanted = KNeighborsClassifier(5).fit(window, y).predict(new) != y_new
    found = np.empty(60)
    hashes, other = np.arange(200, dtype=np.uint64), np.arange(1_000, 1_060, dtype=np.uint64)
    distances = np.square(new[:, None] - window).sum(axis=2)
    neighbours.lost(distances, np.zeros(60), hashes, y, other, y_new, other, NOBODY, found)
    np.testing.assert_array_equal(found, wanted)


def test_a_row_is_not_its_own_neighbour_and_an_unknown_class_is_not_judged() -> None:
    hashes = np.arange(8, dtype=np.uint64)
    classes = np.array([0, 1, 1, 1, 1, 1, 1, 1])
    distances = np.arange(8.0)[None].repeat(2, axis=0)
    found = np.empty(2)
    neighbours.lost(
        distances, np.zeros(2), hashes, classes, hashes[[0, 1]], np.array([0, 7]), hashes[:2], NOBODY, found
    )
    assert np.isnan(found).all()


def test_a_query_is_judged_by_its_own_list_and_by_the_catalogue() -> None:
    hashes, found = np.arange(1, 11, dtype=np.uint64), np.empty(3)
    classes = np.full(10, neighbours.ITEM)
    distances = np.arange(10.0)[None].repeat(3, axis=0)
    # All want the fourth item: three of nine others come before it, of those that they saw none, one of two, and all.
    wanted, queries = hashes[[3, 3, 3]], np.array([77, 78, 79], np.uint64)
    against = np.zeros((3, neighbours.AGAINST), np.uint64)
    against[0, :2], against[1, :2], against[2, :1] = hashes[[4, 9]], hashes[[0, 9]], hashes[2]
    neighbours.lost(distances, np.full(3, 3.0), hashes, classes, queries, classes[:3], wanted, against, found)
    np.testing.assert_allclose(found, 0.1 / 3.0 + 0.9 * np.array([0.0, 0.5, 1.0]))


def test_a_query_whose_list_is_out_of_the_window_is_not_judged() -> None:
    hashes, found = np.arange(1, 11, dtype=np.uint64), np.empty(1)
    classes, against = np.full(10, neighbours.ITEM), np.full((1, neighbours.AGAINST), 99, np.uint64)
    distances, query = np.arange(10.0)[None], np.array([77], np.uint64)
    neighbours.lost(distances, np.zeros(1), hashes, classes, query, classes[:1], hashes[:1], against, found)
    assert np.isnan(found).all()


def test_classes_are_what_similar_pairs_link() -> None:
    draw = np.random.default_rng(4)
    X, y = draw.normal(size=(60, 2)).astype(np.float32), draw.integers(0, 3, 60)
    pairs = [
        (i, j) for c in range(3) for i, j in draw.choice(np.flatnonzero(y == c), (80, 2)).tolist() if i != j
    ]
    index = np.array(pairs, np.int32)[draw.permutation(len(pairs))]
    every = np.ones(len(index), np.bool_)
    judge = Neighbours(1, 2, lists=False)
    start = 0
    while start < len(index):
        start = judge.admit(X, judge.of(X), index, every, every, every, start)
        judge.judge(lambda Z: [Z])
    state = judge.state()
    known = {X[i].tobytes(): int(y[i]) for i in range(60)}
    found: dict[int, set[int]] = {}
    for vector, kind in zip(np.asarray(state["window"]), np.asarray(state["classes"]), strict=True):
        found.setdefault(int(kind), set()).add(known[vector.tobytes()])
    assert sorted(map(sorted, found.values())) == [[0], [1], [2]]


def test_a_vector_of_two_classes_does_not_make_them_one() -> None:
    draw = np.random.default_rng(14)
    X, y = draw.normal(size=(80, 2)).astype(np.float32), np.arange(80) % 2
    order = [int(i) for _ in range(4) for i in draw.permutation(80)]
    index, latest = [], {0: 0, 1: 1}
    for k, i in enumerate(order):
        # From the second round on the first row comes with the other label now and then.
        row, label = (0, 1) if k > 80 and k % 40 == 39 else (i, int(y[i]))
        if row not in (latest[0], latest[1]):
            index.append((row, latest[label], latest[1 - label]))
        latest[label] = row
    triplets = np.array(index, np.int32)
    every = np.ones(len(triplets), np.bool_)
    judge = Neighbours(1, 2, lists=False)
    start = 0
    while start < len(triplets):
        start = judge.admit(X, judge.of(X), triplets, every, every, every, start)
        judge.judge(lambda Z: [Z])
    state = judge.state()
    known = {X[i].tobytes(): int(y[i]) for i in range(1, 80)}
    found: dict[int, list[int]] = {}
    for vector, kind in zip(np.asarray(state["window"]), np.asarray(state["classes"]), strict=True):
        if vector.tobytes() in known:
            found.setdefault(int(kind), []).append(known[vector.tobytes()])
    largest = sorted(found.values(), key=len)[-2:]
    # Most of each class is together, and apart from the other.
    assert sorted(round(float(np.mean(one))) for one in largest) == [0, 1]
    for one in largest:
        assert len(one) >= 20
        assert min(one.count(0), one.count(1)) <= 2


def test_a_row_is_judged_once_and_only_where_it_is_new() -> None:
    draw = np.random.default_rng(5)
    X = draw.normal(size=(300, 4)).astype(np.float32)
    index = np.column_stack([np.arange(2, 300), np.arange(0, 298), np.arange(1, 299)]).astype(np.int32)
    every = np.ones(len(index), np.bool_)
    judge = Neighbours(1, 4, lists=False)
    for _ in range(3):
        start = 0
        while start < len(index):
            start = judge.admit(X, judge.of(X), index, every, every, every, start)
            if judge.waiting >= EVERY:
                judge.judge(lambda Z: [Z])
    # The second and the third time none of the 298 anchors is new.
    assert judge.new.rows + judge.waiting == 298


def test_rows_that_come_again_are_judged_apart_from_new_ones() -> None:
    draw = np.random.default_rng(6)
    X = draw.normal(size=(602, 4)).astype(np.float32)
    index = np.column_stack([np.arange(2, 602), np.arange(0, 600), np.arange(1, 601)]).astype(np.int32)
    every = np.ones(len(index), np.bool_)
    judge = Neighbours(1, 4, lists=False, again=True)
    for turn in range(5):
        assert judge.repeated == (turn > 2)
        start = 0
        while start < len(index):
            start = judge.admit(X, judge.of(X), index, every, every, every, start)
            if judge.waiting >= EVERY:
                judge.judge(lambda Z: [Z])
    judge.judge(lambda Z: [Z])
    assert judge.new.rows == 600
    # One in four of four more turns.
    assert judge.again.rows == 600


def judged(new: list[float], again: list[float], repeated: bool) -> Neighbours:
    """Four metrics, two of them learners, that lost as much on each of 160 rows."""
    judge = Neighbours(4, 2, lists=False, again=True)
    for found, losses in ((judge.new, new), (judge.again, again)):
        for _ in range(160):
            found.add(np.array(losses))
    judge._tally[[neighbours.NEW, neighbours.AGAIN]] = 500, 640 if repeated else 480
    return judge


def test_rows_that_came_again_decide_among_learners_only() -> None:
    learners, usable = np.array([True, True, False, False]), np.ones(4, np.bool_)
    new, again = [0.2, 0.25, 0.3, 0.2], [0.1, 0.02, 0.5, 0.01]

    def share(losses: list[float]) -> Matrix:
        least, count = min(losses), 7 * 160 / 16
        rate = (least * count + 5 * 0.25) / (count + 5)
        return np.asarray(np.exp(-2 * (np.array(losses) - least) / np.sqrt(rate * (1 - rate) / count)))

    first = np.array([0.375, 0.375, 0.125, 0.125]) * share(new)
    first /= first.sum()
    np.testing.assert_allclose(weights(learners, usable, judged(new, again, False)), first)
    found = weights(learners, usable, judged(new, again, True))
    np.testing.assert_allclose(found[2:], first[2:])
    both = share(again[:2])
    np.testing.assert_allclose(found[:2], first[:2].sum() * both / both.sum())
    usable[1] = False
    assert weights(learners, usable, judged(new, again, True))[1] == 0.0
    np.testing.assert_allclose(weights(learners, usable, Neighbours(4, 2, lists=False)), [0.0, 0.0, 0.5, 0.5])


def test_a_learner_is_judged_by_its_map_from_before_the_row() -> None:
    """A metric that is right on whatever it has seen, and on nothing else, loses all."""
    draw = np.random.default_rng(6)
    y = draw.integers(0, 2, 2_000)
    X = draw.normal(size=(2_000, 20))
    model: Any = MetricLearner("mixture", learner_settings={"warm_up": 32}).fit(X, y).learner_
    found = dict(zip((*LEARNED, *NARROW, *UNLEARNED), model._neighbours.new.means, strict=True))
    # Labels are drawn at random: nothing can be known of a new row.
    assert all(0.35 < loss < 0.65 for loss in found.values())


def test_the_best_scaling_gets_the_weight() -> None:
    draw = np.random.default_rng(7)
    y = draw.integers(0, 3, 1_500)
    X = draw.normal(size=(1_500, 5))
    X[:, 0] += 4.0 * y
    X[:, 1:] *= 1_000.0
    model: Any = MetricLearner("mixture").fit(X, y).learner_
    assert model.weights["euclidean"] < 0.02
    assert sum(model.weights[name] for name in ("softmax-zscore", "softmax-minmax", "lda")) > 0.9
    learned = KNeighborsClassifier(5).fit(model.transform(X[:750]), y[:750])
    raw = KNeighborsClassifier(5).fit(X[:750], y[:750])
    assert learned.score(model.transform(X[750:]), y[750:]) > raw.score(X[750:], y[750:]) + 0.2


@pytest.mark.long
def test_the_margin_is_that_of_the_metric_as_it_was_served() -> None:
    model = Mixture(dtype="float64", warm_up=32)
    tested, served = 0, model._served
    for triplet in rows(8, 1_500).reshape(-1, 3, 1, 6):
        x, near, far = triplet
        wanted = model.distance(x, far) - model.distance(x, near) if model._served is not served else None
        served = model._served
        found = model.learn_triplets(x, near, far)
        if wanted is not None:
            np.testing.assert_allclose(found.margin, wanted, rtol=1e-6)
            tested += 1
    assert tested >= 3


def test_a_metric_that_makes_all_vectors_one_is_wrong_about_every_triplet() -> None:
    model = Mixture(warm_up=32)
    model.learn_triplets(*rows(9, 900).reshape(3, 300, 6))
    model._served = {part: 0.0 * matrix for part, matrix in model._served.items()}
    found = model.learn_triplets(*rows(10, 60).reshape(3, 20, 6))
    assert found.mistake.all()


@pytest.mark.parametrize("passes", [1, 5])
@pytest.mark.parametrize("n", [40, 100])
def test_fewer_rows_than_the_scales_want_have_the_best_scaling_at_least(n: int, passes: int) -> None:
    X, y = load_wine(return_X_y=True)
    errors = []
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(len(X))
        known, new = order[:n], order[n:]
        model = MetricLearner("mixture", passes=passes)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            model.fit(X[known], y[known])
        assert bool(warned) == (model.utilisation_ == 0.0) == (passes == 1)
        z = StandardScaler().fit(X[known])
        errors.append(
            [
                1.0 - KNeighborsClassifier(5).fit(apply(X[known]), y[known]).score(apply(X[new]), y[new])
                for apply in (model.transform, z.transform)
            ]
        )
    mine, scaled = np.mean(errors, axis=0)
    assert mine < scaled + 0.02


def test_a_small_set_is_learned_in_blocks_of_any_size_alike() -> None:
    X = rows(18, 60)
    index = np.random.default_rng(0).integers(0, 60, (300, 3))
    whole, single = Mixture(dtype="float64"), Mixture(dtype="float64")
    whole.learn_triplets(*X[index.T])
    for t in range(300):
        single.learn_triplets(*X[index[t : t + 1].T])
    assert whole._views and digest(whole.state()) == digest(single.state())


def lists_of(seed: int, count: int, d: int = 8) -> ConstraintBlock:
    """Lists of four items: the clicked one differs from its query in all features but the first two."""
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(count, 5, d)) * ([1.0] * 2 + [3.0] * (d - 2))
    X[:, 1, :2] = X[:, 0, :2] + 0.1 * draw.normal(size=(count, 2))
    base = 5 * np.arange(count)[:, None, None]
    index = (base + np.array([[0, 1, k] for k in (2, 3, 4)])).reshape(-1, 3)
    m = len(index)
    return ConstraintBlock(
        space="s",
        kind=Kind.TRIPLET,
        tables=(Table(DEFAULT_MODALITY, X.reshape(-1, d).astype(np.float32)),),
        index=index.astype(np.int32),
        signs=np.zeros(m, np.int8),
        rules=("click-skip-above",),
        rule=np.zeros(m, np.uint8),
        derived=np.zeros(m, np.bool_),
        weights=np.ones(m, np.float32),
        time_ms=0,
        events=np.repeat(np.arange(count, dtype=np.int32), 3),
    )


def test_lists_are_judged_by_ranks_and_learned() -> None:
    model = Mixture()
    for seed in range(12):
        found = model.learn(lists_of(seed, 200))
    losses = dict(zip((*IN_LISTS, *UNLEARNED), model._neighbours.new.means, strict=True))
    assert model._neighbours.new.rows > 1_000
    learned = tuple(IN_LISTS)
    assert min(losses[name] for name in learned) < 0.85 * min(losses[name] for name in UNLEARNED)
    assert sum(model.weights[name] for name in learned) > 0.9
    assert found.mistake.mean() < 0.05


def embedded(file: Any, X: Matrix) -> Matrix:
    """The exported metric, as docs/mixture.md has it."""
    z = (X - file["shift"]) * file["factor"]
    found = []
    for part in json.loads(json.loads(str(file["metadata"]))["parts"]):
        v = np.clip(z, file[part["low"]], file[part["high"]]) if "low" in part else z
        if part["view"] == "directions":
            v = (v + file[part["offset"]]) * file[part["scale"]]
            length = np.linalg.norm(v, axis=1, keepdims=True)
            v = np.where(np.abs(v).max(axis=1, keepdims=True) > file[part["least"]], v / length, 0.0)
        found.append(v @ file[part["map"]].T)
    return np.asarray(sum(found))


def test_what_is_exported_is_the_metric() -> None:
    model = Mixture(warm_up=32)
    version = ModelVersion("space", "mixture", model.algorithm, 1, 0, 500, "topic", 0, 0, "", "", 0)
    with pytest.raises(CheckpointError):
        export(model, version, {})
    model.learn_triplets(*rows(9, 1_500).reshape(3, 500, 6))
    file = np.load(io.BytesIO(encode(export(model, version, {}), "npz")))
    X = rows(10, 20)
    np.testing.assert_allclose(embedded(file, X), model.transform(X), rtol=1e-4, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("rank", [None, 2])
def test_it_has_as_many_columns_as_features_at_most_and_nearly_the_distances_of_all_members(
    rank: int | None,
) -> None:
    model = Mixture(rank, warm_up=32)
    model.learn_triplets(*rows(9, 6_000).reshape(3, 2_000, 6))
    X = rows(10, 60)
    mapped = model.transform(X).astype(np.float64)
    assert mapped.shape == (60, rank or 6)
    apart = np.square(mapped[:30] - mapped[30:]).sum(axis=1)
    quick = model.quick_distance(X[:30], X[30:])
    if rank is None:
        np.testing.assert_allclose(apart, quick, rtol=0.5)
    assert np.corrcoef(apart, quick)[0, 1] > (0.99 if rank is None else 0.8)


def test_parts_that_are_added_up_have_the_distances_of_the_parts_side_by_side() -> None:
    draw = np.random.default_rng(15)
    Z, d = draw.normal(size=(300, 5)), 5
    parts: list[tuple[View, Any]] = [
        (View(np.zeros(d), np.ones(d)), draw.normal(size=(3, d))),
        (View(np.ones(d), np.ones(d), directions=True), draw.normal(size=(4, d))),
    ]
    side = np.concatenate([view.apply(Z) @ matrix.T for view, matrix in parts], axis=1)

    def mapped(rank: int) -> Matrix:
        return np.asarray(sum(view.apply(Z) @ matrix.T for view, matrix in joined(parts, Z, rank)))

    whole = np.square(side[:, None] - side).sum(axis=2)
    np.testing.assert_allclose(np.square(mapped(7)[:, None] - mapped(7)).sum(axis=2), whole, atol=1e-9)
    # What fewer columns keep is what principal components do.
    values = np.linalg.svd(side - side.mean(axis=0), compute_uv=False)
    kept = mapped(3) - mapped(3).mean(axis=0)
    np.testing.assert_allclose(np.square(kept).sum(), np.square(values[:3]).sum())


def test_with_many_features_learners_stand_side_by_side() -> None:
    draw = np.random.default_rng(17)
    y = draw.integers(0, 3, 1_500)
    X = draw.normal(size=(1_500, 510)) * np.where(np.arange(510) < 40, 2.0, 0.05)
    X[:, 40:43] += np.eye(3)[y]
    # No feature is better than another one.
    X = X @ np.linalg.qr(draw.normal(size=(510, 510)))[0]
    model: Any = MetricLearner("mixture").fit(X, y).learner_
    assert [name for name in model.weights if name not in UNLEARNED] == list(LEARNED)
    assert sum(model.weights[name] for name in LEARNED) > 0.9
    assert len(model.metric) == 3
    assert sum(len(matrix.any(axis=1).nonzero()[0]) for _, matrix in model.metric) <= 300
    np.testing.assert_allclose(
        np.square(model.transform(X[:9]) - model.transform(X[9:18])).sum(axis=1),
        model.quick_distance(X[:9], X[9:18]),
        rtol=1e-3,
    )


def test_with_many_features_one_part_is_the_metric() -> None:
    draw = np.random.default_rng(16)
    x = draw.normal(size=(400, 510))
    model = Mixture(warm_up=64)
    model.learn_triplets(x[:-1], x[:-1] + 0.1 * draw.normal(size=(399, 510)), x[1:])
    (_, matrix), *others = model.metric
    assert others == []
    assert len(matrix) <= 510
    assert model.transform(x[:3]).shape == (3, len(matrix))
    np.testing.assert_allclose(
        np.square(model.transform(x[:9]) - model.transform(x[9:18])).sum(axis=1),
        model.distance(x[:9], x[9:18]),
        rtol=1e-3,
    )


def test_vectors_that_are_too_long_are_rejected_and_hurt_nobody() -> None:
    model = Mixture(warm_up=32)
    x, near, far = rows(11, 1_200).reshape(3, 400, 6)
    model.learn_triplets(x, near, far)
    before = model.distance(x[:5], near[:5])
    far = far[:2].copy()
    far[0] = 1e30
    found = model.learn_triplets(x[:2], near[:2], far)
    assert found.rejected.tolist() == [True, False]
    assert np.isfinite(model.transform(x[:5])).all()
    np.testing.assert_allclose(model.distance(x[:5], near[:5]), before, rtol=0.1)


@pytest.mark.parametrize("offset", [0.0, 1.0 / 3.0])
def test_zeros_have_no_direction(offset: float) -> None:
    view = View(np.full(2, offset), np.ones(2), directions=True)
    # What rounding leaves of a zero is no direction either.
    rows = np.array([[-offset, -offset], [1e-17 - offset, -1e-17 - offset]])
    np.testing.assert_array_equal(view.apply(rows[: 1 + (offset > 0.0)]), 0.0)
    np.testing.assert_allclose(view.apply(np.array([[3e200, 4e200]])), [[0.6, 0.8]])
