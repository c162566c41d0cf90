"""How well queries find the items that answer them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.evaluation.measures.ranking import NDCG_ITEMS
from kinstream.evaluation.queries.judgements import Judgements

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
    mrr : 1 / the rank of the first answer.
    recall : by K, the share of a query's answers that are among the first K items.
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
    rows = np.arange(len(queries))
    judged = Judgements(rows, np.asarray(relevant, np.int64), np.ones(len(rows)))
    return ranked(lambda some: queries[some] @ items.T, rows, judged, at)


def ranked(
    score: Callable[[Numbers], Rows],
    queries: Numbers,
    judgements: Judgements,
    at: tuple[int, ...] = (1, 10, 100),
) -> AnswerRanks:
    """Rank all items for each query by their scores; a tie counts against the answer.

    Parameters
    ----------
    score : scores (q, n) of all items for queries given by their rows (q,).
    queries : (q,) their rows, each with an answer.
    at : values of K.

    References
    ----------
    Järvelin, Kekäläinen: Cumulated gain-based evaluation of IR techniques. ACM TOIS 20, 2002 (NDCG, with gain = grade).
    """
    ndcg, first, recall = [], [], []
    for begin in range(0, len(queries), _CHUNK):
        rows = queries[begin : begin + _CHUNK]
        for row, scores in zip(rows.tolist(), score(rows), strict=True):
            items, grades = judgements.of(row)
            ranks = np.count_nonzero(~(scores[None, :] < scores[items, None]), axis=1)
            gains = np.where(ranks <= NDCG_ITEMS, grades / np.log2(ranks + 1.0), 0.0).sum()
            ideal = np.sort(grades)[::-1][:NDCG_ITEMS]
            ndcg.append(gains / (ideal / np.log2(np.arange(len(ideal)) + 2.0)).sum())
            first.append(1.0 / ranks.min())
            recall.append([float(np.mean(ranks <= k)) for k in at])
    means = np.mean(recall, axis=0).tolist()
    return AnswerRanks(float(np.mean(ndcg)), float(np.mean(first)), dict(zip(at, means, strict=True)))
