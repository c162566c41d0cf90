"""The expected clicks of a ranking, estimated from clicks on lists that were drawn with known probabilities.

Users click an item at place k if they look there, with probability theta_k, and it is relevant, whatever else is shown
(the position-based model). Then the expected clicks on the list of a model are the sum of theta at its place over its
relevant items. An item d was looked at with probability rho(d) = sum_k P(d at k) theta_k. With lambda(d) = theta at d's
place in the model's list, 0 if it is not in the list, and w = lambda / rho:

    IPS    mean of  sum_k w_k c_k
    SNIPS  (sum of all w_k c_k / sum of all w_k theta_k) times the mean of  sum_k theta_k
    DR     mean of  sum_d lambda(d) r(d) + sum_k w_k (c_k - theta_k r(d_k))

where k runs over the places shown, d over the model's list, c are clicks, and r(d) is a guess of d's relevance that was
not made from the list itself.

References
----------
Li, Abbasi-Yadkori, Kveton, Muthukrishnan, Vinay, Wen: Offline evaluation of ranking policies with click models. KDD
2018. (IPS for the position-based model)
Joachims, Swaminathan, Schnabel: Unbiased learning-to-rank with biased feedback. WSDM 2017.
Oosterhuis, de Rijke: Policy-aware unbiased learning to rank for top-k rankings. SIGIR 2020. (propensities over places)
Swaminathan, Joachims: The self-normalized estimator for counterfactual learning. NeurIPS 2015.
Dudik, Langford, Li: Doubly robust policy evaluation and learning. ICML 2011.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

Values = NDArray[np.float64]
Numbers = NDArray[np.int64]

#: Upper ends of the classes of items whose relevance is guessed together, by their rank without a model.
CLASSES: Final = (1, 2, 3, 5, 10, 20, 50, 100)
#: Lists on which a guess counts as much as the mean over all classes.
_PRIOR: Final = 5.0
_CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True, eq=False)
class ShownList:
    """A list as it was shown.

    Parameters
    ----------
    clicked : (k,) 0 or 1.
    looked : (k,) theta: probability that a user looks at the place.
    propensity : (k,) rho: probability that a user looks at the item, over all draws of the list.
    kind : (k,) class of the item.
    """

    clicked: Values
    looked: Values
    propensity: Values
    kind: Numbers


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """The list that a model would have shown instead.

    Parameters
    ----------
    gain : (k,) lambda of the items of the shown list; 0 for one that the model does not show.
    own_gain : (m,) lambda of the model's own items, first to last.
    own_kind : (m,) their classes.
    supported : (m,) whether the log may have shown them.
    """

    gain: Values
    own_gain: Values
    own_kind: Numbers
    supported: NDArray[np.bool_]


class Estimate(NamedTuple):
    """Expected clicks a list, with a 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Estimates:
    """What is known of one model.

    Parameters
    ----------
    naive : recorded clicks on items that the model would show too, a list. It is biased, and only for comparison.
    change : doubly robust, less that of the first model.
    effective_lists : the effective sample size: as many lists that the model itself had shown say as much.
    unsupported : share of the model's places, by how much they are looked at, with items that were never shown.
    largest_weight : of a click.
    """

    naive: float
    ips: Estimate
    snips: Estimate
    dr: Estimate
    change: Estimate
    effective_lists: float
    unsupported: float
    largest_weight: float


def class_of(rank: Numbers) -> Numbers:
    """The class of an item by its rank without a model, from 1."""
    return np.searchsorted(np.array(CLASSES), rank, side="left").astype(np.int64)


def estimated(
    shown: Sequence[ShownList], models: Sequence[Sequence[Ranked]], people: Sequence[str]
) -> list[Estimates]:
    """The estimates of every model.

    Intervals are Student's, of sums over people (n - 1 degrees of freedom, n people), so that lists of one person need
    not be independent.

    Parameters
    ----------
    shown : n lists.
    models : of each model, its n lists.
    people : (n,) whose lists they were.

    Raises
    ------
    ValueError : the lists are of fewer than two people.
    """
    numbers = {name: number for number, name in enumerate(dict.fromkeys(people))}
    who = np.array([numbers[name] for name in people], np.int64)
    if len(numbers) < 2:
        raise ValueError("an interval needs lists of two people at least")
    guesses = _relevance(shown, who)
    first: Values | None = None
    found = []
    for lists in models:
        terms = [
            _terms(one, ranked, guesses[person % 2])
            for one, ranked, person in zip(shown, lists, who, strict=True)
        ]
        naive, ips, weight, whole, robust, missing, largest = (
            np.array(column) for column in zip(*terms, strict=True)
        )
        first = robust if first is None else first
        found.append(
            Estimates(
                naive=float(naive.mean()),
                ips=_mean(ips, who),
                snips=_ratio(ips, weight, whole, who),
                dr=_mean(robust, who),
                change=_mean(robust - first, who),
                effective_lists=_effective(weight / whole),
                unsupported=float(missing.sum() / whole.sum()),
                largest_weight=float(largest.max()),
            )
        )
    return found


def _terms(one: ShownList, ranked: Ranked, guess: Values) -> tuple[float, ...]:
    weights = ranked.gain / one.propensity
    own = float(ranked.own_gain @ guess[ranked.own_kind])
    return (
        float(one.clicked @ (ranked.gain > 0)),
        float(weights @ one.clicked),
        float(weights @ one.looked),
        float(ranked.own_gain.sum()),
        own + float(weights @ (one.clicked - one.looked * guess[one.kind])),
        float(ranked.own_gain @ ~ranked.supported),
        float(weights.max(initial=0.0)),
    )


def _relevance(shown: Sequence[ShownList], who: Numbers) -> tuple[Values, Values]:
    """Relevance by class: for even people guessed from the lists of the odd ones, and the other way round.

    Clicks divided by looks, drawn towards the mean of all classes.
    """
    classes = len(CLASSES) + 1
    found = []
    for side in (1, 0):
        clicks, looks = np.zeros(classes), np.zeros(classes)
        for one, person in zip(shown, who, strict=True):
            if person % 2 == side:
                np.add.at(clicks, one.kind, one.clicked)
                np.add.at(looks, one.kind, one.looked)
        mean = clicks.sum() / looks.sum()
        found.append(np.minimum((clicks + _PRIOR * mean) / (looks + _PRIOR), 1.0))
    return found[0], found[1]


def _mean(values: Values, who: Numbers) -> Estimate:
    return _interval(float(values.mean()), values - values.mean(), who)


def _ratio(ips: Values, weight: Values, whole: Values, who: Numbers) -> Estimate:
    """Clicks by looks, times the looks of a list. The interval is by the delta method."""
    if not weight.sum():
        return Estimate(0.0, 0.0, 0.0)
    rate = float(ips.sum() / weight.sum())
    pulls = (ips - rate * weight) * (whole.mean() / weight.mean()) + rate * (whole - whole.mean())
    return _interval(rate * float(whole.mean()), pulls, who)


def _interval(value: float, pulls: Values, who: Numbers) -> Estimate:
    """`pulls` (n,) of mean 0: how far each list moves the estimate, times n."""
    sums = np.bincount(who, pulls)
    people = len(sums)
    error = float(np.sqrt((sums @ sums) * people / (people - 1)) / len(pulls))
    wide = float(student.ppf(0.5 + _CONFIDENCE / 2, people - 1)) * error
    return Estimate(value, value - wide, value + wide)


def _effective(weights: Values) -> float:
    squares = float(weights @ weights)
    return float(weights.sum()) ** 2 / squares if squares else 0.0
