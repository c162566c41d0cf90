"""Pairs of each sample with random earlier ones (LEGO paper, Jain et al. 2008)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kinstream.processors.base.builder import MAX_BLOCK_BYTES, Made, Origin, State
from kinstream.processors.base.draws import fractions, sample_draws
from kinstream.processors.base.validation import number, one_of, whole
from kinstream.processors.samples.counters import Fates
from kinstream.processors.samples.reservoir import Reservoir
from kinstream.processors.samples.reservoir_kernels import ANY, FOUND, OTHERS, OWN
from kinstream.processors.samples.sample_layout import SampleSpace, labels_of, row_bytes
from kinstream.processors.samples.targets import Targets
from kinstream.streams.records.state import with_prefix, without_prefix
from kinstream.streams.records.values import ConstraintBlock, Event, ItemBlock, Kind, SampleBlock

#: Version 2 records which pairs come from one sample, if there can be several. Its draws are those of version 1.
_DRAWN_AS: Final = "random-pairs/1"
RULE: Final = "random-pair"
DRAWS: Final = ("uniform", "balanced")
#: Fates of a pair, in the order of the numbers in `reservoir_kernels`; the last one is only for pairs.
FATES: Final = (
    "pairs-emitted",
    "first-of-class",
    "class-erased",
    "one-class",
    "first-sample",
    "targets-unknown",
)
_TARGETS_UNKNOWN: Final = FATES.index("targets-unknown")


class RandomPairs:
    """`per_sample` pairs (earlier sample, x) for each sample x, similar if the classes are equal.

    Earlier samples come from a `Reservoir` of each class, whose docstring defines the distribution of the picks. x
    enters after its pairs are drawn, so it is never its own partner. The pairs of one sample are drawn independently,
    so a pair may occur twice; they are one event.

    Parameters
    ----------
    draw : how the partner is chosen.

        - "uniform": each earlier sample with the same probability. With c classes of the same size, one pair in c is
          similar.
        - "balanced": first the sign, similar with probability `similar`; then each earlier sample of the class of x,
                or each one of other classes, with the same probability. If there is none, no pair is emitted. So,
                except for the first samples of classes, the share of similar pairs is `similar`.
    similar : probability in [0, 1]; only for "balanced".
    per_sample : pairs for each sample, 1 to 100.
    reservoir : samples kept of each class, 1 to 10000. With more, partners repeat less often.
    max_classes : classes that are remembered, 1 to 100000; beyond it the one without samples for the longest time is
        dropped.
    targets : target squared distances of the blocks.

        - "none": no targets.
        - "frozen", "reservoir": those of `Targets`: percentiles of the distances between random earlier samples.
          Until they are known no pair is given, because a block has targets for all rows or for none.
    target_percentiles, target_sample : percentiles for y_S and y_D, and the number of distances.
    seed : of the random choices, which depend only on the seed, the space, and the number of its earlier samples.
    max_bytes : no encoded block is larger.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A setting is out of range.

    Notes
    -----
    A space has one label type, one set of modalities and one dimension for each: those of its first block.
    O(d + log max_classes) time per pair. Memory is at most max_classes * reservoir vectors, and grows with the samples
    up to that. The pairs and targets do not depend on block boundaries. A tombstone of an item erases the samples of
    that name. `counts()` gives each wanted pair one fate.

    References
    ----------
    Jain, Kulis, Dhillon, Grauman: Online metric learning and fast similarity search. NIPS 2008. (random pairs, targets
    by percentiles)

    Examples
    --------
    >>> import numpy as np
    >>> from kinstream.processors.base.builder import Origin
    >>> from kinstream.processors.samples.random_pairs import RandomPairs
    >>> from kinstream.streams.records.values import SampleBlock, Table
    >>> vectors = np.eye(4, dtype=np.float32)
    >>> block = SampleBlock("toys", (Table("x", vectors),), ("ball", "ball", "car", "ball"), time_ms=0)
    >>> (pairs,) = RandomPairs(draw="balanced", similar=1.0).process(block, Origin(offset=0)).blocks
    >>> pairs.signs.tolist()
    [1, 1]
    >>> pairs.tables[0].vectors[pairs.index[:, 1]].argmax(axis=1).tolist()
    [1, 3]
    """

    def __init__(
        self,
        draw: str = "uniform",
        similar: float = 0.5,
        per_sample: int = 1,
        reservoir: int = 64,
        max_classes: int = 1_000,
        targets: str = "none",
        target_percentiles: Sequence[float] = (5.0, 95.0),
        target_sample: int = 1_000,
        seed: int = 0,
        max_bytes: int = MAX_BLOCK_BYTES,
    ) -> None:
        self.draw = one_of("draw", draw, DRAWS)
        self.similar = number("similar", similar, 0.0, 1.0)
        self.per_sample = whole("per_sample", per_sample, 1, 100)
        self.seed = whole("seed", seed, 0, 2**63 - 1)
        self.max_bytes = whole("max_bytes", max_bytes, 1024, MAX_BLOCK_BYTES)
        self._reservoir = Reservoir(
            whole("reservoir", reservoir, 1, 10_000), whole("max_classes", max_classes, 1, 100_000)
        )
        self._targets = Targets(targets, target_percentiles, target_sample, _DRAWN_AS, self.seed)
        self._space = SampleSpace()
        self._fates = Fates("pairs", FATES, ("samples-erased", "classes-forgotten", "targets-halved"))

    @property
    def algorithm(self) -> str:
        return _DRAWN_AS if self.per_sample == 1 else "random-pairs/2"

    @property
    def follows(self) -> tuple[type, ...]:
        return SampleBlock, ItemBlock

    @property
    def emits(self) -> frozenset[Kind]:
        return frozenset({Kind.PAIR})

    def counts(self) -> dict[str, int]:
        self._fates.set("classes-forgotten", self._reservoir.forgotten)
        self._fates.set("targets-halved", self._targets.halved)
        return self._fates.as_dict()

    def space_bytes(self, event: Event) -> int:
        if not isinstance(event, SampleBlock):
            return 0
        return self._reservoir.bytes_with(labels_of(event)[0], row_bytes(event))

    def process(self, event: Event, origin: Origin) -> Made:
        if isinstance(event, ItemBlock):
            self._fates.add("samples-erased", self._reservoir.erase(event.tombstones))
            self._targets.erase(event.tombstones)
            return Made()
        if not isinstance(event, SampleBlock):
            raise TypeError(f"random-pairs does not follow {type(event).__name__}")
        return Made(self._samples(event))

    def _samples(self, block: SampleBlock) -> list[ConstraintBlock]:
        labels, tables, packing = self._space.admit(
            block,
            self.max_bytes,
            Kind.PAIR,
            RULE,
            targeted=self._targets.wanted,
            grouped=self.per_sample > 1,
        )
        n, pairs = len(labels), self.per_sample
        draws = sample_draws(_DRAWN_AS, self.seed, block.space, self._reservoir.samples, n, 1 + 3 * pairs)
        picks = self._reservoir.walk(labels, draws, self._wants(draws[:, 1 + 2 * pairs : 1 + 3 * pairs]))
        known = self._targets.of(block.space, tables, block.ids)
        fates = picks.fates
        if known is not None:
            fates[(fates == FOUND) & np.isnan(known[:, :1])] = _TARGETS_UNKNOWN
        self._fates.meet(fates)
        rows, which = np.nonzero(fates == FOUND)
        similar = picks.same[rows, which]
        made = packing.blocks(
            Kind.PAIR,
            RULE,
            np.column_stack([picks.references[rows, which], rows]),
            partial(self._reservoir.tables, tables),
            block.time_ms,
            signs=np.where(similar, 1, -1).astype(np.int8),
            targets=None if known is None else known[rows, np.where(similar, 0, 1)],
            events=rows if pairs > 1 else None,
        )
        self._reservoir.settle(tables, block.ids)
        return made

    def _wants(self, draws: NDArray[np.uint64]) -> NDArray[np.int8]:
        if self.draw == "uniform":
            return np.full(draws.shape, ANY, np.int8)
        return np.where(fractions(draws) < self.similar, OWN, OTHERS).astype(np.int8)

    def state(self) -> State:
        reservoir, targets = self._reservoir.state(), self._targets.state()
        counts: State = {"counts": self._fates.state()}
        return (
            self._space.state()
            | with_prefix("reservoir.", reservoir)
            | with_prefix("targets.", targets)
            | counts
        )

    def restore(self, state: State) -> None:
        self._space.restore(state)
        self._reservoir.restore(without_prefix("reservoir.", state))
        self._targets.restore(without_prefix("targets.", state))
        self._fates.restore(state["counts"])
