"""Which metric has the better neighbours: judged on new rows, against the rows before them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import State
from kinstream.learners.distances import between
from kinstream.learners.kernels.chains import BYTES
from kinstream.learners.kernels.ensembles import neighbours
from kinstream.learners.kernels.ensembles.vector_hashes import hashes

Rows = NDArray[np.floating[Any]]
Vector = NDArray[np.float64]
Flags = NDArray[np.bool_]
#: What each member makes of vectors (n, d), so that squared Euclidean distance is the member's.
Embed = Callable[[Rows], Iterable[Rows]]

#: Vectors that new rows are compared with.
WINDOW: Final = 500
#: Rows that are judged at once; the places that there are for them, for an event is not cut.
EVERY: Final = 64
PLACES: Final = 2 * EVERY
#: Of rows that wait, what is in the state.
HELD: Final = (
    *("pending", "pending_hashes", "pending_classes", "fresh"),
    *("wanted", "wanted_hashes", "against"),
)
#: Squared lengths of vectors that count as far, as a multiple of the usual one.
FAR: Final = 1e4
#: Bits that tell new vectors from old ones.
BITS: Final = 1 << 18
#: A later row counts more: the k-th has a share of 4 / (k + 3) of the mean, and at least 1 / 2000.
LATE: Final = 4.0
LEAST: Final = 1.0 / 2_000


class Losses:
    """Mean losses of metrics over rows, of which later ones count more.

    Attributes
    ----------
    means : (N,) in [0, 1].
    rows : behind them.
    """

    def __init__(self, members: int) -> None:
        self.means: Vector = np.zeros(members)
        self.rows = 0

    def add(self, lost: Vector) -> None:
        """Take what all metrics lost (N,) on a row."""
        self.rows += 1
        share = max(min(1.0, LATE / (self.rows + LATE - 1.0)), LEAST)
        self.means += share * (lost - self.means)


class Neighbours:
    """Losses of metrics by their neighbours, as means over rows.

    A new row is the first vector of a constraint, similar to the second, that has not come before. Of rows that are
    members of classes, 5 neighbours among the latest 500 vectors vote; what is linked by similar pairs is of one class.
    Of lists, whose rows are queries, the wanted item is compared with the other items of the list and with the latest
    500 items. The metrics that are judged are those from before the row was learned.

    Parameters
    ----------
    members : their number N.
    d : features.
    lists : whether rows are queries.
    again : whether rows that come again are judged.

    Attributes
    ----------
    new, again : losses over new rows, and over those that came again.
    """

    def __init__(self, members: int, d: int, *, lists: bool, again: bool = False) -> None:
        self.lists, self._repeats = lists, again
        self.new, self.again = Losses(members), Losses(members)
        self._window: Rows = np.zeros((WINDOW, d), np.float32)
        self._hashes, self._classes = np.zeros(WINDOW, np.uint64), np.zeros(WINDOW, np.int64)
        self._seen = np.zeros(BITS // 8, np.uint8)
        self._pending: Rows = np.zeros((PLACES, d), np.float32)
        self._wanted: Rows = np.zeros((PLACES, d), np.float32)
        self._pending_hashes, self._wanted_hashes = np.zeros(PLACES, np.uint64), np.zeros(PLACES, np.uint64)
        self._pending_classes, self._fresh = np.zeros(PLACES, np.int64), np.zeros(PLACES, np.int8)
        self._against = np.zeros((PLACES, neighbours.AGAINST), np.uint64)
        self._apart = np.zeros(BYTES, np.uint8)
        self._tally = np.zeros(neighbours.TALLY, np.int64)

    @property
    def window(self) -> Rows:
        """The latest vectors (w, d)."""
        return self._window[: self._tally[neighbours.USED]]

    @property
    def usual(self) -> Flags:
        """(w,) which of the latest vectors are not far longer than most: those that would decide any mean."""
        window = self.window
        with np.errstate(all="ignore"):
            squares = np.einsum("ij,ij->i", window, window, dtype=np.float64)
        return np.asarray(squares <= FAR * np.median(squares)) if len(window) else np.ones(0, np.bool_)

    @property
    def judged(self) -> int:
        """Rows that were judged."""
        return self.new.rows + self.again.rows

    @property
    def repeated(self) -> bool:
        """Whether more rows have come again than were new, and the new ones were too many to learn by heart."""
        new, again = self._tally[[neighbours.NEW, neighbours.AGAIN]]
        return bool(again > new >= WINDOW)

    @property
    def waiting(self) -> int:
        """Rows that are not judged yet."""
        return int(self._tally[neighbours.WAITING])

    @property
    def due(self) -> bool:
        """Whether it is time to judge."""
        return self.waiting >= EVERY or int(self._tally[neighbours.SINCE]) >= neighbours.OFTEN

    def admit(
        self,
        X: NDArray[np.float32],
        own: NDArray[np.uint64],
        index: NDArray[np.int32],
        good: Flags,
        links: Flags,
        last: Flags,
        start: int,
    ) -> int:
        """Take constraints from `start` on, until enough rows wait; the row behind the last one taken.

        Parameters
        ----------
        X : (n, d) vectors.
        own : (n,) their hashes, see `of`.
        index : (m, k) rows of X.
        good : (m,) which constraints count.
        links : (m,) of which the first two vectors are similar.
        last : (m,) which end an event.
        """
        rows: Any = (X, own, index, good, links, self.lists, self._repeats, last, start, EVERY)
        window: Any = (self._window, self._hashes, self._classes, self._seen)
        pending: Any = (self._pending, self._pending_hashes, self._pending_classes, self._fresh)
        wanted: Any = (self._wanted, self._wanted_hashes, self._against)
        everything: Any = (*rows, *window, *pending, *wanted, self._apart, self._tally)
        return int(neighbours.admit(*everything))

    @staticmethod
    def of(X: NDArray[np.float32]) -> NDArray[np.uint64]:
        """A hash (n,) of each row; -0 and 0 are one value."""
        return np.asarray(hashes((X + np.float32(0.0)).view(np.uint32)))

    def judge(self, embed: Embed) -> None:
        """Judge the rows that wait by all metrics."""
        p = self.waiting
        self._tally[[neighbours.WAITING, neighbours.SINCE]] = 0
        if p == 0:
            return
        wanted = self._wanted[: p if self.lists else 0]
        rows = np.concatenate([self.window, self._pending[:p], wanted])
        usual = self.usual
        found = np.array([self._lost(mapped, p, usual) for mapped in embed(rows)])
        for lost, fresh in zip(found.T, self._fresh, strict=False):
            if np.isfinite(lost).all():
                (self.new if fresh else self.again).add(lost)

    def state(self) -> State:
        used = len(self.window)
        state: State = {
            "losses": self.new.means.copy(),
            "judged": self.new.rows,
            "again_losses": self.again.means.copy(),
            "again_judged": self.again.rows,
            "tally": self._tally.copy(),
            "apart": self._apart.copy(),
            "seen": self._seen.copy(),
            "window": self.window.copy(),
            "hashes": self._hashes[:used].copy(),
            "classes": self._classes[:used].copy(),
        }
        return state | {name: self._held(name) for name in HELD}

    def restore(self, state: State) -> None:
        self.new.means, self.new.rows = np.array(state["losses"], np.float64), int(state["judged"])
        self.again.means = np.array(state["again_losses"], np.float64)
        self.again.rows = int(state["again_judged"])
        self._tally, self._seen = np.array(state["tally"], np.int64), np.array(state["seen"], np.uint8)
        self._apart = np.array(state["apart"], np.uint8)
        used = len(self.window)
        for name in ("window", "hashes", "classes"):
            getattr(self, f"_{name}")[:used] = state[name]
        for name in HELD:
            held: NDArray[Any] = np.asarray(state[name])
            getattr(self, f"_{name}")[: len(held)] = held

    def _held(self, name: str) -> NDArray[Any]:
        """What the state holds of the rows that wait: of one size where rows come again all the time."""
        found: NDArray[Any] = getattr(self, f"_{name}")[: PLACES if self._repeats else self.waiting].copy()
        found[self.waiting :] = 0
        return found

    def _lost(self, mapped: Rows, p: int, usual: Flags) -> Vector:
        used, found = len(self.window), np.empty(p)
        window, new, wanted = mapped[:used], mapped[used : used + p], mapped[used + p :]
        to_wanted = np.zeros(p)
        with np.errstate(all="ignore"):
            centre = (window if usual.all() else window[usual]).mean(axis=0)
            apart = np.asarray(between(new - centre, window - centre), np.float64)
            if len(wanted):
                # As in `apart`, so that an item is as far as itself.
                to_wanted = np.diagonal(between(new - centre, wanted - centre)).astype(np.float64)
        neighbours.lost(
            apart,
            to_wanted,
            self._hashes[:used],
            self._classes[:used],
            self._pending_hashes[:p],
            self._pending_classes[:p],
            self._wanted_hashes[:p],
            self._against[:p],
            found,
        )
        return found
