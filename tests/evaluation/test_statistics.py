"""Tests of means and Holm's correction: by hand, by scipy, by their properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from kinstream.evaluation.runner.statistics import (
    PairVerdict,
    TTest,
    holm,
    holm_known,
    paired,
    unpaired,
    verdict,
)

seeds = st.integers(0, 2**32 - 1)


def test_a_paired_test_by_hand() -> None:
    # Differences 1, 2, 3: mean 2, deviation 1, so t = 2 sqrt 3 with two degrees of freedom.
    found = paired([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert (found.difference, found.n) == (2.0, 3)
    assert found.t == pytest.approx(2.0 * math.sqrt(3.0))
    # For two degrees of freedom the distribution has a closed form.
    t = 2.0 * math.sqrt(3.0)
    assert found.p == pytest.approx(1.0 - t / math.sqrt(t * t + 2.0))


def test_an_unpaired_test_by_hand() -> None:
    # Means 2 and 4, both variances 1: t = -2 / sqrt(2/3) with four degrees of freedom.
    found = unpaired([1.0, 2.0, 3.0], [3.0, 4.0, 5.0])
    assert found.difference == -2.0
    assert found.t == pytest.approx(-2.0 / math.sqrt(2.0 / 3.0))
    assert found.p == pytest.approx(0.0705, abs=5e-5)


@given(seeds, st.integers(2, 30), st.integers(2, 30), st.floats(1e-3, 1e3))
def test_both_tests_are_those_of_scipy(seed: int, n: int, m: int, scale: float) -> None:
    draw = np.random.default_rng(seed)
    a, b, c = scale * draw.normal(size=n), scale * draw.normal(0.5, 1.0, n), scale * draw.normal(1.0, 2.0, m)
    theirs = stats.ttest_rel(a, b)
    ours = paired(a, b)
    assert ours.t == pytest.approx(theirs.statistic)
    assert ours.p == pytest.approx(theirs.pvalue)
    assert ours.difference == pytest.approx(np.mean(a) - np.mean(b))
    theirs = stats.ttest_ind(a, c, equal_var=True)
    ours = unpaired(a, c)
    assert ours.t == pytest.approx(theirs.statistic)
    assert ours.p == pytest.approx(theirs.pvalue)
    assert ours.n == min(n, m)


@pytest.mark.parametrize("test", [paired, unpaired])
def test_one_value_is_no_test(test: type) -> None:
    found = test([0.25], [0.5])
    assert found == TTest(-0.25, None, None, 1)
    assert verdict(found, smaller_is_better=True) is PairVerdict.TIE


@pytest.mark.parametrize("test", [paired, unpaired])
def test_without_variance_any_difference_is_significant_and_none_is_not(test: type) -> None:
    assert test([0.5] * 4, [0.5] * 4) == TTest(0.0, 0.0, 1.0, 4)
    assert test([0.25] * 4, [0.5] * 4) == TTest(-0.25, -math.inf, 0.0, 4)
    assert test([0.5] * 4, [0.25] * 4) == TTest(0.25, math.inf, 0.0, 4)


def test_rounding_is_no_difference() -> None:
    # 0.1 + 0.2 and 0.3 differ in the last bit, on every split in the same direction.
    assert paired([0.1 + 0.2] * 5, [0.3] * 5) == TTest(0.0, 0.0, 1.0, 5)
    assert unpaired([0.1 + 0.2] * 5, [0.3] * 5) == TTest(0.0, 0.0, 1.0, 5)
    # The differences are all 0.1, but not in their last bits.
    first, second = [0.3, 0.4, 0.8, 1.1], [0.2, 0.3, 0.7, 1.0]
    assert len({a - b for a, b in zip(first, second, strict=True)}) > 1
    found = paired(first, second)
    assert (found.t, found.p) == (math.inf, 0.0)
    assert found.difference == pytest.approx(0.1)


def test_a_difference_far_below_the_values_still_counts() -> None:
    found = paired([1.0 + 1e-9, 1.0 + 2e-9, 1.0 + 3e-9], [1.0, 1.0, 1.0])
    assert found.t == pytest.approx(2.0 * math.sqrt(3.0), rel=1e-5)


@pytest.mark.parametrize(
    ("first", "second"), [([], []), ([1.0], [math.nan]), ([math.inf], [1.0]), ([[1.0]], [[1.0]])]
)
def test_what_is_refused(first: list[float], second: list[float]) -> None:
    for test in (paired, unpaired):
        with pytest.raises(ValueError, match="at least one finite value"):
            test(first, second)


def test_pairs_come_in_equal_numbers() -> None:
    with pytest.raises(ValueError, match="not 2 and 3"):
        paired([1.0, 2.0], [1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("difference", "p", "smaller", "larger"),
    [
        (-0.1, 0.01, PairVerdict.WIN, PairVerdict.LOSS),
        (0.1, 0.01, PairVerdict.LOSS, PairVerdict.WIN),
        (0.1, 0.05, PairVerdict.TIE, PairVerdict.TIE),
        (-0.1, 0.0499, PairVerdict.WIN, PairVerdict.LOSS),
        (0.0, 1.0, PairVerdict.TIE, PairVerdict.TIE),
    ],
)
def test_verdicts(difference: float, p: float, smaller: PairVerdict, larger: PairVerdict) -> None:
    found = TTest(difference, 0.0, p, 5)
    assert verdict(found, smaller_is_better=True) is smaller
    assert verdict(found, smaller_is_better=False) is larger


def test_holm_by_hand() -> None:
    assert holm(np.array([0.01, 0.04, 0.03, 0.005])) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm(np.array([0.5, 0.9, 0.6])) == pytest.approx([1.0, 1.0, 1.0])
    assert len(holm(np.array([]))) == 0
    assert holm_known([0.02, None, 0.01]) == pytest.approx([0.02, None, 0.02])
    assert holm_known([None]) == [None]


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20), st.floats(0.001, 0.5))
def test_holm_rejects_what_its_steps_reject(p: list[float], level: float) -> None:
    # The procedure as published: from the least p upwards, until one is not below level / (how many are left).
    rejected: set[int] = set()
    for step, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        if p[i] * (len(p) - step) >= level:
            break
        rejected.add(i)
    adjusted = holm(np.array(p))
    assert {i for i, value in enumerate(adjusted) if value < level} == rejected
    assert np.all(adjusted >= p) and np.all(adjusted <= 1.0)
