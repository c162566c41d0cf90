"""The live view of a demonstration."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Final

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.table import Table

from kinstream.cli.demo.descriptions import Demo
from kinstream.cli.local.metrics_pages import Numbers
from kinstream.cli.local.system import LocalSystem
from kinstream.processors.clicks.counts import FATES
from kinstream.streams.columns import columns

#: Number of polls, half a second apart; together longer than the checkpoint interval, so that checkpoints hold all.
SETTLED_LOOKS: Final = 4
_HEADINGS: Final = ("agent", "records", "per s", "lag", "constraints", "mistake rate", "utilisation")
_EVIDENCE: Final = ("builder", "given", "number", "became")


class LiveTable:
    """The live table, and the check whether every agent has applied everything sent."""

    def __init__(self, system: LocalSystem, demo: Demo) -> None:
        self._system = system
        self._demo = demo
        self._then = 0.0
        self._rates: dict[str, float] = {}
        self._still = 0
        #: The newest numbers.
        self.numbers: Numbers | None = None

    def take(self, numbers: Numbers, *, sent: bool) -> None:
        """Note new numbers: rates, and the number of polls without change since everything `sent` was applied."""
        now = time.monotonic()
        if self.numbers is not None:
            old = self.numbers.applied
            for name, applied in numbers.applied.items():
                before = old.get(name)
                if applied is not None and before is not None:
                    rate = (applied - before) / (now - self._then)
                    self._rates[name] = (self._rates.get(name, rate) + rate) / 2
            quiet = all(lag == 0 for lag in numbers.lag.values()) and numbers.applied == old
            self._still = self._still + 1 if sent and quiet and all(old.values()) else 0
        self._then, self.numbers = now, numbers

    @property
    def settled(self) -> bool:
        """Whether there was neither lag nor change for several polls in a row."""
        return self._still >= SETTLED_LOOKS

    def render(self, numbers: Numbers) -> RenderableType:
        """The current view, for a terminal."""
        # Narrow enough for 80 columns with the names in full.
        table = plain_table(*_HEADINGS)
        table.title = self._demo.title
        for row in self._rows(numbers):
            table.add_row(*row)
        return Group(table, evidence_table(numbers.evidence)) if self._demo.evidence else table

    def lines(self) -> list[str]:
        """The newest numbers as plain columns, for output that is not a terminal."""
        numbers = self.numbers or Numbers()
        found = [self._demo.title, *columns(_HEADINGS, self._rows(numbers))]
        if self._demo.evidence:
            rows = evidence_rows(numbers.evidence)
            found += ["", *columns(_EVIDENCE, rows)]
        return found

    def _rows(self, numbers: Numbers) -> Iterator[tuple[str, ...]]:
        for process in self._system.agents():
            applied = numbers.applied.get(process.name)
            learned = numbers.learners.get(process.name.removeprefix("learner-"))
            yield (
                process.name,
                "starting" if applied is None else f"{applied:.0f}",
                f"{self._rates.get(process.name, 0.0):.0f}",
                _whole(numbers.lag.get(process.name)),
                "" if learned is None else _whole(learned.seen),
                "" if learned is None else share(learned.mistake_rate),
                "" if learned is None else share(learned.utilisation),
            )


def plain_table(*headings: str) -> Table:
    """A table that cuts nothing: text that does not fit the terminal is folded."""
    table = Table(box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def evidence_table(evidence: Mapping[str, Mapping[str, float]]) -> Table:
    """The fate of the events, by builder."""
    table = plain_table(*_EVIDENCE)
    for row in evidence_rows(evidence):
        table.add_row(*row)
    return table


def evidence_rows(evidence: Mapping[str, Mapping[str, float]]) -> Iterator[tuple[str, str, str, str]]:
    """Builder, kind of evidence, number, fate. A total and its parts share one row."""
    for agent, counts in sorted(evidence.items()):
        rest = {name: number for name, number in counts.items() if number}
        for whole, fates in FATES.items():
            number = rest.pop(whole, None)
            parts = {fate: rest.pop(fate) for fate in fates if fate in rest} if number is not None else {}
            if number is not None:
                yield agent.removeprefix("builder-"), whole, f"{number:.0f}", _listed(parts)
        if rest:
            yield agent.removeprefix("builder-"), "", "", _listed(rest)


def _listed(counts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {number:.0f}" for name, number in counts.items())


def _whole(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def share(value: float | None) -> str:
    """A ratio, or a dash if there is none."""
    return "-" if value is None else f"{value:.3f}"
