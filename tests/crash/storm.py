"""What is done to the processes of a run: which are killed, frozen or replaced, and when. Drawn from one seed."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from tests.crash.processes import Agent, System
from tests.support.processes import SECONDS, Process, until

#: An act of this form replaces a worker by one with a failpoint, which must kill it.
FAIL = "fail:"
FREEZE = "freeze"
KILLS = ("worker", "worker", "supervisor", "both")
#: Status of a worker that asks to be started again.
RESTART = 75


@dataclass(frozen=True, slots=True)
class Load:
    """The rows of a file, to be sent by `kinstream produce KIND FILE` while the storm lasts."""

    space: str
    file: Path
    rows: int
    kind: str = "labelled"
    block_rows: int = 64

    @property
    def load_id(self) -> str:
        return f"load-{self.space}" if self.kind == "labelled" else f"{self.kind}-{self.space}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What happens.

    Parameters
    ----------
    acts : for each agent (by application), in this order.
    producer_kills : of each load, besides the one that ends the slow part.
    slow_seconds, fast_seconds : how long all rows would take while the acts last, and afterwards.
    frozen_seconds : longer than the session timeout.
    """

    acts: Mapping[str, Sequence[str]]
    producer_kills: int
    producer_failpoint: str
    slow_seconds: float
    fast_seconds: float
    frozen_seconds: float


