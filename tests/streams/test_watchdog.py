"""The watchdog ends a process that has work and does not move, and no other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from kinstream.streams.errors import BrokerUnavailable
from kinstream.streams.worker.watchdog import (
    RETENTION_AGAIN_SECONDS,
    RETENTION_LOOK_SECONDS,
    PartitionProgress,
    Watchdog,
)

PLACE = ("t", 0)


class Worker:
    def __init__(self) -> None:
        self.at = PartitionProgress(5, 5)
        self.rebalance: float | None = None
        self.restoring: float | None = None
        self.loop = 0.0

    def progress(self) -> Mapping[tuple[str, int], PartitionProgress]:
        return {PLACE: self.at}

    def rebalancing_since(self) -> float | None:
        return self.rebalance

    def restoring_since(self) -> float | None:
        return self.restoring

    def loop_seen_at(self) -> float:
        return self.loop


class Brokers:
    end = 9
    away = False

    left: frozenset[int] = frozenset()

    retention: float | None = 3600.0

    def retention_seconds(self, topic: str) -> float | None:
        if self.away or self.retention is None:
            raise BrokerUnavailable("away")
        return self.retention

    def nobodys(self, group: str, topic: str, partitions: int) -> frozenset[int]:
        if self.away:
            raise BrokerUnavailable("away")
        return self.left

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        if self.away:
            raise BrokerUnavailable("away")
        return 0, self.end


class Case:
    def __init__(self) -> None:
        self.now = 0.0
        self.worker = Worker()
        self.brokers = Brokers()
        self.dog = Watchdog(
            self.worker,
            cast(Any, self.brokers),
            stall_seconds=10,
            rebalance_seconds=20,
            restore_seconds=30,
            on_stall=lambda verdict: None,
            group=("g", "t", 3),
            clock=lambda: self.now,
        )

    def at(self, now: float) -> str | None:
        self.now = self.worker.loop = now
        return self.dog.look()


def test_lag_without_movement_is_a_stall() -> None:
    case = Case()
    assert case.at(0) is None and case.at(9) is None
    verdict = case.at(11)
    assert verdict is not None and "4 records wait" in verdict


def test_movement_is_none() -> None:
    case = Case()
    case.at(0)
    case.worker.at = PartitionProgress(6, 5)
    assert case.at(9) is None and case.at(18) is None


def test_no_lag_is_none() -> None:
    case = Case()
    case.brokers.end = 5
    assert case.at(0) is None and case.at(100) is None


def test_a_kernel_that_does_not_return_is_a_stall_even_without_lag() -> None:
    case = Case()
    case.brokers.end = 5
    case.worker.at = PartitionProgress(5, 4, in_kernel=True)
    case.at(0)
    verdict = case.at(11)
    assert verdict is not None and "kernel" in verdict


def test_without_an_answer_of_the_brokers_there_is_no_verdict() -> None:
    case = Case()
    case.at(0)
    case.brokers.away = True
    assert case.at(11) is None and case.at(50) is None
    case.brokers.away = False
    assert case.at(55) is None
    assert case.at(70) is not None


def test_a_long_rebalance_is_a_stall() -> None:
    case = Case()
    case.worker.rebalance = 0.0
    assert case.at(19) is None
    verdict = case.at(21)
    assert verdict is not None and "rebalance" in verdict


def test_rounds_are_fewer_while_nothing_happens_and_the_brokers_answer() -> None:
    case = Case()
    case.brokers.end = 5
    assert case.dog.period == 1.0
    case.at(0)
    case.at(1)
    assert case.dog.period == 2.0
    case.brokers.away = True
    case.at(3)
    assert case.dog.period == 1.0
    case.brokers.away = False
    case.at(4)
    assert case.dog.period == 2.0
    case.worker.at = PartitionProgress(5, 4, in_kernel=True)
    case.at(6)
    assert case.dog.period == 1.0
    case.worker.at, case.worker.rebalance = PartitionProgress(5, 5), 6.0
    case.at(7)
    case.at(8)
    assert case.dog.period == 1.0


def test_what_waits_while_partitions_are_taken_over_is_none() -> None:
    case = Case()
    case.worker.restoring = 0.0
    assert case.at(0) is None and case.at(29) is None
    case.worker.restoring = None
    assert case.at(38) is None
    verdict = case.at(40)
    assert verdict is not None and "4 records wait" in verdict


def test_a_long_take_over_is_a_stall() -> None:
    case = Case()
    case.worker.restoring = 0.0
    assert case.at(30) is None
    assert case.at(31) == "taking over partitions has lasted 31 s"


def test_a_silent_event_loop_is_a_stall() -> None:
    case = Case()
    case.at(0)
    case.now = 11
    verdict = case.dog.look()
    assert verdict is not None and "event loop" in verdict


def test_work_that_arrives_after_a_long_idle_time_is_given_its_time() -> None:
    case = Case()
    case.brokers.end = 5
    assert case.at(0) is None and case.at(60) is None
    case.brokers.end = 8
    assert case.at(61) is None and case.at(69) is None
    assert case.at(72) is not None


def test_partitions_that_a_settled_group_leaves_to_nobody_are_a_stall() -> None:
    case = Case()
    case.brokers.end = 5
    case.brokers.left = frozenset({1})
    assert case.at(6) is None
    case.brokers.left = frozenset()
    assert case.at(12) is None
    case.brokers.left = frozenset({0, 1, 2})
    assert case.at(18) is None
    verdict = case.at(24)
    assert verdict is not None and "to no member" in verdict


def test_the_silence_of_the_brokers_begins_with_the_first_question_that_was_not_answered() -> None:
    case = Case()
    case.at(0)
    assert case.dog.silent_since is None
    case.brokers.away = True
    case.at(3)
    case.at(7)
    assert case.dog.silent_since == 3
    case.brokers.away = False
    case.at(8)
    assert case.dog.silent_since is None


def test_the_retention_is_asked_for_now_and_then() -> None:
    case = Case()
    case.brokers.retention = None
    case.at(0)
    assert case.dog.retention is None and case.dog.silent_since is None
    case.brokers.retention = 7200.0
    case.at(RETENTION_AGAIN_SECONDS - 1)
    assert case.dog.retention is None
    case.at(RETENTION_AGAIN_SECONDS)
    assert case.dog.retention == 7200
    case.brokers.retention = 3600.0
    case.at(RETENTION_AGAIN_SECONDS + RETENTION_LOOK_SECONDS)
    assert case.dog.retention == 3600
