"""What Prometheus is shown is consistent, bounded, and of the owned partitions only."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from kinstream.monitoring.exposition import MAX_EXPERTS, OLDEST_DELAY_SECONDS, OwnedTallies, TallyCollector
from kinstream.monitoring.tallies import OTHER, Tallies
from kinstream.streams.errors import BadRecord
from kinstream.streams.records.values import COUNT_NAMES, Counts, Outcome
from tests.monitoring.outcomes import outcome, outcomes

NOW = 1_000.0


def clock() -> float:
    return NOW


def owned_partitions(*partitions: int, window: int = 10, top_spaces: int = 2) -> OwnedTallies:
    owned = OwnedTallies(clock=clock)
    for partition in partitions:
        owned.assign(partition, Tallies(window=window, top_spaces=top_spaces), live=True)
    return owned


def scrape(owned: OwnedTallies) -> dict[tuple[str, ...], float]:
    """Values by (name, label values in the order of label names)."""
    collector = TallyCollector(owned, clock=clock)
    return {
        (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()))): sample.value
        for metric in collector.collect()
        for sample in metric.samples
    }


def value(owned: OwnedTallies, name: str, **labels: str) -> float | None:
    wanted = {"partition": "0", "space": "s", "learner": "opml", **labels}
    registry = CollectorRegistry()
    registry.register(TallyCollector(owned, clock=clock))
    return registry.get_sample_value(name, wanted)


def test_every_count_has_its_counter() -> None:
    owned = owned_partitions(0)
    counts = Counts(12, 8, 3, 5, 1, 2, 4, 6, 0.5, 2, 1, 7)
    owned.apply(0, replace(outcome(), counts=counts, by_rule={"closure": counts}))
    for name in (n for n in COUNT_NAMES if n != "loss_sum"):
        assert value(owned, f"kinstream_constraints_{name}_total") == getattr(counts, name)
    assert value(owned, "kinstream_loss_total") == 0.5
    assert value(owned, "kinstream_rule_constraints_mistakes_total", rule="closure") == 3
    assert value(owned, "kinstream_online_mistake_rate") == 3 / 8
    assert value(owned, "kinstream_constraint_utilisation_ratio") == 5 / 12


def test_a_ratio_of_nothing_is_absent() -> None:
    owned = owned_partitions(0)
    owned.apply(0, outcome(seen=4, scored=0, utilised=1))
    assert value(owned, "kinstream_online_mistake_rate") is None
    assert value(owned, "kinstream_online_mistake_window_rate") is None
    assert value(owned, "kinstream_constraint_utilisation_window_ratio") == 0.25


def test_a_model_shows_its_step_its_age_and_its_weights() -> None:
    owned = owned_partitions(0)
    owned.apply(0, outcome(step=70, time_ms=940_000, weights={"L0": 0.25, "L1": 0.75}))
    assert value(owned, "kinstream_model_step") == 70
    assert value(owned, "kinstream_model_age_seconds") == 60
    assert value(owned, "kinstream_expert_weight", expert="L1") == 0.75


def test_experts_beyond_the_limit_are_summed() -> None:
    owned = owned_partitions(0)
    owned.apply(0, outcome(weights={f"e{number:03}": 1.0 for number in range(MAX_EXPERTS + 3)}))
    assert value(owned, "kinstream_expert_weight", expert=OTHER) == 3
    assert value(owned, "kinstream_expert_weight", expert=f"e{MAX_EXPERTS:03}") is None


def test_the_series_of_a_revoked_partition_vanish_at_once() -> None:
    owned = owned_partitions(0, 1)
    owned.apply(0, outcome("a"))
    owned.apply(1, outcome("b"))
    owned.revoke(0)
    owned.revoke(0)
    assert {"partition=1"} == {
        label for key in scrape(owned) for label in key if label.startswith("partition=")
    }
    with pytest.raises(KeyError):
        owned.apply(0, outcome("a"))


def test_a_revocation_changes_no_series_of_another_partition() -> None:
    owned = owned_partitions(0, 1, top_spaces=1)
    for partition in (0, 1):
        for number in range(5):
            owned.apply(partition, outcome(f"{partition}-{number}"))
    before = scrape(owned)
    owned.revoke(1)
    after = scrape(owned)
    assert after.items() <= before.items()
    assert value(owned, "kinstream_constraints_seen_total", space=OTHER) == 4
    assert value(owned, "kinstream_spaces_unlisted") is None


def test_spaces_beyond_the_bound_are_counted() -> None:
    owned = owned_partitions(0)
    for name in "abcde":
        owned.apply(0, outcome(name))
    metrics = {m.name: m for m in TallyCollector(owned).collect()}
    assert metrics["kinstream_spaces_unlisted"].samples[0].value == 3
    assert metrics["kinstream_spaces_listed"].samples[0].value == 2


def test_a_partition_that_is_catching_up_is_not_shown() -> None:
    owned = OwnedTallies(clock=clock)
    before_crash = Tallies(window=10, top_spaces=2)
    before_crash.apply(outcome(seen=90))
    owned.assign(0, before_crash)
    owned.apply(0, outcome(seen=10))
    assert not [key for key in scrape(owned) if "partition=0" in key]
    owned.go_live(0)
    assert value(owned, "kinstream_constraints_seen_total") == 100


def test_only_live_delays_are_observed() -> None:
    owned = owned_partitions(0)
    owned.assign(1, Tallies(window=1, top_spaces=1))
    for delay in (0.03, 0.2, OLDEST_DELAY_SECONDS, OLDEST_DELAY_SECONDS + 1, -1):
        owned.apply(0, outcome(time_ms=round((NOW - delay) * 1000)))
    owned.apply(1, outcome("t", time_ms=round(NOW * 1000)))
    shown = scrape(owned)
    name = "kinstream_event_to_metric_delay_seconds"
    assert shown[f"{name}_bucket", "le=0.025", "learner=opml"] == 0
    assert shown[f"{name}_bucket", "le=0.05", "learner=opml"] == 1
    assert shown[f"{name}_bucket", "le=60.0", "learner=opml"] == 2
    assert shown[f"{name}_bucket", "le=+Inf", "learner=opml"] == 3
    assert shown[f"{name}_count", "learner=opml"] == 3
    assert shown[f"{name}_sum", "learner=opml"] == pytest.approx(0.23 + OLDEST_DELAY_SECONDS)
    for reason in ("replay", "backfill", "future"):
        assert shown["kinstream_event_to_metric_delay_skipped_total", f"reason={reason}"] == 1


def test_a_refused_outcome_is_no_delay() -> None:
    owned = owned_partitions(0)
    with pytest.raises(BadRecord):
        owned.apply(0, replace(outcome(), counts=Counts(mistakes=1)))
    assert not [key for key in scrape(owned) if key[0].endswith("_delay_seconds_count")]


@settings(max_examples=30)
@given(st.lists(outcomes(), max_size=30))
def test_no_counter_falls_while_spaces_overflow(stream: list[Outcome]) -> None:
    owned = owned_partitions(0, window=3)
    before: dict[tuple[str, ...], float] = {}
    for record in stream:
        owned.apply(0, record)
        now = {key: number for key, number in scrape(owned).items() if key[0].endswith("_total")}
        assert all(now[key] >= before[key] for key in before.keys() & now.keys())
        before = now


def test_a_scrape_amid_the_work_sees_the_state_between_two_outcomes() -> None:
    owned = owned_partitions(0)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            owned.apply(0, outcome(seen=3, mistakes=3, utilised=3))

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(200):
            rows = owned.snapshots()[0].rows
            for row in rows:
                assert row.totals.seen == row.totals.mistakes == row.totals.utilised
                assert row.mistake_window.part == row.mistake_window.whole <= 12
    finally:
        stop.set()
        worker.join()
