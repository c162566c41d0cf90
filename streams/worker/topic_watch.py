"""Watches the topics of a running agent: each must keep its id, and a change in its partitions is reported.

A topic that was deleted and made again has another id. The agent's earlier outputs are gone from it, its offsets count
other records, and later outputs would belong to a generation that has ended there. So the agent stops within one round
of requests, and no checkpoint is written in between.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from kinstream.streams.agents.generations.birth import RECIPE, Birth
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.errors import BrokerUnavailable, GenerationMismatch
from kinstream.streams.kafka.broker_errors import REQUEST_SECONDS, answer_of, answers
from kinstream.streams.kafka.cluster import Cluster
from kinstream.streams.kafka.cluster_view import TopicView, topic_id
from kinstream.streams.kafka.emitter import Sink
from kinstream.streams.processes.json_lines import within
from kinstream.streams.records.identity import Headers
from kinstream.streams.settings import Settings

log = logging.getLogger("kinstream.topics")

#: Seconds between two rounds of requests.
POLL_SECONDS: Final = 5.0
#: A checkpoint waits this long for the answer, and then continues without one.
_ANSWER_SECONDS: Final = 3.0
#: A topic has to be missing this long: a broker that comes back may answer before it knows all topics.
MISSING_SECONDS: Final = 8.0

Describe = Callable[[Iterable[str]], Mapping[str, TopicView]]


def described(cluster: Cluster, names: Iterable[str]) -> dict[str, TopicView]:
    """Those of the topics that exist, by one request for them alone.

    Raises
    ------
    BrokerUnavailable : the brokers do not answer.
    """
    from confluent_kafka import KafkaException, TopicCollection

    found: dict[str, TopicView] = {}
    # As in `Cluster.nobodys`: a request that is given up stays in the client.
    if not answers(cluster.admin):
        raise BrokerUnavailable("the topics cannot be described: no broker answers")
    try:
        asked = cluster.admin.describe_topics(TopicCollection(sorted(names)), request_timeout=REQUEST_SECONDS)
        for name, future in asked.items():
            try:
                topic = answer_of(future, _ANSWER_SECONDS)
            except KafkaException as error:
                if error.args[0].name() != "UNKNOWN_TOPIC_OR_PART":
                    raise
            else:
                found[name] = TopicView(name, topic_id(topic), len(topic.partitions))
    except KafkaException as error:
        raise BrokerUnavailable(f"the topics cannot be described: {error}") from error
    return found


@dataclass(frozen=True, slots=True)
class WatchedTopic:
    """A topic of an agent.

    Parameters
    ----------
    reads : the agent reads it; otherwise the agent writes it.
    began_id : at the beginning of the generation; None if the agent uses the topic found at its start.
    began_partitions : None if their number does not matter to the agent.
    """

    name: str
    reads: bool
    began_id: str | None = None
    began_partitions: int | None = None

    @property
    def in_birth(self) -> bool:
        """Whether a generation ends with the topic."""
        return self.began_partitions is not None


def watched(spec: AgentSpec, birth: Birth, settings: Settings) -> list[WatchedTopic]:
    """All topics that an agent reads or writes."""
    found = [WatchedTopic(birth.input_topic, True, birth.input_topic_id, birth.input_partitions)]
    found += [WatchedTopic(n, False, one.topic_id, one.partitions) for n, one in birth.output_topics.items()]
    known = {one.name for one in found}
    others = spec.topics(settings)
    return [*found, *(WatchedTopic(name, False) for name in others if name not in known)]


class TopicWatch:
    """Checks the topics every few seconds on its own thread, and whenever `check` is called.

    Parameters
    ----------
    spec : the agent.
    topics : as the agent began with them. None are watched if the brokers give no ids (the embedded broker).
    describe : the topics that exist, of some; raises BrokerUnavailable.
    on_refusal : called once, from the thread, with the error that a start would raise.
    clock : monotonic, in seconds.
    """

    def __init__(
        self,
        spec: AgentSpec,
        topics: Iterable[WatchedTopic],
        describe: Describe,
        *,
        on_refusal: Callable[[GenerationMismatch], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spec = spec
        self._topics = list(topics)
        self._ids = {one.name: one.began_id for one in self._topics}
        self._describe = describe
        self._on_refusal = on_refusal
        self._clock = clock
        self._missing: dict[str, float] = {}
        self._guard = threading.Lock()
        self._stop = threading.Event()
        #: Partitions added to each topic since the generation began.
        self.added: dict[str, int] = {one.name: 0 for one in self._topics if one.in_birth}

    def start(self) -> None:
        if self._topics:
            threading.Thread(target=within(self._run), name="topics", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def check(self) -> None:
        """One round, now. An unanswered request is not a finding.

        Raises
        ------
        GenerationMismatch : a topic was re-created, or has been missing for a while; the message names it and what to
            do.
        """
        self._round()

    def settle(self) -> None:
        """Rounds until the brokers have answered one and no topic is missing, for a limited time.

        Raises
        ------
        GenerationMismatch : as in `check`.
        """
        limit = self._clock() + MISSING_SECONDS + POLL_SECONDS
        while not self._round() and self._clock() < limit and not self._stop.wait(1.0):
            pass

    def _round(self) -> bool:
        """Whether the brokers answered and every topic exists."""
        if not self._topics:
            return True
        try:
            found = self._describe([one.name for one in self._topics])
        except BrokerUnavailable as error:
            log.debug("%s", error)
            return False
        with self._guard:
            for one in self._topics:
                self._compare(one, found.get(one.name))
            return not self._missing

    @property
    def message(self) -> str | None:
        """What to do about added partitions; None if there are none."""
        grown = {name: number for name, number in self.added.items() if number}
        if not grown:
            return None
        began = {one.name: one.began_partitions or 0 for one in self._topics}
        changes = ", ".join(
            f"{name} has {began[name] + n} partitions, not {began[name]}" for name, n in grown.items()
        )
        most = max(began[name] + number for name, number in grown.items())
        return (
            f"{changes}: producers use the new ones, and this generation does not. Stop producers and workers; then "
            f"kinstream topics repartition --partitions {most}"
        )

    # ---- one topic ----------------------------------------------------------------------------------------------

    def _compare(self, one: WatchedTopic, now: TopicView | None) -> None:
        if now is None:
            since = self._missing.setdefault(one.name, self._clock())
            if self._clock() - since >= MISSING_SECONDS:
                raise GenerationMismatch(f"{self._subject(one)} does not exist: kinstream topics create")
            return
        self._missing.pop(one.name, None)
        began = self._ids[one.name]
        if began is None:
            self._ids[one.name] = now.topic_id
        elif now.topic_id is not None and now.topic_id != began:
            raise GenerationMismatch(
                f"{self._subject(one)} was re-created while it ran: its id was {began} and is {now.topic_id}. "
                + self._advice(one)
            )
        if one.began_partitions is not None:
            added = max(0, now.partitions - one.began_partitions)
            if added != self.added[one.name]:
                self.added = {**self.added, one.name: added}
                log.warning("%s", self.message or f"{one.name} has {one.began_partitions} partitions again")

    def _subject(self, one: WatchedTopic) -> str:
        does = "reads" if one.reads else "writes"
        return f"topic {one.name}, which {self._spec.application} {does},"

    def _advice(self, one: WatchedTopic) -> str:
        if not one.in_birth:
            return f"Its records are gone. Continue with the new one: {self._spec.command}"
        return (
            "Its records are gone, and records written to it since belong to this generation. Restore the topic; or "
            f"stop all workers, delete it once more, and begin again ({RECIPE}): kinstream topics create, "
            f"{self._spec.command} --new-generation --from-start"
        )

    # ---- the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.check()
            except GenerationMismatch as refusal:
                if not self._stop.is_set():
                    self._on_refusal(refusal)
                return
            except Exception:
                # An unexpected error must not end the watch.
                log.exception("the topics could not be compared")
            self._stop.wait(POLL_SECONDS)


def topic_watch(
    spec: AgentSpec,
    settings: Settings,
    birth: Birth,
    cluster: Cluster,
    on_refusal: Callable[[GenerationMismatch], None],
) -> TopicWatch:
    """The watch of a worker."""
    # The embedded broker gives neither its own id nor those of topics.
    topics = watched(spec, birth, settings) if birth.cluster_id else []
    return TopicWatch(spec, topics, partial(described, cluster), on_refusal=on_refusal)


class _Checks(Protocol):
    def check(self) -> None: ...


class WatchedSink:
    """A sink whose `confirm` also checks that the topics are those that the generation began with.

    Confirming comes before every checkpoint, so none is written after a topic was re-created.
    """

    def __init__(self, sink: Sink, watch: _Checks) -> None:
        self._sink = sink
        self._watch = watch

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        self._sink.send(topic, key, value, headers, partition)

    def confirm(self, deadline_seconds: float) -> None:
        """As `Sink.confirm`.

        Raises
        ------
        GenerationMismatch : a topic was re-created.
        """
        self._sink.confirm(deadline_seconds)
        self._watch.check()
