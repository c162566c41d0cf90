"""A running worker that the brokers no longer let in ends, so that its next start says why; an outage ends nothing."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, cast

import pytest

from kinstream.streams.errors import AccessDenied, BrokerUnavailable, KinstreamError, LoginRefused
from kinstream.streams.worker.watchdog import PartitionProgress, Watchdog


class Idle:
    """A worker with one partition and nothing to do."""

    def progress(self) -> Mapping[tuple[str, int], PartitionProgress]:
        return {("t", 0): PartitionProgress(5, 5)}

    def rebalancing_since(self) -> float | None:
        return None

    def restoring_since(self) -> float | None:
        return None

    def loop_seen_at(self) -> float:
        return 0.0


class Brokers:
    """Answers what it is told to, call by call; the last answer stays."""

    def __init__(self, *answers: KinstreamError | None) -> None:
        self.answers = list(answers)
        self.asked = 0

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if answer is not None:
            raise answer
        return 0, 5


def _verdict(brokers: Brokers, looks: int) -> str | None:
    """What the watchdog says, if it says something within so many looks."""
    said: list[str] = []
    ended = threading.Event()

    def told(verdict: str) -> None:
        said.append(verdict)
        ended.set()

    dog = Watchdog(
        Idle(),
        cast(Any, brokers),
        stall_seconds=0.04,
        rebalance_seconds=9.0,
        restore_seconds=9.0,
        on_stall=told,
        clock=lambda: 0.0,
    )
    dog.start()
    limit = threading.Event()
    for _ in range(2_000):
        if ended.wait(0.005) or brokers.asked >= looks:
            break
    limit.wait(0.05)
    dog.stop()
    return said[0] if said else None


@pytest.mark.parametrize("refusal", [LoginRefused("expired"), AccessDenied("lacks DESCRIBE on topic t")])
def test_two_refusals_in_a_row_end_the_worker(refusal: KinstreamError) -> None:
    brokers = Brokers(None, refusal)
    assert _verdict(brokers, 50) == str(refusal)
    assert brokers.asked == 3


@pytest.mark.parametrize("away", [BrokerUnavailable("away"), None])
def test_neither_an_outage_nor_one_refusal_does(away: KinstreamError | None) -> None:
    assert _verdict(Brokers(None, LoginRefused("once"), away), 20) is None
