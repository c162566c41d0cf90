"""The learned metric and the un-learned ones, side by side."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import Learner
from kinstream.learners.base.modalities import Modalities
from kinstream.learners.distances import between
from kinstream.learners.held_out.unlearned_metrics import Features, Scales
from kinstream.learners.registry import offers
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.records.held_out import METRICS

Narrow = NDArray[np.float32]
Numbers = NDArray[np.int64]
#: Distances or losses by metric (6, n), the learned one first.
ByMetric = NDArray[np.float64]


class Metrics(NamedTuple):
    """All metrics, the learned one first."""

    learner: Learner
    modalities: Modalities
    scales: Scales

    def distances(self, X: Features, left: Numbers, right: Numbers) -> ByMetric:
        """(6, n) between the rows of X (k, D) that two sets of numbers (n,) name; only their order means something."""
        found = np.empty((len(METRICS), len(left)))
        with np.errstate(all="ignore"), one_blas_thread():
            found[0] = self._learned(X[left], X[right])
            self.scales.distances(X, left, right, found[1:])
        return found

    def all_pairs(self, queries: Narrow, items: Narrow) -> NDArray[np.float64]:
        """(6, q, n) between all rows of two tables, (q, D) and (n, D); only their order in a row means something."""
        found = np.empty((len(METRICS), len(queries), len(items)))
        rows = np.concatenate([queries, items]).astype(np.float64)
        with np.errstate(all="ignore"), one_blas_thread():
            found[0] = self._learned_pairs(queries, items)
            if len(queries) == 1:
                # Products of tables pay for several queries.
                self.scales.distances(
                    rows, np.zeros(len(items), np.int64), np.arange(1, len(rows)), found[1:, 0]
                )
            else:
                for distances, embedded in zip(found[1:], self.scales.embedded(rows), strict=True):
                    distances[:] = _between(embedded, len(queries))
        return found

    def _learned_pairs(self, queries: Narrow, items: Narrow) -> NDArray[Any]:
        learner: Any = self.learner
        similar = _ranks_by_similarity(learner)
        if similar and hasattr(learner, "similarities"):
            return -np.asarray(learner.similarities(queries, items), np.float64)
        if not similar and len(self.modalities.pairs) == 1:
            return _between(np.asarray(learner.transform(np.concatenate([queries, items]))), len(queries))
        left, right = np.repeat(queries, len(items), axis=0), np.tile(items, (len(queries), 1))
        return self._learned(left, right).reshape(len(queries), len(items))

    def _learned(self, left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
        """By the learner's own ranking, or by its similarity if it learns one."""
        learner: Any = self.learner
        if _ranks_by_similarity(learner):
            return -np.asarray(learner.similarity(self._parts(left), self._parts(right)))
        measure = getattr(learner, "quick_distance", learner.distance)
        return np.asarray(measure(self._parts(left), self._parts(right)))

    def _parts(self, X: NDArray[Any]) -> Any:
        # The vectors of the log, as a learner gets them in its blocks.
        narrow = X.astype(np.float32)
        starts = self.modalities.starts
        if len(self.modalities.pairs) == 1:
            return narrow
        return {
            name: narrow[:, starts[i] : starts[i + 1]] for i, (name, _) in enumerate(self.modalities.pairs)
        }


def _ranks_by_similarity(learner: Any) -> bool:
    """A fusion has a similarity if its base has one."""
    base = getattr(learner, "base", None)
    return hasattr(learner, "similarity") and (not isinstance(base, str) or offers(base, "similarity"))


def _between(rows: NDArray[Any], queries: int) -> NDArray[np.float64]:
    """Squared distances (q, n) of the first rows to the others."""
    centred = rows - rows.mean(axis=0)
    return np.asarray(between(centred[:queries], centred[queries:]), np.float64)
