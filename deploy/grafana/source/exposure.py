"""The row "What are users shown?" of the page "Is it better?": the exposure of items, and clicks by position."""

from __future__ import annotations

from typing import Final

from deploy.grafana.source.panels import Query, Row, bars, lines

_SPACE: Final = 'job=~"$job", space=~"$space"'


def _gauge(series: str) -> str:
    return f"max by (space) (kinstream_exposure_{series}{{{_SPACE}}})"


def _rate(series: str, by: str = "space", labels: str = "", window: str = "30m") -> str:
    return f"sum by ({by}) (rate(kinstream_exposure_{series}_total{{{_SPACE}{labels}}}[{window}]))"


def _share(series: str, part: str, whole: str = "") -> str:
    """Share of a counter by some of its labels."""
    return f"{_rate(series, labels=part)} / ({_rate(series, labels=whole)} > 0)"


def _click_rate(part: str) -> str:
    return f"{_rate('clicks', labels=part)} / ({_rate('impressions', labels=part)} > 0)"


_NEW: Final = _share("item_impressions", ', item="new"')
_UNLISTED: Final = _share("item_impressions", ', item="unlisted"')
_TOP: Final = _click_rate(', position="0"')
_BELOW: Final = _click_rate(', position!="0"')
_DRAFTED: Final = _share("lists", ', kind="drafted"')
_RANDOMISED: Final = _share("lists", ', kind="randomised"')
_ASKED: Final = ', kind=~"drafted|randomised|unreadable|changed"'
_UNREADABLE: Final = _share("lists", ', kind="unreadable"', _ASKED)
_CHANGED: Final = _share("lists", ', kind="changed"', _ASKED)


EXPOSURE: Final = Row(
    "What are users shown?",
    (
        lines(
            "Coverage of the catalogue",
            "flat, or rising: this share of the items was shown to somebody in the last 12 to 24 hours.",
            "it falls after a model began to serve: the model hides items. None: the catalogue is not in the events.",
            Query(_gauge("coverage_ratio"), "{{space}}"),
            unit="percentunit",
            high=1,
        ),
        lines(
            "Concentration of impressions",
            "flat: 0 if all items are shown equally often, near 1 if a few get all impressions.",
            "it rises after a model began to serve: the model shows a few items to everybody.",
            Query(_gauge("gini"), "{{space}} · Gini"),
            unit="short",
            high=1,
        ),
        lines(
            "New items among those shown",
            "above 0 while the catalogue grows. New is an item in the first seven days after its first record.",
            "near 0 with new items in the catalogue: nobody sees them. After the first load all items are new.",
            Query(_NEW, "{{space}} · new"),
            Query(_UNLISTED, "{{space}} · not in the catalogue"),
            unit="percentunit",
            high=1,
        ),
        bars(
            "Clicks by position as served",
            "falls from the top down: users look at the top first.",
            "all on the first position: the clicks say little about the others. A peak in the middle: a layout, or "
            "positions that a service counts otherwise.",
            Query(_rate("clicks", "position", window="6h"), "{{position}}", instant=True),
            unit="cps",
            steps=((None, "blue"),),
        ),
        lines(
            "Clicks for each item shown, at the top and below",
            "the top leads by a steady factor.",
            "the factor changes after a change of the layout: positions mean something else now, and so do weights "
            "for position bias.",
            Query(_TOP, "{{space}} · position 0"),
            Query(_BELOW, "{{space}} · below"),
            unit="percentunit",
        ),
        lines(
            "Lists whose positions were drawn",
            "the share of the gate's settings.",
            "0 while lists come: services draft nothing, so clicks cannot compare two models.",
            Query(_DRAFTED, "{{space}} · drafted"),
            Query(_RANDOMISED, "{{space}} · randomised"),
            Query(f"max by (space) (kinstream_gate_share{{{_SPACE}}})", "{{space}} · by the settings"),
            unit="percentunit",
            runbook="KinstreamGateRandomisationStopped",
        ),
        lines(
            "Lists without known probabilities, among the drafted",
            "0%.",
            "unreadable: another key. changed: a client shows other items, or in another order, than were drafted.",
            Query(_UNREADABLE, "{{space}} · unreadable"),
            Query(_CHANGED, "{{space}} · changed"),
            unit="percentunit",
            high=1,
            runbook="KinstreamGatePropensitiesMissing",
        ),
        lines(
            "Items of the catalogue",
            "the size of the catalogue. Above 50,000 items, the figures about items are from a sample.",
            "too few: the gate has not read the catalogue; send the items once more.",
            Query(_gauge("catalogue_items"), "{{space}}"),
            Query(f"{_gauge('catalogue_items')} * {_gauge('followed_ratio')}", "{{space}} · followed"),
            unit="short",
        ),
    ),
)
