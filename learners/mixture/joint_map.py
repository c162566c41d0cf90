"""Several maps of the same vectors as one map with few columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.mixture.views import View

Rows = NDArray[np.floating[Any]]


def shortest(stack: Rows) -> Rows:
    """A matrix of at most d rows with the distances of one of any number (k, d)."""
    return stack if len(stack) <= stack.shape[1] else np.asarray(np.linalg.qr(stack, mode="r"))


def joined(parts: list[tuple[View, Rows]], sample: Rows, rank: int) -> list[tuple[View, Rows]]:
    """Parts whose results, added up, have the distances of all parts side by side, or nearly so.

    Parts with at most `rank` rows in all stand side by side. Of others, what is kept are the directions in which the
    parts' results for a sample of vectors vary most. A sample of at most `rank` vectors does not know them: the part
    whose results vary most then stands for all.

    Parameters
    ----------
    parts : views of vectors z, and a matrix (k, d) for each.
    sample : (n, d) vectors z. Without parts, distances are those of z.
    rank : rows of the new matrices at most.
    """
    if not parts:
        d = sample.shape[1]
        return [(View(np.zeros(d), np.ones(d)), np.eye(d)[:rank])]
    ends = np.cumsum([len(matrix) for _, matrix in parts])
    if ends[-1] <= rank:
        places = np.split(np.eye(ends[-1]), ends[:-1], axis=1)
        return [(view, place @ matrix) for (view, matrix), place in zip(parts, places, strict=True)]
    results = [view.apply(sample) @ matrix.T for view, matrix in parts]
    results = [found - found.mean(axis=0) if len(found) else found for found in results]
    if len(sample) <= rank:
        view, matrix = parts[int(np.argmax([np.sum(found * found) for found in results]))]
        return [(view, matrix if len(matrix) <= rank else _truncated(matrix, rank))]
    directions = _directions(np.concatenate(results, axis=1), rank)
    cut = np.split(directions, ends[:-1], axis=1)
    return [(view, part @ matrix) for (view, matrix), part in zip(parts, cut, strict=True)]


def _truncated(matrix: Rows, rank: int) -> Rows:
    """The `rank` directions that the matrix lengthens most."""
    _, values, right = np.linalg.svd(matrix, full_matrices=False)
    return np.asarray(values[:rank, None] * right[:rank])


def _directions(centred: Rows, rank: int) -> Rows:
    """The (rank, k) principal directions of rows (n, k); fewer where k is less."""
    n, k = centred.shape
    if k <= n:
        return np.asarray(np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :rank].T)
    values, left = np.linalg.eigh(centred @ centred.T)
    values, left = values[::-1][:rank], left[:, ::-1][:, :rank]
    # What is left of zeros after rounding has no direction.
    known = values > 1e-12 * max(float(values[0]), 0.0)
    return np.asarray((left[:, known] / np.sqrt(values[known])).T @ centred)
