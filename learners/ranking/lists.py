"""The whole lists of a block beside its constraints, and what each signal says of them before they are learned."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.kernels import weights as kernels
from kinstream.learners.ranking.memory import Memory
from kinstream.learners.ranking.remembered import bits_of
from kinstream.learners.ranking.weights import Weights, Whole
from kinstream.streams.records.held_out import ShownLists
from kinstream.streams.records.scores import ADAPTED, MOST_NAMES, REMEMBERED, SIMILARITY
from kinstream.streams.records.values import ConstraintBlock

Rows = NDArray[np.floating[Any]]
Numbers = NDArray[np.int64]
_TINY: Final = 1e-30


class Parts(NamedTuple):
    """What learns lists beside the map.

    Parameters
    ----------
    weights : by all lists, without what is remembered.
    known : by lists whose query the memory knows something of, each of which counts in full.
    memory : None where nothing is remembered.
    """

    weights: Weights
    known: Weights
    memory: Memory | None


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

    def prepare(self, own: NDArray[np.uint64], group: int) -> None:
        """Take the hashes (n,) of the block's vectors, and the number of the batch's rows for each constraint."""
        self._rows = (self._begins * group).tolist()
        lists, numbers = self._lists, self._numbers
        starts: NDArray[np.int32] = lists.starts
        rows: Numbers | slice = slice(None)
        places: Numbers | slice = slice(None)
        if numbers is not None:
            rows, lengths = numbers, np.diff(lists.starts)[numbers]
            starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
            places = np.arange(starts[-1]) + np.repeat(lists.starts[numbers] - starts[:-1], lengths)
        self._query, self._item = lists.query[rows], lists.item[places]
        self._names = None if lists.names is None else lists.names[places]
        self._ids = None if lists.ids is None else lists.ids[rows]
        names = () if lists.scores is None else lists.scores.names[:MOST_NAMES]
        every, columns, self._computed = _layout(names)
        values = np.empty((int(starts[-1]), len(every)))
        if lists.scores is not None:
            values[:, columns] = lists.scores.values[places, : len(names)]
        clicked, actors = lists.clicked[places], lists.actor[rows]
        worth = np.ones(len(values)) if lists.worth is None else lists.worth[places].astype(np.float64)
        self._whole = Whole(every, values, starts, clicked, own[self._query], actors, lists.exponent, worth)

    def learn(
        self, parts: Parts, X: Rows, anchors: NDArray[Any], moved: Rows, cosine: bool, last: int
    ) -> None:
        """Learn the lists whose constraints begin before a row of the batch.

        Parameters
        ----------
        X : (n, d) vectors of the block.
        anchors, moved : (b,) rows of the queries of these lists, rising, and (b, d) what the map makes of them.
        cosine : whether the adapted similarity is a cosine, of vectors of length 1.
        """
        done, upto = self._done, bisect_left(self._rows, last)
        if upto <= done:
            return
        whole = self._whole
        if cosine:
            lengths = np.sqrt(np.einsum("ij,ij->i", moved, moved, dtype=np.float64))
            lengths[~(lengths > _TINY)] = 1.0
        else:
            lengths = np.ones(len(moved))
        lists = (X, self._item, whole.starts, self._query, done, upto)
        queries = (np.ascontiguousarray(anchors), moved, lengths)
        arguments: Any = (*lists, *queries, self._computed, whole.values)
        kernels.similarities(*arguments)
        part = whole.part(done, upto)
        clipped = parts.weights.learn(part)
        if parts.memory is not None and self._names is not None:
            names = self._names[whole.starts[done] : whole.starts[upto]]
            of = np.searchsorted(anchors, self._query[done:upto])
            ids = None if self._ids is None else self._ids[done:upto]
            said, knows = parts.memory.learn(part, names, bits_of(X[anchors]), of, ids)
            if knows.any():
                again = part.beside(REMEMBERED, said).take(knows)
                # They are to rank what is asked as often as it is asked.
                clipped[knows] |= parts.known.learn(replace(again, queries=np.zeros_like(again.queries)))
        self.clipped += self._begins[done:upto][clipped].tolist()
        self._done = upto


@lru_cache(64)
def _layout(names: tuple[str, ...]) -> tuple[tuple[str, ...], Numbers | slice, Numbers]:
    """All signals of lists with these scores, sorted; the places of the scores, and of the two similarities."""
    every = tuple(sorted((ADAPTED, SIMILARITY, *names)))
    columns, computed = (
        np.array([every.index(name) for name in some], np.int64) for some in (names, (SIMILARITY, ADAPTED))
    )
    # Columns beside each other are written faster.
    together = len(columns) and (np.diff(columns) == 1).all()
    return every, slice(columns[0], columns[-1] + 1) if together else columns, computed


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


def _begins(block: ConstraintBlock, lists: ShownLists) -> tuple[Numbers, Numbers | None]:
    """(k,) first rows of the events of lists, rising, and the lists' numbers; None for all of them in order.

    Lists and events are in one order, and an event has its list's query and a clicked item.
    """
    if block.events is None:
        firsts = np.arange(len(block))
    else:
        first = np.ones(len(block), np.bool_)
        np.not_equal(block.events[1:], block.events[:-1], out=first[1:])
        firsts = np.flatnonzero(first)
    anchors = block.index[firsts, 0]
    if np.array_equal(anchors, lists.query):
        return firsts, None
    items = block.index[firsts, 1]
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
