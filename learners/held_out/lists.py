"""Whole lists of results: where a metric would rank what was clicked."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.held_out.blended import Blended
from kinstream.learners.held_out.counts import Counts
from kinstream.learners.held_out.metrics import ByMetric, Metrics
from kinstream.learners.held_out.sample import Sample
from kinstream.learners.kernels.ensembles.vector_hashes import hashes
from kinstream.streams.records.held_out import JUDGED_PLACES, METRICS, ShownLists
from kinstream.streams.records.state import State, with_prefix, without_prefix

Flags = NDArray[np.bool_]

#: The last place that has a gain, and clicks on an item that count in full.
CUT: Final = 10
_PULLS: Final = 8
#: Lists that are ranked at once.
_TOGETHER: Final = 16


class Verdicts(NamedTuple):
    """Of k lists: what each metric lost (k, 6), what the list counts (k,), and how many have a new query."""

    losses: ByMetric
    worth: NDArray[np.float64]
    queries: int


class Lists:
    """What is remembered of the lists of a space: who has come how often, and a sample of the items."""

    def __init__(self, d: int) -> None:
        self._counts = Counts()
        self._sample = Sample(d)

    def after(
        self, lists: ShownLists, X: NDArray[np.float32], held: Flags, metrics: Metrics
    ) -> tuple[Lists, Verdicts]:
        """The memory after the lists of a block, and the verdicts on those that are judged; this one does not change.

        Parameters
        ----------
        X : (n, D) the vectors of the block, all modalities side by side.
        held : (k,) lists that are held out.
        """
        found = Lists(X.shape[1])
        found._counts = self._counts.copy()
        own = hashes((X + np.float32(0.0)).view(np.uint32))
        rows, worth, queries, weights = found._counted(lists, own, held)
        losses = [
            self._lost(lists, X, own, rows[first : first + _TOGETHER], weights, metrics)
            for first in range(0, len(rows), _TOGETHER)
        ]
        shown = np.unique(lists.item)
        found._sample = self._sample.after(own[shown], X[shown])
        if not losses:
            return found, Verdicts(np.zeros((0, len(METRICS))), np.zeros(0), 0)
        return found, Verdicts(np.concatenate(losses), np.array(worth), queries)

    def _counted(
        self, lists: ShownLists, own: NDArray[np.uint64], held: Flags
    ) -> tuple[list[int], list[float], int, NDArray[np.float64]]:
        """The lists that are judged, what each counts, how many have a query that is new, and the weight of each place.

        The n-th judged list of a query, or of a user, counts 1 / n, and the n-th click on an item 8 / n of one if
        n > 8, as in learners. A click weighs the inverse of the probability with which its place is examined.
        """
        weights = np.zeros(len(lists.item))
        rows: list[int] = []
        worth: list[float] = []
        queries = 0
        keys, actors = own[lists.query].tolist(), lists.actor.tolist()
        for i, (query, actor) in enumerate(zip(keys, actors, strict=True)):
            new = self._counts.meet(query)
            if not new and not held[i]:
                continue
            times = self._counts.add(query)
            queries += new
            if actor:
                times *= self._counts.add(actor)
            share = 0.0
            places = slice(int(lists.starts[i]), int(lists.starts[i + 1]))
            clicked = np.flatnonzero(lists.clicked[places])
            for place, item in zip(clicked.tolist(), own[lists.item[places][clicked]].tolist(), strict=True):
                pulled = min(1.0, _PULLS / self._counts.add(item))
                weights[int(lists.starts[i]) + place] = pulled * (place + 1.0) ** lists.exponent
                share += weights[int(lists.starts[i]) + place]
            rows.append(i)
            worth.append(share / len(clicked) / JUDGED_PLACES**lists.exponent / times)
        return rows, worth, queries, weights

    def _lost(
        self,
        lists: ShownLists,
        X: NDArray[np.float32],
        own: NDArray[np.uint64],
        rows: list[int],
        weights: NDArray[np.float64],
        metrics: Metrics,
    ) -> ByMetric:
        """What each metric lost (k, 6) of the gain of the clicked items of some lists."""
        sample = self._sample
        named = np.unique(np.concatenate([lists.item[lists.starts[i] : lists.starts[i + 1]] for i in rows]))
        candidates = np.concatenate([X[named], sample.vectors])
        apart = metrics.all_pairs(X[lists.query[rows]], candidates)
        blended = Blended.of(metrics.learner, X[lists.query[rows]], candidates)
        found = np.empty((len(rows), len(apart)))
        for k, i in enumerate(rows):
            places = slice(int(lists.starts[i]), int(lists.starts[i + 1]))
            items, weight = lists.item[places], weights[places]
            clicked = np.flatnonzero(weight)
            of_shown = np.searchsorted(named, items)
            of_others = len(named) + np.flatnonzero(~np.isin(sample.hashes, own[items]))
            if blended is None:
                shown, others = apart[:, k, of_shown], apart[:, k, of_others]
            else:
                scores = None if lists.scores is None else lists.scores.take(places)
                names = None if lists.names is None else lists.names[places]
                shown, others = blended.distances(k, apart[:, k], of_shown, of_others, scores, names)
            wanted = shown[:, clicked, None]
            # Ties are lost.
            rank = (~(wanted < shown[:, None, :])).sum(axis=2)
            rank = rank + sample.share * (~(wanted < others[:, None, :])).sum(axis=2)
            gain = np.where(rank <= CUT, 1.0 / np.log2(1.0 + rank), 0.0)
            found[k] = 1.0 - gain @ weight[clicked] / weight[clicked].sum()
        return found

    def state(self) -> State:
        return with_prefix("counts.", self._counts.state()) | with_prefix("sample.", self._sample.state())

    def restore(self, state: State) -> None:
        self._counts.restore(without_prefix("counts.", state))
        self._sample.restore(without_prefix("sample.", state))
