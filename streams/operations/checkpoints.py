"""Reads the newest checkpoints of agents that run elsewhere, without taking partitions over and without Kafka.

Manifests hold most answers; a data file is read only if it is needed, and checked against its digest.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kinstream.streams.agents.generations.birth import Birth, read_birth
from kinstream.streams.agents.generations.numbers import newest_generation
from kinstream.streams.checkpoints.files import Damaged
from kinstream.streams.checkpoints.folder import CheckpointFolder
from kinstream.streams.checkpoints.manifest import DataFile, Manifest
from kinstream.streams.checkpoints.names import file_name, open_files
from kinstream.streams.checkpoints.state_bytes import State, from_bytes
from kinstream.streams.errors import CheckpointError, SettingsError
from kinstream.streams.settings import Settings

log = logging.getLogger("kinstream.checkpoints")

#: How often to begin again when the owner prunes what is being read.
_ATTEMPTS: Final = 20
#: Role of an agent -> role of its input topic, where that is one of ours.
INPUT_ROLES: Final = {
    "builder": "events",
    "learner": "constraints",
    "gate": "events",
    "vectors": "events",
    "sink": "vectors",
    "metrics": "outcomes",
}
#: Roles of which a deployment has one agent, named as the role.
SINGLE: Final = frozenset({"gate", "vectors", "metrics"})


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent of the settings. `name` is the emitter's; `pinned` a generation that the settings ask for."""

    role: str
    name: str
    pinned: int | None = None

    @property
    def application(self) -> str:
        """The name of its checkpoint folder."""
        return self.name if self.role in SINGLE else f"{self.role}-{self.name}"

    @property
    def command(self) -> str:
        """The command that runs it."""
        return "kinstream worker " + (self.role if self.role in SINGLE else f"{self.role} {self.name}")


@dataclass(frozen=True, slots=True)
class Seen:
    """A checkpoint as it was found. Its manifest is complete; its files are read by `state`."""

    folder: CheckpointFolder
    manifest: Manifest

    def state(self, file: DataFile) -> State:
        """Read one of its files.

        Raises
        ------
        CheckpointError : the file is missing or damaged.
        """
        try:
            return from_bytes(self.folder.content(file))
        except FileNotFoundError as error:
            place = f"{self.folder.url}/{file.path}"
            raise CheckpointError(f"{place}: missing, since the worker has continued; try again") from error


def agents(settings: Settings) -> list[Agent]:
    """Every agent of the settings: sources, builders, learners, the gate, vectors and its sinks, metrics."""
    sources = [Agent("source", name, section.generation) for name, section in settings.sources.items()]
    builders = [Agent("builder", name, section.generation) for name, section in settings.builders.items()]
    learners = [Agent("learner", name, section.generation) for name, section in settings.learners.items()]
    gate = [Agent("gate", "gate")] if settings.gate else []
    vectors = [Agent("vectors", "vectors")] if settings.vectors else []
    sinks = [Agent("sink", name) for name in settings.sinks]
    metrics = Agent("metrics", "metrics", settings.metrics.generation)
    return [*sources, *builders, *learners, *gate, *vectors, *sinks, metrics]


def input_topic(settings: Settings, agent: Agent) -> str:
    """Full name of the topic that an agent reads."""
    if agent.role == "source":
        return settings.sources[agent.name].topic
    return settings.topic(INPUT_ROLES[agent.role])


def agent_named(settings: Settings, name: str) -> Agent:
    """The agent with that application (`learner-opml`) or else that emitter name (`opml`).

    Raises
    ------
    SettingsError : none or several agents have that name.
    """
    known = agents(settings)
    found = [a for a in known if a.application == name] or [a for a in known if a.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise SettingsError(
            f"{name!r} could be {' or '.join(a.application for a in found)}; use the longer name"
        )
    raise SettingsError(
        f"no agent has the name {name!r}; there are: {', '.join(a.application for a in known)}"
    )


def birth_of(settings: Settings, agent: Agent) -> Birth | None:
    """The birth record of the pinned or newest generation; None if the agent never ran.

    Raises
    ------
    CheckpointError : it is damaged, or the store cannot be read.
    """
    number = agent.pinned or newest_generation(settings, agent.application)
    return None if number is None else read_birth(settings.checkpoints.url, agent.application, number)


def folder_of(
    settings: Settings, application: str, generation: int, topic: str, partition: int
) -> CheckpointFolder:
    """The checkpoint folder of one partition, whether it exists or not."""
    folders = (file_name(application), str(generation), f"{file_name(topic)}-{partition}")
    return CheckpointFolder(
        open_files(settings.checkpoints.url, *folders), (application, generation, topic, partition)
    )


def newest(folder: CheckpointFolder) -> Seen | None:
    """The newest checkpoint with a whole manifest; None if there is none yet.

    Raises
    ------
    CheckpointError : there are manifests and all are damaged, or the store cannot be read.
    """
    for _ in range(_ATTEMPTS):
        offsets = folder.offsets()
        if not offsets:
            return None
        damaged: list[str] = []
        try:
            for offset in reversed(offsets):
                try:
                    return Seen(folder, folder.manifest(offset))
                except Damaged as error:
                    log.warning("%s; reading the checkpoint before it", error)
                    damaged.append(str(error))
        except FileNotFoundError:
            continue
        raise CheckpointError(f"{folder.url}: no manifest can be read: {'; '.join(damaged)}")
    raise CheckpointError(f"{folder.url}: the checkpoints changed {_ATTEMPTS} times while they were read")


def checkpoints(settings: Settings, agent: Agent) -> Iterator[Seen]:
    """The newest checkpoint of every partition that has one, in the agent's pinned or newest generation.

    Raises
    ------
    CheckpointError : as `newest`.
    """
    birth = birth_of(settings, agent)
    for partition in range(birth.input_partitions if birth else 0):
        assert birth is not None
        seen = newest(folder_of(settings, agent.application, birth.generation, birth.input_topic, partition))
        if seen is not None:
            yield seen
