"""Classification, verification and retrieval by several weighted metrics.

A metric is given as embedded vectors: rows whose Euclidean distance is that of the metric. All functions take one table
of such rows and one weight for each metric.

Results do not depend on the grouping of queries or on the number of threads: a matrix product with bounded error only
selects rows that may be among the nearest; their distances are calculated from the differences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.compute.blas_threads import one_blas_thread

Rows = NDArray[np.floating[Any]]
Vector = NDArray[np.float64]
Items = NDArray[np.int64]

#: How retrieval scores an item that several metrics propose: by its best vote, or by the sum of all.
REPEATED: Final = ("best", "sum")
#: Largest distance of two unit vectors. In verification, larger distances count as this one.
FARTHEST: Final = 2.0
#: Upper bound of entries, and smallest difference that counts: both can be squared.
_LARGE: Final = 1e100
_SMALL: Final = 1e-40
#: Spans of the distances of k neighbours below this count as none.
_NO_SPAN: Final = 1e-12
#: Entries of the product, of the differences, and class scores that are in memory at once.
_PRODUCT: Final = 1 << 20
_DIFFERENCES: Final = 1 << 18
_SCORES: Final = 1 << 22
_LEAST: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The k nearest gallery rows of q queries under each of E metrics, nearest first.

    Parameters
    ----------
    items : (q, E, k) rows of the gallery.
    votes : (q, E, k) how much each counts: weight * exp(-(D - min) / (max - min)), with the least and the greatest
        distance among these k; the weight where those are equal.
    """

    items: Items
    votes: Vector


