"""Tests whether two learners on the same blocks of constraints make mistakes equally often.

The block is the unit: within one the constraints share vectors, and outcomes hold counts per block. Both tests assume
independent blocks. Blocks of a stream are not quite independent, so a p-value near the threshold is weak evidence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

#: Quantile of the normal distribution for a 95 % interval.
_Z: Final = 1.959963984540054

METHOD: Final = (
    "difference of the mistake rates over all compared constraints, what-if less recorded; its interval and p are "
    "those of a ratio estimate with the block as the paired sampling unit; sign_p is the exact two-sided sign test "
    "over the blocks in which one made fewer mistakes than the other"
)


@dataclass(frozen=True, slots=True)
class Paired:
    """A paired comparison of mistake rates. None if there is too little data.

    Parameters
    ----------
    difference : of the rates, what-if less recorded; below 0 the what-if is better.
    low, high : 95 % interval of the difference.
    p : two-sided, for no difference.
    better, worse, equal : blocks with fewer, more and as many mistakes in the what-if.
    sign_p : two-sided, of the sign test over better and worse.
    """

    blocks: int
    constraints: int
    difference: float | None
    low: float | None
    high: float | None
    p: float | None
    better: int
    worse: int
    equal: int
    sign_p: float | None


def paired(scored: NDArray[np.int64], recorded: NDArray[np.int64], what_if: NDArray[np.int64]) -> Paired:
    """Compare mistakes in the same blocks.

    With n_i constraints scored in block i and d_i more mistakes in the what-if, the difference is D = sum d / sum n,
    and its standard error over k blocks sqrt(k / (k - 1) sum (d_i - D n_i)^2) / sum n: the ratio estimate of Cochran,
    *Sampling Techniques*, 1977, chapter 6, without the correction for a finite population.

    Parameters
    ----------
    scored : (k,) constraints that both scored in each block.
    recorded, what_if : (k,) mistakes among them.
    """
    used = scored > 0
    n, d = scored[used].astype(np.float64), (what_if - recorded)[used].astype(np.float64)
    k, total = len(n), float(n.sum())
    better, worse = int((d < 0).sum()), int((d > 0).sum())
    signs = (better, worse, k - better - worse, _sign_test(better, worse))
    if not k:
        return Paired(0, 0, None, None, None, None, *signs)
    difference = float(d.sum()) / total
    if k == 1:
        return Paired(k, int(total), difference, None, None, None, *signs)
    residuals = d - difference * n
    error = math.sqrt(k / (k - 1) * float((residuals * residuals).sum())) / total
    p = 1.0 if difference == 0 else 0.0 if error == 0 else math.erfc(abs(difference) / error / math.sqrt(2))
    low, high = difference - _Z * error, difference + _Z * error
    return Paired(k, int(total), difference, low, high, p, *signs)


def _sign_test(better: int, worse: int) -> float | None:
    """Two-sided probability of a split at least so uneven, were both sides as likely; None without any."""
    if not better + worse:
        return None
    from scipy.stats import binomtest

    return float(binomtest(better, better + worse).pvalue)
