"""What every worker says of itself."""

from __future__ import annotations

import threading

import pytest
from prometheus_client import CollectorRegistry

from kinstream.streams.agents.machine import COUNTED as MACHINE_COUNTS
from kinstream.streams.errors import Reason
from kinstream.streams.worker.page.gauges import COUNTED, PartitionGauges, WorkerCollector, WorkerGauges

LABELS = {"agent": "learner:opml", "topic": "t", "partition": "0"}


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def worker(*partitions: int) -> WorkerGauges:
    gauges = WorkerGauges("learner:opml", restarts=2, clock=Clock())
    for partition in partitions:
        gauges.assign("t", partition)
    return gauges


def value(gauges: WorkerGauges, name: str, **labels: str) -> float | None:
    registry = CollectorRegistry()
    registry.register(WorkerCollector(gauges, build={"kinstream": "1.0"}))
    return registry.get_sample_value(f"kinstream_{name}", {**LABELS, **labels})


def test_lag_is_the_last_stable_offset_less_the_position() -> None:
    gauges = worker(0)
    assert value(gauges, "consumer_lag_records") is None
    with gauges.edit("t", 0) as partition:
        partition.position, partition.log_end = 90, 100
    assert value(gauges, "consumer_lag_records") == 10
    with gauges.edit("t", 0) as partition:
        partition.position = 101
    assert value(gauges, "consumer_lag_records") == 0


def test_what_is_unknown_is_absent() -> None:
    gauges = worker(0)
    for name in (
        "consumer_position",
        "checkpoint_offset",
        "checkpoint_size_bytes",
        "retention_headroom_seconds",
    ):
        assert value(gauges, name) is None
    with gauges.edit("t", 0) as partition:
        partition.headroom_seconds = 3600.0
        partition.checkpoint_bytes = 0
    assert value(gauges, "retention_headroom_seconds") == 3600
    assert value(gauges, "checkpoint_size_bytes") == 0


def test_the_age_of_a_checkpoint_counts_from_assignment_until_there_is_one() -> None:
    gauges = worker(0)
    Clock.now = 130.0
    try:
        assert value(gauges, "checkpoint_age_seconds") == 30
        with gauges.edit("t", 0) as partition:
            partition.covered_at = 125.0
        assert value(gauges, "checkpoint_age_seconds") == 5
    finally:
        Clock.now = 100.0


def test_only_what_this_process_counted_is_shown() -> None:
    gauges = worker(0)
    with gauges.edit("t", 0) as partition:
        partition.begin({"applied": 1_000}, {"too-large": 7})
        partition.take({"applied": 1_003, "duplicates": 1}, {"too-large": 7, "bad-shape": 1})
        partition.take({"applied": 1_005, "duplicates": 1}, {"too-large": 8, "bad-shape": 1})
    assert value(gauges, "records_applied_total") == 5
    assert value(gauges, "records_duplicate_total") == 1
    assert value(gauges, "dead_letters_total", reason="too-large") == 1
    assert value(gauges, "dead_letters_total", reason="bad-shape") == 1


def test_every_reason_begins_at_zero_and_unknown_ones_are_bounded() -> None:
    gauges = worker(0)
    for reason in Reason:
        assert value(gauges, "dead_letters_total", reason=reason.value) == 0
    with gauges.edit("t", 0) as partition:
        partition.dead_letters["anything"] = 3
    assert value(gauges, "dead_letters_total", reason="other") == 3
    assert value(gauges, "dead_letters_total", reason="anything") is None


def test_everything_that_a_machine_counts_has_a_series() -> None:
    assert set(COUNTED) == set(MACHINE_COUNTS)


def test_the_fates_of_evidence_are_shown_by_name() -> None:
    gauges = worker(0)
    assert value(gauges, "evidence_total") is None
    with gauges.edit("t", 0) as partition:
        partition.take({"fate.late": 0, "applied": 9}, {})
    assert value(gauges, "evidence_total", fate="late") == 0
    with gauges.edit("t", 0) as partition:
        partition.take({"fate.late": 2, "applied": 9}, {})
    assert value(gauges, "evidence_total", fate="late") == 2
    assert value(gauges, "evidence_total", fate="applied") is None


