"""The dashboard "Which learner?"."""

from __future__ import annotations

from typing import Final

from deploy.grafana.source.dashboard import JOB, LEARNER, RULE, SPACE, dashboard
from deploy.grafana.source.panels import Column, Query, Row, bars, lines, table

_WHO: Final = 'job=~"$job", space=~"$space", learner=~"$learner"'
_RULE: Final = f'{_WHO}, rule=~"$rule"'
_LONG: Final = "$__range"
_NAME: Final = "{{learner}} · {{space}}"


def _ratio(part: str, whole: str, by: str, window: str) -> str:
    """Share of one count by rule in another, over a window."""
    above = f"sum by ({by}) (increase(kinstream_rule_constraints_{part}_total{{{_RULE}}}[{window}]))"
    below = f"sum by ({by}) (increase(kinstream_rule_constraints_{whole}_total{{{_RULE}}}[{window}]))"
    return f"{above} / ({below} > 0)"


def _share(part: str) -> str:
    """Share of one count in those seen, of all rules."""
    above = f"sum by (space, learner) (increase(kinstream_constraints_{part}_total{{{_WHO}}}[{_LONG}]))"
    below = f"sum by (space, learner) (increase(kinstream_constraints_seen_total{{{_WHO}}}[{_LONG}]))"
    return f"{above} / ({below} > 0)"


_COST: Final = (
    "label_replace(sum by (job, agent) ("
    'rate(kinstream_kernel_busy_seconds_total{job=~"$job", agent=~"learner-($learner)"}[5m])'
    '), "learner", "$1", "agent", "learner-(.+)")'
    f" / on (job, learner) (sum by (job, learner) (rate(kinstream_constraints_seen_total{{{_WHO}}}[5m])) > 0)"
)

_TABLE = Row(
    "Side by side, over the time shown",
    (
        table(
            "The learners",
            "the learner in use has the fewest mistakes, as many scored as the others, and nothing clipped or "
            "rejected. Sort by a column.",
            "compare only rows with about the same “scored”: otherwise the learners did not see the same constraints "
            "(choose one rule above). A learner that began in the time shown includes its first mistakes: shorten "
            "the time.",
            ("space", "learner"),
            (
                Column("mistakes", _ratio("mistakes", "scored", "space, learner", _LONG), "percentunit"),
                Column(
                    "scored",
                    f"sum by (space, learner) (increase(kinstream_rule_constraints_scored_total{{{_RULE}}}[{_LONG}]))",
                    "short",
                ),
                Column("utilised", _share("utilised"), "percentunit"),
                Column("clipped", _share("clipped"), "percentunit", ((None, "text"), (0.05, "orange"))),
                Column("rejected", _share("rejected"), "percentunit", ((None, "text"), (0.05, "orange"))),
                Column("ignored", _share("ignored"), "percentunit"),
                Column("steps", f"max by (space, learner) (kinstream_model_step{{{_WHO}}})", "short"),
                Column(
                    "age of the model",
                    f"max by (space, learner) (kinstream_model_age_seconds{{{_WHO}}})",
                    "s",
                ),
            ),
            runbook="KinstreamWorseThanUnlearned",
        ),
        table(
            "What they are",
            "one of them learns “never”: it is the baseline for the others.",
            "none does: add a learner of kind euclidean to the settings, with the same scaler and the same builders.",
            ("learner", "kind", "learns", "agent"),
            (
                Column(
                    "workers of the metrics agent",
                    "count by (learner, kind, learns, agent) "
                    '(kinstream_learner_info{job=~"$job", learner=~"$learner"})',
                    "short",
                ),
            ),
            height=6,
        ),
    ),
)

_RATES = Row(
    "Mistakes",
    (
        bars(
            "Mistakes, over the time shown",
            "the shortest bar is the learner to use; the baseline's is the longest.",
            "differences within the uncertainty of the counts mean nothing: use the cheaper learner.",
            Query(_ratio("mistakes", "scored", "learner", _LONG), "{{learner}}", instant=True),
            unit="percentunit",
            steps=((None, "blue"),),
        ),
        bars(
            "Mistakes saved against un-learned",
            "above 0, on the same mix of rules and the last half hour.",
            "below 0: worse than no learning. Nothing shown: no learner of kind euclidean runs.",
            Query(
                f"1 - avg by (learner) (job_space_learner:kinstream_comparable_mistakes:ratio_increase30m{{{_WHO}}})"
                " / (avg by (learner) "
                f"(job_space_learner:kinstream_unlearned_mistakes:ratio_increase30m{{{_WHO}}}) > 0)",
                "{{learner}}",
                instant=True,
            ),
            unit="percentunit",
            steps=((None, "red"), (0, "green")),
            defaults={"color": {"mode": "thresholds"}, "min": -1, "max": 1},
            runbook="KinstreamWorseThanUnlearned",
        ),
        bars(
            "Scored, over the time shown",
            "equal bars: all have scored the same constraints.",
            "a shorter bar: that learner lags, began later, or follows fewer builders. Correct that first.",
            Query(
                f"sum by (learner) (increase(kinstream_rule_constraints_scored_total{{{_RULE}}}[{_LONG}]))",
                "{{learner}}",
                instant=True,
            ),
            unit="short",
            steps=((None, "blue"),),
            runbook="KinstreamLagGrowing",
        ),
        lines(
            "Mistake rate",
            "the order of the learners is the same hour by hour.",
            "a learner that is best only at times follows changes faster or slower than the others: its step size.",
            Query(_ratio("mistakes", "scored", "space, learner", "5m"), _NAME),
            unit="percentunit",
            high=1,
            width=12,
            runbook="KinstreamMistakeRateJumped",
        ),
        lines(
            "Mistake rate since the beginning",
            "the order at the right end compares all mistakes so far, including those at the beginning.",
            "learners that began at different times cannot be compared here: use the panel beside it.",
            Query(f"max by (space, learner) (kinstream_online_mistake_rate{{{_WHO}}})", _NAME),
            unit="percentunit",
            high=1,
            width=12,
        ),
    ),
)

_COSTS = Row(
    "Steps and cost",
    (
        lines(
            "Utilisation",
            "a learner that needs fewer steps for the same mistakes is cheaper and steadier.",
            "nearly all constraints used and mistakes that do not fall: the step is too large.",
            Query(f"job_space_learner:kinstream_utilised:ratio_rate5m{{{_WHO}}}", _NAME),
            unit="percentunit",
            high=1,
            runbook="KinstreamUtilisationNearZero",
        ),
        lines(
            "Time for a constraint",
            "flat: seconds in the kernel for each constraint seen. It is the cost of a learner.",
            "it rises with the number of spaces or of dimensions; the busiest learner will lag first.",
            Query(_COST, "{{learner}}"),
            unit="s",
            runbook="KinstreamLagGrowing",
        ),
        lines(
            "Size of the checkpoint",
            "flat.",
            "it grows without end: the learner keeps vectors (kernel learners do), or the spaces multiply.",
            Query(
                'sum by (agent) (kinstream_checkpoint_size_bytes{job=~"$job", agent=~"learner-($learner)"})',
                "{{agent}}",
            ),
            unit="bytes",
        ),
    ),
)

DASHBOARD: Final = dashboard(
    "kinstream-learners",
    "Kinstream · Which learner?",
    "The learners side by side on the same constraints.",
    (_TABLE, _RATES, _COSTS),
    JOB,
    SPACE,
    LEARNER,
    RULE,
)