def nearest(gallery: Rows, queries: Rows, k: int) -> tuple[Items, Vector]:
    """The k rows of `gallery` (n, m) that are nearest to each of `queries` (q, m), by distance and then by row.

    Returns
    -------
    rows, distances : (q, k) both, with k no more than n.

    Raises
    ------
    ValueError
        Shapes that do not fit, an empty gallery, k below 1, or entries that are not finite or too large to square.
    """
    gallery, queries = _table("gallery", gallery), _table("queries", queries)
    n, m = gallery.shape
    if queries.shape[1] != m:
        raise ValueError(f"the gallery has {m} columns, the queries have {queries.shape[1]}")
    if n == 0:
        raise ValueError("the gallery is empty")
    k = min(_count("k", k), n)
    rows, distances = np.empty((len(queries), k), np.int64), np.empty((len(queries), k))
    if (gallery == gallery[0]).all():
        # Such as all rows of a dead model: all are equally near.
        rows[:] = np.arange(k)
        distances[:] = _apart(gallery, queries, np.zeros(len(queries), np.int64))[:, None]
        return rows, distances
    finder = _Finder(gallery)
    for part in _blocks(len(queries), _PRODUCT // n):
        # Several threads are not faster for products of this size, and much slower on shared cores.
        with one_blas_thread():
            query, row = finder.near(queries[part], k)
        apart = _apart(gallery, queries[part], row, query)
        # Rows ascend within a query, and the sort is stable.
        order = np.lexsort((apart, query))
        starts = np.searchsorted(query, np.arange(part.stop - part.start))
        chosen = order[starts[:, None] + np.arange(k)]
        rows[part], distances[part] = row[chosen], apart[chosen]
    return rows, distances


def candidates(
    weights: Sequence[float], gallery: Sequence[Rows], queries: Sequence[Rows], k: int
) -> Candidates:
    """The nearest rows of q queries under every metric.

    Parameters
    ----------
    weights : of E metrics.
    gallery, queries : E tables (n, m_e) and (q, m_e).
    k : neighbours by metric; all rows of a smaller gallery.

    Raises
    ------
    ValueError
        As `nearest`, tables of different lengths, or weights that are negative or all 0.
    """
    wide = _weights(weights, gallery, queries)
    found = [nearest(near, asked, k) for near, asked in zip(gallery, queries, strict=True)]
    items = np.stack([rows for rows, _ in found], axis=1)
    D = np.stack([apart for _, apart in found], axis=1)
    span = D[..., -1:] - D[..., :1]
    flat = span < _NO_SPAN
    exponent = np.where(flat, 0.0, (D - D[..., :1]) / np.where(flat, 1.0, span))
    return Candidates(items, wide[:, None] * np.exp(-exponent))


def class_scores(
    weights: Sequence[float],
    gallery: Sequence[Rows],
    labels: NDArray[Any],
    queries: Sequence[Rows],
    k: int = 5,
) -> tuple[NDArray[Any], Vector]:
    """The sum of the votes for every class; parameters as in `classify`.

    Returns
    -------
    classes, scores : the labels (c,) that occur, ascending, and (q, c).
    """
    classes, own = _classes(labels, gallery)
    found = candidates(weights, gallery, queries, k)
    return classes, _summed(found, own, len(classes))


def classify(
    weights: Sequence[float],
    gallery: Sequence[Rows],
    labels: NDArray[Any],
    queries: Sequence[Rows],
    k: int = 5,
) -> NDArray[Any]:
    """The label (q,) with the greatest sum of votes; the smallest of equal ones.

    Parameters
    ----------
    labels : (n,) of the gallery.
    weights, gallery, queries, k : see `candidates`.

    Raises
    ------
    ValueError
        As `candidates`, or not one label a row.
    """
    classes, own = _classes(labels, gallery)
    found = candidates(weights, gallery, queries, k)
    best = np.empty(len(found.items), np.int64)
    for part in _blocks(len(best), _SCORES // len(classes)):
        some = Candidates(found.items[part], found.votes[part])
        best[part] = _summed(some, own, len(classes)).argmax(axis=1)
    return np.asarray(classes[best])


def retrieve(
    weights: Sequence[float],
    gallery: Sequence[Rows],
    queries: Sequence[Rows],
    top: int,
    k: int | None = None,
    repeated: str = "best",
) -> tuple[Items, Vector]:
    """The `top` distinct rows of the gallery with the greatest votes, greatest first; of equal ones, lower rows first.

    Parameters
    ----------
    weights, gallery, queries : see `candidates`.
    k : neighbours that each metric proposes; by default `top`.
    repeated : of `REPEATED`.

    Returns
    -------
    items, scores : (q, top) both. After the last candidate, items are -1 and scores minus infinity.

    Raises
    ------
    ValueError
        As `candidates`, `top` below 1, or another name.
    """
    _count("top", top)
    if repeated not in REPEATED:
        raise ValueError(f"repeated must be one of {', '.join(REPEATED)}, not {repeated!r}")
    found = candidates(weights, gallery, queries, top if k is None else k)
    q = len(found.items)
    items, scores = np.full((q, top), -1, np.int64), np.full((q, top), -np.inf)
    if q == 0:
        return items, scores
    rows = found.items.reshape(q, -1)
    order = np.argsort(rows, axis=1, kind="stable")
    rows = np.take_along_axis(rows, order, axis=1)
    votes = np.take_along_axis(found.votes.reshape(q, -1), order, axis=1)
    first = np.ones(rows.shape, np.bool_)
    first[:, 1:] = rows[:, 1:] != rows[:, :-1]
    total = np.full(rows.shape, -np.inf)
    if repeated == "best":
        total[first] = np.maximum.reduceat(votes.ravel(), np.flatnonzero(first))
    else:
        # One vote after the other, in the order of the metrics.
        total[first] = np.bincount(np.cumsum(first) - 1, votes.ravel())
    # Rows ascend, so a stable sort keeps the lower one first.
    place = np.argsort(-total, axis=1, kind="stable")[:, :top]
    scores[:, : place.shape[1]] = np.take_along_axis(total, place, axis=1)
    items[:, : place.shape[1]] = np.take_along_axis(rows, place, axis=1)
    items[scores == -np.inf] = -1
    return items, scores


def distances(left: Sequence[Rows], right: Sequence[Rows]) -> Vector:
    """Distances (n, E) of n pairs under each metric, from E tables (n, m_e) on either side.

    Raises
    ------
    ValueError
        Shapes that do not fit, or entries as in `nearest`.
    """
    if len(left) != len(right) or not left:
        raise ValueError(f"expected as many tables on either side, got {len(left)} and {len(right)}")
    found = []
    for one, other in zip(left, right, strict=True):
        one, other = _table("left", one), _table("right", other)
        if one.shape != other.shape:
            raise ValueError(f"expected two tables of the same shape, got {one.shape} and {other.shape}")
        found.append(_apart(one, other, np.arange(len(one))))
    if len({len(column) for column in found}) > 1:
        raise ValueError(f"tables of {', '.join(str(len(column)) for column in found)} pairs")
    return np.stack(found, axis=1)


def verification_score(weights: Sequence[float], left: Sequence[Rows], right: Sequence[Rows]) -> Vector:
    """Similarity (n,) of pairs, from -1 to 0: minus the weighted median of D / 2 over the metrics.

    `verify` agrees with this score at every threshold, so a ROC curve over it is that of the published rule. The median
    is the least value up to which half of all weight lies. Distances beyond 2, as a metric without unit rows can have
    them, count as 2.

    Raises
    ------
    ValueError
        As `distances`, or weights as in `candidates`.
    """
    wide = _weights(weights, left, right)
    half = np.minimum(distances(left, right), FARTHEST) / 2.0
    order = np.argsort(half, axis=1, kind="stable")
    lighter = np.cumsum(wide[order], axis=1)
    # One half up to rounding counts as one half.
    middle = (lighter >= (0.5 - 1e-12) * lighter[:, -1:]).argmax(axis=1)
    median = np.take_along_axis(half, np.take_along_axis(order, middle[:, None], axis=1), axis=1)
    return np.asarray(-median[:, 0])


def verify(
    weights: Sequence[float], left: Sequence[Rows], right: Sequence[Rows], threshold: float
) -> NDArray[np.bool_]:
    """Whether pairs (n,) are similar: metrics with D / 2 < threshold have at least half of all weight.

    Parameters
    ----------
    threshold : above 0 and below 1.

    Raises
    ------
    ValueError
        As `verification_score`, or another threshold.
    """
    if not 0.0 < threshold < 1.0:
        raise ValueError(f"threshold must be above 0 and below 1, not {threshold!r}")
    return np.asarray(-verification_score(weights, left, right) < threshold)


class _Finder:
    """Finds which rows may be among the k nearest, by a product of matrices in float32.

    Rows are centred, in units of the greatest length: the order does not change, and the product stays in range.
    """

    def __init__(self, gallery: Rows) -> None:
        n, m = gallery.shape
        self._mean = gallery.mean(axis=0, dtype=np.float64)
        ends = np.stack([gallery.min(axis=0), gallery.max(axis=0)]) - self._mean
        # Rows that differ by less become zeros, so all of them may be among the nearest.
        self._unit = max(float(np.abs(ends).max(initial=0.0)), _SMALL)
        squares, rows = np.empty(n), np.empty((n, m), np.float32)
        for part in _blocks(n, _DIFFERENCES // max(m, 1)):
            moved = (gallery[part] - self._mean) / self._unit
            squares[part] = np.einsum("ij,ij->i", moved, moved)
            rows[part] = moved
        longest = max(float(np.sqrt(squares.max())), 1.0)
        rows /= np.float32(longest)
        self._unit *= longest
        self._squares, self._rows = (squares / longest**2).astype(np.float32), rows.T

    def near(self, queries: Rows, k: int) -> tuple[Items, Items]:
        """Pairs of a query's and a row's number, ordered by query, then by row."""
        moved = (queries - self._mean) / self._unit
        far = np.maximum(np.sqrt(np.einsum("ij,ij->i", moved, moved)), 1.0)[:, None]
        # (|y|^2 - 2 xy) / far, with |y| <= 1 and |x| / far <= 1: what orders the rows y, and at most 3 in magnitude.
        product = (-2.0 * moved / far).astype(np.float32) @ self._rows
        product += self._squares / far.astype(np.float32)
        # A sum of m products in any order is m roundings off, other steps are a few. The second part is the rounding
        # of the distances themselves. Both are twice what they need to be.
        error = (moved.shape[1] + 16) * (2.0**-22 + 2.0**-50 * far)
        reach = np.partition(product, k - 1, axis=1)[:, k - 1 : k] + 2.0 * error
        query, row = np.divmod(np.flatnonzero(product <= reach.astype(np.float32)), product.shape[1])
        return query, row


def _apart(gallery: Rows, queries: Rows, rows: Items, query: Items | None = None) -> Vector:
    """Distances of pairs in float64, from the differences: exact where vectors are close. Without `query`, of all."""
    found = np.empty(len(rows))
    for part in _blocks(len(rows), _DIFFERENCES // max(gallery.shape[1], 1)):
        asked = queries[part if query is None else query[part]]
        moved = np.subtract(asked, gallery[rows[part]], dtype=np.float64)
        # Pairwise summation within each row, independent of other rows.
        found[part] = np.sqrt(np.square(moved, out=moved).sum(axis=1))
    return found


def _summed(found: Candidates, own: Items, classes: int) -> Vector:
    """Votes by class (q, classes), one after the other in the order of the metrics and of the neighbours."""
    q = len(found.items)
    places = own[found.items] + classes * np.arange(q)[:, None, None]
    scores = np.bincount(places.ravel(), found.votes.ravel(), minlength=q * classes)
    return np.asarray(scores.reshape(q, classes), np.float64)


def _classes(labels: NDArray[Any], gallery: Sequence[Rows]) -> tuple[NDArray[Any], Items]:
    """Distinct labels, ascending, and the place among them of each row's."""
    labels = np.asarray(labels)
    if not gallery or labels.shape != (len(gallery[0]),):
        raise ValueError(f"expected one label a row of the gallery, got {labels.shape}")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError("labels must be finite")
    classes, own = np.unique(labels, return_inverse=True)
    return classes, own.astype(np.int64)


def _weights(weights: Sequence[float], *sides: Sequence[Rows]) -> Vector:
    """Weights as an array, checked against one table a metric on every side, and those against each other."""
    found = np.asarray(list(weights), np.float64)
    for tables in sides:
        if found.ndim != 1 or len(tables) != len(found):
            raise ValueError(f"{len(tables)} tables, and weights of shape {found.shape}")
        if len({len(table) for table in tables}) > 1:
            raise ValueError(f"tables of {', '.join(str(len(table)) for table in tables)} rows")
    if not (np.isfinite(found).all() and (found >= 0.0).all() and found.sum() > 0.0):
        raise ValueError("weights must be finite, none negative, and not all 0")
    return found


def _table(name: str, X: Rows) -> Rows:
    X = np.asarray(X)
    if X.ndim != 2 or X.dtype.kind not in "fiu":
        raise ValueError(f"{name}: expected numbers of shape (n, m), got {X.shape} of {X.dtype}")
    if not float(np.abs(X).max(initial=0.0)) < _LARGE:
        raise ValueError(f"{name}: entries must be finite and below {_LARGE:g}")
    return X if X.dtype.kind == "f" else X.astype(np.float64)


def _count(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
    return int(value)


def _blocks(n: int, size: int) -> Iterator[slice]:
    size = max(size, _LEAST)
    return (slice(start, min(start + size, n)) for start in range(0, n, size))
