"""How often users look at each place, next to the first one.

Both items of a pair of places that was swapped with probability 1/2 were at both places equally often. If users click
an item at place k when they look there, with probability theta_k, and it is relevant, then the expected clicks at the
two places are in the proportion of their theta, whatever the items are. So a click of the pair is at the lower place
with odds theta_l / theta_u, and log theta is the strength of a place in a Bradley-Terry model, fitted by its score.
With swaps of the first place alone this is the ratio of the clicks at place k and at the first one. Variances are of
sums over people (a sandwich), since neither the two clicks of a list nor the lists of a person are independent.

References
----------
Joachims, Swaminathan, Schnabel: Unbiased learning-to-rank with biased feedback. WSDM 2017. (swaps)
Ford: Solution of a ranking problem from binary comparisons. American Mathematical Monthly 1957.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import t as student

Values = NDArray[np.float64]
Numbers = NDArray[np.int64]

_CONFIDENCE: Final = 0.95
_STEPS: Final = 100
_LARGEST_STEP: Final = 2.0
_SMALL: Final = 1e-10


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """n pairs of places that were swapped by a coin.

    Parameters
    ----------
    upper, lower : (n,) places, from 0.
    clicks : (n, 2) whether the items at the upper and at the lower place were clicked, 0 or 1.
    people : (n,) number of the person, from 0.
    """

    upper: Numbers
    lower: Numbers
    clicks: Numbers
    people: Numbers


class Estimate(NamedTuple):
    """A value with a 95 % interval."""

    value: float
    low: float
    high: float


class Places(NamedTuple):
    """What is known of the places of a space.

    Parameters
    ----------
    propensities : by place, of the first one; None where the clicks do not connect it with the first place.
    exponent : the power law k^-exponent, k from 1, that fits the same pairs best.
    clicks : (places,) that count.
    """

    propensities: tuple[Estimate | None, ...]
    exponent: Estimate
    clicks: tuple[int, ...]


def estimated(pairs: Compared) -> Places:
    """Estimate how often users look at each place.

    Raises
    ------
    ValueError : of fewer than two people, or no other place has got clicks in pairs that connect it with the first one,
        in both directions.
    """
    count = int(pairs.lower.max(initial=0)) + 1
    if len(np.unique(pairs.people)) < 2:
        raise ValueError("an interval needs lists of two people at least")
    ways = np.concatenate([pairs.clicks[:, 1], pairs.clicks[:, 0]])
    ends = np.concatenate([pairs.lower, pairs.upper]), np.concatenate([pairs.upper, pairs.lower])
    clicked = ways > 0
    graph = coo_array((ways[clicked], (ends[0][clicked], ends[1][clicked])), shape=(count, count))
    labels = connected_components(graph, connection="strong")[1]
    known = labels == labels[0]
    if known.sum() < 2:
        raise ValueError("too few clicks: no other place can be compared with the first one")
    use = known[pairs.upper] & known[pairs.lower]
    upper, lower, clicks = pairs.upper[use], pairs.lower[use], pairs.clicks[use].astype(np.float64)
    people = np.unique(pairs.people[use], return_inverse=True)[1]
    numbers = np.cumsum(known) - 1
    rows = np.arange(len(upper))
    design = np.zeros((len(upper), int(known.sum())))
    design[rows, numbers[lower]] += 1.0
    design[rows, numbers[upper]] -= 1.0
    strengths, variances = _fitted(design[:, 1:], clicks, people)
    power, spread = _fitted(np.log((upper + 1.0) / (lower + 1.0))[:, None], clicks, people)
    wide = float(student.ppf(0.5 + _CONFIDENCE / 2, max(int(people.max()), 1)))
    found: list[Estimate | None] = [Estimate(1.0, 1.0, 1.0)]
    for place in range(1, count):
        if not known[place]:
            found.append(None)
            continue
        value, error = strengths[numbers[place] - 1], wide * variances[numbers[place] - 1] ** 0.5
        found.append(Estimate(*(float(np.exp(value + by)) for by in (0.0, -error, error))))
    error = wide * spread[0] ** 0.5
    exponent = Estimate(float(power[0]), float(power[0] - error), float(power[0] + error))
    seen = np.bincount(upper, clicks[:, 0], count) + np.bincount(lower, clicks[:, 1], count)
    return Places(tuple(found), exponent, tuple(int(number) for number in seen))


def _fitted(design: Values, clicks: Values, people: Numbers) -> tuple[Values, Values]:
    """Coefficients (q,) of the log odds that a click is at the lower place, and their variances.

    Parameters
    ----------
    design : (n, q).
    """
    found = np.zeros(design.shape[1])
    total = clicks.sum(axis=1)
    for _ in range(_STEPS):
        chance = 1.0 / (1.0 + np.exp(-design @ found))
        bread = (design * (total * chance * (1.0 - chance))[:, None]).T @ design
        step = np.linalg.solve(bread, design.T @ (clicks[:, 1] - chance * total))
        found = found + np.clip(step, -_LARGEST_STEP, _LARGEST_STEP)
        if np.abs(step).max() < _SMALL:
            break
    chance = 1.0 / (1.0 + np.exp(-design @ found))
    bread = (design * (total * chance * (1.0 - chance))[:, None]).T @ design
    pulls = np.zeros((int(people.max()) + 1, design.shape[1]))
    np.add.at(pulls, people, design * (clicks[:, 1] - chance * total)[:, None])
    inverse = np.linalg.inv(bread)
    count = len(pulls)
    covariance = inverse @ (pulls.T @ pulls) @ inverse * (count / max(count - 1, 1))
    return found, np.diag(covariance)
