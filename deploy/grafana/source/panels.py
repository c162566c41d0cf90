"""The parts of the dashboards: queries, panels, rows, variables, in Grafana's JSON model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any, Final

#: The schema of Grafana 11.6 and later; older versions of the series 10 and 11 also read it.
SCHEMA_VERSION: Final = 41
WIDTH: Final = 24
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
Json = dict[str, Any]
#: (from which value on, colour); the first begins at minus infinity.
Steps = Sequence[tuple[float | None, str]]
GREEN: Final[Steps] = ((None, "green"),)
GREY: Final[Steps] = ((None, "text"),)


@dataclass(frozen=True, slots=True)
class Query:
    """An expression, and the name of its series: `legend` with labels in {{}}."""

    expr: str
    legend: str = "__auto"
    instant: bool = False
    table: bool = False

    def json(self, ref: str) -> Json:
        return {
            "refId": ref,
            "datasource": SOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "format": "table" if self.table else "time_series",
            "instant": self.instant,
            "range": not self.instant,
            "legendFormat": self.legend,
        }


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel without its place.

    Parameters
    ----------
    good : what it looks like while all is well.
    otherwise : what to do when it does not.
    runbook : alert whose runbook has more of it.
    """

    kind: str
    title: str
    good: str
    otherwise: str
    queries: tuple[Query, ...]
    unit: str
    runbook: str | None = None
    steps: Steps = GREEN
    width: int = 8
    height: int = 8
    defaults: Mapping[str, Any] | None = None
    options: Mapping[str, Any] | None = None
    overrides: tuple[Json, ...] = ()
    transformations: tuple[Json, ...] = ()

    def json(self, number: int, x: int, y: int) -> Json:
        text = f"**Good:** {self.good}\n\n**Otherwise:** {self.otherwise}"
        if self.runbook is not None:
            text += f"\n\n[Runbook](${{runbooks}}#{self.runbook.lower()})"
        steps = [{"color": colour, "value": value} for value, colour in self.steps]
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": text,
            "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "fieldConfig": {
                "defaults": {
                    "unit": self.unit,
                    "thresholds": {"mode": "absolute", "steps": steps},
                    **(self.defaults or {}),
                },
                "overrides": list(self.overrides),
            },
            "options": dict(self.options or {}),
            "transformations": list(self.transformations),
            "targets": [query.json(ascii_uppercase[n]) for n, query in enumerate(self.queries)],
        }


def lines(
    title: str,
    good: str,
    otherwise: str,
    *queries: Query,
    unit: str,
    low: float | None = 0,
    high: float | None = None,
    stacked: bool = False,
    logarithmic: bool = False,
    **more: Any,
) -> Panel:
    """Lines over time; dashed lines at its thresholds."""
    custom: Json = {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 30 if stacked else 6,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if len(more.get("steps", GREEN)) > 1 else "off"},
        "scaleDistribution": {"type": "log", "log": 10} if logarithmic else {"type": "linear"},
    }
    # A logarithmic axis has no zero.
    bounds = {"min": None if logarithmic else low, "max": high}
    defaults = {"custom": custom, "color": {"mode": "palette-classic"}}
    options = {
        "legend": {
            "showLegend": True,
            "displayMode": "table",
            "placement": "bottom",
            "calcs": ["lastNotNull", "max"],
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return Panel(
        "timeseries",
        title,
        good,
        otherwise,
        queries,
        unit,
        defaults=defaults | {name: value for name, value in bounds.items() if value is not None},
        options=options,
        **more,
    )


def number(title: str, good: str, otherwise: str, query: Query, *, unit: str, **more: Any) -> Panel:
    """The newest value of each series, large, in the colour of its threshold."""
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "area",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "auto",
    }
    shape = {"width": 4, "height": 5, "defaults": {"color": {"mode": "thresholds"}, "noValue": "none"}}
    return Panel("stat", title, good, otherwise, (query,), unit, options=options, **{**shape, **more})


def bars(title: str, good: str, otherwise: str, query: Query, *, unit: str, **more: Any) -> Panel:
    """The newest value of each series as a bar."""
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "displayMode": "gradient",
        "orientation": "horizontal",
        "showUnfilled": True,
        "valueMode": "color",
        "minVizWidth": 8,
        "minVizHeight": 16,
    }
    defaults = {"color": {"mode": "thresholds"}, "min": 0}
    return Panel(
        "bargauge", title, good, otherwise, (query,), unit, options=options, **{"defaults": defaults, **more}
    )


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: one instant query whose series share their labels with those of the others."""

    name: str
    query: str
    unit: str
    steps: Steps = GREY


def table(
    title: str, good: str, otherwise: str, labels: Sequence[str], columns: Sequence[Column], **more: Any
) -> Panel:
    """A row for each combination of labels, a column for each query."""
    names = {f"Value #{ascii_uppercase[n]}": column.name for n, column in enumerate(columns)}
    if len(columns) == 1:
        names = {"Value": columns[0].name}
    overrides = []
    for column in columns:
        steps = [{"color": colour, "value": value} for value, colour in column.steps]
        properties: list[Json] = [
            {"id": "unit", "value": column.unit},
            {"id": "thresholds", "value": {"mode": "absolute", "steps": steps}},
        ]
        if len(steps) > 1:
            properties.append({"id": "custom.cellOptions", "value": {"type": "color-text"}})
        overrides.append({"matcher": {"id": "byName", "options": column.name}, "properties": properties})
    order = [*labels, *names]
    organised = {
        "excludeByName": {"Time": True},
        "indexByName": {name: place for place, name in enumerate(order)},
        "renameByName": names,
    }
    return Panel(
        "table",
        title,
        good,
        otherwise,
        tuple(Query(column.query, instant=True, table=True) for column in columns),
        "short",
        steps=GREY,
        defaults={"custom": {"align": "auto", "filterable": True}},
        options={"showHeader": True, "cellHeight": "sm"},
        overrides=tuple(overrides),
        transformations=(
            {"id": "merge", "options": {}},
            {"id": "organize", "options": organised},
        ),
        **{"width": WIDTH, "height": 9, **more},
    )


@dataclass(frozen=True, slots=True)
class Row:
    """A heading with the panels below it, placed from left to right."""

    title: str
    panels: tuple[Panel, ...]
