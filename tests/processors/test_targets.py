"""Targets are percentiles of distances between random earlier samples, taken at places that the log decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kinstream.processors.base.draws import below, sample_draws
from kinstream.processors.registry import create
from kinstream.processors.samples.targets import EVERY, FIRST, ITEMS, PER_SAMPLE, Targets
from kinstream.streams.checkpoints.state_bytes import from_bytes, to_bytes
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import Table
from tests.processors.reservoir_reference import PlainReservoir

Known = list[tuple[float, float]]


def targets(
    mode: str, sample: int = 100, percentiles: tuple[float, float] = (5, 95), seed: int = 0
) -> Targets:
    return Targets(mode, percentiles, sample, "test", seed)


def feed(made: Targets, vectors: NDArray[np.float32], ids: list[str] | None = None) -> Known:
    """What is known before each sample; vectors of more than one column stand in two modalities."""
    half = (vectors.shape[1] + 1) // 2
    tables = [Table("x", vectors[:, :half]), Table("y", vectors[:, half:])]
    known = made.of("toys", tuple(t for t in tables if t.vectors.shape[1]), ids)
    assert known is not None
    assert known.dtype == np.float32
    return [(float(y_s), float(y_d)) for y_s, y_d in known]


def plain(
    mode: str, sample: int, percentiles: tuple[float, float], seed: int, vectors: NDArray[np.float32]
) -> Known:
    """The same one sample at a time, with every distance computed."""
    items, known = PlainReservoir(ITEMS, 1), Known()
    kept: list[float] = []
    drawn, due = 0, min(sample, FIRST) if mode == "reservoir" else sample
    y = (float("nan"), float("nan"))
    for number, vector in enumerate(vectors.astype(np.float64)):
        known.append(y)
        (draws,) = sample_draws("test/targets", seed, "toys", number, 1, 1 + 3 * PER_SAMPLE).tolist()
        for place, other in enumerate(items.step("", draws, ["any"] * PER_SAMPLE)):
            if isinstance(other, str):
                continue
            drawn += 1
            distance = float(((vector - vectors[other]) ** 2).sum())
            if len(kept) < sample:
                kept.append(distance)
            elif (at := below(draws[1 + 2 * PER_SAMPLE + place], drawn)) < sample:
                kept[at] = distance
        if drawn < due or (mode == "frozen" and y[0] == y[0]):
            continue
        due = drawn + EVERY
        positive = [distance for distance in kept if distance > 0]
        if positive:
            low, high = (float(np.float32(p)) for p in np.percentile(positive, percentiles))
            y = (low if low < high else high / 2, high)
    return known


@pytest.mark.long
@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(["frozen", "reservoir"]),
    st.integers(2, 150),
    st.integers(0, 100),
    st.sampled_from([1, 2, 3, 17, 64]),
    st.sampled_from([1e-4, 1.0, 1e3]),
    st.floats(0, 1),
    st.lists(st.integers(1, 150), max_size=4),
)
def test_targets_are_those_of_a_plain_walk_in_any_blocks(
    mode: str, sample: int, seed: int, d: int, scale: float, copies: float, cuts: list[int]
) -> None:
    rng = np.random.default_rng(seed)
    n = 260
    vectors = (rng.normal(size=(n, d)) * scale).astype(np.float32)
    vectors[rng.random(n) < copies] = vectors[0]
    made, found, start = targets(mode, sample, (10, 60), seed), Known(), 0
    for cut in [*cuts, n]:
        if start < n:
            found += feed(made, vectors[start : start + cut])
            start += cut
            again = targets(mode, sample, (10, 60), seed)
            again.restore(from_bytes(to_bytes(made.state())))
            assert to_bytes(again.state()) == to_bytes(made.state())
            made = again
    expected = plain(mode, sample, (10, 60), seed, vectors)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_frozen_targets_are_known_after_their_sample_and_never_change() -> None:
    vectors = np.random.default_rng(0).normal(size=(400, 4)).astype(np.float32)
    made = targets("frozen", 40)
    known = feed(made, vectors)
    # The first sample has no earlier one.
    assert np.isnan(known[:11]).all()
    assert not np.isnan(known[11:]).any()
    assert len(set(known[11:])) == 1
    assert feed(made, 100 * vectors) == known[11:12] * 400
    assert set(made.state()) == {"numbers", "known"}


def test_a_reservoir_follows_the_scale_of_the_features() -> None:
    vectors = np.random.default_rng(0).normal(size=(2000, 4)).astype(np.float32)
    made = targets("reservoir", 500)
    before = feed(made, vectors)
    assert np.isnan(before[:26]).all()
    assert not np.isnan(before[26:]).any()
    after = feed(made, 10 * vectors)
    assert after[-1][1] > 20 * before[-1][1]
    assert len(set(before[26:])) > 5
    assert len(np.asarray(made.state()["distances"])) == 500


@pytest.mark.parametrize("mode", ["frozen", "reservoir"])
def test_targets_come_near_the_percentiles_of_all_distances(mode: str) -> None:
    vectors = np.random.default_rng(1).normal(size=(3000, 8)).astype(np.float32)
    y_s, y_d = feed(targets(mode, 10_000), vectors)[-1]
    some = vectors[:600].astype(np.float64)
    squared = ((some[:, None] - some[None]) ** 2).sum(axis=2)[np.triu_indices(600, 1)]
    np.testing.assert_allclose([y_s, y_d], np.percentile(squared, (5, 95)), rtol=0.05)


def test_equal_percentiles_are_parted_and_counted() -> None:
    """Corners of a cube: all distances that are not zero are one."""
    vectors = np.eye(2, dtype=np.float32)[np.random.default_rng(0).integers(0, 2, 300)]
    made = targets("frozen", 50)
    assert feed(made, vectors)[-1] == (1.0, 2.0)
    assert made.halved == 1


def test_samples_that_are_all_the_same_have_no_targets() -> None:
    made = targets("frozen", 10)
    assert np.isnan(feed(made, np.ones((300, 3), np.float32))).all()
    # The first distance that is not zero is enough, at the next place where targets are calculated.
    later = feed(made, np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32))
    assert not np.isnan(later[-1]).any()


@pytest.mark.parametrize("scale", [3e38, 1e-30])
def test_targets_are_positive_and_finite_at_any_scale(scale: float) -> None:
    vectors = (np.random.default_rng(0).uniform(-1, 1, (300, 3)) * scale).astype(np.float32)
    made = targets("reservoir")
    y_s, y_d = feed(made, vectors)[-1]
    assert 0 < y_s < y_d <= float(np.finfo(np.float32).max)
    assert made.halved > 0


def test_nothing_is_compared_with_an_erased_sample() -> None:
    vectors = np.zeros((300, 2), np.float32)
    vectors[0] = 1000
    made = targets("frozen", 400)
    feed(made, vectors[:1], ["far"])
    made.erase(["far", "unknown"])
    assert not np.asarray(made.state()["items.vectors.x"]).any()
    assert np.isnan(feed(made, vectors[1:])).all()


def test_draws_depend_on_the_seed_and_the_algorithm() -> None:
    vectors = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    one = feed(targets("frozen", seed=1), vectors)[-1]
    assert one == feed(targets("frozen", seed=1), vectors)[-1]
    assert one != feed(targets("frozen", seed=2), vectors)[-1]
    assert one != feed(Targets("frozen", (5, 95), 100, "other", 1), vectors)[-1]


@pytest.mark.parametrize("kind", ["random-pairs", "adjacent-pairs"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("targets", "block"),
        ("target_percentiles", [95, 5]),
        ("target_percentiles", [5, 5]),
        ("target_percentiles", [5]),
        ("target_percentiles", "5"),
        ("target_percentiles", 5),
        ("target_percentiles", [-1, 5]),
        ("target_percentiles", [5, 101]),
        ("target_percentiles", [True, 5]),
        ("target_sample", 1),
        ("target_sample", 10_001),
        ("target_sample", 2.0),
    ],
)
def test_a_bad_setting_is_refused_by_name(kind: str, name: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=name):
        create(kind, **{name: value})
