"""From an event to the metric that it moves: single rows at a steady rate through every agent.

Three clocks are read. `outcome`: the timestamp of each outcome record less the event's time, exact to a millisecond.
`metric`: the first look at the metrics page that counts the row, less the event's time; exact to the looks' distance,
and never too small. `histogram`: what the metrics agent itself says, interpolated within its buckets.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from math import ceil
from typing import Final

from benchmarks.figures import Figure, percentile
from benchmarks.system import System, series, system
from kinstream.streams.records.codec.codec import decode_outcome
from kinstream.streams.records.values import Outcome
from tests.support.processes import Process

RATE: Final = 100
ROWS: Final = 1797
LOOK_SECONDS: Final = 0.05
LIMIT_SECONDS: Final = 1.0
SPACE: Final = "digits"


def start_agents(on: System) -> dict[str, Process]:
    """Builder, learner and metrics agent, ready."""
    agents = {
        "builder": on.run("worker", "builder", "one-pass", "--create"),
        "learner": on.run("worker", "learner", "opml", "--create"),
        "metrics": on.run("worker", "metrics", "--create"),
    }
    on.until_ready(*agents.values())
    return agents


def start_rows(on: System, rate: int, passes: int) -> Process:
    """The producer, one row of the handwritten digits a record."""
    options = [f"--rate={rate}", f"--repeat={passes}", "--block-rows=1", "--shuffle-seed=1", "--json"]
    return on.run(
        "produce",
        "labelled",
        "sklearn:digits",
        f"--space={SPACE}",
        f"--progress-folder={on.folder}",
        *options,
    )


def look_at(on: System, metrics: Process, producer: Process) -> list[tuple[float, float]]:
    """(wall-clock time, constraints counted) until the producer has ended and the count stands still."""
    looks: list[tuple[float, float]] = []
    still_since = time.monotonic()
    while producer.running or time.monotonic() - still_since < 3.0:
        begun = time.monotonic()
        counted = sum(series(metrics.page(), "kinstream_constraints_seen_total").values())
        if not looks or counted != looks[-1][1]:
            still_since = time.monotonic()
        looks.append((time.time(), counted))
        time.sleep(max(0.0, LOOK_SECONDS - (time.monotonic() - begun)))
    return looks


def quantile(buckets: dict[float, float], share: float) -> float:
    """A quantile of a cumulative histogram, linear within the bucket, as Prometheus computes it."""
    bounds = sorted(buckets)
    wanted = share * buckets[bounds[-1]]
    at = next(number for number, bound in enumerate(bounds) if buckets[bound] >= wanted)
    low, below = (bounds[at - 1], buckets[bounds[at - 1]]) if at else (0.0, 0.0)
    if bounds[at] == float("inf"):
        return low
    return low + (bounds[at] - low) * (wanted - below) / (buckets[bounds[at]] - below)


def run(quick: bool) -> list[Figure]:
    """Send a minute of rows (20 s when quick), and read the three clocks."""
    with system() as on:
        agents = start_agents(on)
        looks = look_at(on, agents["metrics"], start_rows(on, RATE, 1 if quick else ceil(60 * RATE / ROWS)))
        page = agents["metrics"].page()
        messages = on.read("outcomes")
    to_outcome, to_metric = [], []
    counts = [counted for _, counted in looks]
    seen = 0
    for message in messages:
        outcome = decode_outcome(message.value)
        assert isinstance(outcome, Outcome)
        seen += outcome.counts.seen
        born = outcome.time_ms / 1000
        to_outcome.append(message.timestamp_ms / 1000 - born)
        to_metric.append(looks[bisect_left(counts, seen)][0] - born)
    buckets = {
        float(labels.split('le="')[1].split('"')[0]): count
        for labels, count in series(page, "kinstream_event_to_metric_delay_seconds_bucket").items()
    }
    facts = {"rows": len(messages), "rate": RATE, "maximum": max(to_metric), "histogram": buckets}
    found = [
        Figure("latency", "event to metric, p50 (page looked at)", percentile(to_metric, 0.5), "s"),
        Figure(
            "latency",
            "event to metric, p99 (page looked at)",
            percentile(to_metric, 0.99),
            "s",
            at_most=LIMIT_SECONDS,
            facts={str(name): value for name, value in facts.items()},
        ),
        Figure("latency", "event to metric, p50 (agent's histogram)", quantile(buckets, 0.5), "s"),
        Figure(
            "latency",
            "event to metric, p99 (agent's histogram)",
            quantile(buckets, 0.99),
            "s",
            at_most=LIMIT_SECONDS,
        ),
        Figure("latency", "event to outcome, p50 (record timestamps)", percentile(to_outcome, 0.5), "s"),
        Figure("latency", "event to outcome, p99 (record timestamps)", percentile(to_outcome, 0.99), "s"),
    ]
    return found
