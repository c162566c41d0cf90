"""A producer waits for consumers that are behind, and says so when they stand still."""

from __future__ import annotations

import pytest

from kinstream.producers.labelled.load import BlockSettings, LabelledLoad
from kinstream.producers.loads.pacing import Backpressure, Rate
from kinstream.producers.loads.sender import produce
from kinstream.streams.errors import SettingsError, Stalled
from tests.producers.test_labelled import Clock, numbered
from tests.support.memory_log import MemoryLog, MemorySink

TOPIC = "kinstream.events"


class SlowConsumer:
    """Reads one record at each pause of the producer."""

    def __init__(self, log: MemoryLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self.read = 0
        self.most = 0

    def _records(self) -> list[int]:
        return [len(m.value or b"") for place in self._log.entries.values() for m in place]

    def behind(self) -> int:
        self.most = max(self.most, len(self._records()) - self.read)
        return len(self._records()) - self.read

    def bytes_behind(self) -> int:
        return sum(self._records()[self.read :])

    def pause(self, seconds: float) -> None:
        self._clock.pause(seconds)
        self.read += 1


def test_no_more_blocks_wait_than_the_limit_allows() -> None:
    log, clock = MemoryLog(), Clock()
    consumer = SlowConsumer(log, clock)
    pacing = Backpressure(consumer.behind, 4, clock=clock, pause=consumer.pause)
    load = LabelledLoad(numbered(400), "toys", BlockSettings(block_rows=10))
    summary = produce(load, MemorySink(log), TOPIC, pacing=pacing, clock=clock)
    assert summary.blocks == 40
    assert consumer.most == 4


def test_the_limit_can_be_in_bytes() -> None:
    log, clock = MemoryLog(), Clock()
    consumer = SlowConsumer(log, clock)
    most = []

    def behind() -> int:
        most.append(consumer.bytes_behind())
        return most[-1]

    pacing = Backpressure(behind, 1000, in_bytes=True, clock=clock, pause=consumer.pause)
    load = LabelledLoad(numbered(400), "toys", BlockSettings(block_rows=10))
    produce(load, MemorySink(log), TOPIC, pacing=pacing, clock=clock)
    assert 500 < max(most) <= 1000


def test_a_block_above_the_limit_goes_where_nothing_is_waiting() -> None:
    pacing = Backpressure(lambda: 0, 10, in_bytes=True)
    pacing.wait(1000)
    assert not pacing.admit(1)


def test_consumers_that_stand_still_end_the_wait() -> None:
    clock = Clock()
    pacing = Backpressure(lambda: 7, 4, deadline_seconds=30, clock=clock, pause=clock.pause)
    with pytest.raises(Stalled, match=r"7 blocks wait for consumers, none was read for 30 s"):
        pacing.wait(1)
    assert 130 <= clock.now < 131


def test_progress_puts_the_deadline_off() -> None:
    clock = Clock()
    pacing = Backpressure(
        lambda: 10 - int((clock.now - 100) / 20), 4, deadline_seconds=30, clock=clock, pause=clock.pause
    )
    pacing.wait(1)
    assert clock.now == pytest.approx(240, abs=1)


def test_consumers_are_asked_only_when_the_limit_may_be_reached() -> None:
    asked = []
    pacing = Backpressure(lambda: asked.append(1) or 0, 100)  # type: ignore[func-returns-value]
    pacing.wait(1)
    assert sum(pacing.admit(1) for _ in range(200)) == 99
    assert len(asked) == 1


def test_time_lost_is_not_made_up_for_with_a_burst() -> None:
    clock = Clock()
    rate = Rate(10.0, clock)
    assert rate.delay(10) == 0
    clock.now += 60
    assert rate.delay(10) == 0
    assert rate.delay(10) == pytest.approx(1.0)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_is_above_zero(rate: float) -> None:
    with pytest.raises(SettingsError, match="rate"):
        Rate(rate)


def test_a_limit_is_at_least_one() -> None:
    with pytest.raises(SettingsError, match="at least 1"):
        Backpressure(lambda: 0, 0)
