"""What a benchmark reports: a measured value beside what is asked of it."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import psutil
from rich.table import Table

_PACKAGES: Final = ("numpy", "numba", "faust-streaming", "aiokafka", "confluent-kafka", "fastavro")


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value.

    Parameters
    ----------
    at_least, at_most : what is asked of the value; both None where it is shown for information only.
    goal : what would be better than asked.
    published : what a paper reports for the same, on its own hardware.
    facts : what the value was calculated from, for the JSON file.
    """

    benchmark: str
    name: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    goal: float | None = None
    published: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        """Whether the value is what is asked; None where nothing is."""
        if self.at_least is None and self.at_most is None:
            return None
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )

    @property
    def requirement(self) -> str:
        """What is asked, in words; empty where nothing is."""
        words = [
            f"{word} {_number(bound)}"
            for word, bound in (("at least", self.at_least), ("at most", self.at_most))
            if bound is not None
        ]
        goal = f" (goal {_number(self.goal)})" if self.goal is not None else ""
        return " and ".join(words) + goal

    @property
    def measured(self) -> str:
        return f"{_number(self.value)} {self.unit}".strip()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"requirement": self.requirement, "met": self.met}


def _number(value: float) -> str:
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest of the values that is not below that share of them."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)]


def table(figures: Iterable[Figure]) -> Table:
    """The figures as rows: what, measured, asked, met; and what papers report, if they do."""
    figures = list(figures)
    compared = any(figure.published for figure in figures)
    made = Table(box=None, pad_edge=False)
    for column, side in (("benchmark", "left"), ("figure", "left"), ("measured", "right")):
        made.add_column(column, justify=side, no_wrap=True)  # type: ignore[arg-type]
    made.add_column("required")
    made.add_column("met")
    if compared:
        made.add_column("published", justify="right", no_wrap=True)
    for figure in figures:
        met = {None: "", True: "yes", False: "[bold]NO[/bold]"}[figure.met]
        row = [figure.benchmark, figure.name, figure.measured, figure.requirement, met]
        made.add_row(*row, *([figure.published] if compared else []))
    return made


def machine() -> dict[str, Any]:
    """What the figures were measured on; nothing that names the machine."""
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "processor": _processor(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in _PACKAGES},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
