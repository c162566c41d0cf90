"""How long a worker takes from its command to the first record that it has applied.

Rows flow all the time. The agent has run before, so its kernels are compiled and its generation has a birth record and
checkpoints. It is stopped, and `kinstream worker` is started again: supervisor and worker. The time is that from the
start of the process to the first outcome, by the outcome's own timestamp. This broker shares out the group's partitions
at once; by default, brokers wait 3 s for more members (`group.initial.rebalance.delay.ms`).
"""

from __future__ import annotations

import time
from statistics import median
from typing import Final

from benchmarks.figures import Figure
from benchmarks.latency import start_agents, start_rows
from benchmarks.recovery import Tail
from benchmarks.system import System, system

TRIES: Final = 7
LIMIT_SECONDS: Final = 2.5
LEARNER: Final = ("worker", "learner", "opml")
BUILDER: Final = ("worker", "builder", "one-pass")


def starts(on: System, command: tuple[str, ...], tries: int) -> list[float]:
    """Seconds from each start of the agent, which does not run now, to the first outcome after it."""
    found = []
    for _ in range(tries):
        tail = Tail(on)
        for _ in tail.outcomes(1.0):
            pass
        moment = time.time()
        worker = on.run(*command)
        found.append(tail.first_sent_after(moment) - moment)
        tail.close()
        if status := worker.stop(60.0):
            raise RuntimeError(f"{worker.path.name}: status {status}")
    return found


def run(quick: bool) -> list[Figure]:
    """Start the learner and the builder, several times each, while rows flow."""
    tries = 3 if quick else TRIES
    with system() as on:
        agents = start_agents(on)
        producer = start_rows(on, 20, 1000)
        tail = Tail(on)
        tail.first_after(time.time())
        tail.close()
        by_role = {}
        for role, command in (("learner", LEARNER), ("builder", BUILDER)):
            agents[role].stop(60.0)
            by_role[role] = starts(on, command, tries)
            agents[role] = on.run(*command)
            on.until_ready(agents[role])
        producer.stop()
    return [
        Figure(
            "start",
            f"start of the {role} to its first record, median of {tries} (with its supervisor)",
            median(seconds),
            "s",
            at_most=LIMIT_SECONDS,
            facts={"seconds": seconds},
        )
        for role, seconds in by_role.items()
    ]
