"""Rows and constraints of one space from a log, applied as the agents would apply them.

Records that an agent refuses, has applied already, or does not follow are left out; a reset drops earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kinstream.evaluation.experiment.data import LabelledRows, Recorded, of_batch
from kinstream.learners.agent import LearnerMachine
from kinstream.learners.base.learner import Learner, Outcomes, State
from kinstream.processors.agent import BuilderMachine, builder_spec
from kinstream.processors.base.builder import MAX_BLOCK_BYTES, Builder, Made, Origin
from kinstream.processors.samples.sample_layout import SampleSpace
from kinstream.producers.labelled.batch import Batch, concatenate
from kinstream.replay.log.pipeline import AgentReplay, VirtualLog
from kinstream.streams.agents.machine import Machine, Place
from kinstream.streams.agents.spec import AgentSpec
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.message import Message
from kinstream.streams.records.values import ConstraintBlock, Declaration, Event, Kind, SampleBlock, Table
from kinstream.streams.settings import Settings

#: Builders whose constraints reach one learner, in the order of its settings.
Followed = tuple[str, ...]


def stream_name(followed: Followed) -> str:
    """The name of the constraints of several builders, in the order of the log."""
    return " + ".join(followed)


def constraints(
    settings: Settings, messages: Iterable[Message], space: str, streams: Sequence[Followed]
) -> Recorded:
    """The constraints of a space that learners which follow those builders would learn from.

    Parameters
    ----------
    messages : of one partition of `constraints`.

    Raises
    ------
    SettingsError : there are none.
    LogGap : the log has lost outputs of a builder.
    """
    kept = {followed: _Constraints() for followed in streams}
    readers = [_reader(settings, space, followed, kept[followed]) for followed in streams]
    for message in messages:
        for reader in readers:
            reader.feed(message)
    return _recorded(space, kept)


def built(
    settings: Settings, messages: Iterable[Message], space: str, streams: Sequence[Followed]
) -> Recorded:
    """The constraints that the builders of the settings make of the events of a space.

    Parameters
    ----------
    messages : of one partition of `events`.

    Raises
    ------
    SettingsError : there are none, or there is no such builder.
    """
    kept = {followed: _Constraints() for followed in streams}
    readers = [_reader(settings, space, followed, kept[followed]) for followed in streams]
    names = dict.fromkeys(name for followed in streams for name in followed)
    builders = [_agent(settings, builder_spec(settings, name), space) for name in names]
    log = VirtualLog(settings.topic("constraints"))
    for message in messages:
        for builder in builders:
            for output in builder.feed(message):
                if output.topic != log.topic:
                    continue
                made = log.append(output, message.timestamp_ms)
                for reader in readers:
                    reader.feed(made)
    return _recorded(space, kept)


def rows(settings: Settings, messages: Iterable[Message], space: str) -> LabelledRows:
    """The labelled samples of a space, in the order of the log, each load once.

    Parameters
    ----------
    messages : of one partition of `events`.

    Raises
    ------
    SettingsError : there are none.
    """
    kept: list[Batch] = []

    def make(name: str, declaration: Declaration | None) -> Builder:
        kept.clear()
        return _Samples(kept)

    def machine(place: Place, load: Any) -> Machine:
        return BuilderMachine(place, make, auto_create=True, max_spaces=1, load_space=load)

    spec = AgentSpec("evaluation", "evaluation", "events", "constraints", {}, machine)
    reader = _agent(settings, spec, space)
    for message in messages:
        reader.feed(message)
    if not kept:
        raise SettingsError(f"there are no labelled samples of space {space!r} in that range")
    return of_batch(space, concatenate(kept))


class _Constraints:
    """The constraints that a learner of one space would have received, and its declaration."""

    def __init__(self) -> None:
        self.blocks: list[ConstraintBlock | None] = []
        self.scaler: str | None = None

    def make(self, declaration: Declaration | None) -> Learner:
        self.scaler = None if declaration is None else declaration.scaler
        if self.blocks:
            self.blocks.append(None)
        return _Recorder(self.blocks)


class _Recorder:
    """Replaces a learner: it keeps the constraints that it receives."""

    accepts = frozenset(Kind)
    form = Kind.TRIPLET
    algorithm = "recorder/1"

    def __init__(self, blocks: list[ConstraintBlock | None]) -> None:
        self._blocks = blocks

    def learn(self, block: ConstraintBlock) -> Outcomes:
        self._blocks.append(block)
        return Outcomes.blank(len(block))

    def state(self) -> State:
        return {"blocks": len(self._blocks)}

    def restore(self, state: State) -> None:
        raise NotImplementedError("a recorder has no checkpoint")

    def transform(self, X: Any) -> Any:
        return X

    def distance(self, X: Any, Y: Any) -> Any:
        return np.sum((np.asarray(X) - np.asarray(Y)) ** 2, axis=1)


class _Samples:
    """Replaces a builder: it keeps the samples that fit the space."""

    algorithm = "samples/1"
    follows: tuple[type, ...] = (SampleBlock,)
    emits = frozenset({Kind.TRIPLET})

    def __init__(self, kept: list[Batch]) -> None:
        self._kept = kept
        self._space = SampleSpace()

    def process(self, event: Event, origin: Origin) -> Made:
        if isinstance(event, SampleBlock):
            labels, tables, _ = self._space.admit(event, MAX_BLOCK_BYTES, Kind.TRIPLET, "evaluation")
            copies = tuple(Table(table.name, table.vectors.copy()) for table in tables)
            words = isinstance(labels[0], str)
            self._kept.append(Batch(copies, tuple(labels) if words else np.array(labels, np.int64)))
        return Made()

    def counts(self) -> dict[str, int]:
        return {}

    def state(self) -> State:
        return {"batches": len(self._kept)}

    def restore(self, state: State) -> None:
        raise NotImplementedError("a recorder has no checkpoint")


def _reader(settings: Settings, space: str, followed: Followed, kept: _Constraints) -> AgentReplay:
    def machine(place: Place, load: Any) -> Machine:
        return LearnerMachine(place, kept.make, follows=frozenset(followed), load_space=load)

    spec = AgentSpec("evaluation", "evaluation", "constraints", "outcomes", {}, machine)
    return _agent(settings, spec, space)


def _agent(settings: Settings, spec: AgentSpec, space: str) -> AgentReplay:
    return AgentReplay(spec, lambda partition: _place(settings, spec, partition), space=space)


def _place(settings: Settings, spec: AgentSpec, partition: int) -> Place:
    """As in a first generation; nothing is sent."""
    return Place(
        name=spec.name,
        generation=1,
        topic=settings.topic(spec.input_role),
        partition=partition,
        input_partitions=settings.topics.partitions,
        output_topic=settings.topic(spec.output_role or "outcomes"),
        output_partitions=settings.topics.partitions,
        dead_letters=settings.topic("dead-letters"),
    )


def _recorded(space: str, kept: Mapping[Followed, _Constraints]) -> Recorded:
    empty = [stream_name(followed) for followed, found in kept.items() if not found.blocks]
    if empty:
        raise SettingsError(f"there are no constraints of space {space!r} by {empty[0]} in that range")
    scalers = {found.scaler for found in kept.values()}
    return Recorded(
        space,
        {stream_name(followed): tuple(found.blocks) for followed, found in kept.items()},
        next(iter(scalers)) if len(scalers) == 1 else None,
    )
