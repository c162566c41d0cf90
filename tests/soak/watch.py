"""Sizes of the workers over time: resident memory and open files of each process that lives long enough."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Final

import psutil

from tests.soak.flat import Trend, after_warm_up, leaks, trend

#: What is flat: memory may drift by a tenth of itself, and by so much in any case; files by a handful.
MEMORY_SHARE: Final = 0.10
MEMORY_LEAST: Final = 8e6
FILES_SHARE: Final = 0.05
FILES_LEAST: Final = 4.0
#: Fewer points than this after the warm-up say nothing.
POINTS: Final = 20


@dataclass(slots=True)
class Series:
    """One process."""

    name: str
    times: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    files: list[float] = field(default_factory=list)

    def look(self, process: psutil.Process, now: float) -> None:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            with process.oneshot():
                memory, files = process.memory_info().rss, process.num_fds()
            self.times.append(now)
            self.memory.append(float(memory))
            self.files.append(float(files))


@dataclass(frozen=True, slots=True)
class Flat:
    """The verdict over one process."""

    name: str
    memory: Trend
    files: Trend
    peak_memory: float
    peak_files: float

    @property
    def leaks(self) -> bool:
        return leaks(self.memory, share=MEMORY_SHARE, least=MEMORY_LEAST) or leaks(
            self.files, share=FILES_SHARE, least=FILES_LEAST
        )


class Watch:
    """All processes, by what they are and when they were started."""

    def __init__(self, warm_up_seconds: float) -> None:
        self._warm_up = warm_up_seconds
        self._series: dict[tuple[str, int], Series] = {}

    def look(self, name: str, process: psutil.Process | None, now: float) -> None:
        if process is not None:
            self._series.setdefault((name, process.pid), Series(name)).look(process, now)

    def verdicts(self) -> list[Flat]:
        """Of every process that lived long enough after its warm-up."""
        found = []
        for series in self._series.values():
            times, memory = after_warm_up(series.times, series.memory, self._warm_up)
            _, files = after_warm_up(series.times, series.files, self._warm_up)
            if len(times) >= POINTS:
                found.append(
                    Flat(
                        series.name,
                        trend(times, memory),
                        trend(times, files),
                        max(series.memory),
                        max(series.files),
                    )
                )
        return sorted(found, key=lambda one: one.name)