class Storm:
    """Runs the workers of each agent and one producer of each load through a plan."""

    def __init__(self, system: System, agents: Sequence[Agent], loads: Sequence[Load], seed: int) -> None:
        self.system = system
        self.agents = agents
        self.loads = loads
        self.workers: dict[Agent, list[Process]] = {agent: [] for agent in agents}
        self._seed = seed
        self._fast = threading.Event()
        self._failed = threading.Event()
        self._left = len(loads)
        self._lock = threading.Lock()

    @property
    def at_work(self) -> bool:
        """Whether rows are still being sent."""
        return self._left > 0

    def run(self, plan: Plan) -> None:
        """Returns when every act is done and every load is confirmed."""
        threads = len(self.agents) + len(self.loads)
        with ThreadPoolExecutor(threads) as pool:
            acting = [pool.submit(self._agent, agent, plan) for agent in self.agents]
            sending = [pool.submit(self._load, n, load, plan) for n, load in enumerate(self.loads)]
            try:
                self._finish(acting, acting + sending)
                self._fast.set()
                calm = [pool.submit(self._go_on, agent, plan) for agent in self.agents]
                self._finish(sending + calm, sending + calm)
            except BaseException:
                self._failed.set()
                self._fast.set()
                raise

    def _finish(self, wanted: list[Future[None]], watched: list[Future[None]]) -> None:
        """Wait for some threads; fail as soon as any of those watched does."""
        left = set(watched)
        while not all(future.done() for future in wanted):
            done, left = wait(left, timeout=1.0, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        for future in wanted:
            future.result()

    def _until(self, condition: object, what: str, seconds: float = SECONDS) -> None:
        assert callable(condition)
        until(lambda: self._failed.is_set() or condition(), what, seconds)
        if self._failed.is_set():
            raise RuntimeError("another thread of the run failed")

    # ---- agents -------------------------------------------------------------------------------------------------

    def _agent(self, agent: Agent, plan: Plan) -> None:
        rng = random.Random(f"{self._seed} {agent.application}")
        slots = self.workers[agent]
        slots.append(self.system.start_worker(agent))
        self._moves(agent, {})
        slots += [self.system.start_worker(agent) for _ in range(1, agent.workers)]
        before = self.system.offsets(agent)
        for act in plan.acts[agent.application]:
            self._ready(agent, before)
            time.sleep(rng.uniform(0.0, 1.5))
            self._act(agent, rng.randrange(len(slots)), act, plan)
            before = self.system.offsets(agent)
        self._ready(agent, before)

    def _go_on(self, agent: Agent, plan: Plan) -> None:
        """Kill on, as long as rows are being sent."""
        rng = random.Random(f"{self._seed} {agent.application} fast")
        while self.at_work and not self._failed.wait(rng.uniform(0.5, 4.0)):
            before = self.system.offsets(agent)
            self._act(agent, rng.randrange(agent.workers), rng.choice(KILLS), plan)
            self._ready(agent, before)

    def _moves(self, agent: Agent, before: Mapping[int, int]) -> None:
        """Wait until a checkpoint is newer, or nothing is left to come."""

        def moved() -> bool:
            now = self.system.offsets(agent)
            return not self.at_work or any(offset > before.get(p, -1) for p, offset in now.items())

        self._until(moved, f"{agent.application} writes a checkpoint past {dict(before)}")

    def _ready(self, agent: Agent, before: Mapping[int, int]) -> None:
        """Wait until all workers own partitions and the agent makes progress."""
        for process in self.workers[agent]:
            self._until(lambda p=process: _owns(p), f"{process.path.name}: a worker that owns a partition")
        self._moves(agent, before)

    def _act(self, agent: Agent, number: int, act: str, plan: Plan) -> None:
        slots = self.workers[agent]
        process = slots[number]
        if act == "worker":
            self.system.kill_worker(process, self.at_work)
        elif act == "supervisor":
            self.system.kill_supervisor(process, self.at_work)
            slots[number] = self.system.start_worker(agent)
        elif act == "both":
            self.system.kill_both(process, self.at_work)
            slots[number] = self.system.start_worker(agent)
        elif act == FREEZE:
            frozen = self.system.freeze_worker(process)
            try:
                self._failed.wait(plan.frozen_seconds)
            finally:
                frozen.resume()
        else:
            self._fail(agent, number, act.removeprefix(FAIL))

    def _fail(self, agent: Agent, number: int, failpoint: str) -> None:
        """A worker leaves; one with a failpoint joins and dies of it; a new one joins."""
        slots = self.workers[agent]
        status = slots[number].stop(60.0)
        if status != 0:
            raise RuntimeError(f"{slots[number].path.name}: status {status} after SIGTERM")
        bare = self._bare(agent, failpoint)
        while bare.ended == RESTART:
            # On a machine under load a broker may not answer in time; a supervisor would start it again, too.
            bare = self._bare(agent, failpoint)
        if bare.ended != -9:
            raise RuntimeError(f"{bare.path.name}: {failpoint}: status {bare.ended}, not SIGKILL's")
        self.system.note_kill(agent.application, failpoint, self.at_work)
        slots[number] = self.system.start_worker(agent)

    def _bare(self, agent: Agent, failpoint: str) -> Process:
        """A worker without a supervisor, once it has ended."""
        bare = self.system.start_bare(agent, failpoint)
        self._until(lambda: bare.ended is not None, f"{bare.path.name}: {failpoint} is reached")
        return bare

    # ---- loads --------------------------------------------------------------------------------------------------

    def _load(self, number: int, load: Load, plan: Plan) -> None:
        rng = random.Random(f"{self._seed} {load.load_id}")
        slow = load.rows / plan.slow_seconds
        if number == 0:
            process = self._produce(load, slow, plan.producer_failpoint)
            self._until(lambda: process.ended is not None, f"{load.load_id}: {plan.producer_failpoint}")
            if process.ended != -9:
                raise RuntimeError(f"{process.path.name}: status {process.ended}, not SIGKILL's")
            self.system.note_kill(f"producer {load.load_id}", plan.producer_failpoint, True)
        for _ in range(plan.producer_kills):
            self._send_and_kill(load, slow, rng.uniform(0.0, 5.0))
        process = self._produce(load, slow)
        self._until(
            lambda: self._fast.is_set() or process.ended is not None, f"{load.load_id}: the acts", 600
        )
        self._kill(load, process)
        for _ in range(plan.producer_kills):
            self._send_and_kill(load, load.rows / plan.fast_seconds, rng.uniform(0.0, 5.0))
        process = self._whole(load, load.rows / plan.fast_seconds)
        while process.ended == 1 and "No broker answers" in process.log():
            # On a machine under load a broker may not answer in time; an operator would send the load again, too.
            process = self._whole(load, load.rows / plan.fast_seconds)
        if process.ended != 0:
            raise RuntimeError(f"{process.path.name}: status {process.ended}")
        with self._lock:
            self._left -= 1

    def _whole(self, load: Load, rate: float) -> Process:
        """A producer, once it has ended."""
        process = self._produce(load, rate)
        self._until(lambda: process.ended is not None, f"{load.load_id}: the load ends", 600)
        return process

    def _send_and_kill(self, load: Load, rate: float, seconds: float) -> None:
        """Send until a block is confirmed and then for some seconds more, or to the end of the load."""
        before = self._confirmed(load)
        process = self._produce(load, rate)
        self._until(
            lambda: self._confirmed(load) > before or process.ended is not None,
            f"{load.load_id}: a block is confirmed past {before}",
        )
        self._failed.wait(seconds)
        self._kill(load, process)

    def _produce(self, load: Load, rate: float, failpoint: str = "") -> Process:
        arguments = ["produce", load.kind, str(load.file), "--space", load.space]
        arguments += ["--block-rows", str(load.block_rows), "--load-id", load.load_id]
        arguments += ["--progress-folder", str(self.system.progress), "--rate", f"{rate:.3f}", "--json"]
        return self.system.start(f"produce-{load.load_id}", *arguments, failpoints=failpoint)

    def _kill(self, load: Load, process: Process) -> None:
        process.popen.kill()
        if process.popen.wait() == -9:
            self.system.note_kill(f"producer {load.load_id}", "producer", True)

    def _confirmed(self, load: Load) -> int:
        path = self.system.progress / f"{load.load_id}.json"
        return int(json.loads(path.read_text())["sequence"]) if path.exists() else 0


def _owns(process: Process) -> bool:
    """Whether the newest worker in a log has taken over a partition."""
    newest = process.log().rpartition(" serves http://")[2]
    return process.child() is not None and "continuing at" in newest
