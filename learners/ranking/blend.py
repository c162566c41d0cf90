"""The value by which the candidates of a query are ranked: a sum of weighted signals. It needs numpy alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Signals = Mapping[str, NDArray[Any]]

#: Larger values count as this one, so that no sum overflows.
LARGEST: Final = 1e100
#: How signals (n,) of the candidates of a query rank them, for readers of an exported file.
USE: Final = (
    "sum of weights * (s - mean of s) / scales over `signals`, largest first; a scale of 0 is max of s - min of s; "
    "missing values count as the mean; adapted is the similarity to the mapped query"
)


@dataclass(frozen=True, slots=True, eq=False)
class Blend:
    """Weights of signals. It never changes.

    A signal counts by its difference from the mean of the candidates that have it, in units of its scale. So a
    candidate without it is neither raised nor lowered. The bits of a value depend on the set of candidates and not on
    their order, nor on the order of the names.

    Parameters
    ----------
    names : of K signals, each once.
    weights : (K,) float64.
    scales : (K,) float64 unit of each signal; 0 where that is the width of its values over the candidates, the largest
        less the smallest. Left out: 0 for all.

    Raises
    ------
    ValueError
        The names are not distinct, or an array is not (K,), finite, and of scales not below 0.
    """

    names: tuple[str, ...]
    weights: Values
    scales: Values | None = None

    def __post_init__(self) -> None:
        k = len(self.names)
        weights = np.array(self.weights, np.float64)
        scales = np.zeros(k) if self.scales is None else np.array(self.scales, np.float64)
        if len(set(self.names)) != k:
            raise ValueError(f"a signal has two weights: {', '.join(self.names)}")
        if weights.shape != (k,) or scales.shape != (k,):
            raise ValueError(f"{k} signals, weights of shape {weights.shape}, scales of shape {scales.shape}")
        if not (np.isfinite(weights).all() and np.isfinite(scales).all() and (scales >= 0.0).all()):
            raise ValueError("weights and scales must be finite, and scales at least 0")
        for name, array in (("weights", weights), ("scales", scales)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @property
    def units(self) -> Values:
        """(K,) the scales, 0 where they are the widths over the candidates."""
        assert self.scales is not None
        return self.scales

    @classmethod
    def fixed(cls, shares: Mapping[str, float]) -> Self:
        """The ranking that people have before anything is learned, such as {"similarity": 0.5, "text": 0.5}.

        Each signal counts in units of its width over the candidates.
        """
        return cls(tuple(shares), np.array([*shares.values()], np.float64))

    def __call__(self, signals: Signals) -> Values:
        """The values (n,) of n candidates of one query, the best one largest.

        Parameters
        ----------
        signals : (n,) by name. What is not finite is missing. A name of the blend that is not there is missing for
            all; other names play no part.

        Raises
        ------
        ValueError
            The signals are not all of one shape (n,).
        """
        n, _, terms = self._terms(signals)
        found = np.zeros(n)
        for term in terms:
            found += term
        return found

    def terms(self, signals: Signals) -> dict[str, Values]:
        """What each signal of the blend adds (n,) to the value of each candidate. Parameters and errors as of a call.

        Their sum, in alphabetical order, is the value.
        """
        n, names, terms = self._terms(signals)
        found = dict(zip(names, terms, strict=True))
        return {name: found.get(name, np.zeros(n)) for name in sorted(self.names)}

    def texts(self) -> dict[str, str]:
        """What the metadata of an exported file says: names, in the order of `weights` and `scales`, and their use."""
        return {"signals": json.dumps(self.names), "blend": USE}

    def _terms(self, signals: Signals) -> tuple[int, list[str], Values]:
        """Number of candidates n, names of k signals in alphabetical order, and what they add (k, n)."""
        shapes = {np.shape(one) for one in signals.values()}
        if len(shapes) > 1 or any(len(shape) != 1 for shape in shapes):
            raise ValueError(f"expected signals of one shape (n,), got {sorted(map(str, shapes))}")
        n = shapes.pop()[0] if shapes else 0
        names = sorted(set(self.names) & signals.keys())
        if not names or not n:
            return n, names, np.zeros((len(names), n))
        rows = [self.names.index(name) for name in names]
        found = normalised(np.array([signals[name] for name in names], np.float64), self.units[rows])
        found *= self.weights[rows, None]
        return n, names, found


def normalised(values: Values, scales: Values) -> Values:
    """Values (k, n) less the mean of those in their row that are finite, in units of the scales; 0 for the others.

    Parameters
    ----------
    scales : (k,) 0 for the largest value of the row less the smallest.
    """
    known = np.isfinite(values)
    values = np.clip(values, -LARGEST, LARGEST)
    whole = bool(known.all())
    low = values if whole else np.where(known, values, np.inf)
    high = values if whole else np.where(known, values, -np.inf)
    width = np.maximum(high.max(axis=1) - low.min(axis=1), 0.0)
    unit = np.where(scales > 0.0, scales, width)
    # Exact sums, so that the order of candidates plays no part.
    means = [_mean(row) for row in (values.tolist() if whole else _known(values, known))]
    values -= np.array(means)[:, None]
    values /= np.where(unit > 0.0, unit, 1.0)[:, None]
    values[unit == 0.0] = 0.0
    values[~known] = 0.0
    return values


def _known(values: Values, known: NDArray[np.bool_]) -> list[list[float]]:
    return [row[there].tolist() for row, there in zip(values, known, strict=True)]


def _mean(numbers: list[float]) -> float:
    return fsum(numbers) / len(numbers) if numbers else 0.0
