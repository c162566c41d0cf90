"""Bets on the mean of bounded numbers: the factors of e-values, which are valid whenever somebody looks.

If the mean of numbers x between -1 and 1 is at most 0, then for every bet b between 0 and 1

    E(b) = product of (1 + b x)

is a supermartingale that starts at 1, and so is its mean over any bets fixed before.

References
----------
Waudby-Smith, Ramdas: Estimating means of bounded random variables by betting. JRSS B 2024.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

#: Smaller ones would need more evidence than there ever is, and every further one costs evidence for the others.
BETS: Final[tuple[float, ...]] = tuple(float(bet) for bet in np.geomspace(0.1, 0.9, 6))


def multiplied(logs: Iterable[float], x: float) -> tuple[float, ...]:
    """The log of E(b) of each bet after one more number."""
    return tuple(log + math.log1p(bet * x) for log, bet in zip(logs, BETS, strict=True))


def log_mean(logs: Sequence[float]) -> float:
    """Log of the mean of numbers, from their logs."""
    top = max(logs)
    return top + math.log(sum(math.exp(log - top) for log in logs) / len(logs))
