"""The dashboards are what their source makes, Grafana can read them, and every series in them exists."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from deploy.grafana.source.__main__ import main
from tests.deploy.monitoring.boards import (
    FILES,
    asks,
    filled,
    label_queries,
    panels,
    read,
    recorded,
    rules,
    selectors,
)
from tests.deploy.monitoring.programs import DEPLOY, run
from tests.docs.pages import ROOT, anchors
from tests.docs.test_docs import exposed

GRAFANA: Final = DEPLOY / "grafana"
#: Panel types of Grafana's core that are not on their way out ("graph", "singlestat", "table-old" are).
TYPES: Final = {"timeseries", "stat", "bargauge", "table", "row"}
UNITS: Final = {"short", "percentunit", "s", "cps", "bytes", "Bps"}
#: What Prometheus adds to every series.
ADDED: Final = {"job", "instance", "le", "__name__"}
BOARDS: Final = [pytest.param(read(path), id=path.stem) for path in FILES]


def test_the_files_are_what_the_source_makes() -> None:
    assert main(["--check"]) == 0


def test_the_four_dashboards_are_there() -> None:
    names = ["kinstream-better", "kinstream-learners", "kinstream-learning", "kinstream-stream"]
    assert [path.stem for path in FILES] == names
    assert [read(path)["uid"] for path in FILES] == names


@pytest.mark.parametrize("board", BOARDS)
def test_a_dashboard_can_be_provisioned_and_imported(board: dict[str, Any]) -> None:
    assert "id" not in board and board["schemaVersion"] >= 41 and board["title"] and board["description"]
    variables = [one["name"] for one in board["templating"]["list"]]
    assert variables[0] == "datasource" and {"job", "space", "learner"} <= set(variables)
    for one in board["templating"]["list"]:
        if one["name"] in ("space", "learner"):
            assert one["multi"] and one["includeAll"] and one["allValue"] == ".*"
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(set(numbers)) == len(numbers)
    # The source of the data is a variable everywhere: the file fits any Grafana.
    assert board["annotations"]["list"][0]["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels(board):
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])


@pytest.mark.parametrize("board", BOARDS)
def test_panels_lie_side_by_side(board: dict[str, Any]) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert all(0 <= x < 24 for x, _ in cells), panel["title"]
        taken |= cells


@pytest.mark.parametrize("board", BOARDS)
def test_every_panel_says_what_is_good_and_what_to_do(board: dict[str, Any]) -> None:
    runbooks = anchors(ROOT / "docs" / "runbooks.md")
    for panel in panels(board):
        assert panel["type"] in TYPES and panel["title"] and panel["targets"]
        good, otherwise = re.fullmatch(
            r"\*\*Good:\*\* (.+?)\n\n\*\*Otherwise:\*\* (.+?)",
            panel["description"].partition("\n\n[Runbook]")[0],
            re.S,
        ).groups()  # type: ignore[union-attr]
        assert len(good) >= 2 and len(otherwise) > 20, panel["title"]
        for anchor in re.findall(r"\]\(\$\{runbooks\}#([\w-]+)\)", panel["description"]):
            assert anchor in runbooks, panel["title"]
        steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        assert steps and steps[0]["value"] is None
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


@pytest.mark.parametrize("board", BOARDS)
def test_every_variable_in_use_is_declared_and_every_declared_one_is_in_use(board: dict[str, Any]) -> None:
    declared = {one["name"] for one in board["templating"]["list"]}
    text = " ".join(ask.expr for ask in asks(board)) + " ".join(q for q, _ in label_queries(board))
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__range", "__rate_interval"}
    # "$1" belongs to label_replace.
    assert {name for name in used if not name.isdigit()} == declared - {"datasource", "runbooks"}


@cache
def series() -> dict[str, set[str]]:
    """Labels of every series that the collectors show."""
    return exposed()


def labels_of(name: str) -> set[str]:
    """The labels of a series, raw or recorded."""
    known = series()
    raw = re.sub(r"_(bucket|sum|count)$", "", name)
    if name in known or raw in known:
        return known.get(name, known.get(raw, set())) | ADDED
    assert name in recorded(), f"there is no series {name}"
    # By convention its name begins with the labels that it keeps.
    level = name.split(":")[0]
    found = {"job"} | {
        label for label in ("agent", "space", "learner", "rule", "reason") if f"_{label}" in f"_{level}"
    }
    return found


def expressions() -> list[Any]:
    found = [pytest.param(ask.expr, id=ask.place) for path in FILES for ask in asks(read(path))]
    found += [
        pytest.param(selector, id=f"{path.stem}: variable {label}")
        for path in FILES
        for selector, label in label_queries(read(path))
    ]
    return found + [pytest.param(rule["expr"], id=rule.get("alert", rule.get("record"))) for rule in rules()]


@pytest.mark.parametrize("expr", expressions())
def test_every_series_and_every_label_in_an_expression_exists(expr: str) -> None:
    asked = list(selectors(filled(expr)))
    assert asked or "up{" in expr or "ALERTS{" in expr, expr
    for name, labels in asked:
        assert labels <= labels_of(name), (name, labels - labels_of(name))


def test_promtool_reads_every_expression(tmp_path: Path) -> None:
    found = [filled(ask.expr) for path in FILES for ask in asks(read(path))]
    rules = [{"record": f"panel:{number}:expr", "expr": expr} for number, expr in enumerate(found)]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}), encoding="utf-8")
    done = run("promtool", "check", "rules", str(file))
    assert done.returncode == 0 and len(found) > 60, done.stderr


def behind(expr: str) -> set[str]:
    """The raw series that an expression is made of, through recorded ones."""
    names = {name for name, _ in selectors(filled(expr))}
    found = {re.sub(r"_(bucket|sum|count)$", "", name) for name in names if name not in recorded()}
    return found.union(*(behind(recorded()[name]) for name in names if name in recorded()))


def test_every_series_is_on_a_dashboard() -> None:
    shown = set[str]().union(*(behind(ask.expr) for path in FILES for ask in asks(read(path))))
    assert series().keys() - shown == {
        # What is shown as a rate, by window, or of all rules together.
        "kinstream_constraint_utilisation_ratio",
        "kinstream_rule_constraints_seen_total",
        "kinstream_rule_constraints_utilised_total",
        # What the window's rates are of, and what an alert says.
        "kinstream_constraints_held_out_total",
        "kinstream_held_out_best_info",
        "kinstream_held_out_events_total",
        "kinstream_online_mistake_window_constraints",
        # What is in order and says nothing about health.
        "kinstream_records_not_followed_total",
        "kinstream_records_redriven_total",
        # What the first challenger waits for, and a part of the decided lists.
        "kinstream_gate_learned_lists",
        "kinstream_gate_tail_decided_lists",
        # Which version serves: in every answer, and in an alert.
        "kinstream_serve_catalogue_offset",
        "kinstream_serve_model_epoch",
        "kinstream_serve_model_generation",
        "kinstream_serve_decided_epoch",
        "kinstream_serve_decided_generation",
    }


def test_the_provisioning_files_fit_the_dashboards() -> None:
    sources = yaml.safe_load(
        (GRAFANA / "provisioning/datasources/prometheus.yml").read_text(encoding="utf-8")
    )
    assert sources["apiVersion"] == 1 and sources["datasources"][0]["type"] == "prometheus"
    providers = yaml.safe_load(
        (GRAFANA / "provisioning/dashboards/kinstream.yml").read_text(encoding="utf-8")
    )
    assert providers["apiVersion"] == 1 and providers["providers"][0]["type"] == "file"
