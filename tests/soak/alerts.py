"""The shipped rules in a real Prometheus that scrapes every worker: which alerts fire, and which had a cause."""

from __future__ import annotations

import json
import shutil
import urllib.error
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.deploy.monitoring.programs import ALERTS, RECORDING, Prometheus

#: A worker that is started again more often than this in so long is worth a ticket (kinstream.alerts.yml).
_RESTARTS: Final = 3
_WINDOW_SECONDS: Final = 15 * 60
#: Between a restart and the scrape that shows it, and the rule's own `for`.
_GRACE_SECONDS: Final = 120


def installed() -> bool:
    return shutil.which("prometheus") is not None


@dataclass(frozen=True, slots=True)
class Fired:
    """An alert that fired: by name, severity and agent."""

    name: str
    severity: str
    agent: str


@dataclass(slots=True)
class Watch:
    """What has fired, with the second at which it was first seen."""

    prometheus: Prometheus
    fired: dict[Fired, float] = field(default_factory=dict)
    asked: int = 0

    def look(self, now: float) -> None:
        """Ask what fires now. An answer that does not come is asked for again the next time."""
        try:
            found = self.prometheus.query('ALERTS{alertstate="firing"}')
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return
        self.asked += 1
        for one in found:
            labels: dict[str, str] = one["metric"]
            agent = labels.get("agent") or labels.get("learner", "")
            self.fired.setdefault(Fired(labels["alertname"], labels["severity"], agent), now)


@contextmanager
def watching(folder: Path, ports: Iterable[int]) -> Iterator[Watch]:
    """Prometheus with the shipped rules, as deploy/prometheus/prometheus.yml has it."""
    targets = [f"127.0.0.1:{port}" for port in ports]
    config: dict[str, Any] = {
        "global": {"scrape_interval": "15s", "evaluation_interval": "15s"},
        "rule_files": [str(RECORDING), str(ALERTS)],
        "scrape_configs": [{"job_name": "kinstream", "static_configs": [{"targets": targets}]}],
    }
    folder.mkdir(parents=True)
    file = folder / "prometheus.yml"
    file.write_text(json.dumps(config), encoding="utf-8")
    prometheus = Prometheus(folder)
    with prometheus.serving(file):
        yield Watch(prometheus)


def false_ones(
    fired: Mapping[Fired, float], restarts: Mapping[str, list[float]], refusing: Iterable[str]
) -> list[str]:
    """The alerts without a cause.

    Parameters
    ----------
    restarts : seconds at which a worker of each agent was killed.
    refusing : the agents that are sent what they must refuse: fewer than a twentieth, which is a ticket.
    """
    wrong = []
    for one, at in sorted(fired.items(), key=lambda item: item[1]):
        cause = False
        if one.name == "KinstreamDeadLettersRising":
            cause = one.severity == "warning" and one.agent in set(refusing)
        elif one.name == "KinstreamWorkerRestarting":
            recent = [
                t for t in restarts.get(one.agent, ()) if at - _WINDOW_SECONDS - _GRACE_SECONDS <= t <= at
            ]
            cause = len(recent) >= _RESTARTS
        if not cause:
            wrong.append(f"{one.name} ({one.severity}) {one.agent} after {at:.0f} s")
    return wrong
