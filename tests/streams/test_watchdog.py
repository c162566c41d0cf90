"""The watchdog ends a process that has work and does not move, and no other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from streams.errors import BrokerUnavailable
from streams.watchdog import Progress, Watchdog

PLACE = ("t", 0)


class Worker:
    def __init__(self) -> None:
        self.at = Progress(5, 5)
        self.rebalance: float | None = None
        self.loop = 0.0

    def progress(self) -> Mapping[tuple[str, int], Progress]:
        return {PLACE: self.at}

    def rebalancing_since(self) -> float | None:
        return self.rebalance

    def loop_seen_at(self) -> float:
        return self.loop


class Brokers:
    end = 9
    away = False

    left: frozenset[int] = frozenset()

    def nobodys(self, group: str, topic: str, partitions: int) -> frozenset[int]:
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
    case.worker.at = Progress(6, 5)
    assert case.at(9) is None and case.at(18) is None


def test_no_lag_is_none() -> None:
    case = Case()
    case.brokers.end = 5
    assert case.at(0) is None and case.at(100) is None


def test_a_kernel_that_does_not_return_is_a_stall_even_without_lag() -> None:
    case = Case()
    case.brokers.end = 5
    case.worker.at = Progress(5, 4, in_kernel=True)
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
    assert verdict is not None and "to nobody" in verdict
