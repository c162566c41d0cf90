"""The slope test tells a leak from what a healthy process does."""

from __future__ import annotations

import numpy as np
import pytest

from tests.soak.flat import after_warm_up, leaks, trend

SECONDS = np.arange(0.0, 1500.0, 5.0)
MB = 1e6


def size(*parts: object) -> list[float]:
    noise = np.random.default_rng(7).normal(0, 1 * MB, len(SECONDS))
    return list(150 * MB + noise + sum(np.asarray(part, float) for part in parts))


def found(values: list[float]) -> bool:
    return leaks(trend(list(SECONDS), values), share=0.1, least=8 * MB)


def test_a_steady_leak_is_found() -> None:
    # 40 MB in the 25 minutes.
    assert found(size(SECONDS / 1500 * 40 * MB))


def test_a_leak_in_small_jumps_is_found() -> None:
    assert found(size(np.floor(SECONDS / 120) * 3 * MB))


@pytest.mark.parametrize(
    "shape",
    [
        np.zeros(len(SECONDS)),
        20 * MB * (SECONDS % 100) / 100,  # a buffer that fills and is emptied
        20 * MB * (SECONDS > 200),  # partitions taken over once
        80 * MB * (np.abs(SECONDS - 700) < 60),  # one peak
        15 * MB * np.sin(SECONDS / 60),
        10 * MB * (1 - np.exp(-SECONDS / 60)),  # what is left of a warm-up
    ],
    ids=["nothing", "sawtooth", "step", "peak", "wave", "warm-up"],
)
def test_what_does_not_go_on_is_none(shape: object) -> None:
    assert not found(size(shape))


def test_a_small_rise_of_something_small_is_none() -> None:
    assert not leaks(trend([0, 10, 20, 30], [40, 41, 42, 43]), share=0.05, least=8)
    assert leaks(trend([0, 10, 20, 30], [40, 50, 60, 70]), share=0.05, least=8)


def test_the_warm_up_is_left_out() -> None:
    times, values = after_warm_up([10.0, 20.0, 30.0, 40.0], [1.0, 2.0, 3.0, 4.0], 15)
    assert (times, values) == ([30.0, 40.0], [3.0, 4.0])
    with pytest.raises(ValueError, match="2 points make no trend"):
        trend(times, values)
