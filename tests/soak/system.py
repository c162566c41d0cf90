"""The system of a soak: who works, what they are sent, and what is done to them."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.crash.processes import Agent, System
from tests.kafka.broker import KafkaBroker, reserve_port
from tests.support.processes import Process, until

PARTITIONS: Final = 3
SETTINGS: Final = """
[builders.one-pass]
kind = "one-pass"
seed = 3

[builders.clicked]
kind = "clicks"
rules = ["click-skip-above"]

[learners.opml]
kind = "opml"
from = ["one-pass"]
gamma = 0.1
scaler = "unit"

[learners.shop]
kind = "opml"
from = ["clicked"]
unranked_lists = true
gamma = 0.1
scaler = "unit"

[learners.floor]
kind = "euclidean"
from = ["one-pass", "clicked"]

[checkpoints]
interval_seconds = 5.0
"""
LEARNERS: Final = ("opml", "shop", "floor")
AGENTS: Final = (
    Agent("builder", "one-pass", "events"),
    Agent("builder", "clicked", "events"),
    Agent("learner", "opml", "constraints"),
    Agent("learner", "shop", "constraints"),
    Agent("learner", "floor", "constraints"),
    Agent("metrics", None, "outcomes"),
)
#: Rows of each labelled space and lists of clicks in a second, and how many go into a message.
ROWS, LISTS, BLOCK = 100, 32, 16
#: Lists in a message: of what the builder of clicks decides on, poison of the whole topic is under a twentieth then,
#: which the alerts take for a ticket.
CLICK_BLOCK = 4
#: One on each partition.
SPACES: Final = ("digits-0", "digits-1", "digits-3")
POISON_SHARE: Final = 0.01
#: The broker is away for so many seconds at a time.
AWAY: Final = (2.0, 8.0)


@dataclass(slots=True)
class Slot:
    """A worker under its supervisor, with a port that stays the same. A steady one is watched and never killed."""

    agent: Agent
    steady: bool
    reserved: socket.socket
    process: Process | None = None

    @property
    def port(self) -> int:
        return int(self.reserved.getsockname()[1])

    @property
    def name(self) -> str:
        return f"{self.agent.application}, {'steady' if self.steady else 'killed'}"

    def start(self, system: System) -> None:
        port = f"worker.http_port={self.port}"
        self.process = system.start(self.agent.application, "--set", port, *self.agent.command)


@dataclass(slots=True)
class Faults:
    """What was done, and when (seconds since the beginning)."""

    kills: dict[str, list[float]] = field(default_factory=dict)
    outages: list[tuple[float, float]] = field(default_factory=list)


class Stage:
    """Starts and stops everything.

    Parameters
    ----------
    now : seconds since the beginning.
    """

    def __init__(
        self, system: System, broker: KafkaBroker, seconds: float, seed: int, now: Callable[[], float]
    ) -> None:
        self.system = system
        self.broker = broker
        self.seconds = seconds
        self.slots = [Slot(agent, steady, reserve_port()) for agent in AGENTS for steady in (True, False)]
        self.faults = Faults()
        self.broken: list[str] = []
        self._loads: dict[str, tuple[list[str], Process | None]] = {}
        self._seed = seed
        self._now = now
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(act,), daemon=True)
            for act in (self._kill_on, self._take_broker_away)
        ]

    # ---- load -----------------------------------------------------------------------------------------------------

    def start_workers(self) -> None:
        for slot in self.slots:
            slot.start(self.system)

    def start_loads(self) -> None:
        """More than there is time for: they are stopped at the end."""
        passes = int(self.seconds * ROWS / 1_700) + 3
        for space in SPACES:
            options = ["--space", space, "--shuffle-seed", "1", "--repeat", str(passes), "--rate", str(ROWS)]
            self._load(space, "labelled", "sklearn:digits", *options)
        lists = int(self.seconds * LISTS * 1.5) + 1_000
        options = [
            "--space",
            "clicks",
            "--lists",
            str(lists),
            "--rate",
            str(LISTS),
            "--seed",
            "2",
            "--bias",
            "0",
        ]
        self._load("clicks", "simulated-clicks", "sklearn:digits", *options, block=CLICK_BLOCK)

    def _load(self, name: str, *arguments: str, block: int = BLOCK) -> None:
        kept = ["--block-rows", str(block), "--load-id", name, "--progress-folder", str(self.system.progress)]
        command = ["produce", *arguments, *kept, "--json"]
        self._loads[name] = (command, self.system.start(f"produce-{name}", *command))

    def keep_loads(self) -> None:
        """Start a load again that has ended: the brokers were away for too long."""
        for name, (command, process) in self._loads.items():
            if process is not None and process.ended is not None:
                if process.ended == 0:
                    raise RuntimeError(f"{process.path.name}: the load is over before its time")
                self._loads[name] = (command, self.system.start(f"produce-{name}", *command))

    def stop_loads(self) -> None:
        for name, (command, process) in self._loads.items():
            if process is not None and process.ended is None:
                process.popen.terminate()
                process.popen.wait(60)
            self._loads[name] = (command, None)

    # ---- faults ---------------------------------------------------------------------------------------------------

    def start_faults(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop_faults(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(240)
        self.check()

    def check(self) -> None:
        """Whether the faults are at work themselves.

        Raises
        ------
        RuntimeError : one of them broke, such as a broker that does not come back.
        """
        if self.broken:
            raise RuntimeError("; ".join(self.broken))

    def _guarded(self, act: Callable[[random.Random], None]) -> None:
        try:
            act(random.Random(f"{self._seed} {act.__name__}"))
        except Exception as error:  # shown by whoever waits for the thread
            self.broken.append(f"{act.__name__}: {error!r}")

    def _kill_on(self, rng: random.Random) -> None:
        killed = [slot for slot in self.slots if not slot.steady]
        while not self._stop.wait(rng.uniform(15.0, 45.0)):
            slot = rng.choice(killed)
            assert slot.process is not None
            until(lambda s=slot: s.process.child() is not None, f"{slot.name}: a worker")  # type: ignore[misc]
            self.faults.kills.setdefault(slot.agent.application, []).append(self._now())
            if rng.random() < 0.5:
                self.system.kill_worker(slot.process, True)
            else:
                self.system.kill_both(slot.process, True)
                slot.start(self.system)

    def _take_broker_away(self, rng: random.Random) -> None:
        between = min(240.0, self.seconds / 3)
        while not self._stop.wait(rng.uniform(0.6, 1.2) * between):
            began = self._now()
            if rng.random() < 0.5:
                self.broker.stop()
            else:
                self.broker.kill()
            time.sleep(rng.uniform(*AWAY))
            self.broker.start()
            self.faults.outages.append((began, self._now() - began))
