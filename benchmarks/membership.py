"""The two group protocols beside each other: a rebalance, a SIGKILL, and a backlog, each in one run on one broker.

Small constraint blocks come at a steady rate to two partitions. A second worker joins: the pause of a partition is the
longest time between two of its outcomes. A worker that is alone gets SIGKILL and its supervisor starts another: the
time is that to the first outcome of a block that was sent after the signal. Times are the timestamps of the records.
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from benchmarks.backlog import constraints
from benchmarks.drain import ARGUMENTS, drained
from benchmarks.figures import Figure
from benchmarks.system import System, system
from kinstream.learners.warm_up import warm_up
from kinstream.streams.kafka.clients import confluent_producer
from kinstream.streams.kafka.emitter import Emitter
from kinstream.streams.records.message import Output
from kinstream.streams.topics import partition_of
from tests.support.processes import Process

PROTOCOLS: Final = ("classic", "consumer")
PARTITIONS: Final = 2
#: Blocks a second of each partition, and the seconds that a look lasts after the last change.
RATE: Final = 50
AFTER_SECONDS: Final = 3.0
LIMIT_SECONDS: Final = 120.0
JOINS: Final = 2
KILLS: Final = 3
TRIES: Final = 3
DIMENSION: Final = 64
BLOCKS: Final = 8_000
LEARNER: Final[dict[str, Any]] = {"kind": "opml", "from": ["one-pass"], "held_out": 0.0} | ARGUMENTS["opml"]
#: Brokers with the session timeout and the heartbeats that workers ask for in the classic protocol.
LIKE_CLASSIC: Final = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "2000",
}


@dataclass(frozen=True, slots=True)
class Join:
    """Between two moments (seconds since the epoch) a second worker joined and took these partitions."""

    begun: float
    ended: float
    moved: frozenset[int]


class Pace:
    """Sends prepared blocks to every partition at a steady rate, on its own thread."""

    def __init__(self, on: System) -> None:
        self._on = on
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _send(self) -> None:
        emitter = Emitter(confluent_producer(self._on.settings.kafka))
        begun = time.monotonic()
        for number, output in enumerate(_blocks(self._on, 200_000)):
            due = begun + number / (RATE * PARTITIONS)
            if self._stop.wait(max(0.0, due - time.monotonic())):
                break
            emitter.send(output.topic, output.key, output.value, output.headers, output.partition)
        emitter.confirm()
        emitter.close()


def _blocks(on: System, rounds: int) -> Any:
    """Small blocks, the partitions in turn."""
    spaces: dict[int, str] = {}
    number = 0
    while len(spaces) < PARTITIONS:
        spaces.setdefault(partition_of(f"space-{number}", PARTITIONS), f"space-{number}")
        number += 1
    return constraints(on.settings, list(spaces.values()), 8, rounds, 4)


def _start(on: System, protocol: str) -> Process:
    on.configure(worker__group_protocol=protocol)
    return on.run("worker", "learner", protocol, "--create")


def _flows(on: System, seconds: float = LIMIT_SECONDS) -> None:
    """Wait until every partition of `outcomes` has grown."""
    before = on.ends("outcomes")
    on.wait(
        lambda: all(end > before[p] for p, end in on.ends("outcomes").items()), "outcomes come", seconds, 0.3
    )


def _joins(on: System, protocol: str, count: int) -> list[Join]:
    """A second worker joins and leaves, several times."""
    found = []
    for _ in range(count):
        begun = time.time()
        second = _start(on, protocol)
        on.until_ready(second)
        on.wait(lambda worker=second: bool(_taken(worker)), "the second worker takes over", LIMIT_SECONDS)  # type: ignore[misc]
        _flows(on)
        time.sleep(AFTER_SECONDS)
        found.append(Join(begun, time.time(), _taken(second)))
        second.stop()
        _flows(on)
    return found


def _taken(worker: Process) -> frozenset[int]:
    return frozenset(map(int, re.findall(r"partition (\d+): continuing at", worker.log())))


def _kills(on: System, worker: Process, count: int) -> list[float]:
    """When a worker got SIGKILL; each time it comes back before the next."""
    found = []
    for number in range(count):
        # Anywhere between two heartbeats.
        time.sleep(0.37 * number)
        process = worker.child()
        assert process is not None, "no worker process to kill"
        before = _takings(worker)
        found.append(time.time())
        process.kill()
        # Outcomes that were on their way when it died come after the signal.
        on.wait(
            lambda before=before: _takings(worker) >= before + PARTITIONS,  # type: ignore[misc]
            "it takes over again",
            LIMIT_SECONDS,
        )
        _flows(on)
        time.sleep(AFTER_SECONDS)
    return found


def _takings(worker: Process) -> int:
    return worker.log().count(": continuing at ")


def _outcomes(on: System, learner: str) -> list[tuple[int, float, float]]:
    """(partition, time sent, time at which its block was sent) of every outcome, in the order of the log."""
    sent = {(m.partition, m.offset): m.timestamp_ms / 1000 for m in on.read("constraints")}
    found = []
    for m in on.read("outcomes"):
        headers = {name: (value or b"").decode() for name, value in m.headers}
        if headers["kinstream-emitter"] == learner:
            _, partition, offset, _ = headers["kinstream-origin"].rsplit("/", 3)
            found.append((int(partition), m.timestamp_ms / 1000, sent[int(partition), int(offset)]))
    return found


def _pauses(outcomes: list[tuple[int, float, float]], joins: list[Join]) -> dict[bool, list[float]]:
    """The longest time without an outcome during each join, of partitions that moved (True) and that stayed."""
    found: dict[bool, list[float]] = {True: [], False: []}
    for join in joins:
        for partition in range(PARTITIONS):
            times = [t for p, t, _ in outcomes if p == partition and join.begun <= t <= join.ended]
            gaps = [after - before for before, after in pairwise(times)]
            found[partition in join.moved].append(max(gaps))
    return found


def _recovered(outcomes: list[tuple[int, float, float]], kills: list[float]) -> list[float]:
    """Seconds from each signal to the first outcome of a block that was sent after it."""
    return [min(t for _, t, sent in outcomes if sent > moment) - moment for moment in kills]


def _steady(quick: bool, properties: dict[str, str], joins: int, kills: int, what: str) -> list[Figure]:
    found = []
    sections = {f"learners.{protocol}": LEARNER for protocol in PROTOCOLS}
    with system((PARTITIONS, properties), **sections) as on, Pace(on):
        for protocol in PROTOCOLS:
            worker = _start(on, protocol)
            on.until_ready(worker)
            _flows(on)
            joined = _joins(on, protocol, 1 if quick else joins)
            killed = _kills(on, worker, 1 if quick else kills)
            worker.stop()
            outcomes = _outcomes(on, protocol)
            pauses = _pauses(outcomes, joined)
            seconds = _recovered(outcomes, killed)
            for name, values in (
                ("a partition that stays pauses, longest", pauses[False]),
                ("a partition that moves pauses, longest", pauses[True]),
                ("SIGKILL to the first new outcome, longest", seconds),
            ):
                label = f"{protocol}, {what}: {name} of {len(values)}"
                if values:
                    found.append(
                        Figure("membership", label, max(values), "s", facts={"seconds": sorted(values)})
                    )
    return found


def _drain(quick: bool) -> list[Figure]:
    tries = 1 if quick else TRIES
    names = {protocol: [f"{protocol}-{n}" for n in range(tries)] for protocol in PROTOCOLS}
    sections = {f"learners.{name}": LEARNER for some in names.values() for name in some}
    rates: dict[str, list[float]] = {protocol: [] for protocol in PROTOCOLS}
    with system(**sections) as on:
        records: list[Output] = list(
            constraints(on.settings, ["space"], DIMENSION, BLOCKS // (8 if quick else 1))
        )
        on.append(records)
        for number in range(tries):
            # In turn, so that both see the same machine.
            for protocol in PROTOCOLS:
                on.configure(worker__group_protocol=protocol)
                rates[protocol].append(drained(on, names[protocol][number], len(records))[0])
    return [
        Figure(
            "membership",
            f"{protocol}: drain, d = {DIMENSION}",
            max(some),
            "triplets/s",
            facts={"tries": some, "blocks": len(records)},
        )
        for protocol, some in rates.items()
    ]


def run(quick: bool) -> list[Figure]:
    """Both protocols with one session timeout, with the brokers' own, and over a backlog."""
    warm_up("opml", ARGUMENTS["opml"])
    found = _steady(quick, LIKE_CLASSIC, JOINS, KILLS, "sessions of 6 s")
    if not quick:
        found += _steady(quick, {}, 1, 1, "brokers' own sessions")
    return found + _drain(quick)
