"""A running system in memory: settings, a log of two partitions, and agents with checkpoints and birth records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kinstream.streams.agents.generations.birth import Birth, TopicIdentity, settings_digest, write_birth
from kinstream.streams.agents.spec import AgentSpec
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent, settings


class MemorySystem:
    """Agents of `changes` over the default configuration.

    Parameters
    ----------
    root : of the checkpoints.
    """

    def __init__(self, root: Path, **changes: Any) -> None:
        self.settings = settings(checkpoints={"url": str(root)}, topics={"partitions": 2}, **changes)
        self.log = MemoryLog(partitions=2)
        self.root = root

    def begin(self, spec: AgentSpec) -> Agent:
        """An agent at the beginning of its first generation."""
        self.bear(spec)
        return Agent(spec, self.settings, self.log, self.root)

    def bear(
        self,
        spec: AgentSpec,
        generation: int = 1,
        starts: dict[int, int] | None = None,
        inherits: int | None = None,
    ) -> None:
        """Write a birth record, by default one that starts at offset 0."""
        topics = {self.settings.topic(role) for role in (spec.output_role,) if role is not None}
        birth = Birth(
            spec.application,
            generation,
            settings_digest(spec.shaping),
            spec.shaping,
            starts or {0: 0, 1: 0},
            "memory",
            spec.input_topic(self.settings),
            "id",
            self.log.partitions,
            {name: TopicIdentity("id", self.log.partitions) for name in topics},
            0,
            inherits,
        )
        write_birth(str(self.root), birth)
