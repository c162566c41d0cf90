"""The spaces in the newest checkpoints of builders and learners."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kinstream.streams.agents.space import Status, restore_space
from kinstream.streams.agents.space_facts import SpaceFacts
from kinstream.streams.errors import SettingsError
from kinstream.streams.operations.checkpoints import SINGLE, Agent, Seen, agents, checkpoints
from kinstream.streams.records.values import Action, Declaration
from kinstream.streams.settings import Settings


@dataclass(frozen=True, slots=True)
class Sighting:
    """One space in one agent's checkpoint, which covers its input up to `offset`."""

    space: str
    agent: Agent
    partition: int
    offset: int
    epoch: int
    status: Status
    step: int
    declaration: Declaration | None = None


@dataclass(frozen=True, slots=True)
class SpaceView:
    """A space. Epoch, status and declaration are those of its builders, or of its learners if no builder has it.

    Parameters
    ----------
    learners : by learner, (epoch, step); a learner of a lower epoch has not reached the newest one yet.
    """

    name: str
    partition: int
    epoch: int
    status: Status
    declaration: Declaration | None
    builders: tuple[str, ...] = ()
    learners: dict[str, tuple[int, int]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        d = self.declaration
        return {
            "space": self.name,
            "partition": self.partition,
            "epoch": self.epoch,
            "status": self.status.value,
            "declaration": d and {"modalities": dict(d.modalities), "labels": d.labels, "scaler": d.scaler},
            "builders": list(self.builders),
            "learners": {name: {"epoch": e, "step": s} for name, (e, s) in self.learners.items()},
        }


def sightings(agent: Agent, seen: Seen) -> Iterable[Sighting]:
    """The spaces of one checkpoint. Those that only a refused event has named are left out."""
    manifest = seen.manifest
    for name, file in sorted(manifest.spaces.items()):
        facts = SpaceFacts.parse(file.label)
        status = Status.DELETED if facts.deleted else Status.ACTIVE
        declaration = None
        if facts.epoch < 0:
            continue
        if agent.role == "builder" and status is Status.ACTIVE:
            # The manifest does not show whether a space is paused. A builder's state is small.
            state = restore_space(seen.state(file))
            status, declaration = state.status, state.declaration
        yield Sighting(
            name,
            agent,
            manifest.partition,
            manifest.offset,
            facts.epoch,
            status,
            facts.step,
            declaration,
        )


def combine(found: Iterable[Sighting]) -> dict[str, SpaceView]:
    """One view for each space, by name."""
    by_space: dict[str, list[Sighting]] = {}
    for sighting in found:
        by_space.setdefault(sighting.space, []).append(sighting)
    return {name: _view(name, by_space[name]) for name in sorted(by_space)}


def _view(name: str, found: list[Sighting]) -> SpaceView:
    builders = [s for s in found if s.agent.role == "builder"]
    # Pause and resume keep the epoch, so among builders of one epoch the one furthest ahead is right.
    newest = max(builders or found, key=lambda s: (s.epoch, s.offset))
    return SpaceView(
        name,
        newest.partition,
        newest.epoch,
        newest.status,
        newest.declaration,
        tuple(sorted(s.agent.name for s in builders)),
        {s.agent.name: (s.epoch, s.step) for s in found if s.agent.role == "learner"},
    )


def read_spaces(settings: Settings) -> dict[str, SpaceView]:
    """Every space that a newest checkpoint of a builder or learner names.

    Raises
    ------
    CheckpointError : a checkpoint cannot be read.
    """
    return combine(
        sighting
        for agent in agents(settings)
        if agent.role not in SINGLE
        for seen in checkpoints(settings, agent)
        for sighting in sightings(agent, seen)
    )


def check_possible(action: Action, name: str, spaces: dict[str, SpaceView]) -> None:
    """Refuse a control record that the builders would refuse, or that would wipe an existing space.

    Raises
    ------
    SettingsError : create of a space that exists; anything else of one that does not.
    """
    space = spaces.get(name)
    behind = "If the checkpoints are behind, wait for the next one"
    if action is Action.CREATE:
        if space is not None and space.status is not Status.DELETED:
            raise SettingsError(
                f"space {name!r} exists (epoch {space.epoch}, {space.status.value}); to reset it: "
                f"kinstream spaces reset {name}. {behind}"
            )
    elif space is None:
        raise SettingsError(f"no checkpoint of a builder or learner names a space {name!r}. {behind}")
    elif space.status is Status.DELETED:
        raise SettingsError(f"space {name!r} was deleted (epoch {space.epoch}). {behind}")
