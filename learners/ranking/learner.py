"""Ranking: a query map and weights of everything that is known of a query and an item, from whole lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.adapter.learner import Adapter
from kinstream.learners.base.learner import Outcomes, Rows, State
from kinstream.learners.base.one_modality import Batch
from kinstream.learners.base.validation import whole
from kinstream.learners.ranking.blend import Blend
from kinstream.learners.ranking.lists import BlockLists, Parts, mapped
from kinstream.learners.ranking.memory import Memory
from kinstream.learners.ranking.remembered import Remembered
from kinstream.learners.ranking.weights import SIGNALS, Weights
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.scores import ADAPTED, REMEMBERED, SIMILARITY
from kinstream.streams.records.state import with_prefix, without_prefix
from kinstream.streams.records.values import ConstraintBlock

#: What the names of the weights' part of a state begin with, and within it those of the queries that are remembered,
#: and the memory.
_PART: Final = "ranking."
_KNOWN: Final = "known."
_MEMORY: Final = "memory."


class Ranking(Adapter):
    r"""Ranks by the adapter's map and everything else that a list says of its items.

    The map, its state and its parameters are those of `kinstream.learners.adapter.learner.Adapter`. Beside it, each
    signal has a weight: the scores that lists carry, such as BM25 or age, the similarity to the query as it is, and the
    adapted one. The weights are learned by `kinstream.learners.ranking.weights.Weights` from whole lists, with all that
    was shown, and by what the map said before it learned the list.

    `blend` ranks: by the learned weights where they rank what was clicked better than `start` does by more than one
    standard error, else by `start`; or by one signal where that ranks better than both by more than two. The comparison
    is that of lists that were not learned yet.

    With `remember`, `kinstream.learners.ranking.memory.Memory` remembers what was chosen for each query: the signal
    `remembered`. Queries that it knows have weights of their own, `known_blend`, learned and compared by
    lists of such queries, each of which counts in full: what is asked often is to be ranked well. `blend` ranks the
    others, and is as without a memory.

    Parameters
    ----------
    start : shares of the ranking that people have, by signal, such as {"similarity" = 0.5, "text" = 0.5}. Left out: the
        similarity alone.
    remember : queries that are remembered, those that came last, of at most 570 bytes each; 0 for none.
    rank, step, pull, memory, product, seed, prior, dtype : as of the adapter.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A hyper-parameter is out of range, or the shares are not finite numbers of 1 to 35 signals, some not 0.

    Notes
    -----
    Blocks without whole lists teach the map alone: their rows end with the last clicked item of each list, so that
    whatever ranked the lists would seem to be wrong.

    With product = "cosine", the adapted similarity is the cosine with the mapped query.

    References
    ----------
    Joachims, Swaminathan, Schnabel: Unbiased learning-to-rank with biased feedback. WSDM 2017 (places are examined with
    known probabilities).
    Xia, Wu, Hoi: Online multi-modal distance metric learning. TKDE 2014 (weights of similarities beside their maps).

    Examples
    --------
    >>> import numpy as np
    >>> from kinstream.learners.ranking.learner import Ranking
    >>> model = Ranking(start={"similarity": 0.5, "text": 0.5})
    >>> model.blend({"similarity": np.array([0.75, 0.25]), "text": np.array([4.0, 1.0])}).tolist()
    [0.5, -0.5]
    """

    algorithm: ClassVar[str] = "ranking/7"
    #: Learners get the lists of a block beside its constraints.
    whole_lists: ClassVar[bool] = True

    def __init__(
        self,
        start: Mapping[str, float] | None = None,
        rank: int | None = None,
        step: float | None = None,
        pull: float = 0.012,
        *,
        remember: int = 0,
        memory: int = 512,
        product: str = "cosine",
        seed: int = 0,
        prior: str | None = None,
        dtype: str = "float32",
    ) -> None:
        self._start = _checked({SIMILARITY: 1.0} if start is None else start)
        self.remember = whole("remember", remember, 0)
        self._parts = self._begin_parts()
        self._lists: BlockLists | None = None
        super().__init__(
            rank, step, pull, memory=memory, product=product, seed=seed, prior=prior, dtype=dtype
        )

    @property
    def start(self) -> Blend:
        """The ranking before anything was learned."""
        return self._parts.weights.first

    @property
    def learned_blend(self) -> Blend:
        """The learned weights, whether they are served or not."""
        return self._parts.weights.learned

    @property
    def blend(self) -> Blend:
        """The ranking that is to be served, of queries that the memory knows nothing of."""
        return self._parts.weights.blend

    @property
    def known_blend(self) -> Blend:
        """That of the others."""
        return self._parts.known.blend

    @property
    def remembered(self) -> Remembered | None:
        """What was chosen for queries; None where nothing is remembered."""
        return None if self._parts.memory is None else self._parts.memory.remembered

    @property
    def weights(self) -> dict[str, float]:
        """The weights of `blend` by signal, and that of what is remembered in `known_blend`."""
        found, known = self.blend, self.known_blend
        own = dict(zip(known.names, known.weights.tolist(), strict=True))
        beside = {name: own[name] for name in (REMEMBERED,) if name in own}
        return dict(zip(found.names, found.weights.tolist(), strict=True)) | beside

    def signals(self, X: Rows, Y: Rows) -> dict[str, Rows]:
        """The two similarities (n, k) of every row of X (n, d) to every row of Y (k, d), raw features, as in lists.

        Raises
        ------
        ValueError
            X or Y is not of d features.
        """
        left, right = self.scale(X), self.scale(Y)
        if left.shape[1] != right.shape[1]:
            raise ValueError(f"expected tables of the same features, got {left.shape} and {right.shape}")
        with one_blas_thread(), np.errstate(all="ignore"):
            moved = self._begun(left.shape[1])._weighted(left)
            if self.product == "cosine":
                length = np.sqrt(np.einsum("ij,ij->i", moved, moved))
                moved = moved / np.where(length > 0.0, length, 1.0)[:, None]
            return {SIMILARITY: left @ right.T, ADAPTED: moved @ right.T}

    # ---- state ------------------------------------------------------------------------------------------------------

    def state(self) -> State:
        weights, known, memory = self._parts
        found = weights.state()
        if memory is not None:
            found |= with_prefix(_KNOWN, known.state()) | with_prefix(_MEMORY, memory.state())
        return super().state() | with_prefix(_PART, found)

    def restore(self, state: State) -> None:
        super().restore({name: value for name, value in state.items() if not name.startswith(_PART)})
        found = without_prefix(_PART, state)
        self._parts = self._begin_parts()
        self._parts.weights.restore(found)
        # Up to version 3, there was one set of weights and no memory.
        self._parts.known.restore(without_prefix(_KNOWN, found) or found)
        if self._parts.memory is not None and (memory := without_prefix(_MEMORY, found)):
            self._parts.memory.restore(memory)

    def _begin_parts(self) -> Parts:
        memory = Memory(self.remember) if self.remember else None
        return Parts(Weights(self._start), Weights(self._start), memory)

    # ---- learning ---------------------------------------------------------------------------------------------------

    def learn(self, block: ConstraintBlock) -> Outcomes:
        self._lists = BlockLists(block, block.lists) if block.lists is not None and len(block) else None
        try:
            outcomes = super().learn(block)
            if self._lists is not None:
                outcomes.clipped[self._lists.clipped] = True
            if block.retracted is not None and self._parts.memory is not None:
                self._parts.memory.forget(block.retracted)
            return outcomes
        finally:
            self._lists = None

    def _take_in(self, batch: Batch, own: NDArray[np.uint64]) -> None:
        if self._lists is not None:
            self._lists.prepare(own, batch.group)

    def _measure(
        self, X: Rows, index: NDArray[np.int32], first: int, last: int, found: NDArray[np.float64]
    ) -> None:
        if self._lists is None or last <= first:
            super()._measure(X, index, first, last, found)
            return
        anchors, place = np.unique(index[first:last, 0], return_inverse=True)
        moved = mapped(X[anchors], self._whole(self._mean))
        found[first:last] = np.einsum("ij,ij->i", moved[place], X[index[first:last, 1]])
        self._lists.learn(self._parts, X, anchors, moved, self.product == "cosine", last)


def _checked(start: Mapping[str, float]) -> dict[str, float]:
    """Checked shares of a ranking."""
    try:
        found = {str(name): float(share) for name, share in start.items()}
    except (AttributeError, TypeError, ValueError):
        raise SettingsError(f"start is a table of shares by signal, not {start!r}") from None
    if not 1 <= len(found) <= SIGNALS or not all(np.isfinite([*found.values()])) or not any(found.values()):
        raise SettingsError(
            f"start has finite shares of 1 to {SIGNALS} signals, some not 0, not {dict(start)!r}"
        )
    return found
