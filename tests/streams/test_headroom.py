"""How long the records that a worker has not read are still kept."""

from __future__ import annotations

import pytest

from kinstream.streams.worker.page.view import RATE_SECONDS, Headroom

DAY = 86_400.0


def test_who_has_read_all_has_the_whole_retention_before_him() -> None:
    assert Headroom().seconds(0.0, 0, 50, 50, retention=DAY) == DAY
    assert Headroom().seconds(0.0, 0, 50, 50) is None


def test_who_stands_still_loses_a_second_in_each() -> None:
    headroom = Headroom()
    assert headroom.seconds(1000.0, 0, 50, 90, retention=DAY, read_at=400.0) == DAY - 600
    assert headroom.seconds(1060.0, 0, 50, 90, retention=DAY, read_at=400.0) == DAY - 660
    assert headroom.seconds(2 * DAY, 0, 50, 90, retention=DAY, read_at=400.0) == 0


def test_after_idle_days_a_new_record_is_young() -> None:
    headroom = Headroom()
    headroom.seconds(3 * DAY, 0, 50, 50, retention=DAY, read_at=0.0)
    assert headroom.seconds(3 * DAY + 1, 0, 50, 51, retention=DAY, read_at=0.0) == DAY - 1


def test_before_the_first_record_nothing_is_known() -> None:
    assert Headroom().seconds(0.0, 0, 50, 90, retention=DAY) is None


def test_clocks_that_differ_promise_no_more_than_the_retention() -> None:
    assert Headroom().seconds(0.0, 0, 50, 90, retention=DAY, read_at=60.0) == DAY


def test_a_clock_that_was_ahead_promises_nothing_when_it_is_back() -> None:
    headroom = Headroom()
    headroom.seconds(9 * DAY, 0, 50, 50, retention=DAY)
    assert headroom.seconds(1000.0, 0, 50, 90, retention=DAY) == DAY
    assert headroom.seconds(1060.0, 0, 50, 90, retention=DAY) == DAY - 60
    ahead = Headroom()
    ahead.seconds(9 * DAY, 0, 1000, 9000)
    assert ahead.seconds(1000.0, 0, 1000, 9000) is None
    assert ahead.seconds(1100.0, 500, 1100, 9000) == pytest.approx(600 / 4)


def test_a_start_that_gains_on_the_position_overtakes_it() -> None:
    headroom = Headroom()
    assert headroom.seconds(0.0, 0, 1000, 9000) is None
    # The start gains 4 a second on the position, and 1000 + 100 - 500 are between them.
    assert headroom.seconds(100.0, 500, 1100, 9000) == pytest.approx(600 / 4)
    assert headroom.seconds(100.0, 500, 1100, 9000, retention=60.0, read_at=90.0) == 50


def test_one_step_of_the_start_is_spread_over_the_time_of_measurement() -> None:
    headroom = Headroom()
    for second in range(0, int(RATE_SECONDS), 10):
        assert headroom.seconds(second, 0, 1000, 9000) is None
    assert headroom.seconds(RATE_SECONDS, 100, 1000, 9000) == pytest.approx(900 / 100 * RATE_SECONDS)


def test_who_catches_up_is_measured_anew() -> None:
    headroom = Headroom()
    headroom.seconds(0.0, 0, 1000, 9000)
    headroom.seconds(50.0, 500, 9000, 9000)
    assert headroom.seconds(60.0, 8000, 9000, 9001) is None
