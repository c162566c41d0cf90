"""A builder and learners over an in-process log, whose announcements a test hands to followers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from kinstream.search.models.attempts import Limits
from kinstream.search.models.feed import ModelFeed
from kinstream.streams.records.codec.codec import decode
from kinstream.streams.records.values import ModelVersion
from tests.cli.system import System
from tests.search.fakes import ListSource

MODELS = "kinstream.models"


class World:
    """`learn` has a space learn on; `announced` are all announcements so far, as records and decoded."""

    def __init__(self, folder: Path) -> None:
        self.system = System(folder)
        self.settings = self.system.settings
        self.source = ListSource()
        self._seen = 0

    def learn(self, space: str, number: int = 6, **options: Any) -> None:
        self.system.samples(space, number, **options)
        self.run()

    def run(self) -> None:
        """Apply all that waits, checkpoint, and have the announcements land."""
        self.system.run()
        for agent in self.system.agents:
            agent.sink.confirm()

    def records(self) -> list[tuple[bytes, bytes]]:
        """Key and value of every announcement."""
        log = self.system.log
        found = [m for p in range(log.partitions) for m in log.read(MODELS, p, 0)]
        return [(m.key or b"", m.value) for m in found if m.value is not None]

    def announced(self, space: str = "a", learner: str = "opml") -> list[ModelVersion]:
        """Those of one space under one learner, oldest first."""
        found = [decode(value, ModelVersion) for _, value in self.records()]
        versions = [v for v in found if isinstance(v, ModelVersion)]
        return [v for v in versions if (v.space, v.learner) == (space, learner)]

    def core(self, learner: str = "opml", space: str = "a") -> Any:
        """The learner itself, as it is in its worker."""
        agent = next(a for a in self.system.agents if a.spec.name == learner)
        found = (runner.machine.find(space) for runner in agent.runners.values())
        return next(s for s in found if s is not None).core

    def feed(self, **options: Any) -> ModelFeed:
        """A feed that waits for every load, however slow the machine is."""
        options = {"limits": Limits(wait_seconds=60.0, slow_seconds=60.0)} | options
        return ModelFeed(self.settings, source=self.source, **options)

    # ---- the checkpoint store -----------------------------------------------------------------------------------

    def lose(self) -> None:
        """The store goes away."""
        self.system.root.rename(self.system.root.with_name("away"))

    def bring_back(self) -> None:
        away = self.system.root.with_name("away")
        shutil.rmtree(self.system.root, ignore_errors=True)
        away.rename(self.system.root)

    def damage(self, version: ModelVersion) -> None:
        """One bit of a model's file turns."""
        file = Path(version.location)
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
