"""What a search engineer tries before anything is learned: counters of clicks, BM25, and fusion of two rankings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.producers.simulated.searchers import Searches
from kinstream.streams.extras import importing

Rows = NDArray[np.floating[Any]]
Numbers = NDArray[np.int64]
#: Scores (q, n) of all items for queries given by their rows (q,).
Scores = Callable[[Numbers], Rows]

#: Lists after which a click counts half.
HALF: Final = 10_000
#: Share of the range of similarities that the most clicked item gains.
BOOST: Final = 0.1
#: Of BM25: how soon a word that comes again adds nothing, and how much a long text counts less.
K1, B = 1.2, 0.75
#: Of reciprocal rank fusion.
RANKS: Final = 60.0
#: Words, and the parts of identifiers such as `linear_model`.
WORDS: Final = r"[^\W_]+"


def counted(
    found: Searches, learned: Numbers, items: int
) -> tuple[dict[int, dict[int, float]], NDArray[np.float64]]:
    """Decayed clicks by row of the query and by item, and (n,) of each item for all queries.

    Parameters
    ----------
    found : lists; their queries are places in `learned`.
    learned : (q,) rows of the queries.
    items : their number n.
    """
    by_query: dict[int, dict[int, float]] = {}
    by_item = np.zeros(items)
    for i, place in zip(*np.nonzero(found.clicked), strict=True):
        weight = 0.5 ** ((len(found) - 1 - i) / HALF)
        query, item = int(learned[found.query[i]]), int(found.items[i, place])
        counts = by_query.setdefault(query, {})
        counts[item] = counts.get(item, 0.0) + weight
        by_item[item] += weight
    return by_query, by_item


def clicked_for_the_query(similarity: Scores, by_query: dict[int, dict[int, float]]) -> Scores:
    """What was clicked most for the very same query comes first; then the others by similarity."""

    def scores(rows: Numbers) -> Rows:
        found = _within_1(similarity(rows))
        for at, row in enumerate(rows):
            for item, count in by_query.get(int(row), {}).items():
                found[at, item] += 1.0 + count
        return found

    return scores


def clicked_at_all(similarity: Scores, by_item: NDArray[np.float64]) -> Scores:
    """Similarity, and a little more for what is clicked often, for whatever query."""
    most = float(np.log1p(by_item).max(initial=0.0))
    gain = BOOST * np.log1p(by_item) / (most or 1.0)
    return lambda rows: np.asarray(_within_1(similarity(rows)) + gain)


class BM25:
    """Okapi BM25 with the inverse document frequency of Lucene: scores (q, n) of n items for q texts.

    Parameters
    ----------
    items : their texts.

    Raises
    ------
    SettingsError : scikit-learn is not installed: the extra `learn` has it.

    References
    ----------
    Robertson, Zaragoza: The probabilistic relevance framework: BM25 and beyond. Foundations and Trends in Information
    Retrieval 3, 2009.
    """

    def __init__(self, items: Sequence[str]) -> None:
        with importing("BM25"):
            from sklearn.feature_extraction.text import CountVectorizer
        self._words: Any = CountVectorizer(token_pattern=WORDS)
        counts = self._words.fit_transform(items).tocoo()
        lengths = np.bincount(counts.row, counts.data, len(items))
        holding = np.bincount(counts.col, minlength=counts.shape[1])
        rare = np.log1p((len(items) - holding + 0.5) / (holding + 0.5))
        usual = K1 * (1.0 - B + B * lengths / max(float(lengths.mean()), 1.0))
        often = counts.data.astype(np.float64)
        counts.data = rare[counts.col] * often / (often + usual[counts.row])
        self._weights: Any = counts.tocsr().T

    def __call__(self, texts: Sequence[str]) -> Rows:
        return np.asarray((self._words.transform(texts).astype(np.float64) @ self._weights).toarray())


def bm25(queries: Sequence[str], items: Sequence[str] | BM25) -> Scores:
    """`BM25` of queries given by their rows."""
    index, asked = items if isinstance(items, BM25) else BM25(items), np.array(queries, object)
    return lambda rows: index(asked[rows].tolist())


def fused(first: Scores, second: Scores) -> Scores:
    """Reciprocal rank fusion of two rankings; ties by place, so that no answer gains by them.

    References
    ----------
    Cormack, Clarke, Buettcher: Reciprocal rank fusion outperforms Condorcet and individual rank learning methods. SIGIR
    2009.
    """
    return lambda rows: np.asarray(sum(1.0 / (RANKS + ranks(one(rows))) for one in (first, second)))


def ranks(scores: Rows) -> NDArray[np.float64]:
    """(q, n) rank of each item, from 1; equal scores share the last of their places."""
    order = np.sort(-scores, axis=1)
    return np.stack(
        [np.searchsorted(row, -own, side="right") for row, own in zip(order, scores, strict=True)]
    ).astype(np.float64)


def _within_1(scores: Rows) -> NDArray[np.float64]:
    """Scores (q, n) from 0 to 1 for each query; 0 also for items that are no candidates, whose score is -inf."""
    known = np.isfinite(scores)
    least = np.where(known, scores, np.inf).min(axis=1, keepdims=True)
    wide = scores.max(axis=1, keepdims=True) - least
    return np.asarray(np.where(known, scores - least, 0.0) / np.where(wide > 0.0, wide, 1.0), np.float64)
