"""Keys follow the metric: P = R G, lazy keys are naive keys bit for bit, and nothing depends on what does nothing."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kinstream.search.index.create import create
from kinstream.search.index.lsh.key_index import HashedIndex, LazyIndex
from kinstream.search.index.online import metric as metrics
from tests.search.model import Plain, steps

OPERATIONS = ("put", "drop", "remap", "step", "shift", "search", "search")


def hashed(mode: str, **options: Any) -> HashedIndex:
    return cast(HashedIndex, create(mode, **options))


def keys(index: HashedIndex) -> dict[str, list[int]]:
    """Keys by id."""
    taken = index.items.taken()
    return {index.items.ids[slot]: index.keys.table[slot].tolist() for slot in taken}


def true_keys(index: HashedIndex) -> NDArray[np.bool_]:
    """Bits (n, bits) as numpy calculates them, and where they are beyond doubt."""
    X = index.items.X[index.items.taken()].astype(np.float64)
    values = X @ index.metric.P.T + index.metric.thresholds
    return np.asarray(values >= 0.0), np.abs(values) > 1e-9 * np.abs(values).max()  # type: ignore[return-value]


def bits(index: HashedIndex) -> NDArray[np.bool_]:
    taken = index.items.taken()
    return np.stack([index.keys.bit(taken, j) for j in range(index.settings.bits)], axis=1)


@pytest.mark.long
@pytest.mark.parametrize("dtype", ("float64", "float32"))
@given(data=st.data())
@settings(max_examples=60)
def test_lazy_keys_are_naive_keys_whatever_happens(dtype: str, data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 10_000), "seed")
    d = data.draw(st.sampled_from((1, 2, 7, 40)), "d")
    size = data.draw(st.sampled_from((1e-4, 1e-2, 0.3)), "step")
    scale = data.draw(st.sampled_from((1e-4, 1.0, 1e3)), "scale")
    options = {"bits": data.draw(st.sampled_from((1, 64, 100)), "bits"), "dtype": dtype, "seed": seed}
    share = data.draw(st.sampled_from((0.0, 0.1, 1.0)), "share")
    # With all hyperplanes monitored on all items.
    watched: Any = {"monitor": options["bits"], "sample": None, "rule": "items", "share": share}
    lazy, naive = hashed("lazy", **watched, **options), hashed("naive", **options)
    plain = Plain(d)
    draw = np.random.default_rng(seed)
    for operation in data.draw(st.lists(st.sampled_from(OPERATIONS), min_size=3, max_size=25), "operations"):
        n = int(draw.integers(1, 30))
        names = [f"i{row}" for row in draw.integers(0, 60, n)]
        X = (scale * draw.normal(size=(n, d))).astype(dtype)
        X[draw.random(n) < 0.1] = 0.0
        U, V = steps(draw, d, size)
        moved = plain.G + 0.01 * draw.normal(size=(d, d)), 0.01 * scale * draw.normal(size=d)
        for index in (lazy, naive, plain):
            if operation == "put":
                index.put(names, X)
            elif operation == "drop":
                index.drop(names)
            elif operation == "remap":
                index.remap(*moved)
            elif operation in ("step", "shift") and len(naive):
                column = np.array([[scale]])
                index.step(U, V if operation == "step" else np.hstack([V, column]))
        assert len(lazy) == len(naive) == len(plain.rows)
        if operation != "search" or not len(naive):
            continue
        one, other = lazy.search(X[:3], 5), naive.search(X[:3], 5)
        assert one.ids == other.ids
        assert np.array_equal(one.distances, other.distances)
        assert keys(lazy) == keys(naive)
        assert set(keys(lazy)) == set(plain.rows)
        wanted, sure = true_keys(lazy)
        assert (bits(lazy) == wanted)[sure].all()
        for row, found in enumerate(one.ids):
            # What is found is there, once, and its distance is that of the model.
            assert len(set(found)) == len(found)
            every, squared = plain.search(X[row], len(plain.rows))
            by_name = dict(zip(every, squared, strict=True))
            wanted_distances = [by_name[name] for name in found]
            tiny = 1e-24 * scale**2
            np.testing.assert_allclose(
                one.distances[row, : len(found)], wanted_distances, rtol=1e-8, atol=tiny
            )
    assert lazy.stats.drift_faults == 0


@given(seed=st.integers(0, 10_000), k=st.sampled_from((1, 3, 9)), rank=st.integers(1, 4))
@settings(max_examples=20)
def test_projections_are_those_of_the_map(seed: int, k: int, rank: int) -> None:
    draw = np.random.default_rng(seed)
    index, plain = hashed("lazy", bits=50), Plain(9)
    G, offset = draw.normal(size=(k, 9)), draw.normal(size=k)
    index.remap(G, offset)
    plain.remap(G, offset)
    for _ in range(40):
        U, V = 0.1 * draw.normal(size=(k, rank)), draw.normal(size=(rank, 10))
        index.step(U, V)
        plain.step(U, V)
    np.testing.assert_allclose(index.metric.G, plain.G, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(index.metric.offset, plain.offset, rtol=1e-10, atol=1e-12)
    P = index.metric.R @ plain.G
    assert np.linalg.norm(index.metric.P - P) <= 1e-12 * np.linalg.norm(P)
    np.testing.assert_allclose(index.metric.thresholds, index.metric.R @ plain.offset, rtol=1e-9, atol=1e-9)


def test_projections_are_computed_anew_and_their_drift_is_noted() -> None:
    draw = np.random.default_rng(5)
    index = hashed("lazy", bits=32)
    index.put(["a"], draw.normal(size=(1, 20)))
    for turn in range(metrics.EVERY + 1):
        # Steps and their reverse: the map stays of one size.
        U, V = steps(np.random.default_rng(turn // 2), 20, 0.1)
        index.step(U if turn % 2 else -U, V)
    assert index.metric.recomputed == 1
    assert 0.0 < index.stats.drift < metrics.DRIFT
    assert index.stats.drift_faults == 0
    assert index.stats.updates == metrics.EVERY + 1


def test_a_fault_in_the_projections_is_counted_and_healed() -> None:
    draw = np.random.default_rng(6)
    index = hashed("lazy", bits=32)
    index.put(["a"], draw.normal(size=(1, 4)))
    index.metric.P[3] *= 1.001
    for _ in range(metrics.EVERY):
        index.step(*steps(draw, 4, 1e-6))
    assert index.stats.drift_faults == 1
    P = index.metric.R @ index.metric.G
    assert np.linalg.norm(index.metric.P - P) <= 1e-12 * np.linalg.norm(P)


@pytest.mark.parametrize(
    "options",
    ({}, {"monitor": 3, "sample": None}, {"sample": 50}),
    ids=str,
)
def test_no_bit_is_stale_after_a_rebuild(options: dict[str, Any]) -> None:
    draw = np.random.default_rng(7)
    index = hashed("lazy", share=1.0, **options)
    index.put([str(row) for row in range(400)], draw.normal(size=(400, 16)))
    for _ in range(30):
        index.step(*steps(draw, 16, 0.1))
        index.search(draw.normal(size=(1, 16)), 3)
    wanted, sure = true_keys(index)
    assert (bits(index) != wanted)[sure].any()
    index.rebuild()
    wanted, sure = true_keys(index)
    assert (bits(index) == wanted)[sure].all()


@pytest.mark.parametrize("mode", ("linear", "naive", "lazy"))
def test_same_seed_same_answers_whatever_is_done_that_does_nothing(mode: str) -> None:
    def answers(idle: bool, seed: int) -> list[Any]:
        draw = np.random.default_rng(8)
        index = create(mode, seed=seed, bits=32, eps=2.0)
        found = []
        for turn in range(20):
            index.put([str(row) for row in range(40 * turn, 40 * turn + 40)], draw.normal(size=(40, 10)))
            U, V = steps(draw, 10, 0.05)
            if idle:
                index.drop(["unknown"])
                index.step(np.zeros((10, 0)), np.zeros((0, 10)))
                index.search(np.full((1, 10), 0.5), 2)
            index.step(U, V)
            if idle:
                index.search(np.zeros((0, 10)), 1)
                index.search(np.full((1, 10), -0.5), 2)
            one = index.search(draw.normal(size=(2, 10)), 5)
            found.append((one.ids, one.distances.tolist(), one.examined.tolist()))
        return found

    once = answers(False, 1)
    assert once == answers(False, 1)
    idle = answers(True, 1)
    # How steps are grouped between searches may change the last bits of a distance, and nothing else.
    assert [(ids, examined) for ids, _, examined in idle] == [(ids, examined) for ids, _, examined in once]
    for (_, a, _), (_, b, _) in zip(idle, once, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    if mode != "linear":
        assert answers(False, 2) != once


def test_bits_collide_as_the_angle_says() -> None:
    draw = np.random.default_rng(9)
    index = hashed("naive", bits=4_096)
    G = draw.normal(size=(30, 30))
    index.remap(G)
    u, v = draw.normal(size=30), draw.normal(size=30)
    pairs = [(u, v), (u, u + 0.3 * v), (u, -u + 0.5 * v)]
    for a, b in pairs:
        index.put(["a", "b"], np.stack([a, b]))
        alike = float(np.mean(bits(index)[0] == bits(index)[1]))
        x, y = G @ a, G @ b
        angle = np.arccos(x @ y / np.linalg.norm(x) / np.linalg.norm(y))
        # Four standard deviations of a share of 4,096 bits.
        assert abs(alike - (1.0 - angle / np.pi)) < 4.0 * 0.5 / 64.0


def test_checks_follow_the_movement_of_hyperplanes() -> None:
    """Far fewer bits are looked at than there are, and all that are stale are among them."""
    draw = np.random.default_rng(10)
    lazy = cast(LazyIndex, create("lazy", monitor=128, sample=None, share=1.0))
    naive = hashed("naive")
    X = draw.normal(size=(2_000, 32))
    for index in (lazy, naive):
        index.put([str(row) for row in range(2_000)], X)
    before = bits(naive)
    flips = 0
    for _ in range(10):
        U, V = steps(draw, 32, 2e-4)
        for index in (lazy, naive):
            index.step(U, V)
            index.search(X[:1], 1)
        flips += int((bits(naive) != before).sum())
        before = bits(naive)
        assert keys(lazy) == keys(naive)
    assert lazy.stats.rebuilds == 0 and naive.stats.rebuilds == 10
    assert lazy.stats.flipped == flips > 0
    assert lazy.stats.checked < 0.1 * 10 * before.size


@pytest.mark.parametrize("mode", ("lazy", "naive"))
def test_lengths_that_the_metric_has_left_behind_are_taken_from_the_hyperplanes(mode: str) -> None:
    d, n = 8, 2_000
    draw = np.random.default_rng(0)
    X = draw.normal(size=(n, d))
    index = hashed(mode, bits=256, seed=1)
    index.put([str(row) for row in range(n)], X)

    def error() -> float:
        mapped = X @ index.metric.G.T + index.metric.offset
        true = np.linalg.norm(mapped, axis=1)
        return float(np.median(np.abs(index.candidates._lengths[:n] - true) / true))

    index.search(X[:1], 5)
    assert error() < 1e-6
    # A small step leaves them as they are, for they are nearer to the truth than an estimate.
    index.step(0.001 * np.eye(d)[:, :1], np.eye(d)[:1])
    index.search(X[:1], 5)
    assert error() < 0.01
    # The first two features, and the offset, grow.
    index.step(5.0 * np.eye(d)[:, :2], np.hstack([np.eye(d)[:2], [[1.0], [1.0]]]))
    index.search(X[:1], 5)
    assert error() < 0.08
