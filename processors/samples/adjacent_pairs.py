"""Pairs of samples that are adjacent in the stream (as RDML learns from, Jin et al. 2009)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, Final

import numpy as np

from kinstream.processors.base.builder import MAX_BLOCK_BYTES, Made, Origin, State
from kinstream.processors.base.packing import References
from kinstream.processors.base.validation import whole
from kinstream.processors.samples.counters import Fates
from kinstream.processors.samples.sample_layout import SampleSpace
from kinstream.processors.samples.targets import Targets
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.state import with_prefix, without_prefix
from kinstream.streams.records.values import (
    ConstraintBlock,
    Event,
    ItemBlock,
    Kind,
    SampleBlock,
    Table,
    Vectors,
)

RULE: Final = "adjacent-pair"
#: Fates of a sample.
FATES: Final = ("pairs-emitted", "first-sample", "opens-pair", "previous-erased", "targets-unknown")
_EMITTED, _FIRST, _OPENS, _ERASED, _UNKNOWN = range(len(FATES))


class AdjacentPairs:
    """The pair (x_t, x_{t+1}) of samples t and t + 1 of the space, similar if their labels are equal.

    Parameters
    ----------
    overlapping : whether a sample ends one pair and begins the next: (1, 2), (2, 3), ..., T - 1 pairs of T samples. If
        not, pairs are disjoint: (1, 2), (3, 4), ...
    targets : target squared distances of the blocks.

        - "none": no targets.
        - "frozen", "reservoir": those of `Targets`: percentiles of the distances between random earlier samples.
          Until they are known no pair is emitted, because a block has targets for all rows or for none.
    target_percentiles, target_sample : percentiles for y_S and y_D, and the number of distances.
    seed : of the sample of distances; the pairs are not random.
    max_bytes : no encoded block is larger.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A setting is out of range.

    Notes
    -----
    The stream must be shuffled: in a stream sorted by class almost all pairs are similar. A space has one label type,
    one set of modalities and one dimension for each: those of its first block. O(d) time per sample, and O(d) memory
    besides the targets. A tombstone of the newest sample erases it: the next one gives no pair. `counts()` gives each
    sample one fate.

    References
    ----------
    Jin, Wang, Zhou: Regularized distance metric learning: theory and algorithm. NIPS 2009. (learns from such pairs)

    Examples
    --------
    >>> import numpy as np
    >>> from kinstream.processors.samples.adjacent_pairs import AdjacentPairs
    >>> from kinstream.processors.base.builder import Origin
    >>> from kinstream.streams.records.values import SampleBlock, Table
    >>> vectors = np.eye(4, dtype=np.float32)
    >>> block = SampleBlock("toys", (Table("x", vectors),), ("ball", "ball", "car", "ball"), time_ms=0)
    >>> (pairs,) = AdjacentPairs().process(block, Origin(offset=0)).blocks
    >>> pairs.index.tolist(), pairs.signs.tolist()
    ([[0, 1], [1, 2], [2, 3]], [1, -1, -1])
    """

    algorithm: ClassVar[str] = "adjacent-pairs/1"

    def __init__(
        self,
        overlapping: bool = True,
        targets: str = "none",
        target_percentiles: Sequence[float] = (5.0, 95.0),
        target_sample: int = 1_000,
        seed: int = 0,
        max_bytes: int = MAX_BLOCK_BYTES,
    ) -> None:
        if not isinstance(overlapping, bool):
            raise SettingsError(f"overlapping must be true or false, not {overlapping!r}")
        self.overlapping = overlapping
        self.seed = whole("seed", seed, 0, 2**63 - 1)
        self.max_bytes = whole("max_bytes", max_bytes, 1024, MAX_BLOCK_BYTES)
        self._targets = Targets(targets, target_percentiles, target_sample, self.algorithm, self.seed)
        self._space = SampleSpace()
        self._fates = Fates("samples", FATES, ("targets-halved",))
        # The sample that forms a pair with the next one, one row in each table, and the fate of the next one if there
        # is none.
        self._waiting: dict[str, Vectors] = {}
        self._label: Any = None
        self._id: str | None = None
        self._without = _FIRST

    @property
    def follows(self) -> tuple[type, ...]:
        return SampleBlock, ItemBlock

    @property
    def emits(self) -> frozenset[Kind]:
        return frozenset({Kind.PAIR})

    def counts(self) -> dict[str, int]:
        self._fates.set("targets-halved", self._targets.halved)
        return self._fates.as_dict()

    def process(self, event: Event, origin: Origin) -> Made:
        if isinstance(event, ItemBlock):
            self._targets.erase(event.tombstones)
            if self._id is not None and self._id in event.tombstones:
                self._wait_for_nothing(_ERASED)
            return Made()
        if not isinstance(event, SampleBlock):
            raise TypeError(f"adjacent-pairs does not follow {type(event).__name__}")
        return Made(self._samples(event))

    def _wait_for_nothing(self, fate: int) -> None:
        self._waiting, self._label, self._id, self._without = {}, None, None, fate

    def _samples(self, block: SampleBlock) -> list[ConstraintBlock]:
        labels, tables, packing = self._space.admit(
            block, self.max_bytes, Kind.PAIR, RULE, targeted=self._targets.wanted
        )
        known = self._targets.of(block.space, tables, block.ids)
        n, joined = len(labels), bool(self._waiting)
        # Row r of the block forms a pair with row r - 1; -1 is the waiting sample.
        similar = np.array([one == other for one, other in pairwise([self._label, *labels])])
        fates = np.full(n, _EMITTED, np.int8)
        if not self.overlapping:
            fates[int(joined) :: 2] = _OPENS
        if not joined:
            fates[0] = self._without
        if known is not None:
            fates[(fates == _EMITTED) & np.isnan(known[:, 0])] = _UNKNOWN
        self._fates.meet(fates)
        rows = np.flatnonzero(fates == _EMITTED)

        def vectors(references: References) -> tuple[Table, ...]:
            if not len(references) or references[0] >= 0:
                return tuple(Table(t.name, t.vectors[references]) for t in tables)
            return tuple(
                Table(t.name, np.concatenate([self._waiting[t.name], t.vectors[references[1:]]]))
                for t in tables
            )

        made = packing.blocks(
            Kind.PAIR,
            RULE,
            np.column_stack([rows - 1, rows]),
            vectors,
            block.time_ms,
            signs=np.where(similar[rows], 1, -1).astype(np.int8),
            targets=None if known is None else known[rows, np.where(similar[rows], 0, 1)],
        )
        if self.overlapping or (n - joined) % 2:
            self._waiting = {t.name: t.vectors[-1:].copy() for t in tables}
            self._label = labels[-1]
            self._id = None if block.ids is None else block.ids[-1]
        else:
            self._wait_for_nothing(_OPENS)
        return made

    def state(self) -> State:
        state = self._space.state() | with_prefix("targets.", self._targets.state())
        state |= {"counts": self._fates.state(), "without": self._without}
        if self._waiting:
            state |= with_prefix("waiting.", {name: vector.copy() for name, vector in self._waiting.items()})
            state["label"] = self._label
            if self._id is not None:
                state["id"] = self._id
        return state

    def restore(self, state: State) -> None:
        self._space.restore(state)
        self._targets.restore(without_prefix("targets.", state))
        self._fates.restore(state["counts"])
        self._waiting = {
            name: np.array(value, np.float32) for name, value in without_prefix("waiting.", state).items()
        }
        self._label = state.get("label")
        self._id = str(state["id"]) if "id" in state else None
        self._without = int(state["without"])
