"""Verdicts on held-out events, by the learned metric and by un-learned ones."""

from __future__ import annotations

import json
from copy import copy
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base import Learner
from kinstream.learners.held_out.choice import Choice
from kinstream.learners.held_out.sums import KEEP, Sums
from kinstream.learners.held_out.unlearned import Features, Scales
from kinstream.learners.held_out.waiting import Waiting
from kinstream.learners.registry import offers
from kinstream.learners.shared.modalities import Modalities, checked_tables
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.records.held_out import METRICS, HeldOut
from kinstream.streams.records.state import State, with_prefix, without_prefix
from kinstream.streams.records.values import ConstraintBlock, Kind

Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]
#: Distances or losses by metric (6, n), the learned one first.
ByMetric = NDArray[np.float64]

_NONE: Final = -1
#: Constraints that wait for a verdict at most; and one more for so many judged events, so that first ones wait less.
_WAITING: Final = 64
_FIRST: Final = 8


class Judge:
    """Chooses the held-out events of a space, and keeps the sums of their verdicts.

    A triplet is wrong when its anchor is not nearer to the positive. A pair is compared with the latest held-out pair
    of the other sign, because un-learned metrics have no threshold: wrong when the similar one is not nearer. An
    event's loss is the share of its verdicts that are wrong. Ties are wrong.

    Held-out constraints wait until there are some of them, because a verdict alone costs as much as many at once. How
    many, is decided by what came before in the log.

    Parameters
    ----------
    share : of the events, in [0, 1).
    space : its name.
    """

    def __init__(self, share: float, space: str) -> None:
        self._choice = Choice(share, space)
        self._modalities: Modalities | None = None
        self._scales = Scales()
        self._total = Sums.none()
        self._window = Sums.none()
        #: The latest held-out pair of each sign, (2, D) features of all modalities.
        self._latest: dict[int, Features] = {}
        self._waiting: tuple[Waiting, ...] = ()

    @property
    def worse(self) -> bool:
        """Whether the window shows that the learned metric is worse than the best un-learned one."""
        return self._standing(Sums.none()).worse

    @property
    def figure(self) -> tuple[float, int] | None:
        """How much more often the learned metric is wrong than the best un-learned one, and the events judged."""
        standing = self._standing(Sums.none())
        return None if standing.difference is None else (standing.difference.value, standing.events)

    def rows(self, block: ConstraintBlock) -> Flags:
        """(m,) rows of held-out events."""
        return self._choice.rows(block)

    def knows(self, block: ConstraintBlock) -> bool:
        """Whether earlier blocks had these modalities."""
        if self._modalities is None:
            return False
        return dict(self._modalities.pairs) == {table.name: table.vectors.shape[1] for table in block.tables}

    def watches(self, held: Flags) -> bool:
        """Whether a block with these held-out rows changes the sums."""
        return not self._scales.ready or bool(held.any())

    def after(self, learner: Learner, block: ConstraintBlock, held: Flags) -> tuple[Self, HeldOut | None]:
        """The sums after a block, and the verdicts for its outcome; these sums do not change.

        Un-learned scales include the block's vectors before its held-out events are judged. Rows of an event that began
        in an earlier block are neither judged nor learned. All waiting held-out rows are judged at once, by the model
        of that moment.

        Parameters
        ----------
        learner : before it learns the rest of the block; it accepts the block.
        held : of `rows`.

        Raises
        ------
        BadRecord
            The block has other modalities than earlier ones.
        """
        whole = block.events is None and block.earlier is None
        rows = np.flatnonzero(held if whole else held & ~block.split(learner.form))
        if self._scales.ready and not len(rows):
            return self, None
        found = copy(self)
        if len(block.tables) == 1 and self.knows(block):
            parts = [block.tables[0].vectors]
        else:
            tables = [(t.name, t.vectors) for t in block.tables]
            found._modalities, parts = checked_tables(tables, self._modalities)
        if not self._scales.ready:
            X = np.concatenate(parts, axis=1, dtype=np.float64)
            found._scales = self._scales.after(X, block.index)
            if not len(rows):
                return found, None
        fresh = Waiting.of(block, parts, rows)
        if not self._waiting or fresh.kind is self._waiting[0].kind:
            found._waiting = (*self._waiting, fresh)
            if sum(map(len, found._waiting)) < min(_WAITING, 1 + self._total.events // _FIRST):
                return found, None
            losses = found._judged(learner)
        else:
            losses = found._judged(learner)
            found._waiting = (fresh,)
        if not len(losses):
            return found, None
        found._total = self._total.after(losses)
        found._window = self._window.after(losses, KEEP)
        return found, found._standing(Sums.none().after(losses))

    def _judged(self, learner: Learner) -> ByMetric:
        """The losses (k, 6) of all events that wait and get a verdict, by metric; none waits any more."""
        assert self._modalities is not None
        waiting, self._waiting = Waiting.all_of(self._waiting), ()
        metrics = _Metrics(learner, self._modalities, self._scales)
        m, width = waiting.vectors.shape[:2]
        X = waiting.vectors.reshape(m * width, -1).astype(np.float64)
        places = np.arange(m * width).reshape(m, width)
        if waiting.kind is Kind.TRIPLET:
            wrong = _wrong_triplets(metrics, X, places)
        else:
            wrong, self._latest = _wrong_pairs(metrics, X, places, waiting.signs, self._latest)
        return _by_event(wrong, waiting.events)

    def _standing(self, block: Sums) -> HeldOut:
        return HeldOut(block.value(), self._total.events, self._window.value())

    def state(self) -> State:
        """All sums; arrays are copies."""
        state: State = with_prefix("scales.", self._scales.state())
        state["modalities"] = json.dumps(None if self._modalities is None else self._modalities.pairs)
        state |= with_prefix("total.", self._total.state()) | with_prefix("window.", self._window.state())
        if self._waiting:
            state |= with_prefix("waiting.", Waiting.all_of(self._waiting).state())
        return state | {f"latest.{sign}": pair.copy() for sign, pair in sorted(self._latest.items())}

    def restore(self, state: State) -> None:
        """Continue from `state()`."""
        self._scales = Scales()
        self._scales.restore(without_prefix("scales.", state))
        pairs = json.loads(str(state["modalities"]))
        self._modalities = None if pairs is None else Modalities(tuple((str(n), int(d)) for n, d in pairs))
        self._total, self._window = (Sums.of(without_prefix(name, state)) for name in ("total.", "window."))
        self._latest = {int(sign): np.array(pair) for sign, pair in without_prefix("latest.", state).items()}
        waiting = without_prefix("waiting.", state)
        self._waiting = (Waiting.restored(waiting),) if waiting else ()


class _Metrics(NamedTuple):
    """All metrics, the learned one first."""

    learner: Learner
    modalities: Modalities
    scales: Scales

    def distances(self, X: Features, left: Numbers, right: Numbers) -> ByMetric:
        """(6, n) between the rows of X (k, D) that two sets of numbers (n,) name; only their order means something."""
        found = np.empty((len(METRICS), len(left)))
        with np.errstate(all="ignore"), one_blas_thread():
            found[0] = self._learned(X[left], X[right])
            self.scales.distances(X, left, right, found[1:])
        return found

    def _learned(self, left: Features, right: Features) -> NDArray[Any]:
        """By the learner's own ranking, or by its similarity if it learns one."""
        learner: Any = self.learner
        if _ranks_by_similarity(learner):
            return -np.asarray(learner.similarity(self._parts(left), self._parts(right)))
        measure = getattr(learner, "quick_distance", learner.distance)
        return np.asarray(measure(self._parts(left), self._parts(right)))

    def _parts(self, X: Features) -> Any:
        # The vectors of the log, as a learner gets them in its blocks.
        narrow = X.astype(np.float32)
        starts = self.modalities.starts
        if len(self.modalities.pairs) == 1:
            return narrow
        return {
            name: narrow[:, starts[i] : starts[i + 1]] for i, (name, _) in enumerate(self.modalities.pairs)
        }


def _ranks_by_similarity(learner: Any) -> bool:
    """A fusion has a similarity if its base has one."""
    base = getattr(learner, "base", None)
    return hasattr(learner, "similarity") and (not isinstance(base, str) or offers(base, "similarity"))


def _wrong_triplets(metrics: _Metrics, X: Features, places: Numbers) -> ByMetric:
    """Verdicts (6, m) on triplets (m, 3)."""
    m = len(places)
    found = metrics.distances(X, np.tile(places[:, 0], 2), np.concatenate([places[:, 1], places[:, 2]]))
    return np.asarray(~(found[:, :m] < found[:, m:]), np.float64)


def _wrong_pairs(
    metrics: _Metrics, X: Features, places: Numbers, signs: NDArray[np.int8], latest: dict[int, Features]
) -> tuple[ByMetric, dict[int, Features]]:
    """Verdicts (6, m) on pairs (m, 2), NaN without a pair to compare with; and the latest pair of each sign after them.

    Parameters
    ----------
    latest : of each sign, before these pairs.
    """
    m = len(places)
    before = list(latest)
    kept = len(X) + np.arange(2 * len(before)).reshape(-1, 2)
    known = dict(zip(before, range(m, m + len(before)), strict=True))
    others = np.full(m, _NONE)
    for row, sign in enumerate(signs.tolist()):
        others[row] = known.get(-sign, _NONE)
        known[sign] = row
    all_places = np.concatenate([places, kept])
    all_rows = np.concatenate([X, *latest.values()])
    found = metrics.distances(all_rows, all_places[:, 0], all_places[:, 1])
    own, other = found[:, :m], found[:, others]
    wrong = np.where(signs > 0, ~(own < other), ~(other < own)).astype(np.float64)
    wrong[:, others == _NONE] = np.nan
    return wrong, {sign: all_rows[all_places[row]] for sign, row in known.items()}


def _by_event(wrong: ByMetric, numbers: NDArray[Any]) -> ByMetric:
    """The losses (k, 6) of the events with a verdict, by metric.

    Parameters
    ----------
    wrong : (6, m), NaN without a verdict.
    numbers : (m,) the number of each row's event, in order.
    """
    begins = np.flatnonzero(np.diff(numbers, prepend=_NONE))
    given = ~np.isnan(wrong[0])
    known = np.add.reduceat(given, begins, dtype=np.int64)
    sums = np.add.reduceat(np.where(given, wrong, 0.0), begins, axis=1)
    return np.asarray((sums[:, known > 0] / known[known > 0]).T)
