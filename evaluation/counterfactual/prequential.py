"""What the learners of a replay would have scored on drafted lists, each list before it was learned.

A replay reads the events of the space beside its own messages. Before it applies a message, all events up to the one
that caused it are read, so a list is ranked by the learners as they were before anything was learned from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinstream.evaluation.counterfactual.drafted_log import Event, Maps, Model, Reader, Recorded
from kinstream.evaluation.counterfactual.estimates import Estimates, estimated
from kinstream.gate.lists.list_id import Keys
from kinstream.learners.base.learner import Learner
from kinstream.learners.models.query_map import query_map
from kinstream.replay.log.pipeline import AgentReplay
from kinstream.search.models.model import Name
from kinstream.search.queries.model import QueryModel
from kinstream.streams.errors import BadRecord, CheckpointError, SettingsError
from kinstream.streams.records.codec.codec import decode_event
from kinstream.streams.records.gate import UNADAPTED, Version
from kinstream.streams.records.identity import read_identity
from kinstream.streams.records.message import Message

_UNLEARNED: Final = QueryModel("un-adapted")


@dataclass(frozen=True, slots=True)
class Request:
    """What to judge.

    Parameters
    ----------
    space : with a gate, whose lists were drafted.
    models : that have drafted lists, and others to judge as they are. The un-adapted features are always judged.
    since : offset in `events` of the first list that counts; by default where the replay begins.
    exponent, product : as of `kinstream.evaluation.counterfactual.drafted_log.recorded`.
    """

    space: str
    keys: Keys
    models: Mapping[Version, QueryModel] = field(default_factory=dict)
    since: int | None = None
    exponent: float = 1.0
    product: str = "cosine"


@dataclass(frozen=True, slots=True)
class Judged:
    """The estimates.

    Parameters
    ----------
    estimates : of the un-adapted features, the models, and the learners by name; empty with lists of fewer than two
        people.
    learners : those that were judged.
    without : learners that were not, with the reason.
    """

    space: str
    exponent: float
    lists: Recorded
    estimates: Mapping[Model, Estimates]
    learners: tuple[str, ...]
    without: Mapping[str, str]


class Current:
    """A replayed learner as it is now. Before it has learned, queries stay as they are.

    Parameters
    ----------
    without : why it has no query map; empty if it has one.
    """

    def __init__(self, space: str) -> None:
        self._space = space
        self._agent: AgentReplay | None = None
        self._made: tuple[tuple[int, int], Maps] | None = None
        self.without = ""

    def follow(self, agent: AgentReplay) -> None:
        """The agent that learns."""
        self._agent = agent

    def map(self, Q: ArrayLike) -> NDArray[np.float32]:
        """Mapped queries, of the shape of Q: (n, d) or (d,)."""
        return self._now().map(Q)

    def _now(self) -> Maps:
        machines = () if self._agent is None else self._agent.machines.values()
        space = next((found for m in machines if (found := m.find(self._space)) is not None), None)
        if space is None or not isinstance(space.core, Learner):
            return _UNLEARNED
        at = space.epoch, space.step
        if self._made is None or self._made[0] != at:
            self._made = at, self._of(space.core, at)
        return self._made[1]

    def _of(self, learner: Learner, at: tuple[int, int]) -> Maps:
        try:
            return QueryModel("replayed", Name(1, *at), "", query_map(learner))
        except CheckpointError:
            # Nothing has been learned yet.
            return _UNLEARNED
        except SettingsError as error:
            self.without = str(error)
            return _UNLEARNED


class Prequential:
    """Stands between the messages of a replay and its agents: pass it to `kinstream.replay.log.run.Replay.run`.

    Parameters
    ----------
    learners : those that are replayed, with the builders that each follows.
    events : of the space's partition, from the beginning of the log on.
    topic : of the events.
    """

    def __init__(
        self, request: Request, learners: Mapping[str, Sequence[str]], events: Iterator[Message], topic: str
    ) -> None:
        self._request, self._events, self._topic = request, events, topic
        self._learners = {name: Current(request.space) for name in learners}
        self._followed = frozenset(builder for some in learners.values() for builder in some)
        models: dict[Model, Maps] = {UNADAPTED: _UNLEARNED}
        models.update(request.models.items())
        models.update(self._learners.items())
        self._reader = Reader(
            request.space,
            request.keys,
            models,
            exponent=request.exponent,
            product=request.product,
        )
        self._waiting: Message | None = None
        self._since = request.since

    def __call__(self, agents: Sequence[AgentReplay], messages: Iterator[Message]) -> Iterator[Message]:
        """The same messages; the events before each are read before it is passed on."""
        for agent in agents:
            if agent.spec.name in self._learners:
                self._learners[agent.spec.name].follow(agent)
        for message in messages:
            if message.key == self._request.space.encode():
                self._read_to(self._cause_of(message))
            yield message

    def _cause_of(self, message: Message) -> int:
        """The offset of the event that a message comes from; -1 for one that nobody learns, or of another log."""
        if message.topic == self._topic:
            return message.offset
        try:
            identity = read_identity(message.headers)
        except BadRecord:
            # The learner writes the dead letter.
            return -1
        learned = identity.topic == self._topic and identity.emitter in self._followed
        return identity.position.offset if learned else -1

    def _read_to(self, last: int) -> None:
        """Read events up to that offset. Lists count from `since`, or from the first such offset."""
        if last < 0:
            return
        self._since = last if self._since is None else self._since
        while True:
            message = self._waiting or next(self._events, None)
            self._waiting = message if message is not None and message.offset > last else None
            if message is None or message is self._waiting:
                return
            if message.key != self._request.space.encode():
                continue
            try:
                record = decode_event(message.value)
            except BadRecord:
                # A builder or the gate has written the dead letter.
                continue
            self._reader.take(Event(record, message.offset >= self._since))

    def result(self) -> Judged:
        """The estimates from the lists that were read."""
        lists = self._reader.result()
        without = {name: one.without for name, one in self._learners.items() if one.without}
        models = {model: ranked for model, ranked in lists.models.items() if model not in without}
        found: dict[Model, Estimates] = {}
        if len(set(lists.people)) >= 2:
            found = dict(
                zip(models, estimated(lists.shown, list(models.values()), lists.people), strict=True)
            )
        learners = tuple(name for name in self._learners if name not in without)
        return Judged(self._request.space, self._request.exponent, lists, found, learners, without)
