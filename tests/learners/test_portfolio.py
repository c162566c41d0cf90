"""The portfolio: weights by progressive validation, an honest vote, one metric, and members that fail alone."""

from __future__ import annotations

import doctest
import json
import subprocess
import sys
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import kinstream.learners.portfolio.learner
from benchmarks.shared_sets import load
from benchmarks.studies.never_worse import ALLOWED, cells
from benchmarks.studies.portfolio import LENGTHS, online, trials
from kinstream.learners import warm_up as warming_up
from kinstream.learners.agent import learner_spec
from kinstream.learners.base import Outcomes
from kinstream.learners.baselines.euclidean import Euclidean
from kinstream.learners.kernels.ensembles import portfolio as kernel
from kinstream.learners.models.export import Export, encode, export, learner_from
from kinstream.learners.portfolio.hubs import FIRST, SAMPLED, Hubs, prior, skewness
from kinstream.learners.portfolio.learner import PATIENCE, Portfolio
from kinstream.learners.portfolio.members import UNLEARNED, USUAL
from kinstream.learners.portfolio.unit import MEASURED
from kinstream.learners.shared.scaler import UnitLength
from kinstream.processors.agent import builder_spec
from kinstream.producers.labelled.batch import Batch
from kinstream.replay.evaluation.measures.held_out import grade, knn_error
from kinstream.streams.checkpoints.state_bytes import to_bytes
from kinstream.streams.errors import BadRecord, CheckpointError, SettingsError
from kinstream.streams.records.codec.every_kind import decode_outcome
from kinstream.streams.records.values import (
    DEFAULT_MODALITY,
    ConstraintBlock,
    Kind,
    ModelVersion,
    Outcome,
    SampleBlock,
    Table,
)
from kinstream.streams.settings import load as load_settings
from kinstream.testing.blocks import pair_blocks, rows_of, triplet_blocks
from kinstream.testing.learners import digest
from tests.clicks.stream import Stream
from tests.learners.published import create

NOW_MS = 1_700_000_000_000
#: Of two learners; there are two un-learned metrics besides.
FEW: dict[str, dict[str, Any]] = {
    "opml": {"gamma": 0.03},
    "lego": {"eta": 0.01, "y_similar": 0.5, "y_dissimilar": 3.0},
}
VERSION = ModelVersion("a", "best", "portfolio/1", 1, 5, 10, "t", 0, 42, "place", "digest", 1_000)


# ---- weights and the vote ---------------------------------------------------------------------------------------


def weighed(
    losses: list[float],
    gone: list[bool],
    learned: int,
    seen: float,
    floor: float,
    prior: list[float],
    start: float = 1.0,
) -> list[float]:
    found = np.empty(len(losses))
    kernel.weigh(np.array(losses), np.array(gone), learned, np.array(prior), seen, start, floor, found)
    return [float(one) for one in found]


def by_formula(
    L: NDArray[Any],
    left: NDArray[Any],
    learned: int,
    n: float,
    floor: float,
    prior: NDArray[Any],
    start: float = 1.0,
) -> NDArray[Any]:
    """w = (1 - floor) h + floor (a + u) / 2, in plain numpy."""
    eta = np.sqrt(8.0 * np.log(len(L)) / max(n, 1.0))
    unlearned = np.arange(len(L)) >= learned
    h = left * prior * np.exp(-eta * L)
    least = L[unlearned & left].min()
    u = left * prior * unlearned * ((1.0 + least) / (1.0 + L)) ** 2
    a = u * np.exp(-eta * L)
    h = h * np.where(unlearned, 1.0, start)
    return np.asarray((1.0 - floor) * h / h.sum() + floor * (a / a.sum() + u / u.sum()) / 2.0)


@pytest.mark.parametrize("start", [1.0, 0.01])
@pytest.mark.parametrize("floor", [0.0, 0.3, 0.9])
def test_weights_are_exponential_with_a_floor_for_what_does_not_learn(floor: float, start: float) -> None:
    losses, gone = [3.0, 9.0, 5.0, 8.0, 5.0], [False, False, False, False, True]
    prior = [0.9, 0.4, 0.2, 0.5, 0.3]
    found = weighed(losses, gone, 2, 40.0, floor, prior, start)
    wanted = by_formula(np.array(losses), ~np.array(gone), 2, 40.0, floor, np.array(prior), start)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert sum(found) == pytest.approx(1.0) and found[4] == 0.0
    assert sum(found[2:]) >= floor
    if floor == 0.0:
        # Losses count by their differences.
        moved = weighed([one + 1e6 for one in losses], gone, 2, 40.0, floor, prior, start)
        np.testing.assert_allclose(found, moved, rtol=1e-6)


