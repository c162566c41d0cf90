"""What ranks the items of a corpus: the similarity of vectors, BM25 of texts, and a blend of the best by each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinstream.evaluation.queries.baselines import BM25, Scores, bm25
from kinstream.evaluation.queries.sources import Corpus
from kinstream.learners.ranking.blend import Blend
from kinstream.learners.ranking.remembered import Remembered
from kinstream.processors.base.id_table import name_hashes
from kinstream.streams.signals import ADAPTED, REMEMBERED, SIMILARITY, TEXT

Rows = NDArray[np.floating[Any]]
Numbers = NDArray[np.int64]
#: Queries (n, d) to what a store is asked with.
QueryMap = Callable[[Rows], Rows]

#: Best items by each similarity and by text that are blended, as the service does.
CANDIDATES: Final = 100
#: What costs nothing to begin with.
HALF_AND_HALF: Final = Blend.fixed({SIMILARITY: 0.5, TEXT: 0.5})
#: Queries whose scores of all items are in memory at once.
_TOGETHER: Final = 256
#: Steps of the share that is looked for in hindsight.
STEPS: Final = 20


class Again(NamedTuple):
    """How queries are ranked that a learner remembers.

    Parameters
    ----------
    blend : of the signals, what is remembered among them.
    names : (n,) hashes of the items' names.
    """

    blend: Blend
    remembered: Remembered
    names: NDArray[np.uint64]

    @classmethod
    def of(cls, learner: Any, ids: Sequence[str]) -> Again | None:
        """None for a learner that remembers nothing."""
        remembered = getattr(learner, "remembered", None)
        return None if remembered is None else cls(learner.known_blend, remembered, name_hashes(ids))


class Signals:
    """The signals of a corpus.

    Parameters
    ----------
    corpus : with texts or without.

    Raises
    ------
    kinstream.streams.errors.PackageMissing
        There are texts, and scikit-learn is not installed: the extra `learn` has it.
    """

    def __init__(self, corpus: Corpus) -> None:
        self._queries = np.asarray(corpus.queries, np.float32)
        self._items = np.asarray(corpus.items, np.float32)
        #: BM25 of the items for any text, and for the texts of queries given by their rows.
        self.bm25: BM25 | None = None
        self.text: Scores | None = None
        if corpus.texts is not None:
            queries, items = corpus.texts
            self.bm25 = BM25(items)
            self.text = bm25(queries, self.bm25)

    def similarity(self, rows: Numbers) -> Rows:
        """Inner products (q, n) of queries with all items."""
        return np.asarray(self._queries[rows] @ self._items.T)

    def mapped(self, query_map: QueryMap) -> Scores:
        """The same of mapped queries."""
        return lambda rows: np.asarray(query_map(self._queries[rows]) @ self._items.T)

    def shown(self, rows: Numbers, places: int) -> tuple[Numbers, dict[str, Rows]]:
        """The lists (q, places) of items that people see before anything is learned, and their scores by name.

        They are the best by half and half where there are texts, and else by similarity.
        """
        scores = self.similarity if self.text is None else self.blended(HALF_AND_HALF)
        best = np.empty((len(rows), places), np.int64)
        said = np.empty((len(rows), places))
        for begin in range(0, len(rows), _TOGETHER):
            part = slice(begin, begin + _TOGETHER)
            best[part] = np.argsort(-scores(rows[part]), axis=1, kind="stable")[:, :places]
            if self.text is not None:
                said[part] = np.take_along_axis(self.text(rows[part]), best[part], axis=1)
        return best, {} if self.text is None else {TEXT: said}

    def blended(self, blend: Blend, query_map: QueryMap | None = None, again: Again | None = None) -> Scores:
        """Values (q, n) of the candidates of each query, and -inf for all other items.

        Parameters
        ----------
        query_map : what the first candidates and the signal `adapted` are of; None: the queries as they are.
        again : how queries are ranked that are remembered; None for none.
        """
        remembered = None if again is None else again.remembered

        def scores(rows: Numbers) -> Rows:
            signals = {SIMILARITY: self.similarity(rows)}
            signals[ADAPTED] = signals[SIMILARITY] if query_map is None else self.mapped(query_map)(rows)
            if self.text is not None:
                signals[TEXT] = self.text(rows)
            found = []
            for at, row in enumerate(rows.tolist()):
                own, ranks = {name: one[at] for name, one in signals.items()}, blend
                recalled = None if remembered is None else remembered.recall(self._queries[row])
                if again is not None and recalled is not None:
                    own, ranks = own | {REMEMBERED: recalled.rates(again.names)}, again.blend
                found.append(blended(ranks, own))
            return np.stack(found)

        return scores

    def shares(self) -> list[Blend]:
        """Fixed blends of similarity and text, from the one alone to the other."""
        shares = np.linspace(0.0, 1.0, STEPS + 1).tolist()
        return [Blend.fixed({SIMILARITY: 1.0 - share, TEXT: share}) for share in shares]


def blended(blend: Blend, signals: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    """Values (n,) of the candidates of one query among n items, and -inf for all others.

    Candidates are the `CANDIDATES` best by the adapted similarity and as many by text, as in the service.

    Parameters
    ----------
    signals : (n,) by name, with `adapted`.
    """
    found = np.full(len(signals[ADAPTED]), -np.inf)
    best = np.unique(np.concatenate([_best(signals[name]) for name in (ADAPTED, TEXT) if name in signals]))
    found[best] = blend({name: one[best] for name, one in signals.items()})
    return found


def _best(scores: Rows) -> Numbers:
    if len(scores) <= CANDIDATES:
        return np.arange(len(scores))
    return np.argpartition(-scores, CANDIDATES)[:CANDIDATES]
