"""Verdicts on held-out events: sums of losses by metric, and the evaluation of the learned metric by them.

An event's loss under a metric is the share of its verdicts that are wrong; that of a list is what it lost of the gain
of its clicked items. The event is the unit, because the constraints of one event share vectors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.records.scores import Scores

LEARNED: Final = "learned"
#: Un-learned metrics: distance and cosine of raw features, the same of z-scored ones, and distance of min-max scaled
#: ones.
UNLEARNED: Final = ("euclidean", "cosine", "zscore", "zscore-cosine", "minmax")
METRICS: Final = (LEARNED, *UNLEARNED)
#: Those that a store ranks vectors by as they are: lists are judged against them.
SERVED: Final = UNLEARNED[:2]
#: With fewer events, a model is not evaluated; nor with lists of fewer different queries.
LEAST_EVENTS: Final = 50
LEAST_QUERIES: Final = 200
#: With fewer queries, a difference is shown only with a verdict: standard errors of so few are too small.
SHOWN_QUERIES: Final = 500
#: What a model has to be worse by: the log e-value at which it is withheld.
_WITHHELD: Final = math.log(1.0 / 0.05)
#: Normal quantile of a 95 % interval for each of the five differences at once (Bonferroni): the best of the un-learned
#: metrics is chosen by the same events.
_Z: Final = 2.5758293035489004


#: Places of a list that are judged.
JUDGED_PLACES: Final = 20


@dataclass(frozen=True, slots=True, eq=False)
class ShownLists:
    """k lists as users saw them, from the top, the first `JUDGED_PLACES` places of each: what a judge needs of them.

    Each has an item that was clicked. Rows are those of a block's tables.

    Parameters
    ----------
    query : (k,) int32 row of the query.
    starts : (k + 1,) int32; the places of list i are starts[i] .. starts[i + 1].
    item : (t,) int32 row of the item in each place.
    clicked : (t,) bool.
    actor : (k,) uint64 hash of the user, or of the session where no user is known; 0 for neither.
    exponent : the place r, from 1, is examined with probability r^-exponent.
    scores : a row for each place; None if no list has scores.
    worth : (t,) float32 above 0, what the action on each place weighs, 1 where nothing was clicked; None: 1 for all.
    names : (t,) uint64 hash of the name of the item in each place, as `name_hashes` gives; None in older records.
    ids : (k,) uint64 hash of the id of each list, above 0; None in older records.
    """

    query: NDArray[np.int32]
    starts: NDArray[np.int32]
    item: NDArray[np.int32]
    clicked: NDArray[np.bool_]
    actor: NDArray[np.uint64]
    exponent: float
    scores: Scores | None = None
    worth: NDArray[np.float32] | None = None
    names: NDArray[np.uint64] | None = None
    ids: NDArray[np.uint64] | None = None

    def __len__(self) -> int:
        """How many lists."""
        return len(self.query)

    def take(self, use: NDArray[np.bool_]) -> ShownLists | None:
        """Some of the lists (k,), of the same rows; None if there are none of them."""
        if use.all() or not use.any():
            return self if use.any() else None
        lengths = np.diff(self.starts)
        places = np.repeat(use, lengths)
        return ShownLists(
            self.query[use],
            np.append(0, np.cumsum(lengths[use])).astype(np.int32),
            self.item[places],
            self.clicked[places],
            self.actor[use],
            self.exponent,
            None if self.scores is None else self.scores.take(places),
            None if self.worth is None else self.worth[places],
            None if self.names is None else self.names[places],
            None if self.ids is None else self.ids[use],
        )


class Difference(NamedTuple):
    """Mistake rate of the learned metric less that of an un-learned one, with the bounds of a 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def decided(self) -> bool:
        """Whether 0 lies outside the bounds."""
        return not self.low <= 0.0 <= self.high

    @property
    def likely(self) -> bool:
        """Whether it is at least as large as its standard error."""
        return 2.0 * _Z * abs(self.value) >= self.high - self.low


