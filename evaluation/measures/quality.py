"""Quality of a metric on rows that it has not learned from: vote, verification, retrieval.

An undefined value is None, never an exception and never NaN: if there is nothing to measure, or if a model maps rows to
entries that are not finite or too large to square.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.metrics import f1_score, roc_auc_score, roc_curve
from sklearn.neighbors import KNeighborsClassifier
from threadpoolctl import ThreadpoolController

from kinstream.evaluation.measures.ranking import ndcg, reciprocal_rank

Vectors = NDArray[np.floating[Any]]
Labels = NDArray[Any]
Items = NDArray[np.int64]

NEIGHBOURS: Final = 5
#: Points that are kept of a ROC curve, at most.
ROC_POINTS: Final = 201
#: Distances that retrieval has in memory at once.
_DISTANCES: Final = 1 << 21
#: Rows with larger entries have no distance that a float64 holds.
_LARGE: Final = 1e150


@dataclass(frozen=True, slots=True)
class Vote:
    """Result of a vote for the classes of test rows.

    Parameters
    ----------
    error : share of wrong ones.
    macro_f1 : mean, over the classes of the test rows, of F1, which is 0 where it is not defined.
    """

    error: float | None
    macro_f1: float | None


@dataclass(frozen=True, slots=True)
class Verification:
    """The quality of distances for separating pairs of one class from other pairs.

    Parameters
    ----------
    auc : probability that a pair of one class is nearer than another pair, ties by half; None with one sort of pairs.
    fpr, tpr : points of the ROC curve, from (0, 0) to (1, 1); empty where `auc` is None.
    """

    auc: float | None
    fpr: tuple[float, ...] = ()
    tpr: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Retrieval:
    """The quality of the first results of queries in a gallery.

    Parameters
    ----------
    ks : the numbers of items K that `recall` and `precision` are about.
    recall : share of the queries that have a row of their class among the K nearest.
    precision : mean share of rows of the query's class among the K nearest.
    mean_average_precision : over the whole gallery.
    queries : how many were measured.
    left_out : queries that were not measured, because nothing in the gallery is relevant to them.
    ndcg, reciprocal_rank : means of `kinstream.evaluation.measures.ranking`'s, over the whole gallery.
    """

    ks: tuple[int, ...]
    recall: tuple[float, ...] | None
    precision: tuple[float, ...] | None
    mean_average_precision: float | None
    queries: int
    left_out: int
    ndcg: float | None = None
    reciprocal_rank: float | None = None


def knn(x: Vectors, y: Labels, u: Vectors, v: Labels, neighbours: int = NEIGHBOURS) -> Vote:
    """The vote of the nearest rows of `x`, by Euclidean distance.

    Parameters
    ----------
    x, y : (n, d) and (n,) rows that vote, and their classes.
    u, v : (m, d) and (m,) rows to classify, and their classes.
    neighbours : rows that vote; all n if there are fewer.
    """
    x, u = np.asarray(x), np.asarray(u)
    if not len(x) or not len(u) or not _measurable(x, u):
        return Vote(None, None)
    with _controller().limit(limits=1):
        vote = KNeighborsClassifier(min(neighbours, len(x)), algorithm="brute").fit(x, y)
        found = vote.predict(u)
    return graded(found, v)


def graded(found: Labels, v: Labels) -> Vote:
    """The classes (m,) that a learner's own vote found, against the true ones (m,)."""
    found, v = np.asarray(found), np.asarray(v)
    if not len(v):
        return Vote(None, None)
    f1 = f1_score(v, found, labels=np.unique(v), average="macro", zero_division=0.0)
    return Vote(float(np.mean(found != v)), float(f1))


