"""The dashboard "Is learning healthy?"."""

from __future__ import annotations

from typing import Final

from deploy.grafana.source.dashboard import JOB, LEARNER, SPACE, dashboard
from deploy.grafana.source.panels import Query, Row, lines, number

_WHO: Final = 'job=~"$job", space=~"$space", learner=~"$learner"'
_NAME: Final = "{{learner}} · {{space}}"
_USED_WINDOW: Final = f"kinstream_constraint_utilisation_window_constraints{{{_WHO}}}"
_SCORED: Final = f"job_space_learner:kinstream_comparable_scored:increase30m{{{_WHO}}}"
_OWN: Final = f"job_space_learner:kinstream_comparable_mistakes:ratio_increase30m{{{_WHO}}}"
_UNLEARNED: Final = f"job_space_learner:kinstream_unlearned_mistakes:ratio_increase30m{{{_WHO}}}"

_JUDGED: Final = f"sum by (space, learner) (rate(kinstream_constraints_scored_total{{{_WHO}}}[5m]))"


def _split(count: str) -> str:
    """Rate of a count of constraints whose event began in an earlier block."""
    return f"sum by (space, learner) (rate(kinstream_constraints_split_{count}_total{{{_WHO}}}[5m]))"


_GLANCE = Row(
    "At a glance",
    (
        number(
            "Alerts firing",
            "0.",
            "The red marks in the panels below show when each alert fired; its runbook lists the steps.",
            Query('count(ALERTS{job=~"$job", alertname=~"Kinstream.+", alertstate="firing"}) or vector(0)'),
            unit="short",
            steps=((None, "green"), (1, "red")),
        ),
        number(
            "Mistakes on held-out events",
            "at or below what it was yesterday, and below the best un-learned metric. These events are never learned.",
            "see whether it jumped (drift) or was never better, in the panels below. None: `held_out` of the learner "
            "is 0, or no event was held out so far.",
            Query(
                f'avg by (learner) (kinstream_held_out_mistake_rate{{{_WHO}, metric="learned"}})',
                "{{learner}}",
            ),
            unit="percentunit",
            steps=((None, "text"),),
            runbook="KinstreamMistakeRateJumped",
        ),
        number(
            "Mistakes saved by learning",
            "above 0: of the mistakes that the best un-learned metric makes on held-out events, this share is gone.",
            "below 0, services get better results without the model.",
            Query(
                f'1 - avg by (learner) (kinstream_held_out_mistake_rate{{{_WHO}, metric="learned"}})'
                f' / (avg by (learner) (kinstream_held_out_mistake_rate{{{_WHO}, metric="best un-learned"}}) > 0)',
                "{{learner}}",
            ),
            unit="percentunit",
            steps=((None, "red"), (0, "green")),
            runbook="KinstreamWorseThanUnlearned",
        ),
        number(
            "Utilisation, newest constraints",
            "above 0 while there are mistakes. It falls as the model improves; a baseline stays at 0.",
            "near 0 with mistakes left: the model no longer changes.",
            Query(
                f"sum by (learner) (kinstream_constraint_utilisation_window_ratio{{{_WHO}}} * {_USED_WINDOW})"
                f" / sum by (learner) ({_USED_WINDOW})",
                "{{learner}}",
            ),
            unit="percentunit",
            steps=((None, "text"),),
            runbook="KinstreamUtilisationNearZero",
        ),
        number(
            "Constraints per second",
            "the usual rate of the time of day; the same for learners that follow the same builders.",
            "0 with events coming in: a builder or the learner has stalled. See the stream dashboard.",
            Query(
                f"sum by (learner) (job_space_learner:kinstream_constraints_seen:rate5m{{{_WHO}}})",
                "{{learner}}",
            ),
            unit="cps",
            steps=((None, "text"),),
            runbook="KinstreamLearnerStalled",
        ),
        number(
            "Age of the oldest model",
            "seconds to minutes while events come in; it grows on an idle system.",
            "it grows although events come in: check lag and stalled agents in the stream dashboard.",
            Query(f"max by (learner) (kinstream_model_age_seconds{{{_WHO}}})", "{{learner}}"),
            unit="s",
            steps=((None, "text"),),
            runbook="KinstreamLearnerStalled",
        ),
    ),
)

