"""One cause, one page: the shipped Alertmanager configuration in a real Alertmanager, asked by amtool."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy.monitoring.programs import ALERTS, DEPLOY, Alertmanager, run

CONFIG: Final = DEPLOY / "alertmanager" / "alertmanager.yml"
OPML: Final = {"agent": "learner-opml"}
MODEL: Final = {"space": "digits", "learner": "opml"}
#: Name and labels of an alert.
Given = tuple[str, dict[str, str]]


def severities() -> dict[str, str]:
    """Of each alert, the highest that it has."""
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    found: dict[str, str] = {}
    for rule in (rule for group in groups for rule in group["rules"]):
        if found.get(rule["alert"]) != "critical":
            found[rule["alert"]] = rule["labels"]["severity"]
    return found


SEVERITY: Final = severities()


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    with Alertmanager(tmp_path_factory.mktemp("alertmanager")).serving(CONFIG) as running:
        yield running


#: Names of the cases: the cause, what follows from it, and what does not.
CASES: Final[dict[str, tuple[Given, list[Given], list[Given]]]] = {
    "everything is down": (
        ("Down", {}),
        [
            ("LearnerStalled", {**OPML, "learner": "opml"}),
            ("BuilderStalled", {"agent": "builder-one-pass", "builder": "one-pass"}),
            ("MetricsAgentGone", {}),
            ("PartitionParked", {**OPML, "topic": "kinstream.constraints", "partition": "0"}),
            ("CheckpointTooOld", OPML),
            ("WorkerRestarting", OPML),
        ],
        [],
    ),
    "a partition is parked": (
        ("PartitionParked", {**OPML, "topic": "kinstream.constraints", "partition": "0"}),
        [
            ("LearnerStalled", {**OPML, "learner": "opml"}),
            ("LagGrowing", OPML),
            ("WorkerRestarting", OPML),
            ("CheckpointTooOld", OPML),
        ],
        [("LearnerStalled", {"agent": "learner-other", "learner": "other"}), ("DeadLettersRising", OPML)],
    ),
    "a learner stands still": (
        ("LearnerStalled", {**OPML, "learner": "opml"}),
        [("WorkerRestarting", OPML), ("CheckpointTooOld", OPML), ("LagGrowing", OPML)],
        [
            ("RetentionOvertakes", {**OPML, "topic": "kinstream.constraints"}),
            ("LagGrowing", {"agent": "learner-other"}),
        ],
    ),
    "a builder stands still": (
        ("BuilderStalled", {"agent": "builder-one-pass", "builder": "one-pass"}),
        [("LagGrowing", {"agent": "builder-one-pass"})],
        [("LagGrowing", OPML)],
    ),
    "checkpoints cannot be written": (
        ("CheckpointTooOld", OPML),
        [("WorkerRestarting", OPML), ("LagGrowing", OPML)],
        [("CheckpointTooOld", {"agent": "metrics"}), ("DeadLettersRising", OPML)],
    ),
    "the metrics agent is gone": (
        ("MetricsAgentGone", {}),
        [
            ("WorseThanUnlearned", MODEL),
            ("MistakeRateJumped", MODEL),
            ("StepsClipped", MODEL),
            ("LagGrowing", {"agent": "metrics"}),
        ],
        [("LagGrowing", OPML), ("BuilderStalled", {"agent": "builder-one-pass", "builder": "one-pass"})],
    ),
    "nobody answers queries": (
        ("ServeDown", {}),
        [("ServeFailing", {}), ("ServeModelStale", MODEL)],
        [("LagGrowing", OPML), ("WorseThanUnlearned", MODEL)],
    ),
    "the data have changed": (
        ("MistakeRateJumped", MODEL),
        [
            ("WorseThanUnlearned", MODEL),
            ("UtilisationNearZero", MODEL),
            ("StepsClipped", MODEL),
            ("ConstraintsRejected", MODEL),
        ],
        [("WorseThanUnlearned", {"space": "shop", "learner": "opml"}), ("DeadLettersRising", OPML)],
    ),
    "a model is worse than none": (
        ("WorseThanUnlearned", MODEL),
        [("UtilisationNearZero", MODEL), ("StepsClipped", MODEL), ("ConstraintsRejected", MODEL)],
        [("StepsClipped", {"space": "digits", "learner": "other"})],
    ),
}


def add(alertmanager: Alertmanager, job: str, given: Given, severity: str | None = None) -> str:
    """Have an alert fire; a word for it as amtool tells it."""
    name = f"Kinstream{given[0]}"
    labels = {"alertname": name, "job": job, "severity": severity or SEVERITY[name], **given[1]}
    alertmanager.tool("alert", "add", *(f"{label}={value}" for label, value in labels.items()))
    return json.dumps(labels, sort_keys=True)


def told(alertmanager: Alertmanager, job: str, *options: str) -> set[str]:
    """The alerts of a deployment that amtool shows."""
    found: list[dict[str, Any]] = json.loads(
        alertmanager.tool("alert", "query", *options, "--output=json", f"job={job}")
    )
    return {json.dumps(one["labels"], sort_keys=True) for one in found}


@pytest.mark.parametrize("name", CASES)
def test_what_follows_from_a_cause_is_held_back(name: str, alertmanager: Alertmanager) -> None:
    cause, follows, others = CASES[name]
    # A deployment for each case: what holds in one holds nothing back in another.
    job = f"kinstream-{re.sub('[^a-z]', '-', name)}"
    for number, one in enumerate(follows):
        alone = f"{job}-{number}"
        shown = add(alertmanager, alone, one)
        assert told(alertmanager, alone) == {shown}, "without the cause it is an alert as any other"
        sent = add(alertmanager, alone, cause)
        assert told(alertmanager, alone) == {sent}
        assert told(alertmanager, alone, "--inhibited") == {shown}
    held = {add(alertmanager, job, one) for one in follows}
    sent_anyway = {add(alertmanager, job, one) for one in (cause, *others)}
    assert told(alertmanager, job) == sent_anyway
    assert told(alertmanager, job, "--inhibited") == held


def test_the_ticket_about_the_same_records_is_held_back(alertmanager: Alertmanager) -> None:
    job = "kinstream-letters"
    ticket = add(alertmanager, job, ("DeadLettersRising", OPML), "warning")
    other = add(alertmanager, job, ("DeadLettersRising", {"agent": "metrics"}), "warning")
    assert told(alertmanager, job) == {ticket, other}
    page = add(alertmanager, job, ("DeadLettersRising", OPML), "critical")
    assert told(alertmanager, job) == {page, other}
    assert told(alertmanager, job, "--inhibited") == {ticket}


def test_another_deployment_is_not_held_back(alertmanager: Alertmanager) -> None:
    add(alertmanager, "kinstream-a", ("Down", {}))
    here = add(alertmanager, "kinstream-b", ("LagGrowing", OPML))
    assert told(alertmanager, "kinstream-b") == {here}


def test_no_two_alerts_hold_each_other_back() -> None:
    """If they did, neither would be sent."""
    names = sorted(SEVERITY)
    rules = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))["inhibit_rules"]

    def matches(matchers: list[str], name: str) -> bool:
        for matcher in matchers:
            label, operator, value = re.fullmatch(r'(\w+)(=~|!=|=)"(.*)"', matcher).groups()  # type: ignore[union-attr]
            if label == "alertname":
                same = bool(re.fullmatch(value, name)) if operator == "=~" else name == value
                if same == (operator == "!="):
                    return False
        return True

    holds = {
        (cause, other)
        for rule in rules
        for cause in names
        for other in names
        if cause != other
        and matches(rule["source_matchers"], cause)
        and matches(rule["target_matchers"], other)
    }
    assert len(holds) > 20

    def reaches(start: str, seen: frozenset[str] = frozenset()) -> frozenset[str]:
        for cause, other in holds:
            if cause == start and other not in seen:
                seen = reaches(other, seen | {other})
        return seen

    assert not [name for name in names if name in reaches(name)]


@pytest.mark.parametrize(("severity", "receiver"), [("critical", "pager"), ("warning", "tickets")])
@pytest.mark.parametrize("name", sorted(SEVERITY))
def test_pages_go_to_the_pager_and_the_rest_to_tickets(name: str, severity: str, receiver: str) -> None:
    labels = [f"alertname={name}", "job=kinstream", f"severity={severity}"]
    done = run(
        "amtool",
        "config",
        "routes",
        "test",
        f"--config.file={CONFIG}",
        f"--verify.receivers={receiver}",
        *labels,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_amtool_finds_no_fault_in_the_configuration() -> None:
    done = run("amtool", "check-config", str(CONFIG))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_name_in_the_configuration_is_that_of_an_alert() -> None:
    for name in re.findall(r'alertname="(\w+)"', CONFIG.read_text(encoding="utf-8")):
        assert name in SEVERITY
    for group in re.findall(
        r'alertname=~"Kinstream\(([\w|]+)\)(\w*)"', Path(CONFIG).read_text(encoding="utf-8")
    ):
        assert all(f"Kinstream{name}{group[1]}" in SEVERITY for name in group[0].split("|"))