def verification(distances: NDArray[Any], same: NDArray[np.bool_]) -> Verification:
    """ROC curve of classifying by distance whether pairs are of one class, over all thresholds.

    Parameters
    ----------
    distances : (m,) of the pairs. Infinity is farther than any number.
    same : (m,) whether the rows of each pair are of one class.
    """
    distances, same = np.asarray(distances, np.float64), np.asarray(same, np.bool_)
    if not same.any() or same.all() or np.isnan(distances).any():
        return Verification(None)
    # Only the order of the distances matters, and scikit-learn refuses infinity.
    order = np.unique(distances, return_inverse=True)[1]
    fpr, tpr, _ = roc_curve(same, -order)
    kept = _thinned(fpr + tpr)
    return Verification(
        float(roc_auc_score(same, -order)),
        tuple(float(value) for value in fpr[kept]),
        tuple(float(value) for value in tpr[kept]),
    )


def _thinned(way: NDArray[np.float64]) -> Items:
    """The points of a curve to keep, given the position of each along it, from 0 to 2."""
    if len(way) <= ROC_POINTS:
        return np.arange(len(way))
    marks = np.linspace(0.0, way[-1], ROC_POINTS)
    found: Items = np.unique(np.searchsorted(way, marks).clip(max=len(way) - 1))
    # The first of all is (0, 0); the last must be included for any rounding of the sum.
    found[-1] = len(way) - 1
    return found


def retrieval(
    query: Vectors,
    gallery: Vectors,
    query_labels: Labels,
    gallery_labels: Labels,
    ks: Sequence[int],
    same_rows: bool,
) -> Retrieval:
    """The ranking of every query, by Euclidean distance and then by row number.

    Parameters
    ----------
    query, query_labels : (q, d) and (q,).
    gallery, gallery_labels : (n, d) and (n,).
    ks : numbers of items, each at least 1. Precision divides by K even where the gallery has fewer rows.
    same_rows : the queries are the rows of the gallery, in its order; none of them finds itself.

    Raises
    ------
    ValueError : a K below 1, or `same_rows` with tables of different lengths.

    Notes
    -----
    Distances are calculated from the differences, so that equal rows are equally far. It takes q * n * d steps and then
    sorts q rows; it uses 35 MB of memory, or 16 n bytes if that is more, for any q.
    """
    query, gallery = np.asarray(query, np.float64), np.asarray(gallery, np.float64)
    known, number = np.unique(np.asarray(gallery_labels), return_inverse=True)
    asked = _numbers(np.asarray(query_labels), known)
    if any(k < 1 for k in ks):
        raise ValueError(f"K is at least 1, not {min(ks)}")
    if same_rows and len(query) != len(gallery):
        raise ValueError(f"there are {len(query)} queries and {len(gallery)} rows of the gallery")
    sizes = np.bincount(number, minlength=len(known) + 1)
    relevant = np.where(asked < len(known), sizes[asked] - int(same_rows), 0)
    return _ranked(query, gallery, ks, relevant, lambda row: number == asked[row], same_rows)


def click_retrieval(
    query: Vectors, gallery: Vectors, clicked: Sequence[Items], ks: Sequence[int]
) -> Retrieval:
    """The ranking of every query, whose relevant items are those that were clicked; order and memory as `retrieval`.

    Parameters
    ----------
    query, gallery : (q, d) and (n, d).
    clicked : for each query the row numbers of the gallery.
    """
    query, gallery = np.asarray(query, np.float64), np.asarray(gallery, np.float64)

    def relevant(row: int) -> NDArray[np.bool_]:
        mask = np.zeros(len(gallery), np.bool_)
        mask[clicked[row]] = True
        return mask

    sizes = np.array([len(np.unique(one)) for one in clicked], np.int64)
    return _ranked(query, gallery, ks, sizes, relevant, same_rows=False)


