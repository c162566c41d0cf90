"""A fuzzer drives the gateway by its own schema, while models change and the store comes and goes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from numpy.typing import NDArray
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection

from kinstream.search.stores.base import StoreHits
from kinstream.streams.records.gate import UNADAPTED, Version
from tests.gate.gates import decision
from tests.search.store_service import Gateway, Memory, bilinear, running, section, served
from tests.search.test_openapi import CHECKS

OPERATIONS = (("/search", "POST"), ("/map", "POST"), ("/spaces", "GET"))
MODELS = 40


class Remembering(Memory):
    """A store that names each of its answers, and keeps what it was asked with."""

    def __init__(self, names: list[str], X: NDArray[Any]) -> None:
        super().__init__(names, X)
        self.of: dict[str, NDArray[np.float32]] = {}
        self._next = itertools.count()

    def search(self, queries: NDArray[np.float32], k: int, where: Any) -> StoreHits:
        found = super().search(queries, k, where)
        version = str(next(self._next))
        self.of[version] = queries
        return found._replace(version=version)


@pytest.fixture(scope="module")
def store() -> Remembering:
    # One dimension, so that many of the generated requests are answered.
    return Remembering([str(n) for n in range(20)], np.random.default_rng(2).normal(size=(20, 1)))


@pytest.fixture(scope="module", params=["newest", "gate"])
def gateway(request: pytest.FixtureRequest, store: Remembering) -> Iterator[Gateway]:
    gate = {"docs": {"share": 0.5}} if request.param == "gate" else None
    with running({"docs": section()}, create=lambda *_: store, gate=gate) as found:
        yield found


@pytest.fixture(scope="module")
def url(gateway: Gateway) -> Iterator[str]:
    with served(gateway) as found:
        yield found


@pytest.fixture(scope="module")
def api(url: str) -> Any:
    return schemathesis.openapi.from_url(f"{url}/openapi.json")


@pytest.fixture
def restless(gateway: Gateway, store: Remembering) -> Iterator[None]:
    """Models change, and the store comes and goes, all the while."""
    stop = threading.Event()
    first = max((key[3] for key in gateway.announced.learners), default=0)

    def change() -> None:
        for step in itertools.count(first + 1):
            gateway.announced.announce("docs", bilinear(1, step % MODELS), step)
            # Read only by a gateway with a gate: an older model serves, or none, or one that never was.
            older = Version(1, 0, max(1, step - 3))
            decided = {1: UNADAPTED, 2: Version(1, 0, step + 1_000)}.get(step % 6, older)
            gateway.announced.decisions.take(decision(step, decided))
            if stop.wait(0.03):
                return
            store.away = None if store.away or step % 5 else "fetching coffee"

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)
        store.away = None
        gateway.wait(lambda: gateway.service.ready, "ready again")


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
@pytest.mark.usefixtures("restless")
def test_every_answer_is_in_the_schema_and_of_one_model(
    api: Any, url: str, gateway: Gateway, store: Remembering, path: str, method: str, mode: GenerationMode
) -> None:
    if path == "/spaces" and not mode.is_positive:
        mode = GenerationMode.POSITIVE  # it takes nothing that could be wrong
    operation = api[path][method]
    seen: list[int] = []
    named = set()
    drafts: list[int] = []
    # A store that is away answers 503, which announces itself and is no error of the gateway.
    checks = [check for check in CHECKS if check.__name__ != "not_a_server_error"]

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=60,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def drive(case: Any) -> None:
        before = len(store.of)
        answer = case.call()
        away = answer.status_code == 503
        case.validate_response(
            answer, checks=[one for one in checks if not (away and one is negative_data_rejection)]
        )
        seen.append(answer.status_code)
        assert answer.status_code != 500
        if answer.status_code == 200 and path in ("/search", "/map"):
            named.add(check(answer.json(), case.body, before))

    def check(answer: dict[str, Any], body: dict[str, Any], before: int) -> int:
        """The step of the model that serves; the store had been asked so often before."""
        model = answer["model"]
        rows = np.atleast_2d(np.array(body["vectors"], np.float32))
        asked = store.of[answer["store"]["version"]] if path == "/search" else np.array(answer["vectors"])
        np.testing.assert_allclose(asked, rows @ map_of(model), rtol=1e-5, atol=1e-30)
        if gateway.space("docs").gated is None:
            assert len(asked) == len(rows) and "candidate" not in answer and "gate" not in answer
            assert path == "/map" or len(store.of) == before + 1
        elif path == "/search":
            chosen = [row for row, one in enumerate(answer["results"]) if one["list_id"] is not None]
            assert (answer["candidate"] is not None) == bool(chosen)
            drafts.append(len(chosen))
            if chosen:
                wanted = rows[chosen] @ map_of(answer["candidate"])
                own = int(answer["store"]["version"])
                (others,) = (store.of[str(n)] for n in range(before, len(store.of)) if n != own)
                np.testing.assert_allclose(others, wanted, rtol=1e-5, atol=1e-30)
        return int(model["step"])

    def map_of(model: dict[str, Any]) -> NDArray[Any]:
        if not model["adapted"]:
            return np.eye(1)
        assert model["digest"] == f"{model['step']:064x}"
        return np.asarray(gateway.announced.learners["docs", 1, 0, model["step"]].W)

    drive()
    assert seen
    if mode.is_positive:
        assert 200 in seen
        if path != "/spaces":
            # Most of what is generated is refused, so a change of models may fall between two answers.
            for number in range(40):
                body = {"vectors": [[number + 1.0], [-0.5 * number - 1.0]]}
                before = len(store.of)
                answer = httpx.post(url + path, json=body, timeout=10)
                assert answer.status_code in (200, 503)
                if answer.status_code == 200:
                    named.add(check(answer.json(), body, before))
        assert path == "/spaces" or len(named) > 1
        if path == "/search" and gateway.space("docs").gated is not None:
            assert any(drafts) and not all(drafts)
    else:
        assert any(status >= 400 for status in seen)
