"""What the tests of what-ifs and promotions do with a system in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from kinstream.replay.what_if.promotion import PlannedPromotion, plan
from kinstream.replay.what_if.run import WhatIf, WhatIfRequest, WhatIfResult
from kinstream.replay.what_if.saved_state import StateFolder
from kinstream.replay.what_if.settings import what_if_settings
from kinstream.streams.agents.generations.generation import Generation
from kinstream.streams.agents.generations.open_generation import open_generation
from kinstream.streams.agents.partition import PartitionRunner
from kinstream.streams.checkpoints.state_bytes import State, to_bytes
from kinstream.streams.records.codec.every_kind import decode
from kinstream.streams.records.identity import read_identity
from kinstream.streams.records.values import Counts, Outcome
from kinstream.streams.settings import LearnerSettings, Settings
from tests.replay.system import CONSTRAINTS, System
from tests.support.memory_log import MemoryLog, MemorySink

OUTCOMES = "kinstream.outcomes"
#: What the what-ifs of these tests change.
CHANGES: dict[str, Any] = {"gamma": 0.05, "scaler": "unit"}


def changed(system: System, learner: str = "opml", **changes: Any) -> Settings:
    """The settings of a system with another section for a learner."""
    return what_if_settings(system.settings, learner, changes or CHANGES)


def learner_section(kind: str = "opml", **section: Any) -> LearnerSettings:
    """A section that follows the builder of these tests."""
    return LearnerSettings.model_validate({"kind": kind, "from": ["one-pass"], **section})


def what_if(
    system: System, learner: str = "opml", settings: Settings | None = None, **request: Any
) -> WhatIfResult:
    """Run a what-if beside a system."""
    asked = WhatIfRequest(learner, **request)
    return WhatIf(asked, system.settings, settings or changed(system, learner), system.cluster).run()


def promote(system: System, folder: Path, learner: str | None = None, **options: Any) -> PlannedPromotion:
    """Promote, with the settings of the what-if in the settings file."""
    system.settings = changed(system)
    made = planned(system, folder, learner, **options)
    made.carry_out()
    return made


def planned(system: System, folder: Path, learner: str | None = None, **options: Any) -> PlannedPromotion:
    return plan(StateFolder(str(folder)), learner, system.settings, system.cluster, **options)


def opened(system: System, learner: str = "opml", **options: Any) -> Generation:
    """As a worker opens it."""
    from kinstream.learners.agent import learner_spec

    return open_generation(learner_spec(system.settings, learner), system.settings, system.cluster, **options)


class Worker:
    """A learner's worker on every partition, as `kinstream.streams.worker.worker` takes them over."""

    def __init__(self, system: System, learner: str = "opml", **options: Any) -> None:
        self.generation = opened(system, learner, **options)
        self.log = system.log
        self.sink = MemorySink(system.log)
        self.runners: dict[int, PartitionRunner] = {}
        self.marks: dict[int, int] = {}
        for p in range(system.log.partitions):
            runner = self.generation.runner(p, self.sink)
            start, end = system.cluster.bounds(CONSTRAINTS, p)
            self.marks[p] = self.generation.mark_started(p)
            runner.restore(self.generation.birth_offset(p), start, end)
            self.generation.verify_last_record(runner.manifest, system.cluster, start)
            self.runners[p] = runner

    def step(self, partition: int, limit: int = 1_000_000) -> int:
        runner = self.runners[partition]
        messages = self.log.read(CONSTRAINTS, partition, runner.machine.next_offset)[:limit]
        runner.work(messages)
        return len(messages)

    def run(self) -> Worker:
        """Apply all that waits, and checkpoint."""
        for partition, runner in self.runners.items():
            self.step(partition)
            if runner.dirty:
                runner.checkpoint()
        return self

    def stop(self) -> Worker:
        """End in order."""
        self.run()
        for partition, runner in self.runners.items():
            self.generation.mark_final(partition, runner.machine.next_offset, self.marks[partition])
        return self

    def states(self) -> dict[str, bytes]:
        """Of every space, and of every partition as a whole, as bytes; without the last emitted output."""
        found: dict[str, bytes] = {}
        for p, runner in self.runners.items():
            machine = runner.machine
            found[f"partition {p}"] = to_bytes(machine.partition_state())
            for name in list(machine.names()):
                space = machine.find(name)
                assert space is not None
                found[name] = to_bytes(_without_emitted(space.state()))
        return found


def _without_emitted(state: State) -> State:
    return {name: value for name, value in state.items() if name != "emitted"}


def recorded(log: MemoryLog, learner: str, generation: int | None = None) -> dict[tuple[int, int], Outcome]:
    """The outcomes in the log by (partition, offset) of the constraints, read without the code under test."""
    found: dict[tuple[int, int], Outcome] = {}
    for partition in range(log.partitions):
        for message in log.read(OUTCOMES, partition, 0):
            identity = read_identity(message.headers)
            if identity.emitter != learner or generation not in (None, identity.position.generation):
                continue
            record = decode(message.value, Outcome)
            found.setdefault((identity.partition, identity.position.offset), cast(Outcome, record))
    return found


def total(outcomes: dict[tuple[int, int], Outcome], space: str) -> Counts:
    return sum((o.counts for o in outcomes.values() if o.space == space), Counts())


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, to show that nothing was written."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
