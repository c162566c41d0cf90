"""Verdicts on held-out events, by the learned metric and by un-learned ones."""

from __future__ import annotations

import json
from copy import copy
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import Learner
from kinstream.learners.base.modalities import Modalities, checked_tables
from kinstream.learners.held_out.account import Account
from kinstream.learners.held_out.choice import HeldOutShare
from kinstream.learners.held_out.lists import Lists
from kinstream.learners.held_out.metrics import ByMetric, Metrics, Numbers
from kinstream.learners.held_out.queue import Waiting
from kinstream.learners.held_out.sums import Sums
from kinstream.learners.held_out.unlearned_metrics import Features, Scales
from kinstream.streams.records.held_out import HeldOut, ShownLists
from kinstream.streams.records.state import State, with_prefix, without_prefix
from kinstream.streams.records.values import ConstraintBlock, Kind

Flags = NDArray[np.bool_]

#: Changes whenever the same events give other verdicts.
VERSION: Final = 4
_NONE: Final = -1
#: Constraints that wait for a verdict at most; and one more for so many judged events, so that first ones wait less.
_WAITING: Final = 64
_FIRST: Final = 8


class Judge:
    """Chooses the held-out events of a space, and keeps the sums of their verdicts.

    A triplet is wrong when its anchor is not nearer to the positive. A pair is compared with the latest held-out pair
    of the other sign, because un-learned metrics have no threshold: wrong when the similar one is not nearer. A pair is
    in one comparison only, so that comparisons are apart from each other. An event's loss is the share of its verdicts
    that are wrong. Ties are wrong.

    Blocks with lists are judged by whole lists, see `kinstream.learners.held_out.lists`: the first list of each query,
    before anything of it is learned, and every list of the queries that are held out. So what is estimated is the
    ranking of queries that nobody has asked before. Once there were lists, they alone decide.

    Held-out constraints wait until there are some of them, because a verdict alone costs as much as many at once. How
    many, is decided by what came before in the log.

    Parameters
    ----------
    share : of the events, in [0, 1).
    space : its name.
    """

    def __init__(self, share: float, space: str) -> None:
        self._choice = HeldOutShare(share, space)
        self._modalities: Modalities | None = None
        self._scales = Scales()
        self._account = Account(lists=False)
        #: Of lists, once there were some.
        self._lists: Lists | None = None
        self._of_lists = Account(lists=True)
        #: The latest held-out pair of each sign that was not compared, (2, D) features of all modalities.
        self._latest: dict[int, Features] = {}
        self._waiting: tuple[Waiting, ...] = ()

    @property
    def worse(self) -> bool:
        """Whether the learned metric has been shown to be worse than an un-learned one."""
        return self._standing.worse

    @property
    def figure(self) -> tuple[float, int] | None:
        """How much more often the learned metric is wrong than the best un-learned one, and the events judged."""
        standing = self._standing
        return None if standing.difference is None else (standing.difference.value, standing.events)

    @property
    def _standing(self) -> HeldOut:
        """By lists, once there were some."""
        account = self._account if self._lists is None else self._of_lists
        return account.standing(Sums.none(), 0)

    def rows(self, block: ConstraintBlock) -> Flags:
        """(m,) rows of held-out events."""
        return self._choice.rows(block)

    def lists(self, block: ConstraintBlock) -> Flags:
        """(k,) held-out lists of a block with lists."""
        assert block.lists is not None
        return self._choice.vectors(block, block.lists.query)

    def knows(self, block: ConstraintBlock) -> bool:
        """Whether earlier blocks had these modalities."""
        if self._modalities is None:
            return False
        return dict(self._modalities.pairs) == {table.name: table.vectors.shape[1] for table in block.tables}

    def watches(self, block: ConstraintBlock, held: Flags) -> bool:
        """Whether a block with these held-out rows changes the sums."""
        return not self._scales.ready or block.lists is not None or bool(held.any())

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
        if block.lists is not None or self._lists is not None:
            rows = rows[:0]
        if self._scales.ready and not len(rows) and block.lists is None:
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
        if block.lists is not None:
            return found, found._judge_lists(learner, block.lists, parts, block)
        if not len(rows):
            return found, None
        fresh = Waiting.of(block, parts, rows)
        if not self._waiting or fresh.kind is self._waiting[0].kind:
            found._waiting = (*self._waiting, fresh)
            if sum(map(len, found._waiting)) < min(_WAITING, 1 + self._account.events // _FIRST):
                return found, None
            losses = found._judged(learner)
        else:
            losses = found._judged(learner)
            found._waiting = (fresh,)
        found._account, report = found._account.after(losses)
        return found, report

    def _judge_lists(
        self, learner: Learner, lists: ShownLists, parts: list[NDArray[Any]], block: ConstraintBlock
    ) -> HeldOut | None:
        """Judge the lists of a block, in sums that are this object's own."""
        assert self._modalities is not None
        X = np.concatenate(parts, axis=1, dtype=np.float32)
        held = self._choice.vectors(block, lists.query)
        before = Lists(X.shape[1]) if self._lists is None else self._lists
        metrics = Metrics(learner, self._modalities, self._scales)
        self._lists, found = before.after(lists, X, held, metrics)
        self._of_lists, report = self._of_lists.after(found.losses, found.worth, found.queries)
        return report

    def _judged(self, learner: Learner) -> ByMetric:
        """The losses (k, 6) of all events that wait and get a verdict, by metric; none waits any more."""
        assert self._modalities is not None
        waiting, self._waiting = Waiting.all_of(self._waiting), ()
        metrics = Metrics(learner, self._modalities, self._scales)
        m, width = waiting.vectors.shape[:2]
        X = waiting.vectors.reshape(m * width, -1).astype(np.float64)
        places = np.arange(m * width).reshape(m, width)
        if waiting.kind is Kind.TRIPLET:
            wrong = _wrong_triplets(metrics, X, places)
        else:
            wrong, self._latest = _wrong_pairs(metrics, X, places, waiting.signs, self._latest)
        return _by_event(wrong, waiting.events)

    def state(self) -> State:
        """All sums; arrays are copies."""
        state: State = with_prefix("scales.", self._scales.state())
        state["modalities"] = json.dumps(None if self._modalities is None else self._modalities.pairs)
        state |= self._account.state()
        if self._lists is not None:
            state |= with_prefix("lists.", self._lists.state() | self._of_lists.state())
        if self._waiting:
            state |= with_prefix("waiting.", Waiting.all_of(self._waiting).state())
        return state | {f"latest.{sign}": pair.copy() for sign, pair in sorted(self._latest.items())}

    def restore(self, state: State) -> None:
        """Continue from `state()`."""
        self._scales = Scales()
        self._scales.restore(without_prefix("scales.", state))
        pairs = json.loads(str(state["modalities"]))
        self._modalities = None if pairs is None else Modalities(tuple((str(n), int(d)) for n, d in pairs))
        self._account = Account(lists=False)
        self._account.restore(state)
        self._lists, self._of_lists = None, Account(lists=True)
        lists = without_prefix("lists.", state)
        if lists:
            assert self._modalities is not None
            self._lists = Lists(int(self._modalities.starts[-1]))
            self._lists.restore(lists)
            self._of_lists.restore(lists)
        self._latest = {int(sign): np.array(pair) for sign, pair in without_prefix("latest.", state).items()}
        waiting = without_prefix("waiting.", state)
        self._waiting = (Waiting.restored(waiting),) if waiting else ()


def _wrong_triplets(metrics: Metrics, X: Features, places: Numbers) -> ByMetric:
    """Verdicts (6, m) on triplets (m, 3)."""
    m = len(places)
    found = metrics.distances(X, np.tile(places[:, 0], 2), np.concatenate([places[:, 1], places[:, 2]]))
    return np.asarray(~(found[:, :m] < found[:, m:]), np.float64)


def _wrong_pairs(
    metrics: Metrics, X: Features, places: Numbers, signs: NDArray[np.int8], latest: dict[int, Features]
) -> tuple[ByMetric, dict[int, Features]]:
    """Verdicts (6, m) on pairs (m, 2), and the latest pair of each sign that was not compared.

    NaN stands for a pair that there was none to compare with.

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
        others[row] = known.pop(-sign, _NONE)
        if others[row] == _NONE:
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
