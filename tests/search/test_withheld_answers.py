"""Services that serve an earlier model, because the newest one is withheld, say so."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinstream.search.models.choice import Announcement, Choice
from kinstream.search.models.model import Name
from kinstream.search.models.model_copies import KeptModels
from kinstream.search.models.models_of_gate import Held
from kinstream.search.models.topic import TopicSource
from kinstream.search.service.service import Service
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.gate import UNADAPTED
from kinstream.streams.records.values import ModelVersion
from kinstream.streams.records.withheld import Withheld
from kinstream.streams.settings import CheckpointSettings, Settings
from tests.search import index_service, store_service

NOTE = Withheld(1, 0, 9, 0.031, 1_240)
TEXT = "withheld, 1.0.9: 0.031 worse than the best un-learned metric on 1240 held-out events"
X = np.random.default_rng(3).normal(size=(20, 4)).astype(np.float32)


def ask(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def withhold(feed: Any, space: str, learner: str, note: Withheld | None) -> None:
    feed.subscribe(space, learner).choice.note(note)


def test_the_gateway_says_it_in_answers_and_when_it_is_ready() -> None:
    store = store_service.Memory([f"doc-{n}" for n in range(20)], X)
    gateway = store_service.Gateway({"docs": store_service.section()}, create=lambda *_: store)
    gateway.service.start()
    try:
        gateway.wait(lambda: gateway.service.ready, "ready")
        gateway.announced.announce("docs", store_service.bilinear(4, 3), 5)
        gateway.settle()
        with store_service.served(gateway) as url:
            asked = {"space": "docs", "vectors": X[0].tolist(), "k": 3}
            answers = [("/search", asked), ("/map", {"space": "docs", "vectors": X[0].tolist()})]
            assert not any("withheld" in ask(url + path, body) for path, body in answers)
            assert "notes" not in ask(url + "/readyz")
            withhold(gateway.service.models, "docs", store_service.LEARNER, NOTE)
            for path, body in answers:
                found = ask(url + path, body)
                assert found["withheld"] == NOTE._asdict() and found["model"]["step"] == 5
            assert ask(url + "/spaces")["spaces"][0]["withheld"]["step"] == 9
            ready = ask(url + "/readyz")
            (text,) = ready["notes"]
            assert ready["status"] == "ok" and text.endswith(TEXT)
            # It is announced after all.
            gateway.announced.announce("docs", store_service.bilinear(4, 4), 9)
            gateway.settle()
            assert "withheld" not in ask(url + "/search", asked) and "notes" not in ask(url + "/readyz")
    finally:
        gateway.service.stop()
    assert isinstance(gateway.service, Service)


def test_the_query_agent_says_it_in_answers_and_when_it_is_ready() -> None:
    with index_service.running(**index_service.SHOP) as agent:
        agent.events.append(index_service.items("shop", ["a", "b"], np.eye(2)))
        agent.announced.announce("shop", index_service.linear(2, 1), 5)
        agent.settle()
        with index_service.served(agent) as url:
            asked = {"space": "shop", "vectors": [1.0, 0.0], "k": 1}
            assert "withheld" not in ask(url + "/search", asked)
            withhold(agent.service.models, "shop", "opml", NOTE)
            answers = [
                ask(url + "/search", asked),
                ask(url + "/map", {"space": "shop", "vectors": [1.0, 0.0]}),
            ]
            assert all(one["withheld"] == NOTE._asdict() and one["model"]["step"] == 5 for one in answers)
            assert ask(url + "/spaces")["spaces"][0]["withheld"]["of"] == 1_240
            (text,) = ask(url + "/readyz")["notes"]
            assert text.endswith(TEXT)


@pytest.mark.parametrize(
    ("announced", "told"),
    [([], True), ([5], True), ([5, 9], False), ([10], False)],
)
def test_a_note_counts_until_that_model_or_a_newer_one_is_announced(announced: list[int], told: bool) -> None:
    def version(step: int) -> ModelVersion:
        return ModelVersion("s", "l", "a", 1, 0, step, "t", 0, step, "x", "0" * 64, 1)

    for first in (True, False):
        choice = Choice()
        choice.note(NOTE if first else Withheld(1, 0, 7))
        for step in announced:
            choice.take(version(step))
        choice.note(NOTE)
        choice.note(Withheld(1, 0, 7))
        choice.note(None)
        assert choice.withheld == (NOTE if told else None)
    assert Announcement(version(5), "x").withheld is None
    # Another generation, or epoch, that is announced ends it as well.
    choice.take(ModelVersion("s", "l", "a", 2, 0, 0, "t", 0, 1, "x", "0" * 64, 1))
    assert choice.withheld is None


class Record:
    def __init__(self, headers: Any) -> None:
        self._headers = headers

    def error(self) -> None: ...
    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 0

    def value(self) -> bytes:
        return encode(ModelVersion("s", "l", "a", 1, 0, 5, "t", 0, 5, "x", "0" * 64, 1))

    def headers(self) -> Any:
        return self._headers


def test_the_topic_s_headers_are_read_and_a_wrong_one_is_counted() -> None:
    source = TopicSource(Settings(), identify=lambda: None)
    found = source._read(Record([("traceparent", b"x"), NOTE.header()]))
    assert found is not None and found.withheld == NOTE
    nothing: list[Any] = [None, []]
    for headers in nothing:
        plain = source._read(Record(headers))
        assert plain is not None and plain.withheld is None
    assert source._read(Record([("withheld", b"{")])) is None and source.unreadable == 1


def test_a_service_that_starts_deletes_no_copy_before_it_knows_all_decisions(tmp_path: Path) -> None:
    """Its decision may name that copy, and is not read yet."""
    kept: list[Any] = []

    class Copies(KeptModels):
        def keep(self, version: ModelVersion, serves: bool = False) -> None: ...

        def prune(self, needed: Any) -> None:
            kept.append(set(needed))

    settings = Settings(checkpoints=CheckpointSettings(url=str(tmp_path)))
    store = store_service.Memory(["a"], X[:1])
    gateway = store_service.Gateway({"docs": store_service.section()}, create=lambda *_: store)
    feed = gateway.service.models
    assert feed is not None
    held = Held(
        feed.subscribe("docs", store_service.LEARNER),
        gateway.announced,
        lambda known, name: None,
        Copies(settings, "docs", store_service.LEARNER),
        feed._changed,
        lambda: 1_000.0,
    )
    gateway.announced.announce("docs", store_service.bilinear(4, 3), 5)
    while held.subscription.serving.name != Name(1, 0, 5):
        feed.step()
    held.advance(None, UNADAPTED, complete=False)
    assert held.candidate is not None and kept == []
    held._copied = frozenset()
    held.advance(None, UNADAPTED, complete=True)
    assert kept == [{Name(1, 0, 5)}]
