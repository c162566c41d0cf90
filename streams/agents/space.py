"""The state of one space in an agent, and its form in a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from kinstream.streams.records.identity import Position
from kinstream.streams.records.state import State, with_prefix, without_prefix
from kinstream.streams.records.values import Declaration

_CORE = "core."
_JUDGE = "judge."
#: The offset of a mark from another partition: before every offset of this one.
NOT_HERE: Final = -1


class Core(Protocol):
    """The algorithm of one space: a builder, a learner, or the tallies of the metrics agent."""

    def state(self) -> State: ...

    def restore(self, state: State) -> None: ...


@runtime_checkable
class SegmentedCore(Core, Protocol):
    """An algorithm whose state is too large to write whole: parts of it are in segments that never change.

    `state` leaves the segments out, and `restore` is followed by `restore_segments`.
    """

    def segments(self) -> tuple[str, ...]:
        """Names of the segments that the state needs now. A name always stands for the same content."""

    def segment(self, name: str) -> State:
        """The content of a segment."""

    def restore_segments(self, load: Callable[[str], State]) -> None:
        """Load the segments that the restored state needs."""


@runtime_checkable
class HeirCore(Core, Protocol):
    """An algorithm that takes over declared data, but nothing learned, from an older generation's state."""

    def inherit(self, state: State, load: Callable[[str], State]) -> None:
        """`load` reads a segment of that state. The state may be of other settings."""


class Judge(Core, Protocol):
    """An agent's evaluation of the algorithm of a space."""

    @property
    def worse(self) -> bool:
        """Whether the result of the algorithm should not be used."""

    @property
    def figure(self) -> tuple[float, int] | None:
        """How much worse it is than what it is compared with, and of how many cases; None while that is not known."""


class Status(StrEnum):
    """A deleted space keeps its epoch as a tombstone."""

    ACTIVE = "active"
    PAUSED = "paused"
    DELETED = "deleted"


class Mark(NamedTuple):
    """The last output of an emitter that was applied or refused, and the input offset at which it was found."""

    position: Position
    at: int

    def text(self) -> str:
        return f"{self.position.text()}@{self.at}"

    @classmethod
    def parse(cls, text: str) -> Mark:
        position, _, at = text.partition("@")
        return cls(Position.parse(position), int(at))


@dataclass(slots=True)
class Space:
    """State of one space.

    Parameters
    ----------
    epoch : events offset of its last create, reset or delete; -1 before anything was applied.
    marks : per emitter whose outputs are the input here.
    emitted : position of the last output emitted for this space.
    loads : per load, the last sequence applied or refused; the load that was used last comes last.
    step : constraints accepted by the model in this epoch.
    core : the algorithm, or None if it holds nothing yet.
    judge : of the algorithm, in agents that have one.
    """

    epoch: int = -1
    status: Status = Status.ACTIVE
    declaration: Declaration | None = None
    marks: dict[str, Mark] = field(default_factory=dict)
    emitted: Position | None = None
    loads: dict[str, int] = field(default_factory=dict)
    step: int = 0
    core: Core | None = None
    judge: Judge | None = None

    def begin(self, epoch: int, declaration: Declaration | None, status: Status = Status.ACTIVE) -> None:
        """Start a new epoch: learned state is dropped, the marks of the inputs stay."""
        self.epoch = epoch
        self.status = status
        self.declaration = declaration
        self.loads = {}
        self.step = 0
        self.core = None
        self.judge = None

    def next_position(self, generation: int, offset: int) -> tuple[Position, Position | None]:
        """Position of the next output caused by the input at `offset`, and its predecessor in the chain."""
        before = self.emitted
        if before is None or (before.generation, before.epoch) != (generation, self.epoch):
            return Position(generation, self.epoch, offset, 0), None
        part = before.part + 1 if before.offset == offset else 0
        return Position(generation, self.epoch, offset, part), before

    def state(self) -> State:
        declaration = None
        if self.declaration is not None:
            d = self.declaration
            declaration = {
                "modalities": [list(m) for m in d.modalities],
                "labels": d.labels,
                "scaler": d.scaler,
            }
        state: State = {
            "epoch": self.epoch,
            "status": self.status.value,
            "declaration": json.dumps(declaration, sort_keys=True),
            "marks": json.dumps(
                {emitter: mark.text() for emitter, mark in self.marks.items()}, sort_keys=True
            ),
            "emitted": "" if self.emitted is None else self.emitted.text(),
            # In order: the first is forgotten first.
            "loads": json.dumps(self.loads),
            "step": self.step,
            "has_core": self.core is not None,
        }
        return state | self.learned()

    def learned(self) -> State:
        """The part of the state that does not depend on where the input lies: the algorithm, and its judge."""
        found: State = {}
        if self.core is not None:
            found |= with_prefix(_CORE, self.core.state())
        if self.judge is not None:
            found |= with_prefix(_JUDGE, self.judge.state())
        return found


def on_another_partition(state: State) -> State:
    """The state of a space whose partition has changed: the offsets of its marks are not valid in the new one."""
    marks: dict[str, str] = json.loads(str(state["marks"]))
    found = {emitter: Mark.parse(text)._replace(at=NOT_HERE).text() for emitter, text in marks.items()}
    return {**state, "marks": json.dumps(found, sort_keys=True)}


def core_state(state: State) -> State | None:
    """The algorithm's part of a space's state, or None if it held nothing."""
    if not state["has_core"]:
        return None
    return without_prefix(_CORE, state)


def judge_state(state: State) -> State | None:
    """The judge's part of a space's state, or None if there was none."""
    return without_prefix(_JUDGE, state) or None


def learned_state(state: State) -> State:
    """The value of `Space.learned` at the time of this state."""
    return {name: value for name, value in state.items() if name.startswith((_CORE, _JUDGE))}


def restore_space(state: State) -> Space:
    """The inverse of `Space.state`, without the algorithm and its judge."""
    raw: dict[str, Any] | None = json.loads(str(state["declaration"]))
    declaration = None
    if raw is not None:
        sizes = tuple((str(name), int(size)) for name, size in raw["modalities"])
        declaration = Declaration(sizes, raw["labels"], raw["scaler"])
    emitted = str(state["emitted"])
    marks: dict[str, str] = json.loads(str(state["marks"]))
    return Space(
        epoch=int(state["epoch"]),
        status=Status(str(state["status"])),
        declaration=declaration,
        marks={emitter: Mark.parse(text) for emitter, text in marks.items()},
        emitted=Position.parse(emitted) if emitted else None,
        loads=json.loads(str(state["loads"])),
        step=int(state["step"]),
    )
