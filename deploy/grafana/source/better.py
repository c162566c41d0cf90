"""The dashboard "Is it better?": the evidence that a model is better for users, and what it does to what they see."""

from __future__ import annotations

from typing import Final

from deploy.grafana.source.dashboard import JOB, LEARNER, SPACE_OF_EVENTS, dashboard
from deploy.grafana.source.exposure import EXPOSURE
from deploy.grafana.source.gate import GATE
from deploy.grafana.source.panels import Query, Row, lines

_WHO: Final = 'job=~"$job", space=~"$space", learner=~"$learner"'
_NAME: Final = "{{learner}} · {{space}}"

_HELD_OUT: Final = Row(
    "On events that were never learned",
    (
        lines(
            "Mistakes on held-out events, learned less best un-learned",
            "the upper bound is below 0: learning helps beyond doubt.",
            "the lower bound is above 0: the model is worse than not learning, and is not announced.",
            Query(f"max by (space, learner) (kinstream_held_out_difference{{{_WHO}}})", _NAME),
            Query(f"max by (space, learner) (kinstream_held_out_difference_low{{{_WHO}}})", f"{_NAME}, low"),
            Query(
                f"max by (space, learner) (kinstream_held_out_difference_high{{{_WHO}}})", f"{_NAME}, high"
            ),
            unit="percentunit",
            low=None,
            width=12,
            runbook="KinstreamWorseThanUnlearned",
        ),
        lines(
            "Held-out events that are needed before there is a difference",
            "1: the model is evaluated.",
            "below 1 for long: too few different queries are asked, fewer than 200; or too few events are held out.",
            Query(f"max by (space, learner) (kinstream_held_out_known_ratio{{{_WHO}}})", _NAME),
            unit="percentunit",
            high=1,
            width=12,
        ),
        lines(
            "Mistakes on held-out events",
            "the learned metric is below the best un-learned one.",
            "above it: see the dashboard “Is learning healthy?” for the cause.",
            Query(
                f"max by (space, learner, metric) (kinstream_held_out_mistake_rate{{{_WHO}}})",
                f"{_NAME}, {{{{metric}}}}",
            ),
            unit="percentunit",
            high=1,
            width=12,
            runbook="KinstreamWorseThanUnlearned",
        ),
    ),
)

DASHBOARD: Final = dashboard(
    "kinstream-better",
    "Kinstream · Is it better?",
    "Whom users prefer, by the lists of the gate; what held-out events say; and what models do to what users see.",
    (GATE, _HELD_OUT, EXPOSURE),
    JOB,
    SPACE_OF_EVENTS,
    LEARNER,
)
