"""`kinstream check` and `status` on brokers that lack something: a source's topic, topic settings, a coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kinstream.cli.system import overview
from kinstream.cli.system.check_result import Finding
from kinstream.cli.system.checks import findings
from kinstream.streams.configuration.sources import SourceSettings
from kinstream.streams.errors import BrokerUnavailable
from kinstream.streams.kafka import broker_errors
from kinstream.streams.kafka.broker_errors import coordinated
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.embedded_broker import EmbeddedBroker
from kinstream.streams.operations.checkpoints import agents
from kinstream.streams.settings import KafkaSettings, Settings
from tests.golden.write_agents import CHECKPOINTS, config
from tests.kafka.broker import KafkaBroker, reserve_port

SOURCE = {
    "topic": "shop.orders",
    "kind": "samples",
    "space": "s",
    "fields": {"vector": "vector", "label": "label"},
}


@pytest.fixture(scope="module")
def brokers() -> Iterator[str]:
    broker = EmbeddedBroker(Settings())
    yield broker.bootstrap_servers
    broker.close()


def settings_at(brokers: str, folder: Path) -> Settings:
    return Settings.model_validate(
        {
            "kafka": {"bootstrap_servers": brokers},
            "checkpoints": {"url": str(folder)},
            "sources": {"orders": SOURCE},
            "builders": {"one-pass": {"kind": "one-pass"}},
            "learners": {"opml": {"kind": "opml", "from": ["one-pass"]}},
        }
    )


def checked(settings: Settings) -> dict[str, Finding]:
    return {one.about: one for one in findings(settings)}


def test_the_embedded_broker_is_no_fault(brokers: str, tmp_path: Path) -> None:
    found = checked(settings_at(brokers, tmp_path))
    assert [one.about for one in found.values() if not one.good] == ["source-orders"]
    assert found["topics"].text == "the embedded broker makes them; it has no settings of topics to compare"


def test_the_embedded_broker_has_the_topics_that_sources_read(tmp_path: Path) -> None:
    wanted = settings_at("", tmp_path)
    broker = EmbeddedBroker(wanted)
    try:
        assert checked(settings_at(broker.bootstrap_servers, tmp_path))["source-orders"].good
    finally:
        broker.close()


def test_a_source_whose_topic_is_missing_is_a_fault_until_it_exists(brokers: str, tmp_path: Path) -> None:
    settings = settings_at(brokers, tmp_path)
    found = checked(settings)["source-orders"]
    assert not found.good
    assert found.text.startswith("topic shop.orders does not exist: source-orders reads it")
    cluster = Cluster(settings.kafka)
    try:
        # A request for one topic creates it there.
        cluster.topic_id("shop.orders")
    finally:
        cluster.close()
    assert checked(settings)["source-orders"].good


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"message.timestamp.type": "CreateTime"}, True),
        ({"message.timestamp.type": "CreateTime", "message.timestamp.after.max.ms": "3600000"}, True),
        ({"message.timestamp.type": "CreateTime", "message.timestamp.after.max.ms": "300000"}, False),
        ({"message.timestamp.type": "LogAppendTime"}, False),
        ({}, False),
    ],
)
def test_a_topic_whose_writers_stamp_the_records_that_close_lists_is_told(
    brokers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, str], said: bool
) -> None:
    settings = settings_at(brokers, tmp_path)
    cluster = Cluster(settings.kafka)
    try:
        cluster.topic_id("shop.orders")
    finally:
        cluster.close()
    shop: dict[str, dict[str, Any]] = {
        "orders": SOURCE,
        "ubi": {"topic": "shop.orders", "preset": "ubi", "space": "s"},
    }
    settings = settings.model_copy(update={"sources": {n: SourceSettings(**v) for n, v in shop.items()}})
    monkeypatch.setattr(Cluster, "config_of", lambda *_: config)
    found = checked(settings)
    # It is another system's topic, and no fault.
    assert found["source-ubi"].good
    assert ("the writers of shop.orders stamp its records" in found["source-ubi"].text) == said
    assert "stamp" not in found["source-orders"].text


# ---- coordinators -----------------------------------------------------------------------------------------------


def failing(*codes: int) -> Callable[[], str]:
    """A request that fails with these errors, one after the other, and then is answered."""
    left = list(codes)

    def request() -> str:
        if left:
            raise KafkaException(KafkaError(left.pop(0)))
        return "answer"

    return request


NOT_YET = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._TIMED_OUT,
    KafkaError._WAIT_COORD,
)


@pytest.mark.parametrize("code", NOT_YET)
def test_a_request_about_a_group_waits_for_its_coordinator(
    code: int, brokers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_errors, "_AGAIN_SECONDS", 0.01)
    kafka = KafkaSettings(bootstrap_servers=brokers)
    cluster = Cluster(kafka)
    try:
        assert coordinated(kafka, cluster.admin, "g", failing(code, code, code)) == "answer"
        monkeypatch.setattr(broker_errors, "COORDINATOR_SECONDS", 0.05)
        with pytest.raises(BrokerUnavailable) as caught:
            coordinated(kafka, cluster.admin, "g", failing(*[code] * 1_000))
        assert str(caught.value).startswith(
            f"The brokers at {brokers} answer, but none coordinates the group g yet: try again in a minute"
        )
        with pytest.raises(KafkaException):
            coordinated(kafka, cluster.admin, "g", failing(KafkaError.GROUP_AUTHORIZATION_FAILED))
    finally:
        cluster.close()


def test_a_request_that_nobody_answers_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with reserve_port() as reserved:
        kafka = KafkaSettings(bootstrap_servers=f"127.0.0.1:{reserved.getsockname()[1]}")
        cluster = Cluster(kafka)
        try:
            with pytest.raises(KafkaException):
                coordinated(kafka, cluster.admin, "g", failing(KafkaError._TIMED_OUT))
        finally:
            cluster.close()


@pytest.mark.kafka
@pytest.mark.long
def test_a_new_broker_has_no_members_of_a_group(tmp_path: Path) -> None:
    with KafkaBroker(tmp_path) as broker:
        cluster = Cluster(KafkaSettings(bootstrap_servers=broker.bootstrap))
        try:
            assert cluster.member_ids("g") == []
        finally:
            cluster.close()


# ---- status -----------------------------------------------------------------------------------------------------


class Quiet:
    """A cluster in which every partition ends where its checkpoint does."""

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        return 0, 0

    def group_members(self, group: str) -> int:
        return 1


def test_the_age_of_a_checkpoint_is_since_the_agent_last_wrote_one(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config(CHECKPOINTS)
    agent = next(one for one in agents(settings) if one.application == "learner-opml")
    # Partition 1 has been idle for a day.
    written = {0: 1_000_000_000, 1: 1_000_000_000 - 86_400_000}
    both = [
        SimpleNamespace(manifest=SimpleNamespace(partition=partition, written_ms=at, offset=0))
        for partition, at in written.items()
    ]
    monkeypatch.setattr(overview, "checkpoints", lambda *_: both)
    cluster: Any = Quiet()
    state = overview._agent(cluster, settings, agent, 1_000_030.0, embedded=False)
    assert (state.checkpoint_seconds, state.members) == (30.0, 1)
    # The embedded broker knows no groups: that nobody is in one would mean that nothing runs.
    state = overview._agent(cluster, settings, agent, 1_000_030.0, embedded=True)
    assert state.members is None and overview.Overview([state], [], [], None).complete
