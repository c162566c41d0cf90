"""What traces cost a learner worker: its throughput with 1 % of the records sampled and exported, and without."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.backlog import constraints
from benchmarks.drain import ARGUMENTS, drained
from benchmarks.figures import Figure
from benchmarks.system import system
from kinstream.learners.agent import learner_spec
from kinstream.learners.warm_up import warm_up
from kinstream.streams.records.message import Output
from kinstream.streams.settings import Settings
from kinstream.streams.traces.context import root_of
from kinstream.streams.traces.exporter import Exporter, otlp
from kinstream.streams.traces.loads import EVERY
from tests.support.memory_log import MemoryLog
from tests.support.pipeline import Agent
from tests.traces.collector import collecting

TRIES: Final = 2
BLOCKS: Final = 5_000
D: Final = 64
#: Records and repetitions of the measurement in one process.
STEPS: Final = 600
ROUNDS: Final = 30
#: Percent of the throughput that traces may cost.
MOST: Final = 3.0


def sampled(records: Sequence[Output]) -> list[Output]:
    """The records, with a trace in a share of them."""
    return [
        replace(record, headers=(*record.headers, *root_of("benchmark", number).headers()))
        if number % EVERY == 1
        else record
        for number, record in enumerate(records)
    ]


def _rates(traced: bool, tries: int, blocks: int) -> list[float]:
    """Triplets a second of each try, each by a new worker on the same backlog."""
    section: dict[str, Any] = {"kind": "opml", "from": ["one-pass"], **ARGUMENTS["opml"]}
    names = [f"opml-{number}" for number in range(tries)]
    with collecting() as collector:
        endpoint = {"traces": {"endpoint": collector.url}} if traced else {}
        with system(**{f"learners.{name}": section for name in names}, **endpoint) as on:
            records = list(constraints(on.settings, ["space"], D, blocks))
            on.append(sampled(records) if traced else records)
            found = [drained(on, name, len(records))[0] for name in names]
        if traced and not collector.spans:
            raise RuntimeError("no span has reached the collector")
    return found


def _alone(rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of a learner's partition in this process over the same records, without traces and with, in turn.

    The exporter and its collector run in this process too, so the figure has their whole cost.
    """
    section = {"kind": "opml", "from": ["one-pass"], **ARGUMENTS["opml"]}
    settings = Settings.model_validate(
        {
            "topics": {"partitions": 1},
            "builders": {"one-pass": {"kind": "one-pass", "prefix_pairs": False}},
            "learners": {"opml": section},
        }
    )
    plain = list(constraints(settings, ["space"], D, STEPS))
    seconds: tuple[list[float], list[float]] = ([], [])
    with collecting() as collector, TemporaryDirectory() as folder:
        exporter = Exporter(otlp(collector.url, "benchmark"))
        logs = MemoryLog(1), MemoryLog(1)
        for log, records in zip(logs, (plain, sampled(plain)), strict=True):
            for record in records:
                log.append(record.topic, record.key, record.value, record.headers, 0)
        for number in range(rounds):
            for traced in (number % 2, 1 - number % 2):
                root = Path(folder) / f"{number}-{traced}"
                spans = exporter if traced else None
                agent = Agent(learner_spec(settings, "opml"), settings, logs[traced], root, spans=spans)
                begun = time.perf_counter()
                agent.step(0)
                seconds[traced].append(time.perf_counter() - begun)
        exporter.close(10.0)
        if exporter.dropped or not exporter.exported:
            raise RuntimeError(f"{exporter.dropped} spans dropped, {exporter.exported} exported")
    return seconds


def figures(quick: bool) -> list[Figure]:
    """Drain the same backlog with traces and without, in turn; then the same in this process."""
    warm_up("opml", ARGUMENTS["opml"])
    without, with_traces = _alone(4 if quick else ROUNDS)
    alone = 100.0 * (1.0 - median(without) / median(with_traces))
    tries, blocks = (1, BLOCKS // 8) if quick else (TRIES, BLOCKS)
    off, on = [], []
    for _ in range(1 if quick else 2):
        off += _rates(False, tries, blocks)
        on += _rates(True, tries, blocks)
    lost = 100.0 * (1.0 - max(on) / max(off))
    facts = {"off": off, "on": on, "share": 1 / EVERY, "blocks": blocks}
    rounds = {"off": without, "on": with_traces, "records": STEPS}
    label = f"opml, d = {D}"
    return [
        Figure("traces", f"{label}: without traces", max(off), "triplets/s", facts=facts),
        Figure("traces", f"{label}: 1 % sampled and exported", max(on), "triplets/s"),
        Figure("traces", f"{label}: lost", lost, "%", at_most=MOST),
        Figure("traces", f"{label}: lost, in one process", alone, "%", at_most=MOST, facts=rounds),
    ]
