"""How simulated users read a result list: by position, or as a cascade; and a method against position bias."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Flags = NDArray[np.bool_]


def attraction(relevant: Flags, noise: float) -> NDArray[np.float64]:
    """(m,) probability of a click on each item that is examined: 1 - noise if it is relevant, else noise."""
    return np.where(relevant, 1.0 - noise, noise)


def position_based(relevant: Flags, noise: float, bias: float, rng: np.random.Generator) -> Flags:
    """Clicks of a user who examines rank r, the top is 0, with probability 1 / (r + 1)^bias.

    Parameters
    ----------
    relevant : (m,) bool in the order shown.

    Returns
    -------
    (m,) bool, what is clicked.

    References
    ----------
    Craswell, Zoeter, Taylor, Ramsey. An experimental comparison of click position-bias models. 2008.
    """
    examined = rng.random(len(relevant)) < (np.arange(len(relevant)) + 1.0) ** -bias
    clicked: Flags = examined & (rng.random(len(relevant)) < attraction(relevant, noise))
    return clicked


def cascade(relevant: Flags, noise: float, stop: float, rng: np.random.Generator) -> Flags:
    """Clicks of a user who walks down from the top and stops after a click with probability `stop`.

    With `stop` 1 it is the cascade model: at most one click, and no result below it is examined.

    References
    ----------
    Craswell, Zoeter, Taylor, Ramsey. An experimental comparison of click position-bias models. 2008.
    """
    clicked: Flags = rng.random(len(relevant)) < attraction(relevant, noise)
    ends = np.flatnonzero(clicked & (rng.random(len(relevant)) < stop))
    if ends.size:
        clicked[ends[0] + 1 :] = False
    return clicked


def fair_pairs(order: NDArray[np.intp], rng: np.random.Generator) -> NDArray[np.intp]:
    """A ranking in which adjacent results are swapped with probability 1/2.

    The pairs begin at the first or at the second rank, each as likely, so that every two neighbours may be a pair.

    References
    ----------
    Radlinski, Joachims. Minimally invasive randomization for collecting unbiased preferences from clickthrough
    logs. 2006.
    """
    swapped = order.copy()
    first = int(rng.integers(2))
    tops = np.arange(first, len(order) - 1, 2)
    tops = tops[rng.random(len(tops)) < 0.5]
    swapped[tops], swapped[tops + 1] = order[tops + 1], order[tops]
    return swapped
