"""The whole lists of a block beside its constraints, and what each signal says of them before they are learned."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels import weights as kernels
from kinstream.learners.kernels.ensembles.vector_hashes import hashes
from kinstream.learners.ranking.weights import Weights, Whole
from kinstream.streams.records.held_out import ShownLists
from kinstream.streams.records.scores import ADAPTED, MOST_NAMES, SIMILARITY
from kinstream.streams.records.values import ConstraintBlock

Rows = NDArray[np.floating[Any]]
Numbers = NDArray[np.int64]
_TINY: Final = 1e-30


class BlockLists:
    """Lists that wait until the map is about to learn them.

    Lists without constraints in the block, all of whose clicks were refused, are not learned.

    Parameters
    ----------
    block : of pairs or triplets.
    lists : of the block.
    """

    def __init__(self, block: ConstraintBlock, lists: ShownLists) -> None:
        self._lists = lists
        self._begins, self._numbers = _begins(block, lists)
        self._done = 0
        #: First rows of the block's events in whose lists a guard shortened the change of a weight.
        self.clipped: list[int] = []

    def prepare(self, X: Rows, group: int) -> None:
        """Take the scaled vectors (n, d) of the block, and the number of the batch's rows for each constraint."""
        self._group = group
        lists, rows = self._lists, self._numbers
        lengths = np.diff(lists.starts)[rows]
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        places = np.arange(starts[-1]) + np.repeat(lists.starts[rows] - starts[:-1], lengths)
        self._query, self._item, self._lengths = lists.query[rows], lists.item[places], lengths
        names = () if lists.scores is None else lists.scores.names[:MOST_NAMES]
        every = tuple(sorted((ADAPTED, SIMILARITY, *names)))
        values = np.empty((len(places), len(every)))
        if lists.scores is not None:
            values[:, [every.index(name) for name in names]] = lists.scores.values[places, : len(names)]
        keys = hashes((X[self._query] + X.dtype.type(0)).view(np.uint32))
        clicked, actors = lists.clicked[places], lists.actor[rows]
        self._whole = Whole(every, values, starts, clicked, keys, actors, lists.exponent)

    def learn(
        self, weights: Weights, X: Rows, anchors: NDArray[Any], moved: Rows, cosine: bool, last: int
    ) -> None:
        """Learn the lists whose constraints begin before a row of the batch.

        Parameters
        ----------
        X : (n, d) as in `prepare`.
        anchors, moved : (b,) rows of the queries of these lists, rising, and (b, d) what the map makes of them.
        cosine : whether the adapted similarity is a cosine, of vectors of length 1.
        """
        done, upto = self._done, int(np.searchsorted(self._begins * self._group, last))
        if upto <= done:
            return
        whole = self._whole
        begin, end = whole.starts[done], whole.starts[upto]
        of = np.repeat(np.searchsorted(anchors, self._query[done:upto]), self._lengths[done:upto])
        two = np.empty((2, end - begin))
        arguments: Any = (X, self._item[begin:end], of, moved, np.ascontiguousarray(anchors), two)
        kernels.similarities(*arguments)
        if cosine:
            lengths = np.sqrt(np.einsum("ij,ij->i", moved, moved, dtype=np.float64))
            two[1] /= np.where(lengths > _TINY, lengths, 1.0)[of]
        for name, values in zip((SIMILARITY, ADAPTED), two, strict=True):
            whole.values[begin:end, whole.names.index(name)] = values
        clipped = weights.learn(whole.part(done, upto))
        self.clipped += self._begins[done:upto][clipped].tolist()
        self._done = upto


def mapped(Q: Rows, parts: list[Rows]) -> Rows:
    """Queries (b, d) under the map, each row by itself.

    Parameters
    ----------
    parts : W - I (d, d), or U and V (d, r).
    """
    projected = np.empty((len(Q), parts[0].shape[1]), Q.dtype)
    first: Any = (Q, np.ascontiguousarray(parts[0]), projected)
    kernels.mapped(*first)
    if len(parts) > 1:
        moved = np.empty_like(Q)
        second: Any = (projected, np.ascontiguousarray(parts[1].T), moved)
        kernels.mapped(*second)
        projected = moved
    projected += Q
    return projected


def _begins(block: ConstraintBlock, lists: ShownLists) -> tuple[Numbers, Numbers]:
    """(k,) first rows of the events of lists, rising, and the lists' numbers.

    Lists and events are in one order, and an event has its list's query and a clicked item.
    """
    events = np.arange(len(block)) if block.events is None else block.events
    firsts = np.flatnonzero(np.diff(events, prepend=-1))
    anchors, items = block.index[firsts, 0], block.index[firsts, 1]
    if np.array_equal(anchors, lists.query):
        return firsts, np.arange(len(lists))
    waiting: dict[int, list[int]] = defaultdict(list)
    for i, query in enumerate(lists.query.tolist()):
        waiting[query].append(i)
    begins, numbers = [], []
    for row, anchor, item in zip(firsts.tolist(), anchors.tolist(), items.tolist(), strict=True):
        for i in waiting[anchor]:
            places = slice(int(lists.starts[i]), int(lists.starts[i + 1]))
            if item in lists.item[places][lists.clicked[places]]:
                waiting[anchor] = [other for other in waiting[anchor] if other > i]
                begins.append(row)
                numbers.append(i)
                break
    return np.array(begins, np.int64), np.array(numbers, np.int64)
