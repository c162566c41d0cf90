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
from typing import Any, Final

from benchmarks.backlog import block_of, constraints
from benchmarks.figures import Figure
from benchmarks.hand_written import message
from benchmarks.system import GAMMA, System, system
from learners.opml import OPML
from learners.warm_up import warm_up
from streams.codec import decode_outcome
from streams.log import Message, Output
from streams.records import Outcome

#: d -> sample blocks of the backlog, triplets for the hand-written loop, and how much faster the worker must be.
SIZES: Final = {64: (8_000, 30_000, 20.0), 784: (800, 4_000, 10.0)}
TRIES: Final = 3
DRAIN_SECONDS: Final = 300.0
_THREADS: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def kernel_rate(records: list[Output]) -> float:
    """Triplets a second of the learner alone, on decoded blocks in this process."""
    learner = OPML(GAMMA)
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
    worker = on.start("worker", "learner", learner, "--create")
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


def measure(d: int, quick: bool) -> list[Figure]:
    """The figures of one dimension."""
    blocks, by_hand, factor = SIZES[d]
    if quick:
        blocks, by_hand = blocks // 8, by_hand // 8
    names = [f"opml-{number}" for number in range(1 if quick else TRIES)]
    sections = {f"learners.{name}": {"kind": "opml", "from": ["one-pass"], "gamma": GAMMA} for name in names}
    with system(**sections) as on:
        records = list(constraints(on.settings, ["space"], d, blocks))
        on.append(records)
        kernels: list[float] = []
        workers: list[float] = []
        outcomes: list[Outcome] = []
        for name in names:
            # One after the other, so that both see the same machine.
            kernels.append(kernel_rate(records))
            rate, outcomes = drained(on, name, len(records))
            workers.append(rate)
        loop = hand_written_rate(on, records, d, by_hand)
    worker, kernel = max(workers), max(kernels)
    seen = sum(outcome.counts.seen for outcome in outcomes)
    active = sum(outcome.counts.utilised for outcome in outcomes) / seen
    facts = {
        "triplets": seen,
        "blocks": len(records),
        "active": active,
        "worker_tries": workers,
        "kernel_tries": kernels,
        "hand_written": loop,
    }
    label = f"d = {d}"
    return [
        Figure("drain", f"{label}: worker", worker, "triplets/s", facts=facts),
        Figure("drain", f"{label}: kernel alone", kernel, "triplets/s"),
        Figure("drain", f"{label}: loop written by hand", loop, "triplets/s"),
        Figure("drain", f"{label}: worker of kernel", 100 * worker / kernel, "%", at_least=40.0, goal=80.0),
        Figure("drain", f"{label}: worker over loop", worker / loop, "times", at_least=factor),
    ]


def run(quick: bool) -> list[Figure]:
    """Drain the backlogs of both dimensions."""
    warm_up("opml", {"gamma": GAMMA})
    return [figure for d in SIZES for figure in measure(d, quick)]
