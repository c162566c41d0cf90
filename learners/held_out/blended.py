"""Lists under a learner that blends signals: its ranking, and the one that people have, by each un-learned metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.held_out.metrics import ByMetric
from kinstream.learners.ranking.blend import Blend
from kinstream.learners.ranking.remembered import Recalled
from kinstream.streams.records.scores import REMEMBERED, SIMILARITY, Scores

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Blended:
    """Rankings of the candidates of q queries.

    Parameters
    ----------
    blend, start : of the learner.
    signals : (q, n) by name, those that the learner computes from vectors.
    known : of queries that the learner remembers something of.
    recalled : (q,) what that is, None for nothing.
    """

    blend: Blend
    start: Blend
    signals: dict[str, NDArray[Any]]
    known: Blend
    recalled: Sequence[Recalled | None]

    @classmethod
    def of(cls, learner: Any, queries: NDArray[Any], candidates: NDArray[Any]) -> Self | None:
        """For queries (q, D) and candidates (n, D); None if the learner does not blend."""
        if not hasattr(learner, "blend"):
            return None
        remembered = learner.remembered
        recalled = [None if remembered is None else remembered.recall(query) for query in queries]
        signals = learner.signals(queries, candidates)
        return cls(learner.blend, learner.start, signals, learner.known_blend, recalled)

    def distances(
        self,
        k: int,
        apart: ByMetric,
        shown: Numbers,
        others: Numbers,
        scores: Scores | None,
        names: NDArray[np.uint64] | None,
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
        scores, names : of what was shown; other items are taken for what nobody chose.
        """
        given = {} if scores is None else dict(zip(scores.names, scores.values.T, strict=True))
        given = {name: one for name, one in given.items() if np.isfinite(one).any()}
        columns = shown if given else np.concatenate([shown, others])
        found = np.empty((len(apart), len(columns)))
        blend, recalled = self.blend, self.recalled[k]
        computed = {name: one[k, columns] for name, one in self.signals.items()} | given
        if recalled is not None and names is not None:
            blend, computed[REMEMBERED] = self.known, np.zeros(len(columns))
            computed[REMEMBERED][: len(shown)] = recalled.rates(names)
        found[0] = -blend(computed)
        for m in range(1, len(apart)):
            found[m] = -self.start({SIMILARITY: -apart[m, columns]} | given)
        return found[:, : len(shown)], found[:, len(shown) :]
