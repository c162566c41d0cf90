"""Rebuilds come when their rule says; candidates and their budget."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pytest

from kinstream.search.index.create import create
from kinstream.search.index.lsh.candidates import lowest
from kinstream.search.index.lsh.key_index import LazyIndex
from kinstream.search.index.online.ranking import projected
from kinstream.search.index.online.settings import Settings
from tests.search.model import steps


def lazy(**options: Any) -> LazyIndex:
    return cast(LazyIndex, create("lazy", **options))


def monitored(index: LazyIndex) -> tuple[Any, Any]:
    """Stored and true values of the monitored bits (n, w)."""
    taken = index.items.taken()
    watched = index.watched
    stored = np.stack([index.keys.bit(taken, int(j)) for j in watched], axis=1)
    values = index.items.X[taken] @ index.metric.P[watched].T + index.metric.thresholds[watched]
    return stored, values >= 0.0


@pytest.mark.parametrize("rule", ("items", "bits"))
@pytest.mark.parametrize("options", ({"sample": None}, {"sample": 300}), ids=str)
def test_rebuild_comes_when_enough_has_been_seen_to_change(rule: str, options: dict[str, Any]) -> None:
    draw = np.random.default_rng(14)
    index = lazy(monitor=8, rule=rule, share=0.1, bits=64, **options)
    X = draw.normal(size=(1_000, 16))
    index.put([str(row) for row in range(1_000)], X)
    rebuilds = 0
    for _ in range(60):
        changed = index.changed()
        assert changed <= 0.1
        index.step(*steps(draw, 16, 0.05))
        index.search(X[:1], 1)
        if index.stats.rebuilds > rebuilds:
            rebuilds = index.stats.rebuilds
            stored, wanted = monitored(index)
            assert (stored == wanted).all() and index.changed() == 0.0
    # Sure of items sooner than of bits.
    assert rebuilds > (5 if rule == "items" else 1)


def test_rule_counts_items_and_bits() -> None:
    draw = np.random.default_rng(15)
    both = [lazy(monitor=4, rule=rule, share=1.0, bits=32) for rule in ("items", "bits")]
    X = draw.normal(size=(500, 8))
    U, V = steps(draw, 8, 0.2)
    for index in both:
        index.put([str(row) for row in range(500)], X)
        start, _ = monitored(index)
        index.step(U, V)
        index.search(X[:1], 1)
        stored, wanted = monitored(index)
        assert (stored == wanted).all()
        flipped = stored != start
        share = flipped.any(axis=1).mean() if index.settings.rule == "items" else flipped.mean()
        assert index.changed() == pytest.approx(share) and share > 0.0


def test_budget_is_kept_and_grows_as_asked() -> None:
    draw = np.random.default_rng(16)
    X = draw.normal(size=(5_000, 10))
    for eps, factor in ((0.22, 1.0), (0.5, 2.0), (1.0, 1.0)):
        index = create("lazy", eps=eps, candidates=factor)
        index.put([str(row) for row in range(5_000)], X)
        found = index.search(X[:20], 10)
        assert set(found.examined.tolist()) == {math.ceil(factor * 5_000 ** (1.0 / (1.0 + eps)))}
        # Nothing is found that was not looked at, and never fewer than k are looked at.
        assert index.search(X[:1], 600).examined[0] >= 600
        assert len(index.search(X[:1], 600).ids[0]) == 600
    assert Settings().budget(0, 5) == 0 and Settings().budget(3, 5) == 3


def test_candidates_are_worth_their_number() -> None:
    draw = np.random.default_rng(17)
    X, Q = draw.normal(size=(5_000, 12)), draw.normal(size=(50, 12))
    ids = [str(row) for row in range(5_000)]
    scan = create("linear")
    scan.put(ids, X)
    truth = scan.search(Q, 10).ids
    recalls = []
    for factor in (0.15, 0.5, 3.0):
        index = create("lazy", eps=1.0, candidates=factor)
        index.put(ids, X)
        found = index.search(Q, 10)
        recalls.append(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found.ids, truth, strict=True)]))
    assert recalls[0] < recalls[1] < recalls[2]
    # As many random items would be 0.002, 0.007 and 0.04 of the nearest.
    assert recalls[0] > 0.3 and recalls[2] > 0.95


def test_a_search_for_more_looks_at_more() -> None:
    assert Settings(eps=1.0).budget(10_000, 10) == 100
    assert Settings(eps=1.0).budget(10_000, 50) == 150
    assert Settings(eps=1.0).budget(120, 50) == 120


@pytest.mark.parametrize("free", (0, 300))
def test_the_lowest_are_found_whatever_the_values(free: int) -> None:
    draw = np.random.default_rng(18)
    for values in (
        draw.normal(size=4_000),
        np.arange(4_000.0),
        np.arange(4_000.0)[::-1],
        np.zeros(4_000),
        draw.integers(0, 5, 4_000),
        # What the sample sees is the opposite of what there is.
        np.where(np.arange(4_000) % 16, 9.0, draw.normal(size=4_000)),
        np.where(np.arange(4_000) % 16, draw.normal(size=4_000), 9.0),
    ):
        values = np.array(values, np.float32)
        values[draw.choice(4_000, free, replace=False)] = np.inf
        for wanted in (1, 40, 700, 3_900, 5_000):
            order = np.argsort(values, kind="stable")[:wanted]
            assert lowest(values, wanted).tolist() == sorted(order[np.isfinite(values[order])].tolist())


@pytest.mark.parametrize("dtype", ("float64", "float32"))
def test_hyperplanes_choose_what_is_mapped(dtype: str) -> None:
    """Hardly anything is lost by it, and distances are exact as ever."""
    draw = np.random.default_rng(19)
    centres = draw.normal(size=(200, 300))
    X = (centres[draw.integers(0, 200, 3_000)] + 0.7 * draw.normal(size=(3_000, 300))).astype(dtype)
    index = lazy(bits=128, eps=1.0, candidates=10.0, dtype=dtype)
    scan = create("linear", dtype=dtype)
    for one in (index, scan):
        one.put([str(row) for row in range(3_000)], X)
    hits = 0
    for _ in range(20):
        U, V = steps(draw, 300, 0.01)
        q = centres[int(draw.integers(0, 200))] + 0.7 * draw.normal(size=300)
        for one in (index, scan):
            one.step(U, V)
        kept = projected(q, index.candidates.of(q, 548), 5, index.items, index.metric)
        assert len(kept) == 62 and len(index.candidates.of(q, 548)) == 548
        found, truth = index.search(q[None], 5), scan.search(q[None], 5)
        assert found.examined[0] == 548
        exact = dict(zip(truth.ids[0], truth.distances[0], strict=True))
        both = [name for name in found.ids[0] if name in exact]
        hits += len(both)
        for name in both:
            place = found.ids[0].index(name)
            np.testing.assert_allclose(found.distances[0, place], exact[name], rtol=1e-9)
    assert hits >= 0.9 * 20 * 5
    # What looks at everything leaves nothing out.
    every = index.items.taken()
    assert projected(q, every, 5, index.items, index.metric) is every
