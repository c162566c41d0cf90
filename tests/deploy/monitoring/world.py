"""What Prometheus would have scraped of a healthy system, minute by minute, and ways in which it goes wrong.

A world is written as the `input_series` of a promtool test: JSON, which is YAML too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from tests.deploy.monitoring.programs import ALERTS, RECORDING, run

JOB: Final = "kinstream"
#: Minutes of healthy past before anything happens, and the end of a world.
EVENT: Final = 34
END: Final = 84
SPACES: Final = ("digits", "shop")
LEARNERS: Final = {"opml": ("opml", "online"), "floor": ("euclidean", "never"), "boxes": ("lmnn", "refits")}
AGENTS: Final = {
    "builder-one-pass": "kinstream.events",
    "learner-opml": "kinstream.constraints",
    "learner-floor": "kinstream.constraints",
    "learner-boxes": "kinstream.constraints",
    "metrics": "kinstream.outcomes",
}
REFITS: Final = "learner-boxes"
REASONS: Final = ("bad-shape", "undecodable", "skipped")
#: Records that an agent applies, and constraints of a space that a learner sees, in a minute.
RECORDS: Final = 600
CONSTRAINTS: Final = 3000
#: Requests to a service in a minute.
REQUESTS: Final = 120

Values = list[float | None]
Value = Callable[[int], float | None]
#: A firing alert: name, severity, and its labels without the job.
Alert = tuple[str, str, Mapping[str, str]]

#: An alert with its summary and its description.
Text = tuple[Alert, str, str]


class World:
    """Series by name and labels; each has a value for every minute, None where there was no scrape."""

    def __init__(self, minutes: int = END) -> None:
        self.minutes = minutes
        self.series: dict[str, Values] = {}

    def put(self, name: str, value: Value | float, **labels: str) -> None:
        """Add a series, or replace it."""
        self.series[self._key(name, labels)] = (
            [value(minute) for minute in range(self.minutes)] if callable(value) else [value] * self.minutes
        )

    def count(self, name: str, each: Value | float, **labels: str) -> None:
        """Add a counter that rises by so much a minute."""
        steps = [each(minute) or 0.0 if callable(each) else each for minute in range(self.minutes)]
        totals: Values = list(accumulate(steps))
        self.series[self._key(name, labels)] = totals

    def find(self, name: str | None, **labels: str) -> list[Values]:
        """The values of the series of that name that have these labels.

        Raises
        ------
        AssertionError : there is none.
        """
        found = [values for key, values in self.series.items() if self._is(key, name, labels)]
        assert found, f"no series {name} {labels}"
        return found

    def set(
        self, name: str, value: Value | float | None, since: int = EVENT, until: int = END, **labels: str
    ) -> None:
        """Set gauges from the event on; a function is given the minutes since."""
        for values in self.find(name, **labels):
            for minute in range(since, min(until, self.minutes)):
                values[minute] = value(minute - since) if callable(value) else value

    def grow(self, name: str, each: float, since: int = EVENT, until: int = END, **labels: str) -> None:
        """Have series rise by so much a minute from the event on, whatever they did before; none after `until`."""
        for values in self.find(name, **labels):
            base = values[since - 1] or 0.0
            for minute in range(since, self.minutes):
                values[minute] = base + each * (min(minute, until - 1) - since + 1)

    def restart(self, name: str, since: int = EVENT, **labels: str) -> None:
        """Have counters begin at 0 again, and go on as they would have."""
        for values in self.find(name, **labels):
            base = values[since - 1] or 0.0
            for minute in range(since, self.minutes):
                values[minute] = (values[minute] or 0.0) - base

    def gone(self, since: int = EVENT, until: int = END, **labels: str) -> None:
        """Take away all series with these labels, as when a scrape is not answered, and say so in `up`."""
        for key, values in self.series.items():
            if self._is(key, None, labels):
                for minute in range(since, min(until, self.minutes)):
                    values[minute] = 0 if key.startswith("up{") else None

    @staticmethod
    def _key(name: str, labels: Mapping[str, str]) -> str:
        told = ", ".join(f"{label}={json.dumps(value)}" for label, value in {"job": JOB, **labels}.items())
        return f"{name}{{{told}}}"

    @staticmethod
    def _is(key: str, name: str | None, labels: Mapping[str, str]) -> bool:
        own, _, inside = key.partition("{")
        told = inside.removesuffix("}").split(", ")
        return (name is None or own == name) and all(
            f"{n}={json.dumps(v)}" in told for n, v in labels.items()
        )

    # ---- asking promtool ----------------------------------------------------------------------------------------

    def check(
        self, folder: Path, expected: Mapping[int, list[Alert]], texts: Mapping[int, Text] | None = None
    ) -> None:
        """Have promtool say which alerts fire at these minutes, and what they say.

        Raises
        ------
        AssertionError : others than expected; with what promtool says.
        """
        tests = [
            {
                "expr": 'ALERTS{alertstate="firing"}',
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": _told(*alert), "value": 1} for alert in alerts],
            }
            for minute, alerts in expected.items()
        ]
        content: dict[str, Any] = {
            "rule_files": [str(RECORDING), str(ALERTS)],
            "evaluation_interval": "1m",
            "tests": [
                {
                    "interval": "1m",
                    "input_series": [
                        {
                            "series": key,
                            "values": " ".join("stale" if v is None else f"{v:.9g}" for v in values),
                        }
                        for key, values in self.series.items()
                    ],
                    "promql_expr_test": tests,
                    "alert_rule_test": [_saying(minute, *text) for minute, text in (texts or {}).items()],
                }
            ],
        }
        file = folder / "world.test.yml"
        file.write_text(json.dumps(content), encoding="utf-8")
        done = run("promtool", "test", "rules", str(file))
        assert done.returncode == 0, done.stdout + done.stderr


def _saying(minute: int, alert: Alert, summary: str, description: str) -> dict[str, Any]:
    name, severity, labels = alert
    texts = {
        "summary": summary,
        "description": description,
        "runbook_url": f"docs/runbooks.md#{name.lower()}",
    }
    one = {"exp_labels": {"job": JOB, "severity": severity, **labels}, "exp_annotations": texts}
    return {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": [one]}


def _told(name: str, severity: str, labels: Mapping[str, str]) -> str:
    every = {"alertname": name, "alertstate": "firing", "job": JOB, "severity": severity, **labels}
    return f"ALERTS{{{', '.join(f'{label}={json.dumps(value)}' for label, value in every.items())}}}"


def healthy(
    minutes: int = END, *, flows: Callable[[int], bool] = lambda minute: True, whole: bool = False
) -> World:
    """A system at work in every minute of `flows`, idle in the others; `whole`: with several spaces and partitions."""
    world = World(minutes)
    for number, (agent, topic) in enumerate(AGENTS.items()):
        instance = f"host:{9100 + number}"
        if whole or agent != REFITS:
            _worker(world, agent, topic, instance, flows, partitions=2 if whole else 1)
    for learner, (kind, learns) in LEARNERS.items():
        if not whole and f"learner-{learner}" == REFITS:
            continue
        instance = f"host:{9100 + len(AGENTS) - 1}"
        info = {"instance": instance, "agent": f"learner-{learner}", "learner": learner}
        world.put("kinstream_learner_info", 1, **info, kind=kind, learns=learns)
        for partition, space in enumerate(SPACES if whole else SPACES[:1]):
            _learner(world, learner, space, str(partition), instance, flows)
    world.put(
        "kinstream_builder_info",
        1,
        instance=instance,
        agent="builder-one-pass",
        builder="one-pass",
        kind="one-pass",
    )
    for space in SPACES if whole else SPACES[:1]:
        info = {"instance": instance, "space": space, "learner": "opml", "backend": "index"}
        world.put("kinstream_serve_space_info", 1, **info)
    for number in (0, 1) if whole else (0,):
        _search(world, f"query:{8088 + number}", SPACES if whole else SPACES[:1], flows)
    return world


def _search(world: World, instance: str, spaces: Sequence[str], flows: Callable[[int], bool]) -> None:
    """A service that is always a little behind while its learner learns, as one is that builds for long."""
    world.put("up", 1, instance=instance)
    world.put("kinstream_serve_ready", 1, instance=instance)
    for space in spaces:
        where = {"instance": instance, "space": space, "learner": "opml"}
        world.count("kinstream_serve_model_step", _each(1.0, flows), **where)
        world.put("kinstream_serve_model_epoch", 0, **where)
        world.put("kinstream_serve_model_generation", 1, **where)
        world.put("kinstream_serve_model_behind", lambda minute: int(flows(minute)), **where)
        asked = {"instance": instance, "space": space}
        world.count("kinstream_serve_queries_total", lambda minute: REQUESTS * flows(minute), **asked)
        world.count("kinstream_serve_recorded_lists_total", lambda minute: REQUESTS * flows(minute), **asked)
        world.count("kinstream_serve_dropped_lists_total", 0, **asked)
        for fate, number in (("written", 5), ("not-written", 0), ("late-list", 2)):
            world.count("kinstream_serve_feedback_total", number, fate=fate, **asked)
    count = "kinstream_serve_request_duration_seconds_count"
    for status, each in (("200", REQUESTS), ("404", REQUESTS / 10), ("503", 0)):
        route = {"instance": instance, "route": "/search", "status": status}
        world.count(count, lambda minute, each=each: each * flows(minute), **route)  # type: ignore[misc]
    # Probes of an agent that starts are answered with 503, and are no requests.
    world.count(count, 12, instance=instance, route="/readyz", status="503")


def _worker(
    world: World, agent: str, topic: str, instance: str, flows: Callable[[int], bool], partitions: int
) -> None:
    world.put("up", 1, instance=instance)
    mine = {"instance": instance, "agent": agent}
    world.put("kinstream_worker_restarts_total", 0, **mine)
    world.put("kinstream_broker_silence_seconds", 0, **mine)
    world.put("kinstream_checkpoint_age_limit_seconds", 90, **mine)
    world.put("kinstream_topic_partitions_added", 0, **mine, topic=topic)
    for partition in map(str, range(partitions)):
        where = {**mine, "topic": topic, "partition": partition}
        world.count("kinstream_log_end_offset", lambda minute: RECORDS * flows(minute), **where)
        world.count("kinstream_consumer_position", lambda minute: RECORDS * flows(minute), **where)
        world.count("kinstream_checkpoint_offset", lambda minute: RECORDS * flows(minute), **where)
        world.count("kinstream_records_applied_total", lambda minute: RECORDS * flows(minute), **where)
        world.put("kinstream_log_start_offset", 0, **where)
        world.put("kinstream_consumer_lag_records", lambda minute: (minute % 5) * flows(minute), **where)
        world.put("kinstream_checkpoint_age_seconds", lambda minute: 3 + minute % 8, **where)
        world.put("kinstream_retention_seconds", 2_592_000, **where)
        world.put("kinstream_retention_headroom_seconds", 2_592_000, **where)
        world.put("kinstream_partition_parked", 0, **where)
        world.put("kinstream_scaler_renewals_total", 0, **where)
        for reason in REASONS:
            world.put("kinstream_dead_letters_total", 0, **where, reason=reason)


def _learner(
    world: World, learner: str, space: str, partition: str, instance: str, flows: Callable[[int], bool]
) -> None:
    learns = LEARNERS[learner][1]
    mistaken = {"online": 0.05, "never": 0.20, "refits": 0.10}[learns]
    used = {"online": 0.10, "never": 0.0, "refits": 0.001}[learns]
    where = {"instance": instance, "partition": partition, "space": space, "learner": learner}
    for name, share in {
        "seen": 1.0, "scored": 1.0, "mistakes": mistaken, "utilised": used, "clipped": 0.0, "rejected": 0.0,
    }.items():  # fmt: skip
        each = _each(share, flows)
        world.count(f"kinstream_constraints_{name}_total", each, **where)
        if name not in ("clipped", "rejected"):
            world.count(f"kinstream_rule_constraints_{name}_total", each, **where, rule="one-pass")
    world.count("kinstream_model_step", _each(1.0, flows), **where)
    world.count("kinstream_held_out_events_total", _each(0.02, flows), **where)
    for name, gap in (("difference", 0.0), ("difference_low", -0.03), ("difference_high", 0.03)):
        world.put(f"kinstream_held_out_{name}", mistaken - 0.2 + gap, **where)
    for metric, rate in (("learned", mistaken), ("best un-learned", 0.2)):
        world.put("kinstream_held_out_mistake_rate", rate, **where, metric=metric)
    world.put("kinstream_held_out_best_info", 1, **where, best="cosine")
    world.put("kinstream_model_withheld", 0, **where)
    # A window's share differs from block to block by what chance does in 1000 constraints.
    world.put(
        "kinstream_online_mistake_window_rate", lambda minute: mistaken + 0.01 * (minute % 3 - 1), **where
    )
    world.put("kinstream_online_mistake_window_constraints", 1000, **where)
    world.put("kinstream_constraint_utilisation_window_ratio", used, **where)
    world.put("kinstream_constraint_utilisation_window_constraints", 1000, **where)


def _each(share: float, flows: Callable[[int], bool]) -> Value:
    return lambda minute: CONSTRAINTS * share * flows(minute)