def test_half_of_the_floor_goes_by_ratios_of_mistakes() -> None:
    # So many constraints that eta is nearly 0, and the other half is shared alike.
    found = np.array(weighed([0.0, 99.0, 199.0], [False] * 3, 1, 1e20, 0.5, [1.0, 1.0, 1.0]))
    np.testing.assert_allclose(found, 0.5 / 3 + np.array([0.0, 0.4, 0.1]), rtol=1e-6)


def test_a_floor_of_nobody_goes_to_those_that_are_left() -> None:
    even = [1.0, 1.0, 1.0]
    assert weighed([1.0, 1.0, 0.0], [False, False, True], 2, 9.0, 0.5, even) == [0.5, 0.5, 0.0]
    assert weighed([1.0, 1.0, 0.0], [True, True, False], 2, 9.0, 0.5, even) == [0.0, 0.0, 1.0]
    half = weighed([1.0, 5.0, 9.0], [False, True, False], 1, 9.0, 0.5, even)
    assert half[1] == 0.0 and sum(half) == pytest.approx(1.0) and half[2] >= 0.5


def times_near(X: NDArray[Any]) -> NDArray[Any]:
    """How often each of the rows, no two as far from a third, is among the 10 nearest of the others."""
    apart = np.sum((X[:, None] - X) ** 2, axis=2) + np.diag(np.full(len(X), np.inf))
    return np.bincount(np.argsort(apart, axis=1)[:, :10].ravel(), minlength=len(X))


def uneven(n: int, d: int) -> NDArray[Any]:
    """Directions without hubs, with lengths that differ much: the short ones are near to all."""
    draw = np.random.default_rng(0)
    return np.asarray(draw.normal(size=(n, d)) * np.exp(draw.normal(size=(n, 1))))


def known(X: NDArray[Any]) -> float:
    found = skewness(X)
    assert found is not None
    return found


def test_a_metric_with_hubs_gets_less_weight() -> None:
    X = uneven(96, 30)
    directions = UnitLength().apply(X)
    assert known(X) > 2.0 > known(directions) > 0.0
    found = prior([known(X), known(directions), None])
    # What has none is as the best.
    wanted = np.exp(-3.0 * np.array([known(X), known(directions), known(directions)]))
    np.testing.assert_allclose(found, wanted / wanted.sum(), rtol=1e-12)
    times = times_near(X)
    assert known(X) == pytest.approx(((times - 10.0) ** 3).mean() / times.std() ** 3)
    # In another place, another unit and another type.
    assert known((7.0 * X + 100.0).astype(np.float32)) == pytest.approx(known(X), abs=0.05)
    np.testing.assert_array_equal(prior([None, None]), [0.5, 0.5])


def test_what_has_no_hubs_to_tell_of_has_no_skewness() -> None:
    X = uneven(96, 30)
    assert skewness(X[:11]) is None and skewness(np.ones((50, 3))) is None
    X[3, 4] = np.nan
    assert skewness(X) is None


def test_places_are_shared_by_vectors_as_far_as_the_tenth() -> None:
    # Corners of a cube of 6 dimensions: 6 neighbours are at 1, and 15 at 2 share what is left, for each of them.
    corners = np.array([[n >> k & 1 for k in range(6)] for n in range(64)], np.float64)
    assert skewness(corners) is None
    # With one in the midst of them that is nearer to each than another corner is, by 1.5 and not 1 to 6.
    middle = np.vstack([corners, np.full((1, 6), 0.5)])
    times = np.r_[np.full(64, (64 * (6 + 3 * (15 / 15)) + 10.0) / 64), 64.0]
    assert skewness(middle) == pytest.approx(((times - times.mean()) ** 3).mean() / times.std() ** 3)


def test_priors_are_of_the_first_vectors_once_these_are_known() -> None:
    model = Portfolio(members=FEW, dtype="float64")
    m = MEASURED // 3
    X = uneven(3 * m, 20).reshape(3, m, 20)
    model.learn_triplets(*X[:, :-1])
    assert len(set(model.weights.values())) == 2
    before = model.weights
    assert before["euclidean"] == before["cosine"]
    model.learn_triplets(*X[:, -1:])
    assert model.weights["euclidean"] < 0.3 * model.weights["cosine"]
    # Learners that are Euclidean distance as yet have its hubs.
    assert model.weights["lego"] < 0.3 * model.weights["cosine"]
    again = Portfolio(members=FEW, dtype="float64")
    again.restore(model.state())
    assert again.weights == model.weights


