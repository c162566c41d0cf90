"""Tests of the difference between two metrics: Student's t-test, Holm's correction."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: p-values below it are significant.
LEVEL: Final = 0.05
#: Differences, relative to what is subtracted, that rounding alone can make.
_ROUNDING: Final = 8.0 * float(np.finfo(np.float64).eps)

Values = NDArray[np.float64]


class PairVerdict(StrEnum):
    """The verdict for the first of two metrics against the second."""

    WIN = "win"
    TIE = "tie"
    LOSS = "loss"


@dataclass(frozen=True, slots=True)
class TTest:
    """A two-sided test that two means are equal.

    Parameters
    ----------
    difference : mean of the first less mean of the second.
    t : the statistic; infinite if the means differ without variation, None without a test.
    p : 0 where `t` is infinite; None where there are too few values to test.
    n : values of each, pairs in the paired test.
    """

    difference: float
    t: float | None
    p: float | None
    n: int


def paired(first: ArrayLike, second: ArrayLike) -> TTest:
    """Student's t-test of the differences over n equal splits.

    Parameters
    ----------
    first, second : (n,) values of both metrics on the same splits, n at least 1.

    Notes
    -----
    t = mean / (s / sqrt(n)) with n - 1 degrees of freedom, s the standard deviation of the differences with n - 1.
    If all differences are equal, the limit is used: p is 1 if they are 0, and 0 if not. Differences that rounding can
    cause count as 0.

    Raises
    ------
    ValueError : not two vectors of one length of at least 1.
    """
    a, b = _vectors(first, second)
    if len(a) != len(b):
        raise ValueError(f"a paired test takes equal numbers of values, not {len(a)} and {len(b)}")
    gaps = a - b
    noise = _ROUNDING * np.maximum(np.abs(a), np.abs(b))
    gaps[np.abs(gaps) <= noise] = 0.0
    mean = float(gaps.mean())
    # Values are subtracted from the first one: if they are all alike, no rounding remains.
    shifted = gaps - gaps[0]
    shifted[np.abs(shifted) <= noise + noise[0]] = 0.0
    if len(gaps) < 2:
        return TTest(mean, None, None, len(gaps))
    if not shifted.any():
        return TTest(mean, *_limit(mean), len(gaps))
    from scipy.stats import ttest_1samp

    with _nearly_equal():
        found = ttest_1samp(gaps, 0.0)
    return TTest(mean, float(found.statistic), float(found.pvalue), len(gaps))


def unpaired(first: ArrayLike, second: ArrayLike) -> TTest:
    """Student's t-test with one pooled variance, as the papers of the learners use it; not Welch's.

    Parameters
    ----------
    first, second : (n,) and (m,) values of both metrics; `n` of the result is the smaller of both.

    Notes
    -----
    t = (mean - mean') / (s sqrt(1/n + 1/m)) with n + m - 2 degrees of freedom, s^2 the pooled variance.

    Raises
    ------
    ValueError : not two vectors with a value each.
    """
    a, b = _vectors(first, second)
    n, m = len(a), len(b)
    noise = _ROUNDING * float(max(np.abs(a).max(), np.abs(b).max()))
    difference = float(a.mean() - b.mean())
    if abs(difference) <= noise:
        difference = 0.0
    if n + m < 3:
        return TTest(difference, None, None, min(n, m))
    if max(np.ptp(a), np.ptp(b)) <= noise:
        return TTest(difference, *_limit(difference), min(n, m))
    from scipy.stats import ttest_ind

    with _nearly_equal():
        found = ttest_ind(a, b)
    return TTest(difference, float(found.statistic), float(found.pvalue), min(n, m))


def holm(p: Values) -> Values:
    """p-values after Holm's correction for their number.

    Parameters
    ----------
    p : (m,) the p-values of one family of tests.

    Returns
    -------
    adjusted : (m,) the least level at which each is still significant when the chance of one or more false ones
        among all m stays below that level (Holm 1979).
    """
    order = np.argsort(p, kind="stable")
    adjusted = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    found = np.empty(len(p))
    found[order] = np.minimum(adjusted, 1.0)
    return found


def holm_known(p: Sequence[float | None]) -> list[float | None]:
    """`holm` of those that are known; the others stay None and do not count."""
    known = [i for i, value in enumerate(p) if value is not None]
    adjusted = holm(np.array([p[i] for i in known], np.float64))
    found: list[float | None] = [None] * len(p)
    for i, value in zip(known, adjusted, strict=True):
        found[i] = float(value)
    return found


def verdict(test: TTest, *, smaller_is_better: bool, level: float = LEVEL) -> PairVerdict:
    """Win if the first is better and p is below `level`, loss if it is worse, else tie."""
    if test.p is None or test.p >= level or test.difference == 0.0:
        return PairVerdict.TIE
    return PairVerdict.WIN if (test.difference < 0.0) == smaller_is_better else PairVerdict.LOSS


@contextmanager
def _nearly_equal() -> Iterator[None]:
    """Values that differ by little more than rounding are tested like others; scipy would warn on the terminal."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Precision loss occurred", RuntimeWarning)
        yield


def _vectors(first: ArrayLike, second: ArrayLike) -> tuple[Values, Values]:
    a, b = (np.array(values, np.float64, ndmin=1) for values in (first, second))
    for values in (a, b):
        if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
            raise ValueError("a test takes vectors of at least one finite value")
    return a, b


def _limit(difference: float) -> tuple[float, float]:
    """Statistic and p without variation."""
    return (0.0, 1.0) if difference == 0.0 else (float(np.copysign(np.inf, difference)), 0.0)
