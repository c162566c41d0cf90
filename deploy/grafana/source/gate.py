"""The row "Which model do users prefer?" of the page "Is it better?": who serves, and the evidence of the gate."""

from __future__ import annotations

from typing import Final

from deploy.grafana.source.panels import Query, Row, lines, number

_SPACE: Final = 'job=~"$job", space=~"$space"'


def _of(series: str, by: str = "space") -> str:
    return f"max by ({by}) (kinstream_gate_{series}{{{_SPACE}}})"


GATE: Final = Row(
    "Which model do users prefer?",
    (
        number(
            "A learned model serves",
            "1 once users have preferred a model to the un-adapted features.",
            "0 for long: the models do not win; see the lists that they win, and train differently.",
            Query(_of("adapted"), "{{space}}"),
            unit="short",
        ),
        number(
            "Who serves",
            "the newest model that has won, as generation, epoch and step.",
            "a model that people complain about: kinstream gate rollback, or pin another one.",
            Query(_of("serving_info", "space, version"), "{{space}} · {{version}}"),
            unit="short",
        ),
        number(
            "Pinned by people",
            "0: the gate decides.",
            "1: nothing is compared until kinstream gate resume.",
            Query(_of("pinned"), "{{space}}"),
            unit="short",
            steps=((None, "green"), (1, "orange")),
        ),
        number(
            "A challenger is compared",
            "1 most of the time; 0 in the pause after a comparison.",
            "0 for long: no drafted list of a new model comes back.",
            Query(_of("challenged"), "{{space}}"),
            unit="short",
            runbook="KinstreamGateRandomisationStopped",
        ),
        number(
            "Lists of the comparison",
            "rises with the queries that get a drafted list.",
            "it stands still: drafted lists do not come back, or all are left out.",
            Query(_of("impressions"), "{{space}}"),
            unit="short",
            runbook="KinstreamGateRandomisationStopped",
        ),
        lines(
            "Evidence",
            "the challenger's line reaches the limit, and the model is promoted.",
            "it stays below 0: users hardly tell the two models apart, or too few users do.",
            Query(_of("log_e_value", "space, winner"), "{{space}} · {{winner}}"),
            Query(_of("log_e_value_needed"), "{{space}} · limit"),
            unit="short",
            low=None,
            runbook="KinstreamGateEvidenceAgainstServing",
        ),
        lines(
            "Lists won",
            "the challenger's share is above a half.",
            "below a half: the gate gives the challenger up.",
            Query(_of("decided_lists", "space, winner"), "{{space}} · {{winner}}"),
            unit="short",
        ),
        lines(
            "New queries",
            "the line reaches the limit: the challenger loses little where queries do not come again.",
            "it falls: the challenger has learned its queries by heart, and ranks others worse.",
            Query(_of("tail_log_e_value"), "{{space}}"),
            Query(_of("tail_log_e_value_needed"), "{{space}} · limit"),
            unit="short",
            low=None,
        ),
        lines(
            "Drafted lists by fate",
            "won, lost, tied and shown lead.",
            "forged, late, capped, in a burst or of another pair: the page of the gate explains each fate.",
            Query(
                f"sum by (space, fate) (rate(kinstream_gate_lists_total{{{_SPACE}}}[5m]))",
                "{{space}} · {{fate}}",
            ),
            unit="cps",
            stacked=True,
            runbook="KinstreamGateListsLeftOut",
        ),
        lines(
            "Decisions",
            "a challenge and its end now and then.",
            "many holds: the models hardly differ, or max_sessions is too small to show it.",
            Query(
                f"sum by (space, verdict) (increase(kinstream_gate_decisions_total{{{_SPACE}}}[1h]))",
                "{{space}} · {{verdict}}",
            ),
            unit="short",
        ),
    ),
)