@pytest.mark.parametrize("cut", [1, 7, 50, 1000])
def test_looks_are_after_numbers_of_scored_constraints(cut: int) -> None:
    """By what members were when 32, 64, 128, ... had been scored, wherever blocks end and whatever was rejected."""
    model = Portfolio(members=FEW, dtype="float64")
    m = MEASURED // 3
    X = np.random.default_rng(1).normal(size=(600, 3, 8)) * ([3.0] * 2 + [0.3] * 6)
    X[40:60:3, 0, 0] = np.nan
    model.learn_triplets(*X[:m].swapaxes(0, 1))
    sound = np.asarray(np.isfinite(X).all(axis=(1, 2)))
    sound[:m] = False
    numbers = np.cumsum(sound)
    looks = {int(np.flatnonzero(numbers == FIRST * 2**k)[0]) + 1 for k in range(5)}
    single = Portfolio(members=FEW, dtype="float64")
    single.restore(model.state())
    seen, priors = m, [model._hubs.prior]
    for t in range(m, len(X)):
        single.learn_triplets(*X[t : t + 1].swapaxes(0, 1))
        if not np.array_equal(single._hubs.prior, priors[-1]):
            assert t + 1 in looks
            priors.append(single._hubs.prior)
            sample = np.concatenate([X[:m], X[m : t + 1][sound[m : t + 1]]]).reshape(-1, 8)[:SAMPLED]
            tables = [member.learner.transform(single.scale(sample)) for member in single._members]
            np.testing.assert_allclose(priors[-1], prior([skewness(table) for table in tables]), rtol=1e-6)
    assert len(priors) > 4
    while seen < len(X):
        model.learn_triplets(*X[seen : seen + cut].swapaxes(0, 1))
        seen += cut
    np.testing.assert_allclose(model._hubs.prior, priors[-1], rtol=1e-6)
    assert model._hubs.state()["scored"] == numbers[-1]


def test_a_member_whose_arithmetic_fails_at_a_look_has_no_hubs() -> None:
    model = Portfolio(members=FEW)
    hubs, rows = Hubs(4), uneven(96, 5)

    def broken(X: NDArray[Any]) -> NDArray[Any]:
        raise FloatingPointError("no")

    model._members[0].learner.transform = broken  # type: ignore[method-assign]
    hubs.begin(rows, [*model._members[:3], None])
    assert hubs.begun and hubs.prior[0] == hubs.prior[3] == hubs.prior[1:3].max()


def over(block: ConstraintBlock, vectors: NDArray[Any]) -> ConstraintBlock:
    """The constraints of a block over other vectors."""
    return replace(block, tables=(Table(DEFAULT_MODALITY, vectors),))


def alone(block: ConstraintBlock, Z: NDArray[Any], members: list[Any]) -> list[Outcomes]:
    """What separate learners do with a block; nothing where a kind is none of theirs."""
    return [
        member.learn(over(block, Z))
        if block.kind in member.accepts
        else Outcomes.blank(len(block), ignored=True)
        for member in members
    ]


def by_hubs(sample: NDArray[Any], members: list[Any]) -> NDArray[Any]:
    different = np.unique(sample, axis=0)
    return prior([skewness(member.transform(different)) for member in members])


