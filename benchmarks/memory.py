"""Memory of a learner worker: over a million constraints of one space, and with ten thousand spaces."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from benchmarks.backlog import constraints
from benchmarks.drain import DRAIN_SECONDS, rate_of
from benchmarks.figures import Figure
from benchmarks.system import System, series, system

D: Final = 64
SPACES: Final = 10_000
#: Sample rows of a block, the same for one space and for many.
ROWS: Final = 64
GROWTH_PERCENT: Final = 5.0
LIMIT_GB: Final = 2.0
TIMES: Final = 2.0


@dataclass(frozen=True, slots=True)
class Sample:
    """Resident bytes of the worker process, and how many records it had read."""

    at: float
    resident: int
    position: int


@dataclass(frozen=True, slots=True)
class Drained:
    """Seconds for a constraint while draining, and with the checkpoint of all of it; memory on the way."""

    constraints: int
    seconds: float
    checkpointed_seconds: float
    samples: list[Sample]


def drain(on: System, records: int) -> Drained:
    """Let a worker drain the constraints that lie there, and watch its memory until the checkpoint holds all."""
    worker = on.run("worker", "learner", "opml", "--create")
    samples: list[Sample] = []

    def checkpointed() -> bool:
        page = worker.page()
        process = worker.child()
        positions = series(page, "kinstream_consumer_position")
        if process is not None and positions:
            found = Sample(time.time(), process.memory_info().rss, int(sum(positions.values())))
            samples.append(found)
        return sum(series(page, "kinstream_checkpoint_offset").values()) >= records

    on.wait(checkpointed, f"a worker drains {records} blocks", DRAIN_SECONDS, 0.2)
    ended = time.time()
    messages = on.read("outcomes")
    worker.stop()
    rate, outcomes = rate_of(messages)
    seen = sum(outcome.counts.seen for outcome in outcomes)
    begun = messages[0].timestamp_ms / 1000
    return Drained(seen, 1 / rate, (ended - begun) / seen, samples)


def thirds(samples: list[Sample]) -> tuple[float, float]:
    """Largest resident size in the first and in the last third of the records."""
    end = max(sample.position for sample in samples)
    moving = [s for s in samples if s.position > 0]
    first = [s.resident for s in moving if s.position <= end / 3]
    last = [s.resident for s in moving if s.position >= end * 2 / 3]
    return float(max(first)), float(max(last))


def one_space(quick: bool) -> list[Figure]:
    """A million constraints and more, with frequent checkpoints."""
    blocks = 1_200 if quick else 12_000
    with system(checkpoints={"interval_seconds": 1.0}) as on:
        found = drain(on, on.append(constraints(on.settings, ["space"], D, blocks)))
    first, last = thirds(found.samples)
    facts = {"constraints": found.constraints, "first": first, "last": last, "samples": len(found.samples)}
    name = f"growth over {found.constraints / 1e6:.1f} million constraints, last third to first"
    return [
        Figure("memory", "learner worker, one space", last / 1e6, "MB"),
        Figure("memory", name, 100 * (last / first - 1), "%", at_most=GROWTH_PERCENT, facts=facts),
    ]


def many_spaces(quick: bool) -> list[Figure]:
    """Ten thousand spaces in one worker against one space, in blocks of the same size."""
    spaces, rounds = (1_000, 3) if quick else (SPACES, 4)
    names = [f"space-{number}" for number in range(spaces)]
    with system() as on:
        one = drain(on, on.append(constraints(on.settings, ["space"], D, spaces * rounds, ROWS)))
    with system() as on:
        many = drain(on, on.append(constraints(on.settings, names, D, rounds, ROWS)))
    peak = max(sample.resident for sample in many.samples)
    facts = {
        "constraints": many.constraints,
        "one_space_seconds": one.seconds,
        "many_spaces_seconds": many.seconds,
        "one_space_checkpointed_seconds": one.checkpointed_seconds,
        "many_spaces_checkpointed_seconds": many.checkpointed_seconds,
    }
    label = f"{spaces:,} spaces of d = {D}"
    return [
        Figure("memory", f"{label}: largest", peak / 1e9, "GB", at_most=LIMIT_GB),
        Figure(
            "memory",
            f"{label}: cost of a constraint, to one space",
            many.seconds / one.seconds,
            "times",
            at_most=TIMES,
            facts=facts,
        ),
        Figure(
            "memory",
            f"{label}: the same, last checkpoint included",
            many.checkpointed_seconds / one.checkpointed_seconds,
            "times",
        ),
    ]


def run(quick: bool) -> list[Figure]:
    """Both figures of memory."""
    return one_space(quick) + many_spaces(quick)