def _ranked(
    query: Vectors,
    gallery: Vectors,
    ks: Sequence[int],
    sizes: Items,
    relevant: Callable[[int], NDArray[np.bool_]],
    same_rows: bool,
) -> Retrieval:
    """Retrieval where `relevant` returns the relevant rows of the gallery for a query, and `sizes` has their
    numbers."""
    if not _measurable(query, gallery):
        return Retrieval(tuple(ks), None, None, None, 0, 0)
    queries = np.flatnonzero(sizes > 0)
    hits = np.zeros(len(ks), np.int64)
    found = np.zeros(len(ks), np.int64)
    average, gains, firsts = np.empty((3, len(queries)))
    step = max(1, _DISTANCES // max(len(gallery), 1))
    for start in range(0, len(queries), step):
        rows = queries[start : start + step]
        D = cdist(query[rows], gallery, "sqeuclidean")
        for i, row in enumerate(rows):
            if same_rows:
                D[i, row] = np.inf
            places = _places(D[i], relevant(row))[: sizes[row]]
            average[start + i] = np.mean(np.arange(1, len(places) + 1) / places)
            gains[start + i], firsts[start + i] = ndcg(places), reciprocal_rank(places)
            within = np.searchsorted(places, ks, side="right")
            hits += within > 0
            found += within
    n = len(queries)
    if not n:
        return Retrieval(tuple(ks), None, None, None, 0, len(query))
    return Retrieval(
        tuple(ks),
        tuple(float(count / n) for count in hits),
        tuple(float(count / (n * k)) for count, k in zip(found, ks, strict=True)),
        float(np.mean(average)),
        n,
        len(query) - n,
        float(np.mean(gains)),
        float(np.mean(firsts)),
    )


def _places(distances: NDArray[np.float64], relevant: NDArray[np.bool_]) -> Items:
    """The ranks, from 1 and ascending, of the relevant rows when rows are sorted by distance and number."""
    ordered, wanted = np.sort(distances), np.sort(distances[relevant])
    first = np.searchsorted(ordered, wanted)
    if np.array_equal(first + 1, np.searchsorted(ordered, wanted, side="right")):
        return first + 1
    # Another row is as far as a relevant one. Row numbers decide, which takes a sort ten times as long.
    return np.flatnonzero(relevant[np.argsort(distances, kind="stable")]) + 1


def evaluation_pairs(labels: Labels, count: int, seed: int) -> tuple[Items, Items, NDArray[np.bool_]]:
    """Pairs of rows for verification: as many of one class as of different ones.

    Parameters
    ----------
    count : of the pairs; all pairs if there are fewer. If one sort has less than half of it, the other one fills the
        rest.
        one makes up for it.
    seed : another one draws other pairs.

    Returns
    -------
    left, right, same : (m,) row numbers with left < right, and whether they are of one class. No pair occurs twice.
    """
    labels = np.asarray(labels)
    _, number, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    # Rows by class: the later ones of the class follow each row at once, and those of later classes follow these.
    rows = np.argsort(number, kind="stable")
    ends = np.cumsum(sizes)[number[rows]]
    at = np.arange(len(rows))
    alike, unlike = ends - at - 1, len(rows) - ends
    draw = np.random.default_rng([seed, 11, count])
    wanted = min(int(alike.sum()), max(count // 2, count - int(unlike.sum())))
    left, right = [], []
    parts = ((alike, at + 1, wanted), (unlike, ends, min(int(unlike.sum()), count - wanted)))
    for following, first, number_of_pairs in parts:
        before = np.cumsum(following)
        total = int(before[-1]) if len(before) else 0
        chosen = (
            np.sort(draw.choice(total, number_of_pairs, replace=False)) if total else np.zeros(0, np.int64)
        )
        i = np.searchsorted(before, chosen, side="right")
        j = first[i] + chosen - (before[i] - following[i])
        left.append(np.minimum(rows[i], rows[j]))
        right.append(np.maximum(rows[i], rows[j]))
    one, other = np.concatenate(left), np.concatenate(right)
    return one, other, labels[one] == labels[other]


def _numbers(labels: Labels, known: Labels) -> Items:
    """Number of each label among the sorted `known` ones; their count if it is not one of them."""
    if not len(known):
        return np.zeros(len(labels), np.int64)
    at = np.searchsorted(known, labels).clip(max=len(known) - 1)
    return np.where(known[at] == labels, at, len(known))


def _measurable(*tables: Vectors) -> bool:
    """Whether all distances are numbers. A NaN is not below anything."""
    return all(float(np.max(np.abs(table), initial=0.0)) < _LARGE for table in tables)


@cache
def _controller() -> ThreadpoolController:
    # One thread: the order of equal distances must not depend on the number of cores.
    return ThreadpoolController()