@dataclass(frozen=True, slots=True)
class HeldOutSums:
    """Sums over judged events.

    Parameters
    ----------
    weight, squared_weight : of the weights of the events and of their squares; numbers of events where each has 1.
    losses : by metric, `LEARNED` among them.
    squares : by un-learned metric, of the squared differences between the learned loss and its own.
    """

    weight: float = 0.0
    squared_weight: float = 0.0
    losses: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(METRICS, 0.0))
    squares: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(UNLEARNED, 0.0))

    def __add__(self, other: HeldOutSums) -> HeldOutSums:
        return HeldOutSums(
            self.weight + other.weight,
            self.squared_weight + other.squared_weight,
            {name: self.losses[name] + other.losses[name] for name in METRICS},
            {name: self.squares[name] + other.squares[name] for name in UNLEARNED},
        )

    def rate(self, metric: str) -> float | None:
        """Mean loss under a metric; None without events."""
        return self.losses[metric] / self.weight if self.weight else None

    def difference(self, metric: str) -> Difference | None:
        """How much worse the learned metric is than an un-learned one; None with fewer than two events.

        With D the weighted mean of the differences, V their weighted variance and n = (sum w)^2 / sum w^2 (Kish's
        effective number), the standard error is sqrt(V / (n - 1)).

        References
        ----------
        Kish: Survey sampling. Wiley 1965, section 11.7.
        """
        number = self.weight * self.weight / self.squared_weight if self.squared_weight else 0.0
        if number <= 1.0:
            return None
        mean = (self.losses[LEARNED] - self.losses[metric]) / self.weight
        variance = max(self.squares[metric] / self.weight - mean * mean, 0.0)
        error = _Z * math.sqrt(variance / (number - 1.0))
        return Difference(mean, mean - error, mean + error)


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Held-out events of one block, and the model's sums after it.

    Parameters
    ----------
    block : over the events that were judged in the block.
    events : judged since the model began.
    window : over those events, with less weight for older ones.
    judged : events that were judged in the block.
    queries : different queries since the model began, where whole lists are judged; None for other events.
    against : log e-value that the learned metric is worse than an un-learned one, see
        `kinstream.learners.held_out.evidence`; None in records of earlier versions.
    """

    block: HeldOutSums
    events: int
    window: HeldOutSums
    judged: int = 0
    queries: int | None = None
    against: float | None = None

    def __add__(self, later: HeldOut) -> HeldOut:
        """Both blocks together, with the later one's window."""
        return HeldOut(
            self.block + later.block,
            later.events,
            later.window,
            self.judged + later.judged,
            later.queries,
            later.against,
        )

    @property
    def seen(self) -> int:
        """What counts towards `least`: different queries, or events."""
        return self.events if self.queries is None else self.queries

    @property
    def least(self) -> int:
        """How many there have to be before the model is evaluated."""
        return LEAST_EVENTS if self.queries is None else LEAST_QUERIES

    @property
    def enough(self) -> bool:
        """Whether there are enough events to say which metric is better."""
        return self.seen >= self.least

    @property
    def best(self) -> str:
        """The un-learned metric with the lowest loss, of equal ones the first; of lists that of `SERVED`.

        Of five metrics that rank lists nearly alike, the best by few lists looks better than it is.
        """
        return min(UNLEARNED if self.queries is None else SERVED, key=self.window.losses.__getitem__)

    @property
    def difference(self) -> Difference | None:
        """How much worse the learned metric is than the best un-learned one; None with too few events."""
        return self.window.difference(self.best) if self.enough else None

    @property
    def published(self) -> bool:
        """Whether rates and the difference itself are shown, of lists only if its sign can be trusted.

        It has a verdict, or there are `SHOWN_QUERIES` and it is at least as large as its standard error.
        """
        if self.queries is None:
            return True
        found = self.difference
        if found is None:
            return False
        return found.decided or (self.queries >= SHOWN_QUERIES and found.likely)

    @property
    def verdict(self) -> str:
        """The sentence for people about the learned metric."""
        if not self.enough:
            return f"not enough yet: {self.seen:,} of {self.least}"
        found = self.difference
        if found is None or not found.decided:
            return "no difference shown"
        return "better" if found.high < 0.0 else "worse"

    @property
    def worse(self) -> bool:
        """Whether the learned metric has been shown to be worse than an un-learned one, at all looks together.

        Records of earlier versions hold no e-value: there the interval decides.
        """
        found = self.difference
        if found is None or found.value <= 0.0:
            return False
        return found.low > 0.0 if self.against is None else self.against >= _WITHHELD
