"""The shipped dashboards as data: panels, queries, and the expressions with their variables filled in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from tests.deploy.monitoring.programs import ALERTS, RECORDING, RULES

FILES: Final = sorted((RULES / "dashboards").glob("*.json"))
#: What Grafana would fill in with "All" chosen and a quarter of an hour shown.
ALL: Final = {"__range": "15m", "__rate_interval": "1m"}


class Ask(NamedTuple):
    """A query of a panel, an annotation or a variable."""

    place: str
    expr: str


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def panels(board: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All that are no rows, also those inside closed rows."""
    inside = [inner for panel in board["panels"] for inner in panel.get("panels", ())]
    return [panel for panel in (*board["panels"], *inside) if panel["type"] != "row"]


def asks(board: Mapping[str, Any]) -> Iterator[Ask]:
    """Every expression of the panels."""
    for panel in panels(board):
        for target in panel["targets"]:
            yield Ask(f"{board['uid']}: {panel['title']}, {target['refId']}", target["expr"])


def filled(expr: str, values: Mapping[str, str] = ALL) -> str:
    """An expression as Prometheus gets it; a variable without a value matches everything."""
    return re.sub(
        r"\$(?:\{([a-z_]\w*)\}|([a-z_]\w*))", lambda found: values.get(found[1] or found[2], ".*"), expr
    )


def label_queries(board: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(selector, label) of every `label_values(selector, label)` of the variables."""
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            assert match is not None, variable["name"]
            yield match[1], match[2]


@cache
def rules() -> list[dict[str, Any]]:
    """Every rule of both files."""
    groups = [
        group
        for path in (RECORDING, ALERTS)
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    ]
    return [rule for group in groups for rule in group["rules"]]


@cache
def recorded() -> dict[str, str]:
    """Expression by recorded name."""
    return {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}


def selectors(expr: str) -> Iterator[tuple[str, set[str]]]:
    """(name, labels asked for) of every series of ours in an expression, raw or recorded."""
    for name, inside in re.findall(r"(?<![\w:\"])((?:\w+:)*\w*kinstream_\w+(?::\w+)?)(\{[^}]*\})?", expr):
        yield name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', '""', inside)))