_MISTAKES = Row(
    "Mistakes: wrong predictions before the model learned from the same event",
    (
        lines(
            "Held-out events: learned and best un-learned",
            "each learner is below the line of the same name with “best un-learned”.",
            'above it: the model is not announced (publish = "better"), and services keep the one before it, or none. '
            "Check clipping, the scaler and the step size.",
            Query(f"kinstream_held_out_mistake_rate{{{_WHO}}}", f"{_NAME}, {{{{metric}}}}"),
            unit="percentunit",
            high=1,
            width=12,
            runbook="KinstreamWorseThanUnlearned",
        ),
        lines(
            "Held-out events: difference and its 95 % interval",
            "the upper bound is below 0: learning helps beyond doubt.",
            "the lower bound is above 0 for a quarter of an hour: the alert fires. Around 0: too few events to tell, "
            "or no difference.",
            Query(f"kinstream_held_out_difference{{{_WHO}}}", _NAME),
            Query(f"kinstream_held_out_difference_low{{{_WHO}}}", f"{_NAME}, low"),
            Query(f"kinstream_held_out_difference_high{{{_WHO}}}", f"{_NAME}, high"),
            unit="percentunit",
            low=None,
            width=12,
            runbook="KinstreamWorseThanUnlearned",
        ),
        lines(
            "Online mistake rate",
            "flat, or falling for hours after a start.",
            "a step upwards is drift, or a producer that sends different data: compare with the baseline, which "
            "does not change. If it jumped too, the constraints have become harder.",
            Query(f"job_space_learner:kinstream_mistakes:ratio_rate5m{{{_WHO}}}", _NAME),
            unit="percentunit",
            high=1,
            width=12,
            runbook="KinstreamMistakeRateJumped",
        ),
        lines(
            "Learned against un-learned",
            "each learner is below the line of the same name with “un-learned”, the mistakes of Euclidean distance "
            "on the same mix of rules.",
            "above it: stop using the model, then check clipping, the scaler and the step size.",
            Query(_OWN, f"{_NAME}"),
            Query(_UNLEARNED, f"{_NAME}, un-learned"),
            unit="percentunit",
            high=1,
            width=12,
            runbook="KinstreamWorseThanUnlearned",
        ),
        lines(
            "Newest constraints against the six hours before",
            "around 0.",
            "more than 2 points above 0 for long: drift. The alert fires at 1.5 times as many mistakes as before.",
            Query(
                f"max by (job, space, learner) (kinstream_online_mistake_window_rate{{{_WHO}}})"
                f" - job_space_learner:kinstream_mistakes:ratio_increase6h_before{{{_WHO}}}",
                _NAME,
            ),
            unit="percentunit",
            low=None,
            steps=((None, "green"), (0.02, "orange")),
            width=12,
            runbook="KinstreamMistakeRateJumped",
        ),
        lines(
            "Mistake rate by rule",
            "each rule stays at its level; some rules make harder constraints than others.",
            "one rule alone has risen: its builder, or the events behind it, have changed.",
            Query(
                f"sum by (rule, learner) (rate(kinstream_rule_constraints_mistakes_total{{{_WHO}}}[5m]))"
                f" / (sum by (rule, learner) (rate(kinstream_rule_constraints_scored_total{{{_WHO}}}[5m])) > 0)",
                "{{learner}} · {{rule}}",
            ),
            unit="percentunit",
            high=1,
            width=12,
            runbook="KinstreamMistakeRateJumped",
        ),
        lines(
            "Constraints outside the mistake rate",
            "0, or a small share: constraints of an event that began in an earlier block are judged late, and counted "
            "apart.",
            "a large share: the mistake rate covers few constraints. Limit the builder's constraints per event, such "
            "as max_new_triplets, or follow constraints of one kind.",
            Query(
                f"{_split('scored')} / ({_split('scored')} + {_JUDGED} > 0)",
                f"{_NAME}, share of all scored",
            ),
            Query(f"{_split('mistakes')} / ({_split('scored')} > 0)", f"{_NAME}, wrong among them"),
            unit="percentunit",
            high=1,
            width=12,
        ),
    ),
)

