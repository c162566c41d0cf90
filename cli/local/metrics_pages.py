"""Reads the metrics pages of local agents, for the live view and the summary of the demonstration."""

from __future__ import annotations

import urllib.request
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from kinstream.cli.local.system import Process

#: Largest page in bytes: more than the spaces of one machine can produce.
_MAX_PAGE_BYTES = 64 * 2**20


@dataclass(slots=True)
class LearnerNumbers:
    """The metrics of one learner, over all spaces."""

    seen: float = 0.0
    scored: float = 0.0
    mistakes: float = 0.0
    utilised: float = 0.0
    clipped: float = 0.0

    @property
    def mistake_rate(self) -> float | None:
        return self.mistakes / self.scored if self.scored else None

    @property
    def utilisation(self) -> float | None:
        return self.utilised / self.seen if self.seen else None


@dataclass(slots=True)
class Numbers:
    """The numbers of all pages. `applied` and `lag` are by agent; None: it did not answer.

    `evidence` is by agent and fate: the evidence that its process received.
    """

    learners: dict[str, LearnerNumbers] = field(default_factory=dict)
    applied: dict[str, float | None] = field(default_factory=dict)
    lag: dict[str, float | None] = field(default_factory=dict)
    dead_letters: float = 0.0
    evidence: dict[str, dict[str, float]] = field(default_factory=dict)


def read_pages(agents: Iterable[Process]) -> Numbers:
    """Read every page once."""
    numbers = Numbers()
    for agent in agents:
        try:
            with urllib.request.urlopen(f"{agent.url}/metrics", timeout=2.0) as answer:
                page = answer.read(_MAX_PAGE_BYTES).decode()
        except OSError:
            numbers.applied[agent.name] = numbers.lag[agent.name] = None
            continue
        _take(numbers, agent.name, page)
    return numbers


def _take(numbers: Numbers, agent: str, page: str) -> None:
    sums: dict[str, float] = defaultdict(float)
    found: set[str] = set()
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            name = sample.name.removeprefix("kinstream_")
            sums[name] += sample.value
            found.add(name)
            if name == "evidence_total":
                fates = numbers.evidence.setdefault(agent, {})
                fate = sample.labels["fate"]
                fates[fate] = fates.get(fate, 0.0) + sample.value
            part = name.removeprefix("constraints_").removesuffix("_total")
            learner = sample.labels.get("learner")
            if (
                name == f"constraints_{part}_total"
                and learner
                and part in LearnerNumbers.__dataclass_fields__
            ):
                entry = numbers.learners.setdefault(learner, LearnerNumbers())
                setattr(entry, part, getattr(entry, part) + sample.value)
    numbers.applied[agent] = sums["records_applied_total"]
    numbers.lag[agent] = sums["consumer_lag_records"] if "consumer_lag_records" in found else None
    numbers.dead_letters += sums["dead_letters_total"]
