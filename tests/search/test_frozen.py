"""Indexes over mapped vectors, against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinstream.search.index.vector_indexes import KINDS, create_mapped
from kinstream.streams.errors import SettingsError


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(seed=st.integers(0, 10_000))
def test_any_sequence_of_changes(kind: str, seed: int) -> None:
    rng = np.random.default_rng([3, seed])
    d = int(rng.integers(1, 6))
    # The graph of HNSW is searched with a depth above the number of items ever put, dead ones counted.
    index = create_mapped(kind, d, depth=256)
    held: dict[int, np.ndarray] = {}
    for _ in range(rng.integers(1, 12)):
        slots = np.unique(rng.integers(0, 60, rng.integers(1, 20)))
        if rng.random() < 0.35:
            index.drop(slots)
            for slot in slots.tolist():
                held.pop(slot, None)
        else:
            Z = rng.normal(size=(len(slots), d)).astype(np.float32) + 100.0
            index.put(slots, Z)
            held.update(zip(slots.tolist(), Z, strict=True))
    Q = rng.normal(size=(3, d)).astype(np.float32) + 100.0
    k = int(rng.integers(1, 70))
    found = index.search(Q, k)
    assert found.slots.shape == (3, min(k, len(held)))
    for query, slots, far in zip(Q, found.slots.tolist(), found.distances.tolist(), strict=True):
        true = {
            s: float(((z.astype(np.float64) - query.astype(np.float64)) ** 2).sum()) for s, z in held.items()
        }
        assert len(set(slots)) == len(slots) and set(slots) <= set(held)
        assert np.allclose([true[s] for s in slots], far, rtol=1e-12, atol=0)
        assert far == sorted(far)
        assert np.allclose(far, sorted(true.values())[: len(far)], rtol=1e-3)


def test_a_scan_far_from_the_origin_ranks_right() -> None:
    rng = np.random.default_rng(5)
    Z = (rng.normal(size=(3000, 8)) + 300.0).astype(np.float32)
    index = create_mapped("exact", 8)
    index.put(np.arange(3000), Z)
    Q = Z[:20] + np.float32(0.01)
    found = index.search(Q, 5)
    true = ((Z[None].astype(np.float64) - Q[:, None].astype(np.float64)) ** 2).sum(axis=2)
    assert np.array_equal(found.slots[:, 0], np.argmin(true, axis=1))


@pytest.mark.parametrize("kind", KINDS)
def test_an_item_that_is_no_number_is_not_found(kind: str) -> None:
    index = create_mapped(kind, 1)
    index.put(np.array([0, 1]), np.array([[np.inf], [1.0]], np.float32))
    assert index.search(np.zeros((1, 1), np.float32), 5).slots.tolist() == [[1]]


def test_hnsw_keeps_its_recall_when_half_of_the_items_are_replaced() -> None:
    rng = np.random.default_rng(8)
    index, exact = create_mapped("faiss-hnsw", 16), create_mapped("exact", 16)
    for _ in range(2):
        Z = rng.normal(size=(1500, 16)).astype(np.float32)
        for one in (index, exact):
            one.put(np.arange(1500), Z)
    index.drop(np.arange(0, 1500, 3))
    exact.drop(np.arange(0, 1500, 3))
    Q = rng.normal(size=(50, 16)).astype(np.float32)
    found, true = index.search(Q, 10).slots, exact.search(Q, 10).slots
    shared = [len(set(a) & set(b)) for a, b in zip(found.tolist(), true.tolist(), strict=True)]
    assert np.mean(shared) / 10 > 0.9
    assert not (found % 3 == 0).any()


def test_another_kind_is_refused() -> None:
    with pytest.raises(SettingsError, match="exact, faiss-flat, faiss-hnsw"):
        create_mapped("annoy", 3)