_STEPS = Row(
    "Steps: how the constraints changed the model",
    (
        lines(
            "Utilisation",
            "falls after a start and settles, at a few percent to nearly all, by algorithm; 0 for a baseline.",
            "0 with mistakes left: the steps are too small to change the model, or all are rejected.",
            Query(f"job_space_learner:kinstream_utilised:ratio_rate5m{{{_WHO}}}", _NAME),
            unit="percentunit",
            high=1,
            runbook="KinstreamUtilisationNearZero",
        ),
        lines(
            "Clipped steps",
            "0, or a few after a start: the share of steps that the guard shortened.",
            "above 5%: the step size does not fit the scale of the data. Use a scaler, or a smaller step, in a "
            "new generation.",
            Query(f"job_space_learner:kinstream_clipped:ratio_increase30m{{{_WHO}}}", _NAME),
            unit="percentunit",
            steps=((None, "green"), (0.05, "orange")),
            runbook="KinstreamStepsClipped",
        ),
        lines(
            "Scalers made anew",
            "0: the features have the scale that they had when the scaler was made.",
            "a renewal: a producer sends different features, and the model was carried over. More than two within "
            "an hour: the features do not settle.",
            Query(
                'sum by (agent) (increase(kinstream_scaler_renewals_total{job=~"$job"}[1h]))',
                "{{agent}}, in an hour",
            ),
            unit="short",
            steps=((None, "green"), (1, "orange")),
            runbook="KinstreamScalerRenewed",
        ),
        lines(
            "Rejected constraints",
            "0: the share refused because they, or the model after them, were not finite, or the guard forbids it.",
            "above 5%: check the scale of the vectors and the learner's guard.",
            Query(f"job_space_learner:kinstream_rejected:ratio_increase30m{{{_WHO}}}", _NAME),
            unit="percentunit",
            steps=((None, "green"), (0.05, "orange")),
            runbook="KinstreamConstraintsRejected",
        ),
        lines(
            "Constraints seen",
            "the usual rate; the same for learners that follow the same builders.",
            "one learner lower than the others: it lags, see the stream dashboard. All lower: fewer events, or "
            "a builder has stalled.",
            Query(f"job_space_learner:kinstream_constraints_seen:rate5m{{{_WHO}}}", _NAME),
            unit="cps",
            runbook="KinstreamLearnerStalled",
        ),
        lines(
            "Ignored and degenerate",
            "0 or steady. Ignored: of a kind or rule that the learner does not learn from; degenerate: without a "
            "direction to learn from, such as two equal vectors.",
            "a large share is wasted work: let the learner follow other builders, or look for duplicates "
            "among the items.",
            Query(
                f"sum by (space, learner) (rate(kinstream_constraints_ignored_total{{{_WHO}}}[5m]))",
                f"{_NAME}, ignored",
            ),
            Query(
                f"sum by (space, learner) (rate(kinstream_constraints_degenerate_total{{{_WHO}}}[5m]))",
                f"{_NAME}, degenerate",
            ),
            unit="cps",
        ),
        lines(
            "Loss of a constraint",
            "falls, then flat. Its unit depends on the learner: compare a learner only with itself.",
            "it grows while mistakes stay: the map grows without bound; check clipped steps.",
            Query(
                f"sum by (space, learner) (rate(kinstream_loss_total{{{_WHO}}}[5m]))"
                f" / (sum by (space, learner) (rate(kinstream_constraints_seen_total{{{_WHO}}}[5m])) > 0)",
                _NAME,
            ),
            unit="short",
            runbook="KinstreamStepsClipped",
        ),
    ),
)

_MODEL = Row(
    "Model",
    (
        lines(
            "Age of the model",
            "seconds to minutes while events come in: current time minus the time of the newest learned event.",
            "it grows in a straight line: no events, or a stalled agent. Below 0: the clocks of the "
            "producers are ahead.",
            Query(f"max by (space, learner) (kinstream_model_age_seconds{{{_WHO}}})", _NAME),
            unit="s",
            low=None,
            runbook="KinstreamLearnerStalled",
        ),
        lines(
            "Models withheld",
            "0: newer models are announced to services.",
            "1: the newest model is worse than the best un-learned metric on held-out events, so services keep the "
            "one before it, or none.",
            Query(f"max by (space, learner) (kinstream_model_withheld{{{_WHO}}})", _NAME),
            unit="short",
            high=1,
            steps=((None, "green"), (1, "red")),
            runbook="KinstreamWorseThanUnlearned",
        ),
        lines(
            "Weights of experts and modalities",
            "they change slowly. A weight is the influence of a layer, a metric or a modality.",
            "one has all the weight: the others are useless or broken; a modality that drops to 0 lost its vectors.",
            Query(
                f"max by (space, learner, expert) (kinstream_expert_weight{{{_WHO}}})",
                f"{_NAME} · {{{{expert}}}}",
            ),
            unit="percentunit",
            runbook="KinstreamMistakeRateJumped",
        ),
        lines(
            "Steps of the model",
            "rises, and only falls after a reset or a new generation.",
            "an unexpected fall: look for control records of the space.",
            Query(f"max by (space, learner) (kinstream_model_step{{{_WHO}}})", _NAME),
            unit="short",
        ),
        lines(
            "Spaces shown by name",
            "“unlisted” is 0: every space has its own series.",
            "the others are summed as “other”; raise metrics.top_spaces (a new generation of the metrics agent).",
            Query('sum(kinstream_spaces_listed{job=~"$job"})', "listed"),
            Query('sum(kinstream_spaces_unlisted{job=~"$job"})', "unlisted"),
            unit="short",
        ),
    ),
)

DASHBOARD: Final = dashboard(
    "kinstream-learning",
    "Kinstream · Is learning healthy?",
    "Mistakes, utilisation and guards of every learner, against the un-learned baseline.",
    (_GLANCE, _MISTAKES, _STEPS, _MODEL),
    JOB,
    SPACE,
    LEARNER,
)
