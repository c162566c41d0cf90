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


class Judge:
    """Chooses the held-out events of a space, and keeps the account of their verdicts.

    A triplet is wrong when its anchor is not nearer to the positive. A pair is compared with the latest held-out pair
    of the other sign, because un-learned metrics have no threshold: wrong when the similar one is not nearer. An
    event's loss is the share of its verdicts that are wrong. Ties are wrong.

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

    @property
    def worse(self) -> bool:
        """Whether the window shows beyond doubt that the learned metric is worse than the best un-learned one."""
        return self._standing(Sums.none()).worse

    def rows(self, block: ConstraintBlock) -> Flags:
        """(m,) rows of held-out events."""
        return self._choice.rows(block)

    def knows(self, block: ConstraintBlock) -> bool:
        """Whether blocks of these modalities came before."""
        known = None if self._modalities is None else dict(self._modalities.pairs)
        return known == {table.name: table.vectors.shape[1] for table in block.tables}

    def watches(self, held: Flags) -> bool:
        """Whether a block with these held-out rows changes the account."""
        return not self._scales.ready or bool(held.any())

    def after(self, learner: Learner, block: ConstraintBlock, held: Flags) -> tuple[Self, HeldOut | None]:
        """The account after a block, and what its outcome says; this account stays as it is.

        Un-learned scales take the block's vectors in before its held-out events are judged. Rows of an event that
        began in an earlier block are not judged again, and are as little learned.

        Parameters
        ----------
        learner : before it learns the rest of the block; it accepts the block.
        held : of `rows`.

        Raises
        ------
        BadRecord
            The block has other modalities than those before.
        """
        found = copy(self)
        found._modalities, parts = checked_tables(
            [(t.name, t.vectors) for t in block.tables], self._modalities
        )
        if not self._scales.ready:
            X = np.concatenate(parts, axis=1, dtype=np.float64)
            found._scales = self._scales.after(X, block.index)
        rows = np.flatnonzero(held & ~block.split(learner.form))
        if not len(rows):
            return found, None
        metrics = _Metrics(learner, found._modalities, found._scales)
        index = block.index[rows]
        X = np.concatenate([part[index.ravel()] for part in parts], axis=1, dtype=np.float64)
        places = np.arange(index.size).reshape(index.shape)
        if block.kind is Kind.TRIPLET:
            wrong = _wrong_triplets(metrics, X, places)
        else:
            wrong, found._latest = _wrong_pairs(metrics, X, places, block.signs[rows], self._latest)
        losses = _by_event(wrong, rows if block.events is None else block.events[rows])
        if not len(losses):
            return found, None
        found._total = self._total.after(losses)
        found._window = self._window.after(losses, KEEP)
        return found, found._standing(Sums.none().after(losses))

    def _standing(self, block: Sums) -> HeldOut:
        return HeldOut(block.value(), self._total.events, self._window.value())

    def state(self) -> State:
        """The whole account; arrays are copies."""
        state: State = with_prefix("scales.", self._scales.state())
        state["modalities"] = json.dumps(None if self._modalities is None else self._modalities.pairs)
        state |= with_prefix("total.", self._total.state()) | with_prefix("window.", self._window.state())
        return state | {f"latest.{sign}": pair.copy() for sign, pair in sorted(self._latest.items())}

    def restore(self, state: State) -> None:
        """Continue from `state()`."""
        self._scales = Scales()
        self._scales.restore(without_prefix("scales.", state))
        pairs = json.loads(str(state["modalities"]))
        self._modalities = None if pairs is None else Modalities(tuple((str(n), int(d)) for n, d in pairs))
        self._total, self._window = (Sums.of(without_prefix(name, state)) for name in ("total.", "window."))
        self._latest = {int(sign): np.array(pair) for sign, pair in without_prefix("latest.", state).items()}


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
            for i, view in enumerate(self.scales.views(X), 1):
                moved = view[left] - view[right]
                found[i] = np.einsum("ij,ij->i", moved, moved)
        return found

    def _learned(self, left: Features, right: Features) -> NDArray[Any]:
        """By the learner's own ranking: that of its similarity, if it learns one."""
        learner: Any = self.learner
        if _ranks_by_similarity(learner):
            return -np.asarray(learner.similarity(self._parts(left), self._parts(right)))
        measure = getattr(learner, "quick_distance", learner.distance)
        return np.asarray(measure(self._parts(left), self._parts(right)))

    def _parts(self, X: Features) -> Any:
        # The vectors of the log: what a learner sees in its blocks.
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
