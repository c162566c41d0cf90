"""Lists under a learner that blends signals: its ranking, and the one that people have, by each un-learned metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.held_out.metrics import ByMetric
from kinstream.learners.ranking.blend import Blend
from kinstream.streams.records.scores import SIMILARITY, Scores

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Blended:
    """Rankings of the candidates of q queries.

    Parameters
    ----------
    blend, start : of the learner.
    signals : (q, n) by name, those that the learner computes from vectors.
    """

    blend: Blend
    start: Blend
    signals: dict[str, NDArray[Any]]

    @classmethod
    def of(cls, learner: Any, queries: NDArray[Any], candidates: NDArray[Any]) -> Self | None:
        """For queries (q, D) and candidates (n, D); None if the learner does not blend."""
        if not hasattr(learner, "blend"):
            return None
        return cls(learner.blend, learner.start, learner.signals(queries, candidates))

    def distances(
        self, k: int, apart: ByMetric, shown: Numbers, others: Numbers, scores: Scores | None
    ) -> tuple[ByMetric, ByMetric]:
        """What ranks the items of a list (6, s), and other items (6, o): the least first.

        Scores are known of what was shown only. So a list with scores is judged among what it has shown: the first
        ranking made the list and is at its best there, while the learned one gains nothing from what it would show
        beside it.

        Parameters
        ----------
        k : number of the query.
        apart : (6, n) distances of the candidates by metric.
        shown, others : (s,) and (o,) columns of the candidates.
        scores : of what was shown.
        """
        given = {} if scores is None else dict(zip(scores.names, scores.values.T, strict=True))
        given = {name: one for name, one in given.items() if np.isfinite(one).any()}
        columns = shown if given else np.concatenate([shown, others])
        found = np.empty((len(apart), len(columns)))
        found[0] = -self.blend({name: one[k, columns] for name, one in self.signals.items()} | given)
        for m in range(1, len(apart)):
            found[m] = -self.start({SIMILARITY: -apart[m, columns]} | given)
        return found[:, : len(shown)], found[:, len(shown) :]
