"""What a soak has shown: each promise with its figure, as JSON and as a table for README.md here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.soak.watch import Flat


@dataclass(frozen=True, slots=True)
class Check:
    """One promise: whether it held, and what was found."""

    what: str
    held: bool
    found: str


@dataclass(frozen=True, slots=True)
class Result:
    """A whole soak."""

    began: str
    minutes: float
    seed: int
    versions: Mapping[str, str]
    numbers: Mapping[str, Any]
    checks: Sequence[Check]
    processes: Sequence[Flat]

    @property
    def held(self) -> bool:
        return all(check.held for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "held": self.held}

    def as_markdown(self) -> str:
        """Tables for the page, with nothing in them that names a machine."""
        lines = [
            f"{self.began}, {self.minutes:.0f} minutes, seed {self.seed}: "
            f"{'everything held' if self.held else 'NOT everything held'}.",
            "",
            "| Promise | Held | Found |",
            "|---|---|---|",
            *(f"| {c.what} | {'yes' if c.held else 'NO'} | {c.found} |" for c in self.checks),
            "",
            "| Done | |",
            "|---|---|",
            *(f"| {name} | {_told(value)} |" for name, value in self.numbers.items()),
            "",
            "| Process | watched, s | memory, MB | its trend, MB/h | peak, MB | files | their trend, 1/h |",
            "|---|---|---|---|---|---|---|",
        ]
        for one in self.processes:
            m, f = one.memory, one.files
            lines.append(
                f"| {one.name} | {m.seconds:.0f} | {m.median / 1e6:.0f} | {m.slope * 3600 / 1e6:+.1f} | "
                f"{one.peak_memory / 1e6:.0f} | {f.median:.0f} | {f.slope * 3600:+.1f} |"
            )
        return "\n".join(lines)


def _told(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
