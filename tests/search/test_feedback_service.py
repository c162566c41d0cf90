"""The service writes what it has shown, without waiting, and takes feedback, which is written when it says so."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import booleans
from schemathesis import GenerationMode

from kinstream.gate.lists.list_id import mark_of
from kinstream.gate.lists.plain_id import known, plain_id
from kinstream.search.feedback import writer as writing
from kinstream.streams.errors import SettingsError
from kinstream.streams.settings import Settings
from tests.gate.gates import KEYS, SECRET
from tests.search.brokers import Brokers, writer_to
from tests.search.store_service import Gateway, Memory, bilinear, section, served
from tests.search.test_openapi import CHECKS
from tests.support.processes import until

X = np.random.default_rng(4).normal(size=(60, 5)).astype(np.float32)
NAMES = [f"item-{n}" for n in range(60)]
Q = np.random.default_rng(5).normal(size=(3, 5)).astype(np.float32)


class Recording:
    """A gateway that records, its brokers, and a client."""

    def __init__(self, gateway: Gateway, brokers: Brokers, client: httpx.Client) -> None:
        self.gateway, self.brokers, self.client = gateway, brokers, client

    def ask(self, rows: Any = Q, **more: Any) -> list[dict[str, Any]]:
        answer = self.client.post("/search", json={"vectors": np.asarray(rows).tolist(), "k": 4, **more})
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["results"]
        return found

    def tell(self, *feedback: dict[str, Any]) -> httpx.Response:
        return self.client.post("/feedback", json={"feedback": list(feedback)})

    def count(self, series: str) -> float:
        lines = self.client.get("/metrics").text.splitlines()
        return sum(
            float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"kinstream_serve_{series}")
        )

    def wait_for(self, number: int) -> None:
        until(lambda: len(self.brokers.records) >= number, "the brokers have them", 10.0, every=0.002)


@contextmanager
def recording(record: Any = True, gate: dict[str, Any] | None = None, **limits: Any) -> Iterator[Recording]:
    brokers = Brokers()
    gateway = Gateway(
        {"docs": section(record=record)},
        create=lambda *_: Memory(NAMES, X),
        gate=gate,
        writer=writer_to(brokers),
        **limits,
    )
    gateway.service.start()
    try:
        gateway.wait(lambda: gateway.service.ready, "ready")
        with served(gateway) as url, httpx.Client(base_url=url, timeout=30) as client:
            yield Recording(gateway, brokers, client)
    finally:
        gateway.service.stop()


@pytest.fixture
def service() -> Iterator[Recording]:
    with recording() as found:
        yield found


def items_of(result: dict[str, Any]) -> tuple[str, ...]:
    return tuple(one["id"] for one in result["neighbours"])


def test_every_list_is_written_as_it_was_shown(service: Recording) -> None:
    results = service.ask(session="s-1", user="u-1")
    service.wait_for(3)
    assert [one.list_id for one in service.brokers.shown] == [one["list_id"] for one in results]
    assert [one.items for one in service.brokers.shown] == [items_of(one) for one in results]
    for one, row in zip(service.brokers.shown, Q, strict=True):
        assert (one.space, one.session, one.user, one.clicks) == ("docs", "s-1", "u-1", ())
        assert one.query_vector[0].vectors.tolist() == [row.tolist()]
        found = known(KEYS, "docs", one.list_id)
        assert found is not None and found.time_ms == one.shown_at_ms
        assert found.marks == tuple(mark_of("docs", item) for item in one.items)
    key, _, headers = service.brokers.records[0]
    assert (key, headers) == (b"docs", {"kinstream-model": b"un-adapted"})
    assert service.count("recorded_lists_total") == 3
    # Measures are shown: these lists are as they were found.
    assert all(one["similarity"] is not None for result in results for one in result["neighbours"])


def test_of_a_share_only_the_written_lists_have_an_id() -> None:
    with recording(0.5) as service:
        results = [one for _ in range(40) for one in service.ask()]
        named = [one["list_id"] for one in results if one["list_id"] is not None]
        service.wait_for(len(named))
        assert 30 < len(named) < 90
        assert sorted(one.list_id for one in service.brokers.shown) == sorted(named)


def test_a_drafted_list_is_always_written() -> None:
    with recording(1e-9, gate={"docs": {"share": 1.0}}) as service:
        gateway = service.gateway
        gateway.announced.announce("docs", bilinear(5, 3), 3)
        gateway.settle()
        gateway.wait(lambda: service.ask()[0]["list_id"] is not None, "drafted")
        (drafted,) = service.ask(Q[:1])
        assert drafted["list_id"].startswith("ki1.")
        until(lambda: drafted["list_id"] in [one.list_id for one in service.brokers.shown], "written", 10.0)
        answer = service.tell({"list_id": drafted["list_id"], "item": items_of(drafted)[0]})
        assert (answer.status_code, answer.json()) == (200, {"space": "docs", "written": 1})
        assert (
            service.tell({"list_id": drafted["list_id"], "item": "strange"}).json()["reason"]
            == "unknown-item"
        )


def test_feedback_is_written_as_it_is_meant(service: Recording) -> None:
    (result,) = service.ask(Q[:1])
    name, first, second = result["list_id"], *items_of(result)[:2]
    answer = service.tell(
        {"list_id": name, "item": first},
        {"list_id": name, "item": second, "action": "cited", "value": 0.5, "weight": 3, "key": "k"},
        {"list_id": name, "item": first, "retract": True},
        {"list_id": name, "outcome": 0.25},
        {"list_id": name, "retract": True, "key": "2"},
    )
    assert answer.json() == {"space": "docs", "written": 5}
    found = [(one.item, one.action, one.weight, one.key, one.retract) for one in service.brokers.feedback]
    assert found == [
        (first, None, 1.0, "", False),
        (second, "cited", 1.5, "k", False),
        (first, None, 1.0, "", True),
        (None, None, 0.25, "", False),
        (None, None, 0.0, "2", True),
    ]
    assert abs(service.brokers.feedback[0].time_ms - time.time() * 1000) < 60_000
    assert service.count('feedback_total{fate="written"') == 5


def _late() -> str:
    return plain_id(KEYS, "docs", NAMES[:4], time_ms=int(time.time() * 1000) - 31 * 60_000, nonce=b"nonce.")


@pytest.mark.parametrize("forged", ["x", "ki3.AAAA", "ki1.AAAA", "changed", "of another space"])
def test_a_forged_id_is_refused_and_counted(service: Recording, forged: str) -> None:
    (result,) = service.ask(Q[:1])
    name: str = result["list_id"]
    if forged == "changed":
        forged = name[:6] + ("A" if name[6] != "A" else "B") + name[7:]
    if forged == "of another space":
        forged = plain_id(KEYS, "shop", NAMES[:4], time_ms=int(time.time() * 1000), nonce=b"nonce.")
    good = {"list_id": name, "item": items_of(result)[0]}
    answer = service.tell(good, {**good, "list_id": forged})
    assert answer.status_code == 422
    assert (answer.json()["reason"], answer.json()["place"]) == ("forged-list", "feedback[1]")
    assert not service.brokers.feedback
    assert service.count('feedback_total{fate="forged-list"') == 1


def test_an_action_on_a_late_list_can_be_taken_back_and_nothing_else_of_it(service: Recording) -> None:
    answer = service.tell({"list_id": _late(), "item": NAMES[0], "retract": True, "key": "k"})
    assert answer.status_code == 200
    (given,) = service.brokers.feedback
    assert (given.item, given.retract, given.key) == (NAMES[0], True, "k")
    for other in ({"outcome": 0.5, "retract": True}, {"item": NAMES[0]}):
        assert service.tell({"list_id": _late(), **other}).json()["reason"] == "late-list"
    strange = next(name for name in NAMES if name not in items_of(service.ask(Q[:1])[0]))
    forged = {"list_id": "x", "item": strange, "retract": True}
    assert service.tell(forged).json()["reason"] == "forged-list"
    assert len(service.brokers.feedback) == 1
    assert service.count('feedback_total{fate="written"') == 1


def test_a_late_list_and_an_item_that_it_did_not_have_are_refused_and_counted(service: Recording) -> None:
    assert service.tell({"list_id": _late(), "item": NAMES[0]}).json()["reason"] == "late-list"
    (result,) = service.ask(Q[:1])
    strange = next(name for name in NAMES if name not in items_of(result))
    assert service.tell({"list_id": result["list_id"], "item": strange}).json()["reason"] == "unknown-item"
    assert service.count('feedback_total{fate="late-list"') == 1
    assert service.count('feedback_total{fate="unknown-item"') == 1


@pytest.mark.parametrize(
    ("feedback", "place"),
    [
        ({}, "feedback[0]"),
        ({"item": "a", "outcome": 1.0}, "feedback[0].item"),
        ({"action": "cited", "outcome": 1.0}, "feedback[0].action"),
        ({"item": "a", "value": 1.5}, "feedback[0].value"),
        ({"item": "a", "weight": 101}, "feedback[0].weight"),
        ({"item": ""}, "feedback[0].item"),
        ({"item": "a", "colour": 1}, "feedback[0].colour"),
    ],
)
def test_parts_that_do_not_go_together_are_refused(
    service: Recording, feedback: dict[str, Any], place: str
) -> None:
    answer = service.tell({"list_id": "x", **feedback})
    assert (answer.status_code, answer.json()["place"]) == (422, place)


def test_answers_go_on_while_the_brokers_do_not_answer(
    service: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "MOST_SHOWN", 30)
    service.brokers.held = True
    began = time.monotonic()
    for _ in range(20):
        assert all(one["list_id"] for one in service.ask())
    assert time.monotonic() - began < 10.0
    assert service.count("dropped_lists_total") == 30
    service.brokers.error, service.brokers.held = "Local: Message timed out", False
    until(lambda: service.count("dropped_lists_total") == 60, "all are dropped", 10.0)
    service.brokers.full = True
    service.ask()
    assert (service.count("dropped_lists_total"), service.count("recorded_lists_total")) == (63, 0)
    service.brokers.error, service.brokers.full = None, False
    service.ask()
    until(lambda: service.count("recorded_lists_total") == 3, "written again", 10.0)


@pytest.mark.parametrize("how", ["error", "full"])
def test_feedback_that_is_not_acknowledged_is_not_accepted(service: Recording, how: str) -> None:
    (result,) = service.ask(Q[:1])
    service.wait_for(1)
    setattr(service.brokers, how, "Local: Message timed out" if how == "error" else True)
    answer = service.tell({"list_id": result["list_id"], "item": items_of(result)[0]})
    assert (answer.status_code, answer.json()["reason"]) == (503, "brokers")
    assert answer.headers["retry-after"] == "1"
    assert service.count('feedback_total{fate="not-written"') == 1


def test_feedback_that_waits_takes_no_thread_of_answers() -> None:
    with recording(threads=1, request_seconds=1.0) as service:
        (result,) = service.ask(Q[:1])
        service.brokers.held = True
        began = time.monotonic()
        with httpx.Client(base_url=service.client.base_url, timeout=30) as other:
            answers: list[int] = []
            body = {"feedback": [{"list_id": result["list_id"], "item": items_of(result)[0]}]}
            waiting = threading.Thread(
                target=lambda: answers.append(other.post("/feedback", json=body).status_code)
            )
            waiting.start()
            for _ in range(5):
                service.ask()
            assert not answers or time.monotonic() - began > 1.0
            waiting.join(20)
        assert answers == [504]


def test_a_producer_that_failed_for_good_is_replaced(service: Recording) -> None:
    class Fatal:
        def fatal(self) -> bool:
            return True

    service.brokers.config["error_cb"](Fatal())
    until(lambda: service.brokers.made == 2, "a new producer", 10.0)
    service.ask()
    service.wait_for(3)


def test_feedback_is_of_known_clients_and_in_the_audit_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "clients").write_text("web 4f0c9d8e2b7a6153\n")
    caplog.set_level("INFO", "kinstream.audit")
    with recording(clients_file=str(tmp_path / "clients"), audit=True, client_rate=2.0) as service:
        assert service.tell({"list_id": "x", "item": "a"}).status_code == 401
        service.client.headers["Authorization"] = "Bearer 4f0c9d8e2b7a6153"
        found = [service.tell({"list_id": "x", "item": "a"}).status_code for _ in range(20)]
        assert found[0] == 422 and 429 in found
    assert "client=web method=POST path='/feedback' space='docs' status=422" in caplog.text


def test_a_space_that_does_not_record_takes_no_feedback() -> None:
    with recording(False) as service:
        assert all("list_id" not in one for one in service.ask())
        assert service.tell({"list_id": "x", "item": "a"}).status_code == 404


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_every_answer_to_feedback_is_in_the_schema(service: Recording, mode: GenerationMode) -> None:
    (result,) = service.ask(Q[:1])
    operation = schemathesis.openapi.from_url(f"{service.client.base_url}/openapi.json")["/feedback"]["POST"]
    seen: list[int] = []

    @given(case=operation.as_strategy(generation_mode=mode), genuine=booleans())
    @settings(
        max_examples=80,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def drive(case: Any, genuine: bool) -> None:
        # No generated id is one that was signed.
        if genuine and mode.is_positive:
            case.body["space"] = "docs"
            for one in case.body["feedback"]:
                one |= {"list_id": result["list_id"], "item": items_of(result)[0], "outcome": None}
        seen.append(case.call_and_validate(checks=CHECKS).status_code)

    drive()
    assert (200 in seen) == mode.is_positive
    assert {404, 422} & set(seen) and set(seen) <= {200, 400, 404, 415, 422}


@pytest.mark.parametrize(
    ("change", "text"),
    [({"gate_key": ""}, "needs a key"), ({"sources": {}}, "nothing joins"), ({"record": 1.5}, "record")],
)
def test_settings_that_do_not_go_together_are_refused(change: dict[str, Any], text: str) -> None:
    given = {
        "gate_key": SECRET,
        "sources": {"feedback": {"topic": "kinstream.feedback", "preset": "feedback"}},
        "serve": {"spaces": {"docs": {"learner": "adapter", "record": change.pop("record", True)}}},
    }
    with pytest.raises((SettingsError, ValueError), match=text):
        Settings.model_validate({**given, **change})
