"""Whatever an update record or a catalogue record holds: it is left out and counted, and the feeds go on."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kinstream.search.spaces.searcher import Searcher
from kinstream.search.updates.feed import UpdatesFeed
from kinstream.search.updates.follow import Stepping
from kinstream.search.updates.replica import At, MapReplica
from kinstream.streams.records.codec.codec import encode
from kinstream.streams.records.message import Message
from kinstream.streams.records.values import Action, ModelUpdate
from tests.search.index_service import SHOP, TOPIC, Agent, control, items, linear, running
from tests.support.pipeline import settings

UPDATE = ModelUpdate(
    "shop", "lego", 1, 0, "c", 0, 5, 10, 12, True, 0, 1, 2, 1, 0, 0, np.ones((2, 1)), np.ones((1, 2)), 5
)


class Record:
    """A record as a consumer gives it."""

    def __init__(self, value: bytes | None, offset: int = 3) -> None:
        self._value, self._offset = value, offset

    def error(self) -> None:
        return None

    def key(self) -> bytes:
        return b"shop"

    def value(self) -> bytes | None:
        return self._value

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset


def test_bytes_of_updates_that_are_mutated_are_given_on_or_counted() -> None:
    rng, whole, sent = np.random.default_rng([17, 1]), encode(UPDATE), 300
    stepping = Stepping("shop", "lego")
    feed = UpdatesFeed(settings(), ["shop"], stepping.give)
    for _ in range(sent):
        data = bytearray(whole)
        for at in rng.integers(0, len(data), int(rng.integers(1, 5))):
            data[at] = rng.integers(256)
        feed._take(Record(bytes(data[: rng.integers(len(data) // 2, len(data) + 1)])))
    feed._take(Record(None))
    assert feed.read + feed.unreadable == sent + 1 and feed.unreadable > sent // 3


def test_an_update_that_fails_on_its_way_is_logged_with_its_place_and_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(update: ModelUpdate) -> None:
        raise AssertionError("our own")

    feed = UpdatesFeed(settings(), ["shop"], broken)
    feed._take(Record(encode(UPDATE), 41))
    assert (feed.read, feed.unreadable) == (0, 1)
    assert "partition 0 offset 41" in caplog.text and "Traceback" in caplog.text


def test_an_update_after_which_the_map_is_not_finite_is_of_no_use() -> None:
    import zlib

    replica = MapReplica("shop", "lego")
    replica.announce(At(1, 0, 10), np.eye(2))
    U, V = np.full((2, 1), 1e200), np.full((1, 2), 1e200)
    check = zlib.crc32(V.tobytes(), zlib.crc32(U.tobytes()))
    assert replica.take(replace(UPDATE, U=U, V=V, check=check)) == []
    assert replica.unusable == 1 and replica.behind
    assert (replica.map == np.eye(2)).all()


def test_updates_that_come_faster_than_they_are_taken_are_bounded_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kinstream.search.updates.follow.MAX_WAITING_BYTES", 10_000)
    stepping = Stepping("shop", "lego")
    for _ in range(100):
        stepping.give(UPDATE)
    assert 0 < len(stepping._waiting) < 10
    assert stepping.left_out == 100 - len(stepping._waiting)


@pytest.mark.long
def test_a_space_whose_updates_fail_is_followed_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """One update that raises ends no thread: announced models go on to serve."""
    spaces = {"shop": {"learner": "opml", "index": "lazy", "updates": True}}
    with running(spaces=spaces) as agent:
        agent.events.append(items("shop", ["a", "b"], np.eye(2)))
        served = agent.space("shop")
        failed = threading.Event()
        whole = Stepping.advance

        def broken(self: Stepping, *arguments: Any) -> None:
            if not failed.is_set():
                failed.set()
                raise FloatingPointError("an update")
            whole(self, *arguments)

        monkeypatch.setattr(Stepping, "advance", broken)
        agent.wait(failed.is_set, "an update fails")
        agent.announced.announce("shop", linear(2, 1), 7)
        agent.wait(lambda: served.searcher.standing().model.step == 7, "the newest model serves")
        assert served.searcher.counts["failed"] == 1


# ---- the catalogue ----------------------------------------------------------------------------------------------


def message(value: bytes | None, offset: int) -> Message:
    return Message(TOPIC, 0, offset, 1, b"shop", value, (), offset - 1)


@pytest.mark.long
def test_bytes_of_items_that_are_mutated_are_applied_or_refused() -> None:
    agent, rng = Agent(**SHOP), np.random.default_rng([17, 2])
    reader = agent.events.reader
    whole = [
        encode(items("shop", ["a", "b"], np.eye(2), ("c",))),
        encode(control("shop", Action.PAUSE)),
        b'{"kind": "item", "space": "shop", "id": "a", "vector": [1, 2]}',
    ]
    sent = 600
    for offset in range(sent):
        data = bytearray(whole[offset % len(whole)])
        for at in rng.integers(0, len(data), int(rng.integers(1, 4))):
            data[at] = rng.integers(256)
        found = reader.step(message(bytes(data), offset))
        if found is not None:
            agent.indexes._apply("shop", [found])
    assert reader.next_offset == sent and sum(reader.refused().values()) > sent // 3
    assert reader.failed == 0


def test_a_record_on_which_the_machine_fails_is_left_out_with_its_place(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with running(**SHOP) as agent:
        machine = agent.events.reader._machine

        def broken(message: Message) -> None:
            raise IndexError("our own")

        with monkeypatch.context() as patch:
            patch.setattr(machine, "_dispatch", broken)
            agent.events.append(items("shop", ["lost"], np.ones((1, 2))))
        agent.events.append(items("shop", ["kept"], np.ones((1, 2))))
        assert agent.events.reader.failed == 1 and agent.service.failure is None
        assert agent.space("shop").searcher.standing().items == 1
    assert f"{TOPIC} partition 0 offset 0: left out" in caplog.text


def test_a_model_that_cannot_map_the_items_stops_no_catalogue(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        """A learner that maps nothing."""

        algorithm, dimension = "opml/1", 2

        def transform(self, X: Any) -> Any:
            raise ValueError("no map")

    two = {"spaces": {"shop": {"learner": "opml"}, "other": {"learner": "opml"}}}
    with running(**two) as agent:
        agent.announced.announce("shop", Broken(), 1)
        shop: Searcher = agent.space("shop").searcher
        agent.wait(lambda: agent.space("shop").subscription.model.learned, "the model is loaded")
        agent.events.append(items("shop", ["a"], np.ones((1, 2))), items("other", ["b"], np.ones((1, 2))))
        agent.wait(lambda: shop.counts["failed"] > 0, "it fails")
        assert agent.space("other").searcher.standing().items == 1
        assert agent.service.failure is None
        # The next model serves, with all items.
        agent.announced.announce("shop", linear(2, 1), 2)
        agent.wait(lambda: shop.ready and shop.standing().model.step == 2, "the next model serves")
        agent.events.append(items("shop", ["c"], np.ones((1, 2))))
        assert len(shop.search(np.ones((1, 2), np.float32), 5).names[0]) == 2


def test_faults_are_on_the_metrics_page() -> None:
    from prometheus_client import generate_latest

    from kinstream.search.service.metrics import ServiceMetrics

    agent = Agent(spaces={"shop": {"learner": "opml", "index": "lazy", "updates": True}})
    agent.events.reader.failed = 2
    stepping = agent.space().stepping
    assert stepping is not None
    stepping.dropped = 3
    agent.space("shop").subscription.failures["fault"] = 4
    page = generate_latest(ServiceMetrics(agent.service).registry).decode()
    assert 'kinstream_serve_records_total{fate="failed",partition="0"} 2.0' in page
    assert 'kinstream_serve_update_records_total{fate="left_out"} 3.0' in page
    assert 'kinstream_serve_model_failures_total{learner="opml",reason="fault",space="shop"} 4.0' in page
