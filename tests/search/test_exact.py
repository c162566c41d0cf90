"""Indexes that are called exact answer what a scan in float64 answers, whatever the offset and scale of the vectors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinstream.search.index import exact
from kinstream.search.index.exact import Exact
from kinstream.search.index.faiss import FLAT
from kinstream.search.index.vector_indexes import EXACT, create_mapped
from tests.search.scan import HARD, Rows, centred, scan

Made = Callable[[np.random.Generator, int], Rows]


def check(index: Any, held: dict[int, np.ndarray], Q: Rows, k: int) -> None:
    """The batch, and each query alone, have the slots and the distances of the scan."""
    slots, X = list(held), np.array(list(held.values()), np.float32)
    together = index.search(Q, k)
    for row, q in enumerate(Q):
        names, far = scan(slots, X, q, k)
        alone = index.search(Q[row : row + 1], k)
        for found, place in ((together, row), (alone, 0)):
            assert found.slots[place].tolist() == names
            np.testing.assert_allclose(found.distances[place], far, rtol=1e-13, atol=0)
        assert together.distances[row].tolist() == alone.distances[0].tolist()


@pytest.mark.parametrize("kind", [EXACT, FLAT])
@pytest.mark.parametrize("made", HARD, ids=lambda made: made.__name__)
@pytest.mark.parametrize("queries", [1, 3, 40])
def test_the_ids_and_distances_of_a_scan_in_float64(kind: str, made: Made, queries: int) -> None:
    rng = np.random.default_rng(17)
    X = made(rng, 3000)
    index = create_mapped(kind, X.shape[1])
    index.put(np.arange(3000), X)
    Q = np.concatenate([made(rng, queries)[: -(-queries // 2)], X[rng.integers(0, 3000, queries // 2)]])
    check(index, dict(enumerate(X)), Q, 10)


@pytest.mark.parametrize("kind", [EXACT, FLAT])
@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    offset=st.sampled_from((0.0, 1.0, -300.0, 2e3, 5e6, 1.7e9, 1e20)),
    scale=st.sampled_from((1e-20, 1e-4, 1.0, 37.0, 1e6, 1e19)),
    mixed=st.booleans(),
)
def test_any_offset_scale_and_sequence_of_changes(
    kind: str, seed: int, offset: float, scale: float, mixed: bool
) -> None:
    rng = np.random.default_rng([5, seed])
    d = int(rng.integers(1, 40))
    away = np.where(rng.random(d) < 0.5, offset, 0.0) if mixed else np.full(d, offset)
    some = rng.normal(size=(5, d))

    def rows(number: int) -> Rows:
        new = rng.normal(size=(number, d))
        # Equal vectors, and equal distances, are as likely as others.
        new[rng.random(number) < 0.4] = some[rng.integers(0, 5)]
        return (away + scale * new).astype(np.float32)

    index = create_mapped(kind, d)
    held: dict[int, np.ndarray] = {}
    for _ in range(rng.integers(2, 12)):
        slots = rng.permutation(np.unique(rng.integers(0, 400, rng.integers(1, 150))))
        if rng.random() < 0.3:
            index.drop(slots)
            for slot in slots.tolist():
                held.pop(slot, None)
        else:
            Z = rows(len(slots))
            index.put(slots, Z)
            held.update(zip(slots.tolist(), Z, strict=True))
    if held:
        check(index, held, rows(int(rng.integers(1, 30))), int(rng.integers(1, min(60, len(held) + 1))))


@pytest.mark.parametrize("kind", [EXACT, FLAT])
@pytest.mark.parametrize("queries", [1, 30])
@pytest.mark.parametrize("value", [0.0, 3.3, 1.7e9])
def test_of_equal_items_the_least_slots_are_found_in_any_order_of_insertion(
    kind: str, queries: int, value: float
) -> None:
    rng = np.random.default_rng(3)
    index = create_mapped(kind, 12)
    one = np.full((1, 12), value, np.float32)
    for slots in np.split(rng.permutation(200), 20):
        index.put(slots, np.repeat(one, len(slots), axis=0))
    Q = np.repeat(one + np.float32(0.25), queries, axis=0)
    assert index.search(Q, 5).slots.tolist() == [[0, 1, 2, 3, 4]] * queries
    index.drop(np.array([0, 3, 77]))
    index.put(np.array([1]), one + np.float32(1000.0))
    assert index.search(Q, 5).slots.tolist() == [[2, 4, 5, 6, 7]] * queries
    index.put(np.array([3, 1]), np.repeat(one, 2, axis=0))
    assert index.search(Q, 5).slots.tolist() == [[1, 2, 3, 4, 5]] * queries
    assert (
        index.search(Q, 5, lambda slots, m: np.sort(slots)[::-1][:m]).slots.tolist()
        == [[195, 196, 197, 198, 199]] * queries
    )


def test_one_product_decides_for_nearly_all_items_where_the_data_are_centred(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured: list[int] = []
    real = exact.measured

    def counted(rows: Rows, slots: np.ndarray, query: Rows) -> np.ndarray:
        measured.append(len(slots))
        return real(rows, slots, query)

    monkeypatch.setattr(exact, "measured", counted)
    rng = np.random.default_rng(6)
    for offset in (0.0, 5e6):
        for scale in (1e-8, 1.0, 1e8):
            index = Exact(32)
            index.put(np.arange(5000), scale * centred(rng, 5000) + np.float32(offset * scale / 1000))
            measured.clear()
            index.search(scale * centred(rng, 64) + np.float32(offset * scale / 1000), 10)
            # Ten for the first guess, and those within the bound.
            assert sum(measured) / 64 < 30


@pytest.mark.long
@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    offset=st.sampled_from((0.0, 10.0, 1e4, 1e8)),
    scale=st.sampled_from((1e-12, 1e-3, 1.0, 1e7)),
    d=st.integers(1, 900),
)
def test_the_bound_of_the_rounding_holds(seed: int, offset: float, scale: float, d: int) -> None:
    """By integers: s of every item is at most what the bound says for the item's own true distance."""
    rng = np.random.default_rng([7, seed])
    X = (offset + scale * rng.normal(size=(40, d))).astype(np.float32)
    Q = np.concatenate([X[:4], (offset + scale * rng.normal(size=(4, d))).astype(np.float32)])
    index = Exact(d)
    index.put(np.arange(40), X)
    P = Q - index.centre
    products, lengths = index._products(P, 40), exact.lengths(P)
    own = index._lengths[:40]
    whole = [_whole(x) for x in X]
    for row, query in enumerate(_whole(q) for q in Q):
        s = own * own - 2.0 * products[row] + lengths[row] ** 2
        for item in range(40):
            true = sum((a - b) ** 2 for a, b in zip(whole[item], query, strict=True))
            t = np.nextafter(np.sqrt(float(true)) * 2.0**-149, np.inf)
            limit = exact._bound(float(t), own[item : item + 1], float(lengths[row]), d)
            assert s[item] <= limit[0]


def _whole(x: np.ndarray) -> list[int]:
    """Numbers of float32 as multiples of 2^-149, exactly."""
    parts = [math.frexp(value) for value in x.tolist()]
    return [int(m * 2**24) * 2 ** max(e + 125, 0) // 2 ** max(-e - 125, 0) for m, e in parts]


@pytest.mark.parametrize("kind", [EXACT, FLAT])
@pytest.mark.parametrize("queries", [1, 12])
def test_items_and_queries_that_are_no_numbers(kind: str, queries: int) -> None:
    index = create_mapped(kind, 2)
    with np.errstate(all="ignore"):
        Z = np.array([[1e30, 0], [1, 1], [np.inf, 0], [0, np.nan], [2, 2]], np.float32)
    index.put(np.arange(5), Z)
    found = index.search(np.zeros((queries, 2), np.float32), 9)
    assert found.slots.tolist() == [[1, 4, 0]] * queries
    assert np.isclose(found.distances[:, 2], 1e60).all()
    bad = np.full((queries, 2), np.nan, np.float32)
    assert np.isinf(index.search(bad, 2).distances).all()
    assert np.isinf(index.search(np.full((queries, 2), np.inf, np.float32), 2).distances).all()
