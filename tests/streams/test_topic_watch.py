"""The watch over an agent's topics: what is a finding, what is none, and what it says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from kinstream.learners.agent import learner_spec
from kinstream.streams.errors import BrokerUnavailable, GenerationMismatch
from kinstream.streams.kafka.cluster_view import TopicView
from kinstream.streams.settings import Settings
from kinstream.streams.worker.topic_watch import MISSING_SECONDS, TopicWatch, WatchedSink, WatchedTopic

INPUT, OUTPUT, MODELS = "kinstream.constraints", "kinstream.outcomes", "kinstream.models"


class Brokers:
    """What they answer; a test changes it."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicView] = {
            name: TopicView(name, f"id-{name}", 4) for name in (INPUT, OUTPUT, MODELS)
        }
        self.away = False
        self.asked = 0

    def change(self, name: str, **changes: Any) -> None:
        now = self.topics[name]
        fields = {"topic_id": now.topic_id, "partitions": now.partitions, **changes}
        self.topics[name] = TopicView(name, **fields)

    def __call__(self, names: Iterable[str]) -> Mapping[str, TopicView]:
        self.asked += 1
        if self.away:
            raise BrokerUnavailable("away")
        return {name: self.topics[name] for name in names if name in self.topics}


def _unexpected(refusal: GenerationMismatch) -> None:
    pytest.fail(str(refusal))


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
def now() -> list[float]:
    return [0.0]


@pytest.fixture
def watch(brokers: Brokers, now: list[float]) -> TopicWatch:
    settings = Settings.model_validate(
        {
            "builders": {"one-pass": {"kind": "one-pass"}},
            "learners": {"opml": {"kind": "opml", "from": ["one-pass"]}},
        }
    )
    topics = [
        WatchedTopic(INPUT, True, f"id-{INPUT}", 4),
        WatchedTopic(OUTPUT, False, f"id-{OUTPUT}", 4),
        WatchedTopic(MODELS, False),
    ]
    spec = learner_spec(settings, "opml")
    return TopicWatch(spec, topics, brokers, on_refusal=_unexpected, clock=lambda: now[0])


@pytest.mark.parametrize(
    ("name", "does", "advice"),
    [
        (INPUT, "reads", "kinstream worker learner opml --new-generation --from-start"),
        (OUTPUT, "writes", "kinstream worker learner opml --new-generation --from-start"),
        (MODELS, "writes", "Continue with the new one: kinstream worker learner opml"),
    ],
)
def test_another_id_is_a_finding_at_once(
    watch: TopicWatch, brokers: Brokers, name: str, does: str, advice: str
) -> None:
    watch.check()
    brokers.change(name, topic_id="other")
    with pytest.raises(GenerationMismatch) as caught:
        watch.check()
    assert f"topic {name}, which learner-opml {does}, was re-created" in str(caught.value)
    assert str(caught.value).endswith(advice)


def test_the_id_at_the_beginning_of_the_generation_counts_and_not_the_first_answer(
    watch: TopicWatch, brokers: Brokers
) -> None:
    brokers.change(INPUT, topic_id="other")
    with pytest.raises(GenerationMismatch):
        watch.check()


def test_no_answer_and_no_id_are_no_finding(watch: TopicWatch, brokers: Brokers) -> None:
    watch.check()
    brokers.away = True
    watch.check()
    brokers.away = False
    brokers.change(INPUT, topic_id=None)
    watch.check()


def test_a_topic_is_missing_only_when_it_stays_away(
    watch: TopicWatch, brokers: Brokers, now: list[float]
) -> None:
    kept = brokers.topics.pop(MODELS)
    watch.check()
    now[0] += MISSING_SECONDS - 1
    watch.check()
    brokers.topics[MODELS] = kept
    watch.check()
    del brokers.topics[MODELS]
    watch.check()
    now[0] += MISSING_SECONDS - 1
    watch.check()
    now[0] += 1
    told = f"topic {MODELS}, which learner-opml writes, does not exist: kinstream topics create"
    with pytest.raises(GenerationMismatch, match=told):
        watch.check()


@pytest.mark.parametrize("unknown", ["missing", "away"])
def test_a_stall_is_explained_once_the_topic_is_there_again(
    watch: TopicWatch,
    brokers: Brokers,
    now: list[float],
    unknown: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The group of a topic looks stalled as soon as the topic is deleted, and the new topic comes later."""
    watch.check()
    before = brokers.topics.pop(INPUT)
    brokers.away = unknown == "away"

    def wait(seconds: float) -> bool:
        now[0] += seconds
        if now[0] >= 3.0:
            brokers.away = False
            brokers.topics[INPUT] = TopicView(INPUT, "other", before.partitions)
        return False

    monkeypatch.setattr(watch._stop, "wait", wait)
    with pytest.raises(GenerationMismatch, match=f"topic {INPUT}, which learner-opml reads, was re-created"):
        watch.settle()
    assert now[0] == 3.0


def test_a_stall_without_another_cause_is_told_at_once_and_beside_an_outage_after_a_while(
    watch: TopicWatch, brokers: Brokers, now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(seconds: float) -> bool:
        now[0] += seconds
        return False

    monkeypatch.setattr(watch._stop, "wait", wait)
    watch.settle()
    assert (brokers.asked, now[0]) == (1, 0.0)
    brokers.away = True
    watch.settle()
    assert MISSING_SECONDS < now[0] < 2 * MISSING_SECONDS


def test_added_partitions_are_shown_with_the_command_and_stop_nothing(
    watch: TopicWatch, brokers: Brokers
) -> None:
    watch.check()
    assert watch.added == {INPUT: 0, OUTPUT: 0}
    assert watch.message is None
    brokers.change(INPUT, partitions=6)
    brokers.change(MODELS, partitions=9)
    watch.check()
    assert watch.added == {INPUT: 2, OUTPUT: 0}
    assert watch.message is not None
    assert f"{INPUT} has 6 partitions, not 4" in watch.message
    assert watch.message.endswith("kinstream topics repartition --partitions 6")


def test_a_sink_confirms_only_what_went_into_the_topics_of_the_beginning(
    watch: TopicWatch, brokers: Brokers
) -> None:
    class Sink:
        confirmed = 0

        def send(self, *record: object) -> None: ...

        def confirm(self, deadline_seconds: float) -> None:
            # After this answer the topic is another one.
            self.confirmed += 1
            brokers.change(OUTPUT, topic_id="other")

    sink = Sink()
    with pytest.raises(GenerationMismatch):
        WatchedSink(sink, watch).confirm(1.0)
    assert sink.confirmed == 1


def test_without_ids_nothing_is_asked(brokers: Brokers, watch: TopicWatch) -> None:
    blind = TopicWatch(watch._spec, [], brokers, on_refusal=_unexpected)
    blind.start()
    blind.check()
    assert brokers.asked == 0
    assert blind.added == {}
