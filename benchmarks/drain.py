"""How fast a learner worker drains a backlog, beside its kernel alone and beside a loop written by hand.

The backlog lies on a real Kafka before the worker starts. Its rate is that between the first and the last outcome,
by the timestamps that they are sent with, so neither the start of the process nor the joining of the group counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.backlog import block_of, block_rows, constraints
from benchmarks.figures import Figure
from benchmarks.hand_written import message
from benchmarks.system import GAMMA, System, system
from kinstream.learners.registry import create
from kinstream.learners.warm_up import warm_up
from kinstream.producers.loads.blocks import BLOCK_ROWS, default_rows
from kinstream.streams.records.codec.codec import decode_outcome
from kinstream.streams.records.message import Message, Output
from kinstream.streams.records.values import Outcome


@dataclass(frozen=True, slots=True)
class Case:
    """One backlog.

    Parameters
    ----------
    load : rows of the load of samples.
    share : percent of the rate of the kernel alone that the worker has to reach.
    by_hand, factor : triplets for the hand-written loop, and how many times faster the worker has to be; 0 for none.
    rows : of a block of samples; None for the producer's default for such a load.
    """

    kind: str
    d: int
    load: int
    share: float
    by_hand: int = 0
    factor: float = 0.0
    rows: int | None = None

    @property
    def block_rows(self) -> int:
        """Rows of a block of samples."""
        return block_rows(self.d, self.rows or default_rows(self.load))


CASES: Final = (
    Case("opml", 64, 2_048_000, 60.0, 30_000, 20.0),
    # As in a small load.
    Case("opml", 64, 2_048_000, 40.0, rows=BLOCK_ROWS),
    Case("opml", 784, 132_000, 40.0, 4_000, 10.0),
    Case("oahu", 64, 204_000, 60.0),
    Case("oahu", 784, 264_000, 70.0),
    Case("mixture", 64, 102_000, 60.0),
    Case("mixture", 784, 16_600, 60.0),
    Case("adapter", 1_536, 5_100, 60.0),
)
ARGUMENTS: Final[dict[str, dict[str, Any]]] = {
    "opml": {"gamma": GAMMA, "unit": "published"},
    "oahu": {},
    "mixture": {},
    "adapter": {"rank": 128},
}
TRIES: Final = 3
DRAIN_SECONDS: Final = 300.0
_THREADS: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def kernel_rate(kind: str, records: list[Output]) -> float:
    """Triplets a second of the learner alone, on decoded blocks in this process."""
    learner = create(kind, **ARGUMENTS[kind])
    seconds, triplets = 0.0, 0
    for record in records:
        block = block_of(record)
        begun = time.perf_counter()
        learner.learn(block)
        seconds += time.perf_counter() - begun
        triplets += len(block)
    return triplets / seconds


def drained(on: System, learner: str, blocks: int) -> tuple[float, list[Outcome]]:
    """Triplets a second of one worker over the whole backlog, and its outcomes."""
    before = on.ends("outcomes")
    wanted = on.end("outcomes") + blocks
    worker = on.run("worker", "learner", learner, "--create")
    on.wait(lambda: on.end("outcomes") >= wanted, f"{learner} drains {blocks} blocks", DRAIN_SECONDS, 0.5)
    worker.stop()
    return rate_of(on.read("outcomes", before))


def rate_of(messages: list[Message]) -> tuple[float, list[Outcome]]:
    """Triplets a second between the first and the last outcome."""
    outcomes = [found for m in messages if isinstance(found := decode_outcome(m.value), Outcome)]
    seconds = (messages[-1].timestamp_ms - messages[0].timestamp_ms) / 1000
    return sum(outcome.counts.seen for outcome in outcomes[1:]) / seconds, outcomes


def hand_written_rate(on: System, records: list[Output], d: int, count: int) -> float:
    """Triplets a second of the loop written by hand, on triplets of the same blocks.

    numpy's own threads help on one machine and hurt on another: the better of both ways counts.
    """
    topic = "hand-written"
    on.broker.create_topic(topic)
    on.append(Output(topic, b"space", value, ()) for value in _triplets(records, count))
    return max(_hand_written(on, topic, d, count, threads) for threads in (None, 1))


def _hand_written(on: System, topic: str, d: int, count: int, threads: int | None) -> float:
    chosen = {} if threads is None else dict.fromkeys(_THREADS, str(threads))
    options = {"bootstrap": on.broker.bootstrap, "topic": topic, "dimension": d, "count": count}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.hand_written", *(f"--{n}={v}" for n, v in options.items())],
        stdout=subprocess.PIPE,
        check=True,
        env={**os.environ, **chosen},
        text=True,
        timeout=DRAIN_SECONDS,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return float(found["triplets"] / found["seconds"])


def _triplets(records: list[Output], count: int) -> Any:
    left = count
    for record in records:
        block = block_of(record)
        X = block.tables[0].vectors
        for rows in block.index[:left]:
            yield message(*X[rows])
        left -= min(left, len(block))
        if not left:
            return


def measure(case: Case, quick: bool) -> list[Figure]:
    """The figures of one backlog."""
    share = 8 if quick else 1
    blocks, by_hand = -(-case.load // share // case.block_rows), case.by_hand // share
    names = [f"{case.kind}-{number}" for number in range(1 if quick else TRIES)]
    section: dict[str, Any] = {"kind": case.kind, "from": ["one-pass"]} | ARGUMENTS[case.kind]
    # The kernel alone judges nothing, so the workers that are compared with it hold out nothing.
    sections = {f"learners.{name}": section | {"held_out": 0.0} for name in names}
    sections |= {f"learners.{name}-held": section for name in names}
    with system(**sections) as on:
        records = list(constraints(on.settings, ["space"], case.d, blocks, case.block_rows))
        on.append(records)
        kernels: list[float] = []
        workers: list[float] = []
        holding: list[float] = []
        outcomes: list[Outcome] = []
        for name in names:
            # One after the other, so that both see the same machine.
            kernels.append(kernel_rate(case.kind, records))
            rate, outcomes = drained(on, name, len(records))
            workers.append(rate)
            holding.append(drained(on, f"{name}-held", len(records))[0])
        loop = hand_written_rate(on, records, case.d, by_hand) if by_hand else 0.0
    worker, kernel = max(workers), max(kernels)
    seen = sum(outcome.counts.seen for outcome in outcomes)
    active = sum(outcome.counts.utilised for outcome in outcomes) / seen
    facts = {
        "triplets": seen,
        "blocks": len(records),
        "active": active,
        "worker_tries": workers,
        "held_out_tries": holding,
        "kernel_tries": kernels,
        "hand_written": loop,
    }
    label = f"{case.kind}, d = {case.d}" + (f", {case.rows} rows a block" if case.rows else "")
    of_kernel = 100 * worker / kernel
    found = [
        Figure("drain", f"{label}: worker", worker, "triplets/s", facts=facts),
        Figure("drain", f"{label}: kernel alone", kernel, "triplets/s"),
        Figure("drain", f"{label}: worker of kernel", of_kernel, "%", at_least=case.share, goal=80.0),
        Figure("drain", f"{label}: worker with 2 % held out", max(holding), "triplets/s"),
    ]
    if by_hand:
        found += [
            Figure("drain", f"{label}: loop written by hand", loop, "triplets/s"),
            Figure("drain", f"{label}: worker over loop", worker / loop, "times", at_least=case.factor),
        ]
    return found


def run(quick: bool) -> list[Figure]:
    """Drain the backlogs."""
    for kind, arguments in ARGUMENTS.items():
        warm_up(kind, arguments)
    return [figure for case in CASES for figure in measure(case, quick)]
