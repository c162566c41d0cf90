"""A builder, a learner and the metrics agent as real processes, and what tests of faults ask of them."""

from __future__ import annotations

import os
import signal
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from kinstream.streams.agents.space import core_state
from kinstream.streams.checkpoints.state_bytes import to_bytes
from kinstream.streams.groups import name_of
from kinstream.streams.kafka.clients import confluent_producer
from kinstream.streams.kafka.emitter import Emitter
from kinstream.streams.operations.checkpoints import Seen, agent_named, birth_of, folder_of, newest
from kinstream.streams.operations.checkpoints import checkpoints as newest_checkpoints
from kinstream.streams.records.identity import Headers
from kinstream.streams.topics import CATALOGUE
from tests.faults.reference import Copies, Expected, copies, expected
from tests.support.kafka_system import KafkaSystem
from tests.support.processes import SECONDS, Process, until

#: Agents by application, and the arguments of `kinstream worker` that run them.
AGENTS: Final = {
    "builder-one-pass": ("builder", "one-pass"),
    "learner-opml": ("learner", "opml"),
    "metrics": ("metrics",),
}

_TOML = """\
[checkpoints]
url = "{url}"
interval_seconds = 0.3
[worker]
session_timeout_seconds = 3.0
heartbeat_interval_seconds = 1.0
shutdown_seconds = 10.0
[builders.one-pass]
kind = "one-pass"
seed = 3
[learners.opml]
kind = "opml"
from = ["one-pass"]
gamma = 0.01
"""


