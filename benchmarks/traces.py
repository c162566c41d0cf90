"""What traces cost a learner worker: its throughput with 1 % of the records sampled and exported, and without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from benchmarks.backlog import constraints
from benchmarks.drain import ARGUMENTS, drained
from benchmarks.figures import Figure
from benchmarks.system import system
from kinstream.learners.warm_up import warm_up
from kinstream.streams.records.message import Output
from kinstream.streams.traces.context import root_of, share_of
from tests.traces.collector import collecting

SHARE: Final = 0.01
TRIES: Final = 2
BLOCKS: Final = 5_000
D: Final = 64
#: Percent of the throughput that traces may cost.
MOST: Final = 3.0


def sampled(records: Sequence[Output]) -> list[Output]:
    """The records, with a trace in a share of them."""
    return [
        replace(record, headers=(*record.headers, *root_of("benchmark", number).headers()))
        if share_of("benchmark", number) < SHARE
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


def figures(quick: bool) -> list[Figure]:
    """Drain the same backlog with traces and without, in turn."""
    warm_up("opml", ARGUMENTS["opml"])
    tries, blocks = (1, BLOCKS // 8) if quick else (TRIES, BLOCKS)
    off, on = [], []
    for _ in range(1 if quick else 2):
        off += _rates(False, tries, blocks)
        on += _rates(True, tries, blocks)
    lost = 100.0 * (1.0 - max(on) / max(off))
    facts = {"off": off, "on": on, "share": SHARE, "blocks": blocks}
    label = f"opml, d = {D}"
    return [
        Figure("traces", f"{label}: without traces", max(off), "triplets/s", facts=facts),
        Figure("traces", f"{label}: 1 % sampled and exported", max(on), "triplets/s"),
        Figure("traces", f"{label}: lost", lost, "%", at_most=MOST),
    ]
