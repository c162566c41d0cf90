"""How many neighbours a service answers at once, over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
import pytest

from kinstream.search.service import neighbours
from kinstream.search.stores.base import StoreHits
from tests.search.index_service import SHOP, items
from tests.search.index_service import running as agent_running
from tests.search.index_service import served as agent_served
from tests.search.store_service import Memory, running, section, served
from tests.support.processes import SECONDS, until

X = np.eye(3, dtype=np.float32)
SMALL: dict[str, Any] = {"vectors": [[1.0, 0.0, 0.0]], "k": 10}
#: 256,000 neighbours.
LARGE: dict[str, Any] = {"vectors": [[1.0, 0.0, 0.0]] * 256, "k": 1_000}


class Slow(Memory):
    """A store that holds large requests back."""

    def __init__(self) -> None:
        super().__init__(["a", "b", "c"], X)
        self.inside, self.most = 0, 0
        self.open = threading.Event()
        self._lock = threading.Lock()

    def search(self, queries: Any, k: int, where: Any) -> StoreHits:
        if len(queries) > 1:
            with self._lock:
                self.inside += 1
                self.most = max(self.most, self.inside)
            assert self.open.wait(SECONDS)
            with self._lock:
                self.inside -= 1
        return super().search(queries, k, where)


@contextmanager
def held(**limits: Any) -> Iterator[tuple[Slow, str]]:
    store = Slow()
    limits = {"request_seconds": SECONDS, **limits}
    with running({"docs": section()}, create=lambda *_: store, **limits) as made, served(made) as url:
        try:
            yield store, url
        finally:
            store.open.set()


def ask(url: str, body: dict[str, Any], path: str = "/search") -> httpx.Response:
    return httpx.post(f"{url}{path}", json=body, timeout=SECONDS)


def test_large_requests_beyond_the_bound_come_again_and_small_ones_are_answered() -> None:
    with held(client_rate=1_000.0) as (store, url), ThreadPoolExecutor(3) as pool:
        running_ones = [pool.submit(ask, url, LARGE) for _ in range(3)]
        until(lambda: store.inside == 3, "three are asked")
        for _ in range(10):
            told = ask(url, LARGE)
            assert (told.status_code, told.json()["reason"]) == (503, "busy")
            assert told.headers["retry-after"] == "1" and "768000 neighbours" in told.json()["detail"]
            assert ask(url, SMALL).status_code == 200
            assert httpx.get(f"{url}/readyz", timeout=SECONDS).status_code == 200
        store.open.set()
        assert [one.result().status_code for one in running_ones] == [200] * 3
        assert ask(url, LARGE).status_code == 200
        assert store.most == 3
        page = httpx.get(f"{url}/metrics").text
        assert 'request_duration_seconds_count{route="/search",status="503"} 10.0' in page


def test_a_request_for_more_than_the_bound_is_answered_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours.Neighbours.__init__, "__defaults__", (100_000,))
    with held() as (store, url), ThreadPoolExecutor(1) as pool:
        alone = pool.submit(ask, url, LARGE)
        until(lambda: store.inside == 1, "it is asked")
        assert ask(url, LARGE | {"vectors": LARGE["vectors"][:2]}).status_code == 503
        assert ask(url, SMALL).status_code == 200
        store.open.set()
        assert alone.result().status_code == 200


def test_a_large_request_that_fails_leaves_its_place() -> None:
    with held() as (store, url):
        store.open.set()
        store.away = "no route"
        for _ in range(8):
            assert ask(url, LARGE).json()["reason"] == "store"
        store.away = None
        assert ask(url, LARGE).status_code == 200


def test_the_query_agent_has_the_same_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every route that asks for neighbours: an answer at once to what fits beside nothing else."""
    bodies: dict[str, Any] = {
        "/search": LARGE,
        "/similar": {"items": ["a"] * 256, "k": 1_000},
        "/similar/a": {"k": 1_000},
    }
    with agent_running(**SHOP) as agent:
        agent.events.append(items("shop", ["a", "b", "c"], X))
        agent.settle()
        with agent_served(agent) as url:
            assert [ask(url, body, path).status_code for path, body in bodies.items()] == [200] * 3
        # As if as many were being answered as may be.
        init = neighbours.Neighbours.__init__

        def full(self: Any, most: int = 0) -> None:
            init(self, most)
            self._held = 1

        monkeypatch.setattr(neighbours.Neighbours, "__init__", full)
        with agent_served(agent) as url:
            assert [ask(url, body, path).status_code for path, body in bodies.items()] == [503] * 3
            assert ask(url, SMALL).status_code == 200