class System(KafkaSystem):
    """Topics under a prefix of their own, a settings file, and the processes that use them.

    Parameters
    ----------
    changes : settings by their dotted name.
    """

    def __init__(self, folder: Path, bootstrap: str, *, partitions: int = 2, **changes: Any) -> None:
        text = _TOML.format(url=folder / "checkpoints")
        named = {name.replace("__", "."): value for name, value in changes.items()}
        super().__init__(folder, bootstrap, f"faults-{uuid4().hex[:8]}", partitions, text, named)

    def create_topics(self) -> System:
        with self.cluster() as cluster:
            cluster.create(CATALOGUE, self.settings)
        return self

    # ---- processes ----------------------------------------------------------------------------------------------

    def run(self, *arguments: str, seconds: float = 60.0) -> tuple[int, str]:
        """Run a command to its end: exit status and output."""
        done = self.finished(*arguments, seconds=seconds)
        return done.returncode, done.stdout + done.stderr

    def worker(
        self, application: str, *options: str, environment: Mapping[str, str] | None = None, tag: str = ""
    ) -> Process:
        """Start `kinstream worker` for an agent."""
        return self.start(
            f"{application}{tag}", "worker", *AGENTS[application], *options, environment=environment
        )

    def adopt(self, process: Process) -> Process:
        """Have a process that was started by other means end with the system."""
        self.processes.append(process)
        return process

    def members(self, application: str, generation: int = 1) -> int:
        """How many members the group of a generation has."""
        with self.cluster() as cluster:
            return cluster.group_members(name_of(self.prefix, application, generation))

    def begin_generation(self, application: str, *options: str, generation: int = 2) -> Process:
        """Begin a generation once the old one's group is empty, and see it served."""
        until(lambda: not self.members(application, generation - 1), "the old group is empty")
        worker = self.worker(application, "--new-generation", *options)
        worker.expect(rf"{application}: generation {generation} begins")
        worker.expect(rf"{application} generation {generation} serves")
        return worker

    def close(self) -> None:
        """End every process and print the ends of their logs, for the case that the test failed."""
        super().close()
        print("\n".join(self.tails()))

    # ---- what goes in -------------------------------------------------------------------------------------------

    def send(
        self,
        records: Iterable[tuple[str | bytes | None, bytes | None]],
        role: str = "events",
        headers: Headers = (),
        partition: int | None = None,
    ) -> list[tuple[int, int]]:
        """Send (key, value) records and return where they landed, as (partition, offset), in order of arrival."""
        landed: list[tuple[int, int]] = []
        emitter = Emitter(
            confluent_producer(self.settings.kafka) | {"message.max.bytes": 2_000_000},
            on_delivery=lambda topic, place, offset: landed.append((place, offset)),
        )
        for key, value in records:
            emitter.send(
                self.topic(role), key.encode() if isinstance(key, str) else key, value, headers, partition
            )
        # A broker that is killed and starts again on a machine under load takes a minute.
        emitter.confirm(180.0)
        emitter.close()
        return landed

    # ---- what came of it ----------------------------------------------------------------------------------------

    def checkpoints(self, application: str, generation: int | None = None) -> dict[int, list[int]]:
        """Offsets of the manifests of each partition, rising."""
        agent = agent_named(self.settings, application)
        birth = birth_of(self.settings, agent)
        if birth is None:
            return {}
        number = generation or birth.generation
        return {
            p: folder_of(self.settings, application, number, birth.input_topic, p).offsets()
            for p in range(birth.input_partitions)
        }

    def folder_of(self, application: str, partition: int, generation: int = 1) -> Path:
        """Where the checkpoints of a partition lie."""
        role = {"builder": "events", "learner": "constraints"}.get(application.split("-")[0], "outcomes")
        return self.root / application / str(generation) / f"{self.topic(role)}-{partition}"

    def committed(self, application: str, role: str, generation: int = 1) -> dict[int, int]:
        """The offsets that the group has committed; empty for a group that never did."""
        with self.cluster() as cluster:
            return cluster.committed(
                name_of(self.prefix, application, generation), self.topic(role), self.partitions
            )

    def wait_for(self, application: str, ends: Mapping[int, int], seconds: float = SECONDS) -> float:
        """Wait until the newest checkpoints want these offsets, or later ones; a birth counts as one."""

        def there() -> bool:
            birth = birth_of(self.settings, agent_named(self.settings, application))
            found = self.checkpoints(application)
            starts = {} if birth is None else birth.start_offsets
            return all((found.get(p) or [starts.get(p, 0)])[-1] >= end for p, end in ends.items())

        return until(there, f"{application} has checkpoints at {dict(ends)}", seconds)

    def settle(self, seconds: float = SECONDS, upto: str = "learner-opml") -> None:
        """Wait until builder and learner (`upto`) have checkpointed all of what the events give."""
        self.wait_for("builder-one-pass", self.ends("events"), seconds)
        if upto == "learner-opml":
            self.settle_learner(seconds)

    def settle_learner(self, seconds: float = SECONDS) -> None:
        """Wait until the learner has checkpointed all constraints that are there."""
        self.wait_for("learner-opml", self.ends("constraints"), seconds)

    def states(self, application: str) -> dict[str, bytes]:
        """The algorithm of every space in the newest checkpoints, as bytes."""
        found: dict[str, bytes] = {}
        for seen in newest_checkpoints(self.settings, agent_named(self.settings, application)):
            for name, file in seen.manifest.spaces.items():
                core = core_state(seen.state(file))
                if core is not None:
                    found[name] = to_bytes(core)
        return found

    def partition_state(self, application: str, partition: int, generation: int = 1) -> dict[str, Any]:
        agent = agent_named(self.settings, application)
        birth = birth_of(self.settings, agent)
        assert birth is not None
        seen: Seen | None = newest(
            folder_of(self.settings, application, generation, birth.input_topic, partition)
        )
        assert seen is not None
        return dict(seen.state(seen.manifest.partition_state))

    def chain(self, role: str) -> Copies:
        """The outputs in a topic, each identity once, by emitter and space; and how many came again."""
        return copies(self.read(role))

    def expected(self) -> Expected:
        """What an undisturbed run in one process makes of the events in the log."""
        return expected(self.settings, self.read("events"), self.folder / f"reference-{uuid4().hex[:8]}")

    def check_exact(self, upto: str = "learner-opml") -> Expected:
        """State, constraints, outcomes and chains equal those of an undisturbed run."""
        wanted = self.expected()
        constraints = self.chain("constraints")
        assert constraints.values == wanted.constraints
        assert not constraints.breaks
        assert self.states("builder-one-pass") == wanted.builder
        if upto == "learner-opml":
            outcomes = self.chain("outcomes")
            assert outcomes.values == wanted.outcomes
            assert self.states("learner-opml") == wanted.learner
        return wanted


def patched(folder: Path, code: str) -> dict[str, str]:
    """An environment in which a worker process runs `code` before anything else."""
    folder.mkdir(parents=True)
    guard = "import sys\nif '--unsupervised' in sys.orig_argv:\n"
    body = textwrap.indent(textwrap.dedent(code), "    ")
    (folder / "sitecustomize.py").write_text(guard + body, encoding="utf-8")
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}


def stop_process(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


def continue_process(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)
