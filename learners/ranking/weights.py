"""Weights of signals, learned from whole lists, and the choice between them and fixed ones."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels import weights as kernels
from kinstream.learners.ranking.blend import Blend
from kinstream.streams.records.held_out import JUDGED_PLACES
from kinstream.streams.records.scores import ADAPTED, COMPUTED, MOST_NAMES, SIMILARITY
from kinstream.streams.records.state import State

Values = NDArray[np.float64]
Flags = NDArray[np.bool_]
Keys = NDArray[np.uint64]

#: Lists that hold a weight where it began.
PRIOR: Final = 3.0
#: Share of the adapted similarity's weight that the similarity's may be below 0. Such a weight exaggerates what the map
#: has learned, which seems right for queries that are asked again, because the map knows them.
BEYOND: Final = 0.2
#: Share of a list's pairs with which the first ranking agrees if it has ordered the list.
AGREES: Final = 0.9
#: Lists after which what they said has faded to 1 / e: of the weights, and of the comparison with fixed rankings.
FADES: Final = 3_000.0
FADES_IN_SUMS: Final = 2_000.0
#: Clicked items up to which a list counts in full, as in the adapter's map.
CLICKED: Final = 3.0
#: Largest change of a weight by one list, and largest signal.
LONGEST: Final = 0.5
MOST: Final = 8.0
#: A scale follows deviations by a share of 1 / 300, and jumps to the median of the last 15 where it is over 3 times as
#: large, or below a third.
SLOWEST: Final = 1.0 / 300.0
RECENT: Final = 15
JUMP: Final = 3.0
#: Counters of queries and of actors.
COUNTERS: Final = 1 << 13
#: Standard errors by which a single signal has to rank better to take the place of others.
ERRORS: Final = 2.0
#: Most signals: scores, and those that are computed.
SIGNALS: Final = MOST_NAMES + len(COMPUTED)


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """k whole lists with the signals of all their places.

    Parameters
    ----------
    names : K names, sorted.
    values : (t, K) float64; what is not finite is missing.
    starts, clicked, actors, exponent : as in `kinstream.streams.records.held_out.ShownLists`.
    queries : (k,) hashes of the queries; 0 where it is not to count how often one came before.
    worth : (t,) float64 what the action on each place weighs.
    """

    names: tuple[str, ...]
    values: Values
    starts: NDArray[np.int32]
    clicked: Flags
    queries: Keys
    actors: Keys
    exponent: float
    worth: Values

    def part(self, first: int, last: int) -> Whole:
        """Some of the lists, one behind the other."""
        begin, end = self.starts[first], self.starts[last]
        return Whole(
            self.names,
            self.values[begin:end],
            self.starts[first : last + 1] - begin,
            self.clicked[begin:end],
            self.queries[first:last],
            self.actors[first:last],
            self.exponent,
            self.worth[begin:end],
        )

    def take(self, use: Flags) -> Whole:
        """Some of the lists (k,), in order."""
        if use.all():
            return self
        lengths = np.diff(self.starts)
        places = np.repeat(use, lengths)
        return Whole(
            self.names,
            self.values[places],
            np.append(0, np.cumsum(lengths[use])).astype(np.int32),
            self.clicked[places],
            self.queries[use],
            self.actors[use],
            self.exponent,
            self.worth[places],
        )

    def beside(self, name: str, values: Values) -> Whole:
        """The lists with one more signal (t,)."""
        at = bisect_left(self.names, name)
        names = (*self.names[:at], name, *self.names[at:])
        return replace(self, names=names, values=np.insert(self.values, at, values, axis=1))


class Weights:
    """Weights of signals by the softmax of whole lists, one list after the other.

    Of a list, with z_i the signals of place i less their means in units of scales, e_i the probability with which the
    place is examined, P the clicked places, and a_i what the action on one weighs,

        p_i = e_i exp(w' z_i) / sum_j e_j exp(w' z_j),    l = -c sum_{i in P} a_i log p_i / |P|

    with c = min(1, 3 / |P|) / m n for the m-th list of its query and the n-th of its user. A list makes one step of
    Newton, w <- w - A^-1 l', where A = F + 3 I, and F holds the curvature c a (sum p z z' - m m') of all lists, faded
    by exp(-1 / 3000) a list; a is the mean of a_i. If that leaves b' w below 0, where b is 1 for the similarity, .2 for
    the adapted one and 0 for others, w <- w - A^-1 b (b' w) / (b' A^-1 b): the nearest weights, in the measure of A,
    that are allowed. Weights of signals that come later begin at 0.

    Before it is learned, each list also compares rankings of what was shown: the learned one, the first one, and
    each signal alone, upwards and downwards. What is compared is the gain 1 / log2(1 + rank) of the clicked items up to
    rank 10, each weighed by a_i / e_i. These sums fade by exp(-1 / 2000) a list. The first ranking counts in widths
    over candidates that a list does not have. So its gain is that of the list as it was shown, if with some widths it
    agrees with 90 % of the list's pairs or more, and with no fewer than the learned ranking; else that of the widths
    in the list. The learned ranking serves where it gains more than the first one by over a standard error: of lists as
    they were shown it sees what it loses within them, and not what it would have put into them.

    Parameters
    ----------
    start : shares of the ranking that people have.
    """

    def __init__(self, start: Mapping[str, float]) -> None:
        self._start = dict(start)
        self.first = Blend.fixed(self._start)
        self.names: tuple[str, ...] = ()
        self.clipped = 0
        self._lay_out(0)
        self._counters = np.zeros((2, 2, COUNTERS), np.uint16)
        self._added = np.zeros((2, 1), np.int64)

    def _lay_out(self, k: int) -> None:
        self._W, self._F, self._scales = np.zeros(k), np.zeros((k, k)), np.zeros(k)
        self._recent, self._seen = np.zeros((RECENT, k)), np.zeros(k, np.int64)
        self._sums = np.zeros((kernels.SUMS, 1 + 2 * k))

    # ---- learning ---------------------------------------------------------------------------------------------------

    def learn(self, lists: Whole) -> Flags:
        """Learn from lists in order; of which (k,) a guard shortened the change."""
        clipped = np.zeros(len(lists.queries), np.bool_)
        at = 0
        if lists.names == self.names:
            self._weigh(lists, clipped)
            at = len(lists.queries)
        while at < len(lists.queries):
            # Until a list in which a signal comes for the first time.
            full = len(self.names) == SIGNALS
            fresh = [] if full else [k for k, name in enumerate(lists.names) if name not in self.names]
            known = np.isfinite(lists.values) if fresh else np.empty((0, 0), np.bool_)
            comes = {k: _list_of(known[:, k], lists.starts, at) for k in fresh}
            if any(row == at for row in comes.values()):
                self._admit([lists.names[k] for k in fresh if comes[k] == at])
                continue
            last = min([len(lists.queries), *comes.values()])
            self._weigh(lists.part(at, last), clipped[at:last])
            at = last
        self.clipped += int(np.count_nonzero(clipped))
        return clipped

    def _weigh(self, lists: Whole, clipped: Flags) -> None:
        values = lists.values
        if lists.names != self.names:
            values = np.full((len(lists.values), len(self.names)), np.nan)
            for k, name in enumerate(lists.names):
                if name in self.names:
                    values[:, self.names.index(name)] = lists.values[:, k]
        keep, keep_sums = np.exp(-1.0 / FADES), np.exp(-1.0 / FADES_IN_SUMS)
        steps = (keep, keep_sums, CLICKED, LONGEST, SLOWEST, JUMP, MOST)
        rule = np.array((*steps, JUDGED_PLACES, PRIOR, BEYOND, AGREES), np.float64)
        two = tuple(self.names.index(name) if name in self.names else -1 for name in (SIMILARITY, ADAPTED))
        shares = np.array([self._start.get(name, 0.0) for name in self.names])
        clicks = (np.ascontiguousarray(lists.clicked), np.ascontiguousarray(lists.worth))
        lists_of = (np.ascontiguousarray(lists.starts, np.int32), *clicks)
        keys = (np.ascontiguousarray(lists.queries), np.ascontiguousarray(lists.actors))
        fixed = (float(lists.exponent), rule, *two, shares)
        kept = (self._W, self._F, self._scales, self._recent, self._seen, self._sums)
        everything: Any = (values, *lists_of, *keys, *fixed, *kept, self._counters, self._added, clipped)
        kernels.weigh(*everything)

    def _admit(self, names: list[str]) -> None:
        """Make room for more signals, in alphabetical order; beyond the limit they play no part."""
        before, room = self.names, SIGNALS - len(self.names)
        every = tuple(sorted((*before, *names[:room])))
        rows = [every.index(name) for name in before]
        columns = [0, *(2 * row + j for row in rows for j in (1, 2))]
        old = self._W, self._F, self._scales, self._recent, self._seen, self._sums
        self._lay_out(len(every))
        self._W[:] = [self._begin(name) for name in every]
        self._W[rows], self._scales[rows], self._seen[rows] = old[0], old[2], old[4]
        self._F[np.ix_(rows, rows)] = old[1]
        self._recent[:, rows], self._sums[:, columns] = old[3], old[5]
        self.names = every

    def _begin(self, name: str) -> float:
        """The first weight of a signal. The adapted similarity is the similarity then, and takes its share."""
        if name == SIMILARITY:
            return 0.0
        share = self._start.get(name, 0.0)
        if name == ADAPTED:
            share += self._start.get(SIMILARITY, 0.0)
        return share / max(abs(one) for one in self._start.values())

    # ---- what is to be served ---------------------------------------------------------------------------------------

    @property
    def learned(self) -> Blend:
        """The learned weights, of all signals that have a scale."""
        known = self._scales > 0.0
        names = tuple(name for name, there in zip(self.names, known, strict=True) if there)
        return Blend(names, self._W[known], self._scales[known])

    @property
    def blend(self) -> Blend:
        """The learned weights where they rank surely better than the first ranking, else that; or one signal."""
        weight, squares, more, more2 = self._sums
        if not weight[0] > 0.0:
            return self.first
        with np.errstate(all="ignore"):
            mean = np.where(weight > 0.0, more / weight, 0.0)
            error = np.sqrt(np.maximum(more2 / weight - mean**2, 0.0) * squares) / weight
        error = np.where(weight > 0.0, error, 0.0)
        # How much better than the learned ranking each fixed one is.
        best = 1 + int(np.argmin(mean[1:])) if len(mean) > 1 else 0
        learned = bool(mean[0] > error[0])
        doubt = ERRORS * (error[best] if learned else error[best] + error[0])
        if best and (-mean[best] if learned else mean[0] - mean[best]) > doubt:
            return Blend((self.names[(best - 1) // 2],), np.array([1.0 if best % 2 else -1.0]))
        return self.learned if learned else self.first

    # ---- state ------------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """All that later results depend on; arrays are copies."""
        return {
            "signals": json.dumps(self.names),
            "weights": self._W.copy(),
            "curvature": self._F.copy(),
            "scales": self._scales.copy(),
            "recent": self._recent.copy(),
            "seen": self._seen.copy(),
            "sums": self._sums.copy(),
            "counters": self._counters.copy(),
            "added": self._added.copy(),
            "weights_clipped": self.clipped,
        }

    def restore(self, state: State) -> None:
        """Continue from `state()`."""
        self.names = tuple(json.loads(str(state["signals"])))
        self._W, self._F = np.array(state["weights"]), np.array(state["curvature"])
        self._scales, self._recent = np.array(state["scales"]), np.array(state["recent"])
        self._seen, self._sums = np.array(state["seen"], np.int64), np.array(state["sums"])
        self._counters, self._added = (
            np.array(state["counters"], np.uint16),
            np.array(state["added"], np.int64),
        )
        self.clipped = int(state["weights_clipped"])


def _list_of(known: Flags, starts: NDArray[np.int32], first: int) -> int:
    """The first list, from one on, in which a signal has a value; the number of lists if there is none."""
    rows = np.flatnonzero(known[starts[first] :])
    if not len(rows):
        return len(starts) - 1
    return int(np.searchsorted(starts, starts[first] + rows[0], side="right")) - 1
