"""A space with our own index obeys the gate: which model's index answers, and the lists that two indexes draft."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from kinstream.gate.lists.draft import Side
from kinstream.gate.lists.list_id import Impression, mark_of, read
from kinstream.search.service.service import Service
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.gate import UNADAPTED, Verdict, Version
from kinstream.streams.settings import Settings
from tests.gate.gates import KEYS, SECRET, decision, draft_of
from tests.search.index_service import SHOP, Agent, items, linear, served

X = np.random.default_rng(4).normal(size=(60, 5)).astype(np.float32)
NAMES = [f"item-{n:02}" for n in range(60)]
Q = np.random.default_rng(5).normal(size=(4, 5)).astype(np.float32)


class Shop:
    """A query agent with a gate, and a client of it."""

    def __init__(self, agent: Agent, client: httpx.Client) -> None:
        self.agent, self.client = agent, client
        self.learners: dict[Version, Any] = {}

    def announce(self, step: int, epoch: int = 0) -> Version:
        version = Version(1, epoch, step)
        self.learners[version] = linear(5, step)
        self.agent.announced.announce("shop", self.learners[version], step, epoch)
        return version

    def decide(self, *arguments: Any, **more: Any) -> None:
        self.agent.announced.decisions.take(decision(*arguments, space="shop", **more))

    def ask(self, path: str = "/search", **body: Any) -> dict[str, Any]:
        asked = {"k": 6, **body} if path != "/search" else {"k": 6, "vectors": Q.tolist(), **body}
        told = self.client.post(path, json=asked)
        assert told.status_code == 200, told.text
        found: dict[str, Any] = told.json()
        return found

    def until(self, serving: Version, candidate: Version | None, **body: Any) -> dict[str, Any]:
        """The first answer of these models."""
        found: dict[str, Any] = {}

        def there() -> bool:
            found.clear()
            found.update(self.ask(**body))
            return version_of(found["model"]) == serving and version_of(found["candidate"]) == candidate

        self.agent.wait(there, f"{serving} serves and {candidate} picks")
        return found

    def ranked(self, query: NDArray[Any], version: Version, k: int) -> list[str]:
        """The scan in float64 under a model, without the index."""
        learner = self.learners.get(version)
        wide, others = np.repeat(np.asarray(query, np.float64)[None], len(X), axis=0), X.astype(np.float64)
        far = ((others - wide) ** 2).sum(axis=1) if learner is None else learner.distance(others, wide)
        return [NAMES[i] for i in np.argsort(far, kind="stable")[:k]]

    def check(
        self, query: NDArray[Any], result: dict[str, Any], serving: Version, candidate: Version
    ) -> None:
        """A result is the draft of both scans, and its id holds that draft."""
        one = shown(result)
        assert (one.serving, one.candidate) == (serving, candidate)
        first, second = (self.ranked(query, version, 6) for version in (serving, candidate))
        wanted = draft_of("shop", result["list_id"], first, second, 6)
        assert tuple(n["id"] for n in result["neighbours"]) == wanted.items
        assert all(n["squared_distance"] is None for n in result["neighbours"])
        assert one.picks == wanted.picks
        assert one.marks == tuple(mark_of("shop", item) for item in wanted.items)


def version_of(model: dict[str, Any] | None) -> Version | None:
    if model is None:
        return None
    return Version(model["generation"], model["epoch"], model["step"]) if model["learned"] else UNADAPTED


def shown(result: dict[str, Any]) -> Impression:
    found = read(KEYS, "shop", result["list_id"])
    assert found is not None
    return found


@contextmanager
def opened(share: float = 1.0, **search: Any) -> Iterator[Shop]:
    agent = Agent(gate={"shop": {"share": share}}, **(SHOP | search))
    agent.events.append(items("shop", NAMES, X))
    agent.service.start()
    try:
        agent.wait(lambda: agent.service.ready, "ready")
        with served(agent) as url, httpx.Client(base_url=url, timeout=10) as client:
            yield Shop(agent, client)
    finally:
        agent.service.stop()


@pytest.fixture
def shop() -> Iterator[Shop]:
    with opened() as found:
        yield found


def test_before_a_decision_the_un_learned_map_serves_and_the_newest_model_picks(shop: Shop) -> None:
    plain = shop.ask()
    assert version_of(plain["model"]) == UNADAPTED and plain["candidate"] is None
    assert [one["list_id"] for one in plain["results"]] == [None] * 4
    newest = shop.announce(7)
    found = shop.until(UNADAPTED, newest)
    assert found["gate"] == {"decided": "un-adapted", "missing": False, "challenger": None, "pinned": False}
    for query, result in zip(Q, found["results"], strict=True):
        shop.check(query, result, UNADAPTED, newest)
    picks = {pick for one in found["results"] for pick in shown(one).picks}
    assert picks >= {Side.SERVING, Side.CANDIDATE}
    page = shop.client.get("/metrics").text
    assert 'kinstream_serve_drafted_lists_total{space="shop"} 4.0' in page
    assert 'kinstream_serve_decided_step{learner="opml",space="shop"} 0.0' in page


def test_the_decided_model_serves_and_the_challenger_picks_although_newer_models_are_there(
    shop: Shop,
) -> None:
    first, second = shop.announce(3), shop.announce(5)
    shop.announce(9)
    shop.decide(1, first, second)
    found = shop.until(first, second)
    for query, result in zip(Q, found["results"], strict=True):
        shop.check(query, result, first, second)
    shop.decide(2, UNADAPTED, verdict=Verdict.ROLLBACK, before=first)
    found = shop.until(UNADAPTED, Version(1, 0, 9))
    shop.decide(3, UNADAPTED, verdict=Verdict.PIN, pinned=True)
    found = shop.until(UNADAPTED, None)
    assert found["gate"]["pinned"]
    for query, result in zip(Q, found["results"], strict=True):
        assert [n["id"] for n in result["neighbours"]] == shop.ranked(query, UNADAPTED, 6)
        assert all(isinstance(n["squared_distance"], float) for n in result["neighbours"])


def test_neighbours_of_items_are_drafted_too(shop: Shop) -> None:
    newest = shop.announce(7)
    shop.until(UNADAPTED, newest)
    found = shop.ask("/similar", items=NAMES[:3])
    for name, result in zip(NAMES[:3], found["results"], strict=True):
        one = shown(result)
        assert (one.serving, one.candidate) == (UNADAPTED, newest)
        query = X[NAMES.index(name)]
        first, second = (
            [other for other in shop.ranked(query, version, 7) if other != name][:6]
            for version in (UNADAPTED, newest)
        )
        wanted = draft_of("shop", result["list_id"], first, second, 6)
        assert tuple(n["id"] for n in result["neighbours"]) == wanted.items


def test_the_share_of_the_queries_is_drafted_by_vector_item_or_query_id() -> None:
    many = np.random.default_rng(8).normal(size=(200, 5)).astype(np.float32)
    with opened(0.3) as shop:
        newest = shop.announce(7)
        searcher = shop.agent.space("shop").candidate
        assert searcher is not None
        shop.agent.wait(lambda: searcher.glance().learned, "the candidate's index is built")
        found = shop.ask(vectors=many.tolist())
        drafted = [one["list_id"] is not None for one in found["results"]]
        assert drafted == [KEYS.chosen("shop", query.astype("<f4").tobytes(), 0.3) for query in many]
        assert 30 < sum(drafted) < 90
        for query, result in zip(many, found["results"], strict=True):
            if result["list_id"] is None:
                assert [n["id"] for n in result["neighbours"]] == shop.ranked(query, UNADAPTED, 6)
            else:
                shop.check(query, result, UNADAPTED, newest)
        named = shop.ask("/similar", items=NAMES)
        assert [one["list_id"] is not None for one in named["results"]] == [
            KEYS.chosen("shop", b"item/" + name.encode(), 0.3) for name in NAMES
        ]
        for number in range(20):
            chosen = KEYS.chosen("shop", f"id/session-{number}".encode(), 0.3)
            answer = shop.ask(query_id=f"session-{number}")
            assert [one["list_id"] is not None for one in answer["results"]] == [chosen] * 4
            assert (answer["candidate"] is not None) is chosen


def test_items_that_come_and_go_are_in_both_indexes(shop: Shop) -> None:
    newest = shop.announce(7)
    shop.until(UNADAPTED, newest)
    shop.agent.events.append(items("shop", ["new"], Q[:1]), items("shop", [], X[:0], tuple(NAMES[:30])))
    found = shop.until(UNADAPTED, newest)
    seen = {n["id"] for result in found["results"] for n in result["neighbours"]}
    assert not seen & set(NAMES[:30])
    assert found["results"][0]["neighbours"][0]["id"] == "new"


def test_a_decided_model_that_is_missing_leaves_the_space_un_adapted_and_says_so(shop: Shop) -> None:
    shop.announce(9)
    shop.decide(1, Version(1, 0, 4))
    shop.agent.wait(lambda: bool(shop.ask()["gate"]["missing"]), "it was tried")
    found = shop.ask()
    assert version_of(found["model"]) == UNADAPTED and found["candidate"] is None
    (space,) = shop.client.get("/spaces").json()["spaces"]
    assert space["behind"] and space["gate"]["missing"]
    gone = Version(1, 0, 4)
    shop.learners[gone] = linear(5, 4)
    shop.agent.announced.announce("shop", shop.learners[gone], 4)
    shop.until(gone, Version(1, 0, 9))


def test_updates_under_a_gate_are_refused_with_the_fix() -> None:
    space = {"learner": "opml", "index": "lazy", "updates": True}
    sections = {"serve": {"spaces": {"docs": space}}, "gate": {"docs": {}}, "gate_key": SECRET}
    settings = Settings.model_validate(sections | {"kafka": {"bootstrap_servers": "127.0.0.1:1"}})
    with pytest.raises(
        SettingsError, match=r"serve\.spaces\.docs: updates follow the newest model, and \[gate\.docs\]"
    ):
        Service(settings)
