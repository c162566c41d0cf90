"""Both backends randomise lists of the model that serves, with a gate and without one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from kinstream.gate.exposure.lists import ListKind, served
from kinstream.gate.lists import list_id as drafted
from kinstream.gate.lists import randomisation
from kinstream.gate.lists.list_id import Keys, mark_of
from kinstream.processors.base.builder import Origin
from kinstream.processors.clicks.clicks import Clicks
from kinstream.streams.records.gate import UNADAPTED, Version
from kinstream.streams.records.values import Click, ItemBlock, ItemClick, Table
from tests.gate.gates import KEYS
from tests.search import index_service, store_service
from tests.search.store_service import Gateway, Memory

X = np.random.default_rng(4).normal(size=(60, 5)).astype(np.float32)
NAMES = [f"item-{n:02}" for n in range(60)]
Q = np.random.default_rng(5).normal(size=(4, 5)).astype(np.float32)


@contextmanager
def gateway(
    kind: str, share: float, gate: dict[str, Any] | None = None
) -> Iterator[tuple[Gateway, httpx.Client]]:
    store = Memory(NAMES, X)
    made = Gateway(
        {"docs": store_service.section()},
        create=lambda *_: store,
        gate=gate,
        randomise={"docs": {"kind": kind, "share": share}},
    )
    made.service.start()
    try:
        made.wait(lambda: made.service.ready, "ready")
        with store_service.served(made) as url, httpx.Client(base_url=url, timeout=10) as client:
            yield made, client
    finally:
        made.service.stop()


def ask(client: httpx.Client, vectors: NDArray[Any] = Q, **body: Any) -> dict[str, Any]:
    told = client.post("/search", json={"vectors": vectors.tolist(), "k": 6, **body})
    assert told.status_code == 200, told.text
    found: dict[str, Any] = told.json()
    return found


def exact(query: NDArray[Any], learner: Any = None) -> list[str]:
    """The scan in float64 under q^T W x, or q^T x without a learner."""
    wide = query.astype(np.float64)
    scores = X.astype(np.float64) @ (wide if learner is None else wide @ learner.W.astype(np.float64))
    return [NAMES[i] for i in np.argsort(-scores, kind="stable")[:6]]


def nearest(query: NDArray[Any], learner: Any = None) -> list[str]:
    """The scan in float64 by the distance of a learner, or the Euclidean one."""
    wide, items = np.repeat(query.astype(np.float64)[None], len(X), axis=0), X.astype(np.float64)
    far = ((items - wide) ** 2).sum(axis=1) if learner is None else learner.distance(items, wide)
    return [NAMES[i] for i in np.argsort(far, kind="stable")[:6]]


def check(result: dict[str, Any], ranking: list[str], model: Version, space: str = "docs") -> None:
    """A result is the ranking with the pairs exchanged that its id names."""
    one = randomisation.read(KEYS, space, result["list_id"])
    assert one is not None and one.model == model
    ids = [hit["id"] for hit in result["neighbours"]]
    assert one.drawn.marks == tuple(mark_of(space, item) for item in ids)
    for (upper, lower), swapped in zip(one.drawn.pairs, one.swapped, strict=True):
        if swapped:
            ids[upper], ids[lower] = ids[lower], ids[upper]
    assert ids == ranking


@pytest.mark.parametrize("kind", ["fairpairs", "swaps"])
def test_a_gateway_without_a_gate_randomises_lists_of_the_newest_model(kind: str) -> None:
    with gateway(kind, 1.0) as (made, client):
        found = ask(client)
        assert "gate" not in found and "candidate" not in found
        for query, result in zip(Q, found["results"], strict=True):
            check(result, exact(query), UNADAPTED)
        learner = store_service.bilinear(5, 7)
        made.announced.announce("docs", learner, 7)
        made.settle()
        found = ask(client)
        for query, result in zip(Q, found["results"], strict=True):
            check(result, exact(query, learner), Version(1, 0, 7))
            # A similarity would show what was swapped.
            assert all(hit["similarity"] is None for hit in result["neighbours"])
        assert len({result["list_id"] for result in found["results"]}) == 4
        assert 'kinstream_serve_randomised_lists_total{space="docs"} 8.0' in client.get("/metrics").text
        assert [one["list_id"] for one in ask(client, k=256)["results"]] == [None] * 4


def test_a_gateway_with_a_gate_drafts_one_share_and_randomises_another() -> None:
    many = np.random.default_rng(8).normal(size=(200, 5)).astype(np.float32)
    with gateway("fairpairs", 0.3, {"docs": {"share": 0.2}}) as (made, client):
        made.announced.announce("docs", store_service.bilinear(5, 7), 7)
        made.wait(lambda: ask(client, query_id="a")["gate"] is not None, "it answers")
        made.wait(lambda: made.announced.handled, "the candidate is read")
        space = made.space("docs")
        made.wait(lambda: space.pair().candidate is not None, "the candidate is loaded")
        kinds = {"drafted": 0, "randomised": 0, "ranked": 0}
        for query, result in zip(many, ask(client, many)["results"], strict=True):
            key = query.astype("<f4").tobytes()
            list_id = result["list_id"]
            if KEYS.chosen("docs", key, 0.2):
                assert drafted.read(KEYS, "docs", list_id) is not None
                kinds["drafted"] += 1
            elif KEYS.chosen("docs", key, 0.5):
                # The un-adapted features serve before a decision, whatever the newest model is.
                check(result, exact(query), UNADAPTED)
                kinds["randomised"] += 1
            else:
                assert list_id is None and [hit["id"] for hit in result["neighbours"]] == exact(query)
                kinds["ranked"] += 1
        assert all(count > 20 for count in kinds.values()), kinds


@pytest.mark.parametrize("gate", [None, {"shop": {"share": 0.0}}])
def test_the_query_agent_randomises_lists_of_the_model_that_serves(gate: dict[str, Any] | None) -> None:
    randomise = {"shop": {"kind": "fairpairs", "share": 1.0}}
    agent = index_service.Agent(gate=gate, randomise=randomise, **index_service.SHOP)
    agent.events.append(index_service.items("shop", NAMES, X))
    agent.service.start()
    try:
        agent.wait(lambda: agent.service.ready, "ready")
        with index_service.served(agent) as url, httpx.Client(base_url=url, timeout=10) as client:
            found = ask(client)
            assert ("gate" in found) is (gate is not None)
            for query, result in zip(Q, found["results"], strict=True):
                check(result, nearest(query), UNADAPTED, "shop")
                assert all(hit["squared_distance"] is None for hit in result["neighbours"])
            assert 'kinstream_serve_randomised_lists_total{space="shop"} 4.0' in client.get("/metrics").text
            similar = client.post("/similar", json={"items": NAMES[:2], "k": 6}).json()
            assert all(one["list_id"].startswith("ki2.") for one in similar["results"])
            if gate is None:
                learner = index_service.linear(5, 7)
                agent.announced.announce("shop", learner, 7)
                agent.wait(lambda: bool(ask(client)["model"]["learned"]), "the model serves")
                for query, result in zip(Q, ask(client)["results"], strict=True):
                    check(result, nearest(query, learner), Version(1, 0, 7), "shop")
    finally:
        agent.service.stop()


def test_clicks_on_a_randomised_list_become_preferences_and_its_kind_is_known() -> None:
    """From the answer of a gateway to the constraints of a builder, which has no key."""
    with gateway("fairpairs", 1.0) as (_, client):
        result = ask(client)["results"][0]
    ids = tuple(hit["id"] for hit in result["neighbours"])
    one = randomisation.read(KEYS, "docs", result["list_id"])
    assert one is not None
    upper, lower = one.drawn.pairs[0]
    click = Click(
        "docs",
        result["list_id"],
        ids,
        tuple(range(6)),
        (ItemClick(ids[lower], 2),),
        1,
        query_vector=(Table("x", Q[:1]),),
    )
    builder = Clicks(["click-skip-above"], bias="randomised")
    builder.process(ItemBlock("docs", tuple(NAMES), (Table("x", X),), 0), Origin(offset=0, append_ms=1))
    (block,) = builder.process(click, Origin(offset=1, append_ms=3)).blocks
    rows = block.tables[0].vectors[block.index[0]]
    np.testing.assert_array_equal(rows, [Q[0], X[NAMES.index(ids[lower])], X[NAMES.index(ids[upper])]])
    (shown,) = served(click)
    assert shown.kind(KEYS, "docs") is ListKind.RANDOMISED
    assert shown.kind(Keys("another secret of the tests"), "docs") is ListKind.UNREADABLE
    assert shown._replace(items=shown.items[::-1]).kind(KEYS, "docs") is ListKind.CHANGED
    assert shown._replace(items=shown.items[:3]).kind(KEYS, "docs") is ListKind.RANDOMISED
