"""From raw features to names: what the query agent answers with an index that is called exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kinstream.learners.models.export import linear_map
from kinstream.search.index.engines import IndexPlan
from kinstream.search.index.mapping import Mapping, middle
from kinstream.search.models.model import Model
from kinstream.search.spaces.searcher import Searcher
from kinstream.streams.records.values import ModelVersion
from tests.learners.published_unit import create
from tests.search.index_service import items, running
from tests.search.scan import HARD, Rows, a_thousand, beside_a_year, scan, unix_times, utm

INDEXES = ("exact", "faiss-flat", "linear")
#: Kind and settings of learners whose model is measured by; None measures by raw features.
LEARNERS: dict[str, tuple[str, dict[str, Any]] | None] = {
    "un-learned": None,
    "opml": ("opml", {"gamma": 0.1}),
    "float32": ("opml", {"gamma": 0.1, "dtype": "float32"}),
    "unit": ("opml", {"gamma": 0.1, "scaler": "unit"}),
    "zscore": ("lego", {"scaler": "zscore", "warm_up": 32}),
    "network": ("oahu", {}),
}
LINEAR = [name for name in LEARNERS if name != "network"]


def learned(name: str, X: Rows) -> Any:
    """A learner of that name that has learned from differences of some rows."""
    given = LEARNERS[name]
    if given is None:
        return None
    learner: Any = create(given[0], **given[1])
    rng = np.random.default_rng(21)
    a, b, c = (X[rng.integers(0, len(X), 120)] for _ in range(3))
    learner.learn_triplets(a, b, c)
    return learner


def started(name: str, index: str, X: Rows) -> Searcher:
    learner = learned(name, X)
    version = ModelVersion("shop", "opml", "?", 1, 0, 1, "t", 0, 1, "", "", 0)
    model = Model() if learner is None else Model(version, learner)
    searcher = Searcher("shop", IndexPlan(index), lambda: model)
    searcher.loaded()
    return searcher


def put(searcher: Searcher, offset: int, names: list[str], X: Rows, gone: tuple[str, ...] = ()) -> None:
    from kinstream.search.spaces.catalogue import Change, Changed, Drop, Put

    block = items("shop", names, X)
    changes: list[Change] = [Put(tuple(names), block.tables)] if names else []
    changes += [Drop(gone)] if gone else []
    searcher.apply([Changed("shop", offset, tuple(changes))])


@pytest.mark.parametrize(
    ("index", "name"),
    [(index, name) for index in INDEXES for name in LEARNERS if index != "linear" or name in LINEAR],
)
def test_of_equal_items_the_least_ids_are_found_in_any_order_of_insertion(index: str, name: str) -> None:
    rng = np.random.default_rng(4)
    d = 33
    base = rng.normal(size=(300, d)).astype(np.float32) + np.float32(3.0)
    searcher = started(name, index, base)
    one, near = base[:1], base[:1] + np.float32(0.01)
    names = [f"item {n:03d}" for n in range(200)]
    order = [names[n] for n in rng.permutation(200)]
    offset = 0
    while order:
        # Alone and among others: what a product makes of a row must not depend on that.
        some, order = order[: (size := int(rng.integers(1, 40)))], order[size:]
        others = [f"other {offset} {n}" for n in range(int(rng.integers(0, 70)))]
        block = np.concatenate([base[rng.integers(1, 300, len(others))], np.repeat(one, len(some), axis=0)])
        put(searcher, offset, [*others, *some], block)
        offset += 1
    for Q in (one, near, np.repeat(near, 30, axis=0)):
        assert searcher.search(Q, 5).names == [names[:5]] * len(Q)
        assert all(len(set(far)) == 1 for far in searcher.search(Q, 150).distances)
    assert searcher.similar([names[150], names[2]], 5).names == [
        names[:5],
        [names[n] for n in (0, 1, 3, 4, 5)],
    ]
    put(searcher, offset, [], one, gone=(names[0], names[3], names[90]))
    put(searcher, offset + 1, [names[1]], one + np.float32(1000.0))
    assert searcher.search(near, 5).names == [[names[n] for n in (2, 4, 5, 6, 7)]]
    put(searcher, offset + 2, [names[3], names[1]], np.repeat(one, 2, axis=0))
    assert searcher.search(near, 5).names == [names[1:6]]


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("made", HARD, ids=lambda made: made.__name__)
def test_raw_features_are_searched_as_a_scan_in_float64_searches_them(index: str, made: Any) -> None:
    rng = np.random.default_rng(8)
    X = made(rng, 700)
    names = [f"n{n}" for n in rng.permutation(700)]
    searcher = started("un-learned", index, X)
    put(searcher, 0, names[:3], X[:3])
    put(searcher, 1, names[3:], X[3:])
    Q = np.concatenate([X[:15], made(rng, 700)[:15]])
    answer = searcher.search(Q, 9)
    for row, q in enumerate(Q):
        true, far = scan(names, X, q, 9)
        assert answer.names[row] == true
        np.testing.assert_allclose(answer.distances[row], far, rtol=1e-12, atol=0)
        assert searcher.search(Q[row : row + 1], 9).names == [true]


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize(
    ("name", "made"),
    [
        *(
            (name, made)
            for name in ("opml", "float32", "zscore")
            for made in (utm, beside_a_year, a_thousand)
        ),
        # Without a scaler the seconds are all that a float32 holds.
        ("zscore", unix_times),
    ],
)
def test_a_learned_map_keeps_what_lies_between_vectors_far_from_the_origin(
    index: str, name: str, made: Any
) -> None:
    rng = np.random.default_rng(9)
    X = made(rng, 900)
    # The map itself is learned from centred rows: what is tested is where it is used.
    searcher = started(name, index, X if name == "zscore" else X - X.mean(axis=0).astype(np.float32))
    learner = searcher._newest().learner
    assert learner is not None
    names = [f"n{n}" for n in range(900)]
    put(searcher, 0, names[:200], X[:200])
    put(searcher, 1, names[200:], X[200:])
    Q = np.concatenate([X[:10], made(rng, 900)[:10]])
    M = linear_map(learner)[0].astype(np.float64)
    for q, found, distances in zip(Q, *_answered(searcher, Q, 10), strict=True):
        moved = (X.astype(np.float64) - q.astype(np.float64)) @ M.T
        true = (moved**2).sum(axis=1)
        edge = np.sort(true)[9]
        far = true[[int(one[1:]) for one in found]]
        np.testing.assert_allclose(distances, far, rtol=1e-4, atol=1e-9 * float(np.median(true)))
        # Nearer than the tenth by more than a float32 tells apart, and not found: none.
        assert (far <= edge * (1 + 1e-4) + 1e-9 * np.median(true)).all()
        assert set(np.flatnonzero(true < edge * (1 - 1e-4)).tolist()) <= {int(one[1:]) for one in found}


def _answered(searcher: Searcher, Q: Rows, k: int) -> tuple[list[list[str]], list[list[float]]]:
    answer = searcher.search(Q, k)
    return answer.names, answer.distances


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("d", [1, 7, 33, 200])
def test_an_image_does_not_depend_on_what_else_is_mapped(name: str, d: int) -> None:
    rng = np.random.default_rng(d)
    X = rng.normal(size=(700, d)).astype(np.float32) * np.float32(10.0)
    learner = learned(name, X)
    mapping = Mapping(Model(None, learner), (("x", d),), middle(X[:50]))
    whole = mapping(X)
    assert whole.dtype == np.float32 and len(whole) == 700
    for size in (1, 2, 3, 17, 64, 333):
        for at in rng.integers(0, 700 - size, 4).tolist():
            assert mapping(X[at : at + size]).tobytes() == whole[at : at + size].tobytes()


def test_recall_of_exact_indexes_is_sampled_and_is_one() -> None:
    rng = np.random.default_rng(10)
    X = a_thousand(rng, 300)
    for index in ("exact", "faiss-flat"):
        space = {"learner": "opml", "index": index}
        with running(spaces={"shop": space}, recall_every=1) as agent:
            agent.events.append(items("shop", [str(n) for n in range(300)], X))
            agent.announced.announce("shop", learned("opml", X - np.float32(1000.0)), 1)
            agent.settle()
            searcher, sampler = agent.space("shop").searcher, agent.indexes.recall
            for n in range(20):
                Q = X[n : n + 1] + np.float32(0.5)
                sampler.offer(searcher, Q, searcher.search(Q, 7))
                _measured(agent, n + 1)
            assert sampler.ratio("shop") == 1.0
            page = _page(agent)
            assert 'kinstream_serve_recall_ratio{space="shop"} 1.0' in page
            assert 'kinstream_serve_recall_samples_total{fate="measured",space="shop"} 20.0' in page


def _measured(agent: Any, number: int) -> None:
    agent.wait(lambda: agent.indexes.recall.fates["shop", "measured"] == number, "a sample")


def _page(agent: Any) -> str:
    from prometheus_client import generate_latest

    from kinstream.search.service.metrics import ServiceMetrics

    return generate_latest(ServiceMetrics(agent.service).registry).decode()