@pytest.mark.parametrize("floor", [0.0, 0.6])
def test_it_follows_what_separate_learners_do_and_decides_before_they_learn(floor: float) -> None:
    window = 40
    model = Portfolio(members=FEW, floor=floor, window=window, dtype="float64", warm_up=20)
    warming = triplet_blocks(5, 6, 1, MEASURED // 3)[0]
    model.learn(warming)
    assert model._scaler.ready
    own = [create(name, **settings, dtype="float64", warm_up=20) for name, settings in FEW.items()]
    own += [Euclidean(warm_up=20), Euclidean(scaler="unit", warm_up=20)]
    N = len(own)
    sample = model._unit.sample
    p = by_hubs(sample, own)
    scored, looks = 0, [FIRST * 2**k for k in range(10)]
    losses, sizes, n = np.zeros(N), np.zeros((N, 2)), 0.0
    keep = 1.0 - 1.0 / window
    wrong = 0
    blocks = [*triplet_blocks(1, 6, 2), *pair_blocks(2, 6, 2), *triplet_blocks(3, 6, 1)]
    # Looks at hubs are where they can be followed: at ends of blocks.
    for block in (rows_of(whole, slice(at, at + 8)) for whole in blocks for at in range(0, len(whole), 8)):
        Z = model.scale(block.tables[0].vectors)
        reports = alone(block, Z, own)
        outcomes = model.learn(block)
        for t in range(len(block)):
            w = by_formula(losses, np.ones(N, bool), 2, n, floor, p)
            told = [i for i in range(N) if reports[i].mistake[t] >= 0]
            vote = 0.0
            for i in told:
                if block.kind is Kind.PAIR:
                    vote += w[i] * (1 - 2 * reports[i].mistake[t])
                    continue
                size = abs(reports[i].margin[t])
                sizes[i] = keep * sizes[i] + [size, 1.0]
                vote += w[i] * reports[i].margin[t] / (sizes[i, 0] / sizes[i, 1])
            assert outcomes.mistake[t] == (vote <= 0.0)
            assert np.isnan(outcomes.margin[t]) == (block.kind is Kind.PAIR)
            if block.kind is Kind.TRIPLET:
                assert outcomes.margin[t] == pytest.approx(vote, rel=1e-6, abs=1e-9)
            mean = sum(w[i] * reports[i].mistake[t] for i in told) / sum(w[i] for i in told)
            losses = keep * losses + [reports[i].mistake[t] if i in told else mean for i in range(N)]
            n = keep * n + 1.0
            wrong += int(outcomes.mistake[t])
        for name in ("utilised", "clipped"):
            parts = [getattr(report, name) for report in reports]
            np.testing.assert_array_equal(getattr(outcomes, name), np.any(parts, axis=0))
        sample = np.concatenate([sample, Z[block.index.reshape(-1)]])[:SAMPLED]
        scored += len(block)
        if scored in looks:
            p = by_hubs(sample, own)
    assert scored > 4 * FIRST and len(sample) == SAMPLED
    assert 10 < wrong < 150
    np.testing.assert_allclose(
        list(model.weights.values()), by_formula(losses, np.ones(N, bool), 2, n, floor, p)
    )


def followed(
    mistakes: NDArray[np.int8],
    fates: NDArray[np.int8] | None = None,
    window: int = 50,
    split: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Weights after, who is gone, and the mistakes of the vote, of two learners and an un-learned metric."""
    N, m = mistakes.shape
    losses, gone, seen = np.zeros(N), np.zeros(N, np.bool_), np.zeros(1)
    refused, sizes = np.zeros(N, np.int64), np.zeros((N, 2))
    mistake, margin = np.zeros(m, np.int8), np.zeros(m)
    kernel.follow(
        np.zeros((N, m), np.int8) if fates is None else fates,
        mistakes,
        np.where(mistakes, -1.0, 1.0),
        np.zeros(m, np.bool_) if split is None else split,
        np.empty(0, np.int32),
        N - 1,
        np.ones(N),
        np.ones(m),
        0.0,
        1.0 - 1.0 / window,
        PATIENCE,
        losses,
        gone,
        refused,
        sizes,
        seen,
        mistake,
        margin,
    )
    found = np.empty(N)
    kernel.weigh(losses, gone, N - 1, np.ones(N), float(seen[0]), 1.0, 0.0, found)
    return found, gone, mistake


def test_split_constraints_are_voted_on_and_move_no_weight() -> None:
    mistakes = np.zeros((3, 200), np.int8)
    mistakes[0, :100], mistakes[1, 100:] = 1, 1
    split = np.arange(200) >= 100
    weights, _, wrong = followed(mistakes, split=split)
    before, _, _ = followed(mistakes[:, :100])
    np.testing.assert_array_equal(weights, before)
    assert (wrong[100:] >= 0).all()


def test_it_follows_the_best_of_the_window() -> None:
    mistakes = np.zeros((3, 600), np.int8)
    mistakes[0, 300:], mistakes[1, :300], mistakes[2, ::2] = 1, 1, 1
    before, _, _ = followed(mistakes[:, :300])
    after, _, vote = followed(mistakes)
    assert before[0] > 0.99 and after[1] > 0.99
    # The first is forgotten within about a window.
    assert vote[:300].sum() <= 2 and vote[300:400].sum() > 10 and vote[400:].sum() == 0


def test_a_member_without_a_verdict_keeps_its_weight_against_the_others() -> None:
    draw = np.random.default_rng(0)
    mistakes = (draw.random((3, 400)) < [[0.1], [0.3], [0.3]]).astype(np.int8)
    fates = np.zeros((3, 400), np.int8)
    fates[1] = kernel.ABSENT
    found, gone, _ = followed(mistakes, fates, window=10**6)
    assert not gone.any()
    # It lost what the others lost on average by weight, and these are nearly all the first one's.
    assert found[0] > found[1] > 100 * found[2]
    assert sum(found) == pytest.approx(1.0)


def test_one_that_rejects_what_others_score_loses_and_is_dropped() -> None:
    mistakes = np.zeros((3, 2 * PATIENCE), np.int8)
    mistakes[1:] = np.arange(2 * PATIENCE) % 3 == 0
    fates = np.zeros((3, 2 * PATIENCE), np.int8)
    fates[0, 10 : 9 + PATIENCE] = kernel.REJECTED
    kept, gone, _ = followed(mistakes, fates)
    assert not gone.any() and kept[0] > 0
    fates[0, 9 + PATIENCE] = kernel.REJECTED
    dropped, gone, _ = followed(mistakes, fates)
    assert gone.tolist() == [True, False, False] and dropped[0] == 0.0
    # What all reject is the constraint's fault.
    fates[:] = kernel.REJECTED
    _, gone, vote = followed(mistakes, fates)
    assert not gone.any() and (vote == -1).all()


@pytest.mark.parametrize("seed", range(5))
def test_the_vote_keeps_to_the_bound_of_exponential_weights(seed: int) -> None:
    """Members of equal margins, wrong at random and in turns."""
    T, N = 2000, 7
    draw = np.random.default_rng(seed)
    rate = np.where(np.arange(T) // 200 % N == np.arange(N)[:, None], 0.1, draw.uniform(0.2, 0.5, (N, 1)))
    mistakes = (draw.random((N, T)) < rate).astype(np.int8)
    _, _, vote = followed(mistakes, window=1000)
    assert vote.sum() <= mistakes.sum(axis=1).min() + np.sqrt(T * np.log(N) / 2.0)


# ---- the metric -------------------------------------------------------------------------------------------------


def learned(scaler: str | None = None, **more: Any) -> Portfolio:
    model = Portfolio(scaler=scaler, warm_up=40, dtype="float64", **more)
    for block in triplet_blocks(7, 6, 6, 80, scale=5.0):
        model.learn(block)
    return model


def test_it_is_the_weighted_sum_of_the_members_squared_distances() -> None:
    model = learned("zscore")
    draw = np.random.default_rng(0)
    X, Y = 5.0 * draw.normal(size=(2, 30, 6))
    wanted = np.zeros(30)
    for member, weight in zip(model._members, model.weights.values(), strict=True):
        sample, x, y = (
            member.learner.transform(Z) for Z in (model._unit.sample, model.scale(X), model.scale(Y))
        )
        apart = np.sum((sample[:, None] - sample[None]) ** 2, axis=2)
        others = apart[~np.eye(len(apart), dtype=bool)].reshape(len(apart), -1)
        wanted += weight * np.sum((x - y) ** 2, axis=1) / others.std(axis=1).mean()
    np.testing.assert_allclose(model.distance(X, Y), wanted, rtol=1e-5)
    # One map of each view, whoever is in it, and the network.
    assert model.transform(X).shape == (30, 6 + 6 + 3 * 50)
    assert set(model.metric.maps) == {"plain", "directions"}


def test_it_does_not_depend_on_the_scale_of_the_features() -> None:
    found = []
    for scale in (1.0, 1e-3, 1e4):
        model = Portfolio(warm_up=40, dtype="float64")
        mistakes = [model.learn(block).mistake for block in triplet_blocks(8, 5, 6, 80, scale=scale)]
        X = scale * np.random.default_rng(0).normal(size=(20, 5))
        found.append((np.concatenate(mistakes), model.distance(X[1:], X[:-1])))
    for mistake, apart in found[1:]:
        assert np.mean(mistake != found[0][0]) < 0.01
        np.testing.assert_allclose(apart, found[0][1], rtol=1e-3)


def test_before_the_members_begin_it_is_euclidean_distance() -> None:
    model = Portfolio(members=FEW)
    X = np.random.default_rng(0).normal(size=(2, MEASURED // 3 - 1, 4)).astype(np.float32)
    outcomes = model.learn_triplets(X[0], X[1], X[1][::-1])
    near, far = (np.sum((X[0] - other) ** 2, axis=1) for other in (X[1], X[1][::-1]))
    np.testing.assert_array_equal(outcomes.mistake, near >= far)
    assert not outcomes.utilised.any()
    np.testing.assert_array_equal(model.transform(X[0]), X[0])
    with pytest.raises(CheckpointError, match="still scales"):
        model.exported()
    with pytest.raises(ValueError, match="still scales"):
        assert model.metric
    with pytest.raises(SettingsError, match="not a linear map"):
        assert len(model.map)
    model.learn_triplets(X[0][:1], X[1][:1], X[1][1:2])
    assert model.exported()[1]


def test_vectors_that_are_all_the_same_leave_euclidean_distance() -> None:
    model = Portfolio(members=FEW)
    X = np.ones((MEASURED // 3 + 5, 3))
    assert model.learn_triplets(X, X, X).counts().mistakes == len(X)
    found = model.distance(np.zeros((1, 3)), np.array([[3.0, 0.0, 4.0]]))
    np.testing.assert_allclose(found, [25.0 / 3.0], rtol=1e-6)


# ---- the exported file ------------------------------------------------------------------------------------------


def embedded(arrays: Any, metadata: dict[str, str], X: NDArray[Any]) -> NDArray[Any]:
    """What docs/portfolio.md tells to do with a file."""
    if metadata["scaler"] == "unit":
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
    z = (X - arrays["shift"]) * arrays["factor"]
    rows = []
    for part in json.loads(metadata["parts"]):
        if "map" in part:
            v = z if part["view"] == "plain" else z / np.linalg.norm(z, axis=1, keepdims=True)
            rows.append(v @ arrays[part["map"]].T)
            continue
        name = part["network"]
        h = np.c_[z, np.broadcast_to(arrays[f"{name}.lift"], (len(z), len(arrays[f"{name}.lift"])))]
        for k, factor in enumerate(arrays[f"{name}.factor"]):
            u = h @ arrays[f"{name}.Theta{k}"]
            rows.append(factor * u / np.linalg.norm(u, axis=1, keepdims=True))
            if f"{name}.W{k + 1}" in arrays:
                bias = arrays.get(f"{name}.b{k + 1}", 0.0)
                h = np.maximum(h @ arrays[f"{name}.W{k + 1}"] + bias, 0.0)
    return np.concatenate(rows, axis=1)


@pytest.mark.parametrize("scaler", [None, "zscore", "minmax", "unit"])
def test_a_file_does_what_the_portfolio_does(scaler: str | None) -> None:
    model = learned(scaler)
    file = np.load(BytesIO(encode(export(model, VERSION, {}), "npz")))
    X = 5.0 * np.random.default_rng(1).normal(size=(25, 6))
    found = embedded(file, json.loads(str(file["metadata"])), X)
    np.testing.assert_allclose(found, model.transform(X), rtol=1e-5, atol=1e-6)


def test_networks_with_biases_and_without_lift_have_files_too() -> None:
    own = {"anchors": [], "biases": True, "lift": 0.0, "layers": 1, "hidden": 6, "embedding": 4}
    model = learned(members={"net": {"kind": "oahu", **own}})
    made: Export = export(model, VERSION, {})
    X = 5.0 * np.random.default_rng(1).normal(size=(25, 6))
    np.testing.assert_allclose(
        embedded(made.arrays, made.metadata, X), model.transform(X), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    ("member", "told"),
    [
        ({"kind": "kernel-lego"}, r"kernel-lego/\d \(members.odd\) has no export"),
        ({"kind": "oahu"}, "members.odd has no export: .* without anchors and scaler"),
    ],
)
def test_what_is_no_linear_map_says_so(member: dict[str, Any], told: str) -> None:
    model = learned(members={"odd": member})
    assert np.isfinite(model.transform(np.ones((2, 6)))).all()
    with pytest.raises(SettingsError, match=told):
        export(model, VERSION, {})


# ---- members ----------------------------------------------------------------------------------------------------


class Broken:
    """In place of a learner's `learn`: it rejects everything, or its arithmetic fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def __call__(self, block: ConstraintBlock) -> Outcomes:
        if self._error is not None:
            raise self._error
        found = Outcomes.blank(len(block))
        found.rejected[:] = True
        return found


@pytest.mark.parametrize("error", [None, np.linalg.LinAlgError("no"), FloatingPointError("no")])
def test_a_member_that_fails_is_dropped_and_the_others_go_on(
    error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, other = (Portfolio(members=FEW, dtype="float64", warm_up=20) for _ in range(2))
    blocks = triplet_blocks(3, 5, 8, 60)
    for block in blocks[:3]:
        model.learn(block)
        other.learn(block)
    monkeypatch.setattr(model._members[0].learner, "learn", Broken(error))
    for block in blocks[3:]:
        outcomes = model.learn(block)
        other.learn(block)
        assert not outcomes.rejected.any() and (outcomes.mistake >= 0).all()
    assert model.dropped == ("opml",) and model.weights["opml"] == 0.0
    assert sum(model.weights.values()) == pytest.approx(1.0)
    # LEGO learns as beside an OPML that works.
    np.testing.assert_array_equal(model._members[1].learner.map, other._members[1].learner.map)
    assert np.isfinite(model.transform(np.ones((2, 5)))).all()
    state = model.state()
    assert not any(name.startswith("member.opml.") for name in state)
    restored = Portfolio(members=FEW, dtype="float64", warm_up=20)
    restored.restore(state)
    assert restored.dropped == ("opml",) and digest(restored.state()) == digest(state)
    restored.learn(blocks[0])
    assert restored.dropped == ("opml",)


def test_one_whose_numbers_run_away_is_dropped() -> None:
    """OPML as published, by far too large a step."""
    wild: dict[str, dict[str, Any]] = {
        "wild": {"kind": "opml", "gamma": 50.0, "guard": "raw"},
        "opml": {"gamma": 0.03},
    }
    model = Portfolio(members=wild, warm_up=20)
    for block in triplet_blocks(3, 4, 10, 200):
        outcomes = model.learn(block)
    assert outcomes.counts().rejected == 0
    assert model.weights["wild"] < 1e-3 < model.weights["opml"]
    assert np.isfinite(model.transform(np.ones((2, 4)))).all()


def test_a_block_that_a_member_refuses_is_none_of_its_business() -> None:
    members = {"opml": {}, "lego": {"targets": "block"}}
    model = Portfolio(members=members, warm_up=20)
    for block in pair_blocks(1, 4, 3, 60):
        outcomes = model.learn(block)
    assert not outcomes.utilised.any() and not outcomes.ignored.any()
    for block in pair_blocks(1, 4, 1, 60, targets=True):
        assert model.learn(block).utilised.any()
    assert model.dropped == ()


def test_kinds_are_those_of_the_learners() -> None:
    assert (Portfolio().form, Portfolio().accepts) == (Kind.PAIR, frozenset(Kind))
    model = Portfolio(members={"opml": {}, "oasis": {}})
    assert (model.form, model.accepts) == (Kind.TRIPLET, frozenset({Kind.TRIPLET}))
    assert model.algorithm == "portfolio-opml-1-oasis-1/6"
    with pytest.raises(BadRecord, match="does not learn from pairs"):
        model.learn(pair_blocks(1, 4)[0])
    with pytest.raises(BadRecord, match="sign of a pair must be 1 or -1"):
        Portfolio().learn_pairs(np.ones((1, 2)), np.ones((1, 2)), np.zeros(1, np.int8))


def test_rules_reach_the_members() -> None:
    model = Portfolio(members={"copml": {"gamma1": 0.05, "gamma2": 0.05}})
    X = np.random.default_rng(0).normal(size=(2, 60, 3))
    assert model.learn_pairs(*X).utilised[MEASURED // 2 :].all()
    ruled = pair_blocks(1, 3, 1, 60)[0]
    assert not model.learn(ruled).utilised.any()


def test_members_keep_their_settings_and_take_what_they_leave_open() -> None:
    named: dict[str, dict[str, Any]] = {
        "a": {"kind": "oahu", "seed": 7},
        "b": {"kind": "oahu"},
        "c": {"kind": "opml", "dtype": "float64"},
    }
    model = Portfolio(members=named, seed=3, warm_up=30)
    a, b, c = (member.learner for member in model._members[:3])
    assert (getattr(a, "seed", None), getattr(b, "seed", None)) == (7, 3)
    assert (a.dtype, c.dtype, b.warm_up, c.warm_up) == ("float32", "float64", 30, 30)
    assert list(model.weights) == ["a", "b", "c", *UNLEARNED]
    # What is given is copied.
    settings = {"opml": {"gamma": 0.01}}
    model = Portfolio(members=settings)
    settings["opml"]["gamma"] = -1.0
    assert Portfolio(members=model.members).members == {"opml": {"kind": "opml", "gamma": 0.01}}
    assert Portfolio().members == USUAL


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"floor": 1.0}, "floor must be at least 0 and below 1, not 1.0"),
        ({"floor": -0.1}, "floor must be a finite number of at least 0"),
        ({"repeats": 0.0}, "repeats must be a finite number above 0, not 0.0"),
        ({"repeats": float("nan")}, "repeats must be"),
        ({"window": 1}, "window must be a whole number of at least 2"),
        ({"seed": -1}, "seed must be"),
        ({"members": {}}, "members must be a table with a table for each of them"),
        ({"members": ["opml"]}, "members must be a table"),
        ({"members": {"opml": 0.1}}, "members.opml must be a table of settings, not 0.1"),
        ({"members": {"O.P": {"kind": "opml"}}}, "members.O.P: a name is of the characters"),
        ({"members": {"cosine": {"kind": "opml"}}}, "members.cosine: .* are in every portfolio"),
        ({"members": {"it": {}}}, "members.it: no learner is called 'it'"),
        ({"members": {"it": {"kind": 3}}}, "members.it: kind must be the name of one"),
        ({"members": {"it": {"kind": "opml", "gama": 1}}}, "members.it: opml has no setting gama"),
        ({"members": {"opml": {"gamma": -1}}}, "members.opml: gamma must be"),
        (
            {"members": {"opml": {"scaler": "zscore"}}},
            "members.opml: scaler is .* because the portfolio scales",
        ),
        ({"members": {"omdml": {}}}, "members.omdml: a member learns from one modality"),
        ({"members": {"fusion": {}}}, "members.fusion: a fusion is made of others"),
        ({"members": {"p": {"kind": "portfolio"}}}, "members.p: a portfolio is made of others"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        create("portfolio", **settings)


def test_the_example_of_its_documentation_runs() -> None:
    done = doctest.testmod(kinstream.learners.portfolio.learner)
    assert done.failed == 0 and done.attempted > 5


def test_a_state_of_other_members_is_refused() -> None:
    model = Portfolio(members=FEW)
    for block in triplet_blocks(1, 4, 2):
        model.learn(block)
    with pytest.raises(SettingsError, match="of 4 members, not of 3"):
        Portfolio(members={"opml": {}}).restore(model.state())


# ---- in the product ---------------------------------------------------------------------------------------------


SETTINGS = """
[builders.one-pass]
kind = "one-pass"

[learners.best]
kind = "portfolio"
from = ["one-pass"]
scaler = "zscore"
warm_up = 40

[learners.best.members.opml]
gamma = 0.03

[learners.best.members.second]
kind = "oasis"
scaler = "unit"
"""


def rows(seed: int, n: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Vectors of three classes, in the first three features of six."""
    draw = np.random.default_rng(seed)
    y = draw.integers(0, 3, n)
    return (draw.normal(size=(n, 6)) + 2.5 * (y[:, None] == np.arange(6))).astype(np.float32), y


def test_from_settings_to_outcomes_and_to_a_grade(tmp_path: Path) -> None:
    file = tmp_path / "kinstream.toml"
    file.write_text(SETTINGS, encoding="utf-8")
    settings = load_settings(file)
    builder = Stream(builder_spec(settings, "one-pass"), NOW_MS, "a")
    learner = Stream(learner_spec(settings, "best"), NOW_MS, "a")
    X, y = rows(1, 400)
    outputs = [
        output
        for start in range(0, 400, 80)
        for sent in builder(
            SampleBlock("a", (Table("x", X[start : start + 80]),), y[start : start + 80], time_ms=NOW_MS)
        )
        for output in learner(sent.value or b"", sent.headers)
    ]
    outcome = decode_outcome(outputs[-1].value or b"")
    assert isinstance(outcome, Outcome) and outcome.counts.utilised > 0
    assert outcome.weights.keys() == {"opml", "second", *UNLEARNED}
    assert sum(outcome.weights.values()) == pytest.approx(1.0)
    space = learner.machine.find("a")
    assert space is not None and isinstance(space.core, Portfolio)
    assert outcome.weights == space.core.weights
    # What a checkpoint holds makes the same learner again, and the replay grades that by its one metric.
    again = learner_from(to_bytes(space.state()), "portfolio", settings.learners["best"].arguments())
    assert digest(again.state()) == digest(space.core.state())
    U, v = rows(2, 200)
    train, test = (Batch((Table("x", A),), b, tuple(map(str, b))) for A, b in ((X, y), (U, v)))
    graded = {row.name: row.error for row in grade({"best": again}, train, test).rows}
    assert graded["best"] == knn_error(again.transform(X), y, again.transform(U), v)
    assert graded.keys() == {"euclidean", "euclidean, zscore", "best"}


def test_warming_up_compiles_what_members_run(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def run(kind: str, arguments: dict[str, Any]) -> None:
        seen.append(f"{kind} {arguments.get('kernel')} {arguments.get('dtype')}")

    monkeypatch.setattr(warming_up, "_run", run)
    members = {
        "it": {"kind": "lego", "targets": "block"},
        "oahu": {"layers": 1},
        "opml": {"dtype": "float64", "kernel": "blocked"},
    }
    warming_up.warm_up("portfolio", {"members": members})
    assert seen == [
        "lego sequential float32",
        "lego blocked float32",
        "oahu None float32",
        "opml blocked float64",
        "portfolio None None",
    ]


#: In a process of its own: other tests have compiled what a forgotten member would need.
WARMED = """
import pkgutil
from importlib import import_module
import numpy as np
from numba.core.dispatcher import Dispatcher
import kinstream.learners.kernels
from kinstream.learners.registry import create
from kinstream.learners.warm_up import warm_up
from kinstream.testing.blocks import pair_blocks, rows_of, triplet_blocks

def compiled():
    names = [m.name for m in pkgutil.walk_packages(kinstream.learners.kernels.__path__, "kinstream.learners.kernels.")]
    modules = [import_module(name) for name in names]
    kernels = {one for module in modules for one in vars(module).values() if isinstance(one, Dispatcher)}
    return {f"{one.py_func.__module__}.{one.py_func.__name__}": len(one.signatures) for one in kernels}

warm_up("portfolio")
before = compiled()
for d in (9, 200):
    model = create("portfolio")
    one = rows_of(triplet_blocks(3, d)[0], slice(0, 1))
    for block in (*triplet_blocks(2, d, 2, 70), *pair_blocks(2, d, 2, 70), one):
        model.learn(block)
    model.transform(np.zeros((3, d))), model.weights, model.restore(model.state())
print("compiled late:", sorted(name for name, number in compiled().items() if number != before[name]))
"""


def test_after_warming_up_no_member_compiles_at_its_first_block() -> None:
    command = [sys.executable, "-c", WARMED]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout == "compiled late: []\n", done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize("name", ["wine", "balance", "breast"])
def test_it_is_never_worse_than_not_learning(name: str, data_folder: Path) -> None:
    data = load(name)
    assert data is not None, f"{name}.npz is not in {data_folder}"
    done = [trial for seed in range(300, 310) for trial in trials(data, seed, LENGTHS, {})]
    for counted in online(done):
        assert counted.within, counted
    for cell in cells([trial.held_out() for trial in done]):
        # Another processor's rounding may decide single test rows otherwise.
        assert cell.difference <= max(cell.error, ALLOWED) + 0.002, cell
