"""A dashboard as Grafana reads it: variables, rows, panels with their places and numbers."""

from __future__ import annotations

from collections.abc import Sequence

from deploy.grafana.source.panels import SCHEMA_VERSION, SOURCE, WIDTH, Json, Row


def variable(name: str, label: str, query: str, *, several: bool = True) -> Json:
    """A variable with values from Prometheus; "All" also includes values that appear later."""
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": SOURCE,
        "query": {"query": query, "refId": f"variable-{name}", "qryType": 1},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": several,
        "includeAll": True,
        "allValue": ".*",
        "current": {
            "selected": True,
            "text": ["All"] if several else "All",
            "value": ["$__all"] if several else "$__all",
        },
        "options": [],
        "regex": "",
        "hide": 0,
        "skipUrlSync": False,
    }


JOB = variable("job", "Deployment", "label_values(kinstream_worker_restarts_total, job)", several=False)
SPACE = variable("space", "Space", 'label_values(kinstream_constraints_seen_total{job=~"$job"}, space)')
#: Spaces with a gate are in the events, and may have no learner; others have no gate.
SPACE_OF_EVENTS = variable(
    "space",
    "Space",
    'label_values({__name__=~"kinstream_gate_adapted|kinstream_constraints_seen_total", job=~"$job"}, space)',
)
LEARNER = variable(
    "learner",
    "Learner",
    'label_values(kinstream_constraints_seen_total{job=~"$job", space=~"$space"}, learner)',
)
AGENT = variable("agent", "Agent", 'label_values(kinstream_worker_restarts_total{job=~"$job"}, agent)')
RULE = variable(
    "rule",
    "Rule of the constraints",
    'label_values(kinstream_rule_constraints_seen_total{job=~"$job", space=~"$space"}, rule)',
)


def dashboard(uid: str, title: str, description: str, rows: Sequence[Row], *variables: Json) -> Json:
    """The whole model, without an id: Grafana assigns one."""
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["kinstream"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timepicker": {},
        "fiscalYearStartMonth": 0,
        "weekStart": "",
        "links": [
            {
                "type": "dashboards",
                "title": "Kinstream",
                "tags": ["kinstream"],
                "asDropdown": False,
                "includeVars": True,
                "keepTime": True,
                "targetBlank": False,
                "icon": "external link",
                "tooltip": "",
                "url": "",
            }
        ],
        "annotations": {
            "list": [
                {
                    "name": "Alerts of Kinstream",
                    "type": "dashboard",
                    "enable": True,
                    "hide": False,
                    "iconColor": "red",
                    "datasource": SOURCE,
                    "expr": 'ALERTS{job=~"$job", alertname=~"Kinstream.+", alertstate="firing"}',
                    "titleFormat": "{{alertname}}",
                    "textFormat": "{{agent}} {{space}} {{learner}}",
                    "step": "60s",
                }
            ]
        },
        "templating": {
            "list": [
                {
                    "type": "datasource",
                    "name": "datasource",
                    "label": "Prometheus",
                    "query": "prometheus",
                    "current": {},
                    "options": [],
                    "regex": "",
                    "refresh": 1,
                    "multi": False,
                    "includeAll": False,
                    "hide": 0,
                    "skipUrlSync": False,
                },
                *variables,
                {
                    "type": "constant",
                    "name": "runbooks",
                    "label": "Address of the runbooks",
                    "query": "docs/runbooks.md",
                    "current": {"selected": False, "text": "docs/runbooks.md", "value": "docs/runbooks.md"},
                    "options": [],
                    "hide": 2,
                    "skipUrlSync": True,
                },
            ]
        },
        "panels": _placed(rows),
    }


def _placed(rows: Sequence[Row]) -> list[Json]:
    panels: list[Json] = []
    y = 0
    for row in rows:
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1},
                "panels": [],
            }
        )
        y += 1
        x = height = 0
        for panel in row.panels:
            if x + panel.width > WIDTH:
                x, y, height = 0, y + height, 0
            panels.append(panel.json(len(panels) + 1, x, y))
            x, height = x + panel.width, max(height, panel.height)
        y += height
    return panels
