"""Bursts: more lists of one user, session, address or item within a few minutes than its last hour explains.

Of a Poisson number X with mean m, Chernoff's bound says, for n > m,

    P(X >= n) <= exp(n - m - n ln(n / m)).

The n-th list of one key within a window is a burst if that is at most `CHANCE`, where m is the mean of the key's own
`EARLIER` windows before, and at least what is usual for anybody. Only lists that were no burst are in m.

References
----------
Zhu, Shasha: Efficient elastic burst detection in data streams. KDD 2003. (a window against a threshold of its own past)
Ihler, Hutchins, Smyth: Adaptive event detection with time-varying Poisson processes. KDD 2006. (counts of clicks and
people as Poisson numbers)
Mitzenmacher, Upfal: Probability and computing, theorem 4.4 of the first edition and 5.4 of the second. (the bound)
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from kinstream.gate.memory import MOST
from kinstream.streams.records.state import State

#: A window holds a burst if an honest key would reach its number with a smaller probability than this.
CHANCE: Final = 1e-6
#: Windows before the one that runs, from which the own rate of a key is taken.
EARLIER: Final = 6
_LEAST: Final = -math.log(CHANCE)


def is_burst(n: int, mean: float) -> bool:
    """Whether n or more have a probability of at most `CHANCE` where `mean` are expected, by Chernoff's bound.

    Examples
    --------
    >>> [is_burst(n, 1.0) for n in (1, 9, 10)]
    [False, False, True]
    """
    return n > mean and n * math.log(n / mean) - n + mean >= _LEAST


class Bursts:
    """Lists of each of many keys in the window that runs, and in the ones before.

    Parameters
    ----------
    window_ms : of the log's time; 0 finds no bursts.
    usual : lists in a window that nobody's own rate is below.
    most : keys that are remembered; beyond it those that were counted the longest ago are forgotten.
    """

    def __init__(self, window_ms: int, usual: float, most: int = MOST) -> None:
        self._window_ms, self._usual, self._most = window_ms, usual, most
        #: By key: its last window, and the lists in it and in the ones before, the newest first.
        self._counts: dict[int, tuple[int, tuple[int, ...]]] = {}

    def full(self, key: int, now_ms: int) -> bool:
        """Whether one more list of the key now is a burst."""
        if not self._window_ms:
            return False
        now, *before = self._windows(key, now_ms)
        return is_burst(now + 1, max(self._usual, sum(before) / EARLIER))

    def add(self, key: int, now_ms: int) -> None:
        """Count a list of it, after `full` has answered no."""
        if not self._window_ms:
            return
        now, *before = self._windows(key, now_ms)
        self._counts.pop(key, None)
        self._counts[key] = now_ms // self._window_ms, (now + 1, *before)
        if len(self._counts) > self._most:
            del self._counts[next(iter(self._counts))]

    def _windows(self, key: int, now_ms: int) -> tuple[int, ...]:
        """The lists in the window of that time and in the `EARLIER` ones before."""
        last, counts = self._counts.get(key, (0, (0,) * (EARLIER + 1)))
        gap = now_ms // self._window_ms - last
        # A window after this one is of a time at which the log was wrong.
        gap = min(gap, EARLIER + 1) if gap >= 0 else EARLIER + 1
        return (*(0,) * gap, *counts)[: EARLIER + 1]

    def state(self) -> State:
        """Empty before the first list: a state without addresses has none of theirs."""
        if not self._counts:
            return {}
        return {
            "keys": np.array(list(self._counts), np.uint64),
            "windows": np.array([window for window, _ in self._counts.values()], np.int64),
            "counts": np.array([counts for _, counts in self._counts.values()], np.int64),
        }

    def restore(self, state: State) -> None:
        if not state:
            return
        columns = (np.asarray(state[name]).tolist() for name in ("keys", "windows", "counts"))
        self._counts = {key: (window, tuple(counts)) for key, window, counts in zip(*columns, strict=True)}