def test_a_revoked_partition_vanishes_and_its_counters_go_on_when_it_comes_back() -> None:
    gauges = worker(0, 1)
    with gauges.edit("t", 0) as partition:
        partition.counts["applied"] += 5
        partition.position = 50
    gauges.revoke("t", 0)
    assert value(gauges, "records_applied_total") is None
    assert value(gauges, "records_applied_total", partition="1") == 0
    with gauges.edit("t", 0) as partition:
        partition.counts["applied"] += 1
    assert value(gauges, "records_applied_total") is None
    gauges.assign("t", 0)
    assert value(gauges, "records_applied_total") == 6
    assert value(gauges, "consumer_position") is None


def test_parked_and_restarts_and_build_are_shown() -> None:
    gauges = worker(0)
    assert value(gauges, "partition_parked") == 0
    with gauges.edit("t", 0) as partition:
        partition.parked = True
    assert value(gauges, "partition_parked") == 1
    registry = CollectorRegistry()
    registry.register(WorkerCollector(gauges, build={"kinstream": "1.0"}))
    assert registry.get_sample_value("kinstream_worker_restarts_total", {"agent": "learner:opml"}) == 2
    assert registry.get_sample_value("kinstream_build_info", {"kinstream": "1.0"}) == 1


def test_edits_from_many_threads_are_all_counted() -> None:
    gauges = worker(0)

    def work() -> None:
        for _ in range(500):
            with gauges.edit("t", 0) as partition:
                partition.read_bytes += 2

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert (value(gauges, "read_bytes_total") or 0) % 2 == 0
    assert value(gauges, "read_bytes_total") == 4_000


def test_the_silence_of_the_brokers_grows_and_ends() -> None:
    gauges = worker(0)
    labels = {"agent": "learner:opml"}
    registry = CollectorRegistry()
    registry.register(WorkerCollector(gauges))
    assert registry.get_sample_value("kinstream_broker_silence_seconds", labels) == 0
    gauges.silent_since = 70.0
    assert registry.get_sample_value("kinstream_broker_silence_seconds", labels) == 30
    gauges.silent_since = None
    assert registry.get_sample_value("kinstream_broker_silence_seconds", labels) == 0


def test_partitions_that_were_added_are_shown_by_topic() -> None:
    gauges = worker(0)
    registry = CollectorRegistry()
    registry.register(WorkerCollector(gauges))
    labels = {"agent": "learner:opml", "topic": "kinstream.constraints"}
    assert registry.get_sample_value("kinstream_topic_partitions_added", labels) is None
    for added in (0, 2):
        gauges.partitions_added = {"kinstream.constraints": added}
        assert registry.get_sample_value("kinstream_topic_partitions_added", labels) == added


def test_the_limits_beside_which_ages_are_read_are_shown_where_they_are_known() -> None:
    registry = CollectorRegistry()
    registry.register(WorkerCollector(WorkerGauges("metrics", checkpoint_age_limit_seconds=90.0)))
    name = "kinstream_checkpoint_age_limit_seconds"
    assert registry.get_sample_value(name, {"agent": "metrics"}) == 90
    gauges = worker(0)
    assert value(gauges, "retention_seconds") is None
    with gauges.edit("t", 0) as partition:
        partition.retention_seconds, partition.log_start, partition.log_end = 3600.0, 4, 9
    assert value(gauges, "retention_seconds") == 3600
    assert (value(gauges, "log_start_offset"), value(gauges, "log_end_offset")) == (4, 9)


def test_counts_that_have_not_changed_are_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    gauges = PartitionGauges()
    gauges.begin({"applied": 2}, {})
    gauges.take({"applied": 5}, {"not-finite": 1})
    begun: list[object] = []
    monkeypatch.setattr(PartitionGauges, "begin", lambda self, *counts: begun.append(counts))
    gauges.take({"applied": 5}, {"not-finite": 1})
    assert not begun
    gauges.take({"applied": 6}, {"not-finite": 1})
    assert begun and gauges.counts["applied"] == 4 and gauges.dead_letters["not-finite"] == 1
