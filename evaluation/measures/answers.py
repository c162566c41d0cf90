"""How well queries find the item that answers them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.evaluation.measures.ranking import NDCG_ITEMS

Rows = NDArray[np.floating[Any]]
Numbers = NDArray[np.int64]

#: Queries that are ranked at once.
_CHUNK: Final = 500


@dataclass(frozen=True, slots=True)
class AnswerRanks:
    """Means over queries.

    Parameters
    ----------
    ndcg : of the first ten items.
    mrr : 1 / the rank of the answer.
    recall : by K, the share of queries whose answer is among the first K items.
    """

    ndcg: float
    mrr: float
    recall: dict[int, float]


def answered(
    queries: Rows, items: Rows, relevant: Numbers, at: tuple[int, ...] = (1, 10, 100)
) -> AnswerRanks:
    """Rank all items for each query by their inner product; a tie counts against the answer.

    Parameters
    ----------
    queries, items : (q, d) and (n, d), mapped already.
    relevant : (q,) row of the item that answers each query.
    at : values of K.
    """
    return ranked(lambda rows: queries[rows] @ items.T, np.arange(len(queries)), relevant, at)


def ranked(
    score: Callable[[Numbers], Rows], queries: Numbers, relevant: Numbers, at: tuple[int, ...] = (1, 10, 100)
) -> AnswerRanks:
    """Rank all items for each query by their scores; a tie counts against the answer.

    Parameters
    ----------
    score : scores (q, n) of all items for queries given by their rows (q,).
    queries : (q,) their rows.
    relevant : (q,) row of the item that answers each query.
    at : values of K.
    """
    ranks = np.empty(len(queries), np.int64)
    for first in range(0, len(queries), _CHUNK):
        rows = slice(first, first + _CHUNK)
        scores = score(queries[rows])
        own = scores[np.arange(len(scores)), relevant[rows]]
        ranks[rows] = np.count_nonzero(~(scores < own[:, None]), axis=1)
    gains = np.where(ranks <= NDCG_ITEMS, 1.0 / np.log2(ranks + 1.0), 0.0)
    recall = {k: float(np.mean(ranks <= k)) for k in at}
    return AnswerRanks(float(gains.mean()), float(np.mean(1.0 / ranks)), recall)
