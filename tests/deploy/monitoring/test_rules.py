"""Every alert, firing and not firing, by `promtool test rules`: at these minutes these alerts fire, and no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy.monitoring.programs import ALERTS, CONFIG, RECORDING, run
from tests.deploy.monitoring.test_gate_rules import AGAINST, LEFT_OUT, MISSING, STOPPED
from tests.deploy.monitoring.world import (
    AGENTS,
    CONSTRAINTS,
    END,
    EVENT,
    RECORDS,
    REQUESTS,
    Alert,
    Text,
    World,
    healthy,
)

OPML: Final[dict[str, Any]] = {"agent": "learner-opml", "learner": "opml"}
DIGITS: Final[dict[str, Any]] = {"space": "digits", "learner": "opml"}
ONE: Final[dict[str, Any]] = {"agent": "learner-opml", "topic": "kinstream.constraints", "partition": "0"}
BUILDER: Final[dict[str, Any]] = {"agent": "builder-one-pass"}
#: What happens, and which alerts fire so many minutes after it.
Change = Callable[[World], None]
CASES: Final[dict[str, tuple[Change, dict[int, list[Alert]]]]] = {}


def case(after: dict[int, list[Alert]]) -> Callable[[Change], Change]:
    def keep(change: Change) -> Change:
        CASES[change.__name__] = change, after
        return change

    return keep


def critical(name: str, **labels: str) -> Alert:
    return f"Kinstream{name}", "critical", labels


def warning(name: str, **labels: str) -> Alert:
    return f"Kinstream{name}", "warning", labels


def stand_still(world: World, agent: str, waiting: Callable[[int], float] | float = 7) -> None:
    """Work waits, and neither the position nor the checkpoint gets further."""
    for name in ("consumer_position", "checkpoint_offset", "records_applied_total", "log_end_offset"):
        world.grow(f"kinstream_{name}", 0, agent=agent)
    world.set("kinstream_consumer_lag_records", waiting, agent=agent)


def relearn(world: World, mistaken: float, since: int = EVENT, until: int = END, **labels: str) -> None:
    """Another share of mistakes, in counters and windows."""
    for name in ("constraints", "rule_constraints"):
        world.grow(f"kinstream_{name}_mistakes_total", CONSTRAINTS * mistaken, since, until, **labels)
    world.set("kinstream_online_mistake_window_rate", mistaken, since, until, **labels)


def differ(world: World, value: float, low: float, until: int = END, **labels: str) -> None:
    """Another difference on held-out events."""
    world.set("kinstream_held_out_difference", value, EVENT, until, **labels)
    world.set("kinstream_held_out_difference_low", low, EVENT, until, **labels)


# ---- workers ----------------------------------------------------------------------------------------------------


@case({0: [], 2: [critical("PartitionsAdded", topic="kinstream.constraints")], 40: []})
def partitions_are_added_and_taken_into_use(world: World) -> None:
    world.set("kinstream_topic_partitions_added", 6, until=EVENT + 30, topic="kinstream.constraints")


@case({1: [], 3: [critical("Down")]})
def every_worker_is_away(world: World) -> None:
    world.gone()


@case({1: [], 3: [critical("Down")]})
def every_worker_is_away_and_the_service_is_not(world: World) -> None:
    query = 'instance="query:8088"'
    kept = {key: list(values) for key, values in world.series.items() if query in key}
    world.gone()
    world.series |= kept


@case({1: [], 4: [critical("Down")], 20: []})
def the_brokers_answer_nobody_for_a_while(world: World) -> None:
    world.set("kinstream_broker_silence_seconds", lambda minute: 60.0 * (minute + 1), until=EVENT + 15)


@case({10: [], 30: []})
def the_brokers_do_not_answer_one_worker(world: World) -> None:
    world.set("kinstream_broker_silence_seconds", 600, agent="metrics")


@case({6: [], 9: [critical("LearnerStalled", **OPML)], 30: [critical("LearnerStalled", **OPML)]})
def a_learner_is_gone(world: World) -> None:
    world.gone(instance="host:9101")


@case({3: [], 6: [], 12: []})
def a_learner_is_replaced_within_minutes(world: World) -> None:
    world.gone(until=EVENT + 5, instance="host:9101")


@case({12: [], 17: [critical("LearnerStalled", **OPML)], 30: [critical("LearnerStalled", **OPML)]})
def a_learner_stands_still(world: World) -> None:
    stand_still(world, "learner-opml")


@case({30: []})
def a_learner_has_nothing_to_do(world: World) -> None:
    stand_still(world, "learner-opml", 0)


@case({17: [critical("LearnerStalled", **OPML), warning("WorkerRestarting", agent="learner-opml")]})
def a_learner_is_started_again_and_again(world: World) -> None:
    stand_still(world, "learner-opml")
    # From the checkpoint up to the record that ends it, and again; in every third minute there is no worker.
    for name in ("consumer_position", "consumer_lag_records", "checkpoint_offset"):
        for values in world.find(f"kinstream_{name}", agent="learner-opml"):
            base = values[EVENT] or 0.0
            for minute in range(EVENT, world.minutes):
                step = 100.0 if name == "consumer_position" and minute % 3 == 1 else 0.0
                values[minute] = None if minute % 3 == 2 else base + step
    world.set("kinstream_worker_restarts_total", lambda minute: 1 + minute // 3, agent="learner-opml")


@case({10: [], 30: []})
def a_new_generation_reads_the_log_from_its_start(world: World) -> None:
    far = 400_000
    for name in ("consumer_position", "checkpoint_offset"):
        world.set(f"kinstream_{name}", lambda minute: 3_000.0 * minute, agent="learner-opml")
    world.set("kinstream_consumer_lag_records", lambda minute: far - 2_400.0 * minute, agent="learner-opml")


@case({17: [critical("BuilderStalled", agent="builder-one-pass", builder="one-pass")]})
def a_builder_stands_still(world: World) -> None:
    stand_still(world, "builder-one-pass")


@case({6: [], 9: [critical("BuilderStalled", agent="builder-one-pass", builder="one-pass")]})
def a_builder_is_gone(world: World) -> None:
    world.gone(instance="host:9100")


@case({6: [], 9: [critical("MetricsAgentGone")], 30: [critical("MetricsAgentGone")]})
def the_metrics_agent_is_gone(world: World) -> None:
    world.gone(instance="host:9104")


@case({17: [critical("MetricsAgentGone")]})
def the_metrics_agent_stands_still(world: World) -> None:
    stand_still(world, "metrics")


@case({5: [], 12: [], 45: []})
def the_metrics_agent_moves_to_another_machine(world: World) -> None:
    """Its counters go on there, as they come from its checkpoint."""
    for key, values in list(world.series.items()):
        if 'instance="host:9104"' in key:
            other = key.replace("host:9104", "other:9104")
            world.series[other] = [
                None if minute < EVENT + 2 else value for minute, value in enumerate(values)
            ]
    world.gone(instance="host:9104")


@case({0: [], 3: [critical("PartitionParked", **ONE)], 20: [critical("PartitionParked", **ONE)]})
def a_partition_is_parked(world: World) -> None:
    for name in ("consumer_position", "checkpoint_offset", "records_applied_total", "log_end_offset"):
        world.grow(f"kinstream_{name}", 0, **ONE)
    world.set("kinstream_consumer_lag_records", 4, **ONE)
    world.set("kinstream_partition_parked", 1, **ONE)


@case({5: [], 17: [], 30: []})
def a_worker_is_started_again_twice(world: World) -> None:
    world.set("kinstream_worker_restarts_total", lambda minute: 1 + (minute > 4), agent="learner-opml")


@case({1: [], 10: [warning("WorkerRestarting", agent="metrics")], 40: []})
def a_worker_is_started_again_five_times(world: World) -> None:
    world.set("kinstream_worker_restarts_total", lambda minute: min(5, 1 + minute), agent="metrics")


@case({5: [], 8: [critical("CheckpointTooOld", agent="learner-opml")]})
def checkpoints_are_not_written(world: World) -> None:
    world.set("kinstream_checkpoint_age_seconds", lambda minute: 60.0 * (minute + 1), **ONE)


@case({20: []})
def checkpoints_are_written_every_ten_minutes_as_told(world: World) -> None:
    world.set("kinstream_checkpoint_age_limit_seconds", 3_630, since=0)
    world.set("kinstream_checkpoint_age_seconds", lambda minute: 60.0 * (minute % 10), since=0)


# ---- stream -----------------------------------------------------------------------------------------------------


@case({14: [], 45: [warning("LagGrowing", agent="learner-opml")]})
def a_learner_is_too_slow(world: World) -> None:
    """It applies half of what comes in."""
    for name in ("consumer_position", "checkpoint_offset", "records_applied_total"):
        world.grow(f"kinstream_{name}", RECORDS / 2, agent="learner-opml")
    world.set("kinstream_consumer_lag_records", lambda minute: RECORDS / 2 * minute, agent="learner-opml")


@case({5: [], 10: [], 20: [], 40: []})
def a_million_records_come_at_once(world: World) -> None:
    """More than an hour of work, done at a steady pace."""
    agent = "builder-one-pass"
    for name in ("consumer_position", "checkpoint_offset", "records_applied_total"):
        world.grow(f"kinstream_{name}", 8_000, agent=agent)
    for values in world.find("kinstream_log_end_offset", agent=agent):
        for minute in range(EVENT, world.minutes):
            values[minute] = (values[minute] or 0.0) + 1_000_000
    world.set("kinstream_consumer_lag_records", lambda minute: max(0.0, 1e6 - 7_400 * minute), agent=agent)


@case({14: [], 17: [critical("RetentionOvertakes", agent="learner-opml", topic="kinstream.constraints")]})
def a_learner_is_a_month_behind(world: World) -> None:
    world.set("kinstream_retention_headroom_seconds", lambda minute: 250_000 - 60.0 * minute, **ONE)


@case({5: [], 30: []})
def a_learner_comes_back_from_days_behind(world: World) -> None:
    world.set("kinstream_retention_headroom_seconds", lambda minute: min(2.5e6, 1e4 + 1e5 * minute), **ONE)


@case({17: [critical("RetentionOvertakes", agent="learner-opml", topic="kinstream.constraints")]})
def a_log_of_bounded_size_overtakes(world: World) -> None:
    world.set("kinstream_retention_seconds", None, since=0, topic="kinstream.constraints")
    world.set("kinstream_retention_headroom_seconds", None, since=0, topic="kinstream.constraints")
    world.set("kinstream_retention_headroom_seconds", lambda minute: 20_000 - 60.0 * minute, **ONE)


@case({1: [], 5: [warning("DeadLettersRising", **BUILDER)], 25: []})
def some_records_are_refused(world: World) -> None:
    world.grow(
        "kinstream_dead_letters_total", 10, until=EVENT + 2, **BUILDER, reason="bad-shape", partition="0"
    )


@case({5: [], 15: []})
def a_handful_of_records_is_refused(world: World) -> None:
    world.grow(
        "kinstream_dead_letters_total", 4, until=EVENT + 2, **BUILDER, reason="bad-shape", partition="0"
    )


@case({5: [], 15: []})
def an_operator_skips_records(world: World) -> None:
    world.grow("kinstream_dead_letters_total", 50, **BUILDER, reason="skipped", partition="0")


@case({5: [critical("DeadLettersRising", **BUILDER), warning("DeadLettersRising", **BUILDER)], 45: []})
def a_producer_sends_what_nobody_understands(world: World) -> None:
    bad: dict[str, Any] = {"reason": "undecodable", "partition": "0"}
    world.grow("kinstream_dead_letters_total", 500, until=EVENT + 20, **BUILDER, **bad)


@case({5: [], 15: []})
def a_worker_with_old_dead_letters_is_started_again(world: World) -> None:
    world.set("kinstream_dead_letters_total", 4, since=10, **BUILDER, reason="bad-shape")
    world.restart("kinstream_dead_letters_total", **BUILDER)


# ---- learning ---------------------------------------------------------------------------------------------------


@case(
    {10: [], 20: [critical("WorseThanUnlearned", **DIGITS)], 45: [critical("WorseThanUnlearned", **DIGITS)]}
)
def a_model_becomes_worse_than_none(world: World) -> None:
    differ(world, 0.03, 0.01, **DIGITS)


@case({45: []})
def a_model_may_be_as_good_as_none(world: World) -> None:
    differ(world, 0.03, -0.001, **DIGITS)


@case({20: []})
def a_model_is_worse_for_ten_minutes(world: World) -> None:
    differ(world, 0.03, 0.01, until=EVENT + 10, **DIGITS)


@case({45: []})
def a_baseline_is_worse_than_another(world: World) -> None:
    differ(world, 0.2, 0.1, space="digits", learner="floor")


@case({45: []})
def a_model_is_worse_in_a_few_events(world: World) -> None:
    world.set("kinstream_held_out_events_total", 40.0, since=0, **DIGITS)
    differ(world, 0.03, 0.01, **DIGITS)


@case({4: [], 9: [critical("MistakeRateJumped", **DIGITS)], 25: [critical("MistakeRateJumped", **DIGITS)]})
def the_data_change(world: World) -> None:
    relearn(world, 0.15, **DIGITS)


@case({9: [], 30: []})
def mistakes_rise_a_little(world: World) -> None:
    relearn(world, 0.09, **DIGITS)


@case({4: [], 9: [], 30: []})
def the_data_change_for_three_minutes(world: World) -> None:
    relearn(world, 0.15, until=EVENT + 3, **DIGITS)
    relearn(world, 0.05, since=EVENT + 3, **DIGITS)


@case({9: [], 30: []})
def a_space_begins_anew(world: World) -> None:
    """After `kinstream spaces reset` a model makes more mistakes, as at its beginning."""
    relearn(world, 0.15, **DIGITS)
    world.restart("kinstream_model_step", **DIGITS)


@case({9: [], 30: []})
def the_stream_ends_with_mistakes(world: World) -> None:
    """What the window showed last stays; with nothing coming in there is nobody to wake."""
    world.set("kinstream_online_mistake_window_rate", 0.3, since=EVENT - 2, **DIGITS)
    for values in world.find(None, space="digits"):
        for minute in range(EVENT - 2, world.minutes):
            values[minute] = values[EVENT - 2]
    # The last model is taken over.
    world.set("kinstream_serve_model_behind", 0, since=EVENT - 2)


@case({14: [], 17: [warning("UtilisationNearZero", **DIGITS)]})
def a_model_makes_mistakes_and_does_not_change(world: World) -> None:
    world.set("kinstream_constraint_utilisation_window_ratio", 0.001, **DIGITS)


@case({30: []})
def a_model_has_nothing_left_to_learn(world: World) -> None:
    world.set("kinstream_constraint_utilisation_window_ratio", 0.001, **DIGITS)
    relearn(world, 0.004, **DIGITS)


@case({14: [], 40: [warning("StepsClipped", **DIGITS)]})
def the_guard_shortens_half_of_the_steps(world: World) -> None:
    world.grow("kinstream_constraints_clipped_total", CONSTRAINTS * 0.05, **DIGITS)


@case({14: [], 40: [warning("StepsClipped", **DIGITS)]})
def the_guard_shortens_a_tenth_of_the_steps(world: World) -> None:
    world.grow("kinstream_constraints_clipped_total", CONSTRAINTS * 0.01, **DIGITS)


@case({40: []})
def the_guard_shortens_three_in_a_hundred_steps(world: World) -> None:
    world.grow("kinstream_constraints_clipped_total", CONSTRAINTS * 0.003, **DIGITS)


@case(
    {
        0: [],
        5: [warning("ScalerRenewed", agent="learner-opml")],
        45: [warning("ScalerRenewed", agent="learner-opml")],
    }
)
def the_features_leave_their_scale(world: World) -> None:
    world.set("kinstream_scaler_renewals_total", 1, agent="learner-opml")


@case({5: [], 20: []})
def a_learner_with_old_renewals_is_started_again(world: World) -> None:
    world.set("kinstream_scaler_renewals_total", 2, since=0, agent="learner-opml")
    world.set("kinstream_scaler_renewals_total", 0, agent="learner-opml")


@case({14: [], 40: [warning("ConstraintsRejected", **DIGITS)]})
def a_learner_rejects_a_fifth(world: World) -> None:
    world.grow("kinstream_constraints_rejected_total", CONSTRAINTS * 0.25, **DIGITS)


@case({40: []})
def a_learner_rejects_one_in_a_hundred(world: World) -> None:
    world.grow("kinstream_constraints_rejected_total", CONSTRAINTS * 0.01, **DIGITS)


# ---- serve ------------------------------------------------------------------------------------------------------

ANSWERS: Final = "kinstream_serve_request_duration_seconds_count"


@case({4: [], 7: [], 12: [critical("ServeDown")], 40: [critical("ServeDown")]})
def the_service_is_gone(world: World) -> None:
    # For two minutes and more Prometheus takes the last that it knows.
    world.gone(since=EVENT + 4, instance="query:8088")


@case({3: [], 7: [critical("ServeDown")], 20: [critical("ServeDown")]})
def the_service_is_not_ready(world: World) -> None:
    world.set("kinstream_serve_ready", 0)


@case({3: [], 7: [critical("ServeDown")]})
def a_service_of_which_the_settings_say_nothing_is_not_ready(world: World) -> None:
    del world.series[next(key for key in world.series if key.startswith("kinstream_serve_space_info"))]
    world.set("kinstream_serve_ready", 0)


@case({2: [], 6: [], 12: [], 30: []})
def the_service_is_replaced_within_minutes(world: World) -> None:
    world.gone(until=EVENT + 3, instance="query:8088")


@case({6: [], 20: []})
def one_of_two_services_is_not_ready(world: World) -> None:
    for key, values in list(world.series.items()):
        if 'instance="query:8088"' in key:
            world.series[key.replace("query:8088", "other:8088")] = list(values)
    world.set("kinstream_serve_ready", 0, instance="other:8088")


@case({3: [], 12: [critical("ServeFailing")], 30: [critical("ServeFailing")]})
def a_tenth_of_the_answers_fail(world: World) -> None:
    world.grow(ANSWERS, REQUESTS / 10, route="/search", status="503")


@case({12: [], 30: []})
def one_answer_in_fifty_fails(world: World) -> None:
    world.grow(ANSWERS, REQUESTS / 50, route="/search", status="503")


@case({12: [], 30: []})
def half_of_very_few_answers_fail(world: World) -> None:
    for status in ("200", "404", "503"):
        world.grow(ANSWERS, 1, route="/search", status=status)


@case({12: [], 30: []})
def wrong_questions_are_refused(world: World) -> None:
    world.grow(ANSWERS, REQUESTS, route="/search", status="404")


SPACE: Final = {"space": "digits"}


@case({3: [], 8: [warning("ServeNotRecorded", **SPACE)], 30: [warning("ServeNotRecorded", **SPACE)]})
def shown_lists_are_dropped(world: World) -> None:
    world.grow("kinstream_serve_dropped_lists_total", 3, instance="query:8088", space="digits")


@case({8: [warning("ServeNotRecorded", **SPACE)]})
def feedback_is_not_acknowledged(world: World) -> None:
    world.grow("kinstream_serve_feedback_total", 1, fate="not-written", instance="query:8088", space="digits")


@case({12: [], 30: []})
def clients_send_feedback_too_late(world: World) -> None:
    world.grow("kinstream_serve_feedback_total", 50, fate="late-list", instance="query:8088", space="digits")


@case(
    {
        10: [],
        20: [],
        30: [warning("ServeModelStale", **DIGITS)],
        49: [warning("ServeModelStale", **DIGITS)],
    }
)
def new_models_cannot_be_loaded(world: World) -> None:
    world.grow("kinstream_serve_model_step", 0)


@case({30: [], 49: []})
def nothing_new_is_learned(world: World) -> None:
    world.grow("kinstream_serve_model_step", 0)
    world.set("kinstream_serve_model_behind", 0)


@case({30: [], 49: []})
def an_index_takes_five_minutes_to_be_built(world: World) -> None:
    for values in world.find("kinstream_serve_model_step"):
        values[:] = [values[minute - minute % 5] for minute in range(world.minutes)]


# ---- the tests --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_what_fires_when(name: str, tmp_path: Path) -> None:
    change, after = CASES[name]
    world = healthy()
    change(world)
    world.check(tmp_path, {EVENT - 2: []} | {EVENT + minutes: alerts for minutes, alerts in after.items()})


def test_a_healthy_system_raises_nothing(tmp_path: Path) -> None:
    healthy(180, whole=True).check(tmp_path, {minute: [] for minute in range(0, 180, 10)})


def test_an_idle_system_raises_nothing(tmp_path: Path) -> None:
    """Hours of work, hours of silence, and work again."""
    world = healthy(330, flows=lambda minute: minute < 70 or minute >= 280)
    world.check(tmp_path, {minute: [] for minute in range(60, 330, 10)})


def test_a_system_that_has_just_been_started_raises_nothing(tmp_path: Path) -> None:
    """Its workers come up one after the other, the learners last; a learner begins with mistakes and many steps."""
    world = healthy(60, whole=True)
    for minutes, agent in enumerate(
        ("metrics", "builder-one-pass", "learner-floor", "learner-boxes", "learner-opml")
    ):
        world.gone(since=0, until=minutes, instance=f"host:{9100 + list(AGENTS).index(agent)}")
    for space in ("digits", "shop"):
        relearn(world, 0.2, since=5, until=15, space=space, learner="opml")
        relearn(world, 0.05, since=15, until=60, space=space, learner="opml")
    world.check(tmp_path, {minute: [] for minute in range(60)})


def test_a_prometheus_that_knows_no_worker_says_so(tmp_path: Path) -> None:
    world = World(20)
    world.put("up", 1, instance="somebody:80")
    world.series = {
        key.replace('job="kinstream"', 'job="else"'): values for key, values in world.series.items()
    }
    world.check(tmp_path, {1: [], 3: [critical("Down")]})


def test_a_service_that_was_removed_is_forgotten_after_an_hour(tmp_path: Path) -> None:
    world = healthy(180)
    del world.series[next(key for key in world.series if key.startswith("kinstream_serve_space_info"))]
    world.gone(until=180, instance="query:8088")
    world.check(tmp_path, {EVENT + 30: [critical("ServeDown")], EVENT + 75: [], 170: []})


def test_workers_that_are_gone_are_reported_although_a_service_answers(tmp_path: Path) -> None:
    world = healthy()
    kept = {key: list(values) for key, values in world.series.items() if "query:8088" in key}
    world.gone()
    world.series |= kept
    world.check(tmp_path, {EVENT - 2: [], EVENT + 3: [critical("Down")]})


#: What a person reads, where the text is more than words and a label.
TEXTS: Final[dict[str, tuple[int, Text]]] = {
    "the_service_is_gone": (
        12,
        (
            critical("ServeDown"),
            "No service of kinstream answers",
            "The settings name spaces to serve, and no service answers Prometheus. Learning continues; queries get no "
            "answer.",
        ),
    ),
    "the_service_is_not_ready": (
        12,
        (
            critical("ServeDown"),
            "No service of kinstream answers",
            "Services that run but are not ready: 1. Learning continues; queries get no answer.",
        ),
    ),
    "a_learner_is_gone": (
        9,
        (
            critical("LearnerStalled", **OPML),
            "Learner opml does not learn",
            "The settings name it, and no worker of it answers Prometheus. Its model grows old; nothing is lost as "
            "long as the retention lasts.",
        ),
    ),
    "a_learner_stands_still": (
        17,
        (
            critical("LearnerStalled", **OPML),
            "Learner opml does not learn",
            "Partitions with work and without progress: 1. Its model grows old; nothing is lost as long as the "
            "retention lasts.",
        ),
    ),
    "the_data_change": (
        9,
        (
            critical("MistakeRateJumped", **DIGITS),
            "The mistake rate of opml in space digits has jumped to 15%",
            "Before it was 5%. Either the data have changed (drift), or what feeds them has.",
        ),
    ),
    "the_features_leave_their_scale": (
        5,
        (
            warning("ScalerRenewed", agent="learner-opml"),
            "learner-opml: the features have left the scale that the model was learned in",
            "The scaler was made anew and the model carried over. A producer may send different features.",
        ),
    ),
    "a_model_becomes_worse_than_none": (
        45,
        (
            critical("WorseThanUnlearned", **DIGITS),
            "opml is worse than not learning in space digits",
            "On held-out events it is wrong by 3% more than the un-learned metric cosine.\n"
            "Services get better results without this model. If it learns from clicks: only rules = "
            '["click-list"] with kind = "adapter" fits lists that were ranked.',
        ),
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_what_a_person_reads(name: str, tmp_path: Path) -> None:
    minutes, text = TEXTS[name]
    world = healthy()
    CASES[name][0](world)
    world.check(tmp_path, {}, {EVENT + minutes: text})


def test_every_alert_fires_in_one_case_and_not_in_another() -> None:
    # Those of the gate are in a file of their own.
    rules = [rule for group in groups(ALERTS) for rule in group["rules"]]
    others = AGAINST, STOPPED, MISSING, LEFT_OUT
    fired = {(name, severity) for name, severity, _ in others} | {
        (name, severity)
        for _, after in CASES.values()
        for alerts in after.values()
        for name, severity, _ in alerts
    }
    assert fired == {(rule["alert"], rule["labels"]["severity"]) for rule in rules}
    assert any(not alerts for _, after in CASES.values() for alerts in after.values())


@pytest.mark.parametrize("path", [ALERTS, RECORDING], ids=lambda path: path.name)
def test_promtool_finds_no_fault_in_the_rules(path: Path) -> None:
    done = run("promtool", "check", "rules", "--lint=all", "--lint-fatal", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_finds_no_fault_in_the_configuration() -> None:
    done = run("promtool", "check", "config", str(CONFIG))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_says_what_it_is_and_where_to_read_on() -> None:
    for group in groups(ALERTS):
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("critical", "warning")
            assert {"summary", "description", "runbook_url"} <= rule["annotations"].keys()
            assert rule["annotations"]["runbook_url"] == f"docs/runbooks.md#{rule['alert'].lower()}"
            assert rule["for"], "an alert waits: a moment is no reason to wake somebody"


def groups(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    return found
