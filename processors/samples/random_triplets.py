"""Triplets of random earlier samples."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from kinstream.processors.base.builder import MAX_BLOCK_BYTES, Made, Origin, State
from kinstream.processors.base.draws import sample_draws
from kinstream.processors.base.validation import one_of, whole
from kinstream.processors.samples.counters import Fates
from kinstream.processors.samples.reservoir import Reservoir
from kinstream.processors.samples.reservoir_kernels import ANCHOR, FOUND, MATE, OTHERS, OWN
from kinstream.processors.samples.sample_layout import SampleSpace, labels_of, row_bytes
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.state import with_prefix, without_prefix
from kinstream.streams.records.values import ConstraintBlock, Event, ItemBlock, Kind, SampleBlock

#: Version 2 records which triplets come from one sample, if there can be several. Its draws are those of version 1.
_DRAWN_AS: Final = "random-triplets/1"
RULE: Final = "random-triplet"
ANCHOR_CHOICES: Final = ("item", "class")
#: Fates of a triplet, in the order of the numbers in `reservoir_kernels`.
FATES: Final = ("triplets-emitted", "first-of-class", "class-erased", "one-class", "no-anchor")


class RandomTriplets:
    """`per_sample` triplets (anchor, positive, negative) for each sample x that arrives.

    Earlier samples come from a `Reservoir` of each class, whose docstring defines the distribution of the picks; x
    enters it after its triplets are drawn. The triplets of one sample are drawn independently; they are one event.

    Parameters
    ----------
    anchors : the choice of the anchor.

        - "item": x itself. The positive is uniform over the earlier samples of its class, the negative over those
          of all other classes.
        - "class": x only triggers the triplet. The anchor's class is uniform over the classes with at least two
          samples, even rare ones; anchor and positive are two different samples, uniform over the earlier ones of that
          class; the negative is uniform over those of all other classes. It needs a reservoir of at least two.
    per_sample : triplets for each sample, 1 to 100.
    reservoir : samples kept of each class, 1 to 10000. With more, partners repeat less often.
    max_classes : classes that are remembered, 1 to 100000; beyond it the one without samples for the longest time is
        dropped.
    seed : of the random choices, which depend only on the seed, the space, and the number of its earlier samples.
    max_bytes : no encoded block is larger.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A setting is out of range.

    Notes
    -----
    A space has one label type, one set of modalities and one dimension for each: those of its first block.
    O(d + log max_classes) time per triplet. Memory is at most max_classes * reservoir vectors, and grows with the
    samples up to that. The triplets do not depend on block boundaries. A tombstone of an item erases the samples of
    that name. `counts()` gives each wanted triplet one fate.

    Examples
    --------
    >>> import numpy as np
    >>> from kinstream.processors.base.builder import Origin
    >>> from kinstream.processors.samples.random_triplets import RandomTriplets
    >>> from kinstream.streams.records.values import SampleBlock, Table
    >>> vectors = np.eye(4, dtype=np.float32)
    >>> block = SampleBlock("toys", (Table("x", vectors),), ("ball", "ball", "car", "ball"), time_ms=0)
    >>> builder = RandomTriplets()
    >>> (triplets,) = builder.process(block, Origin(offset=0)).blocks
    >>> [triplets.tables[0].vectors[i].argmax().item() for i in triplets.index[0]][::2]
    [3, 2]
    >>> {name: number for name, number in builder.counts().items() if number}
    {'triplets': 4, 'triplets-emitted': 1, 'first-of-class': 2, 'one-class': 1}
    """

    def __init__(
        self,
        anchors: str = "item",
        per_sample: int = 1,
        reservoir: int = 64,
        max_classes: int = 1_000,
        seed: int = 0,
        max_bytes: int = MAX_BLOCK_BYTES,
    ) -> None:
        self.anchors = one_of("anchors", anchors, ANCHOR_CHOICES)
        self.per_sample = whole("per_sample", per_sample, 1, 100)
        self.seed = whole("seed", seed, 0, 2**63 - 1)
        self.max_bytes = whole("max_bytes", max_bytes, 1024, MAX_BLOCK_BYTES)
        self._reservoir = Reservoir(
            whole("reservoir", reservoir, 1, 10_000), whole("max_classes", max_classes, 1, 100_000)
        )
        if anchors == "class" and reservoir < 2:
            raise SettingsError(
                'reservoir must be at least 2 with anchors = "class", which needs two of one class'
            )
        self._wants = np.array([ANCHOR, MATE, OTHERS] if anchors == "class" else [OWN, OTHERS], np.int8)
        self._space = SampleSpace()
        self._fates = Fates("triplets", FATES, ("samples-erased", "classes-forgotten"))

    @property
    def algorithm(self) -> str:
        return _DRAWN_AS if self.per_sample == 1 else "random-triplets/2"

    @property
    def follows(self) -> tuple[type, ...]:
        return SampleBlock, ItemBlock

    @property
    def emits(self) -> frozenset[Kind]:
        return frozenset({Kind.TRIPLET})

    def counts(self) -> dict[str, int]:
        self._fates.set("classes-forgotten", self._reservoir.forgotten)
        return self._fates.as_dict()

    def space_bytes(self, event: Event) -> int:
        if not isinstance(event, SampleBlock):
            return 0
        return self._reservoir.bytes_with(labels_of(event)[0], row_bytes(event))

    def process(self, event: Event, origin: Origin) -> Made:
        if isinstance(event, ItemBlock):
            self._fates.add("samples-erased", self._reservoir.erase(event.tombstones))
            return Made()
        if not isinstance(event, SampleBlock):
            raise TypeError(f"random-triplets does not follow {type(event).__name__}")
        return Made(self._samples(event))

    def _samples(self, block: SampleBlock) -> list[ConstraintBlock]:
        labels, tables, packing = self._space.admit(
            block, self.max_bytes, Kind.TRIPLET, RULE, grouped=self.per_sample > 1
        )
        n, width = len(labels), len(self._wants)
        wants = np.tile(self._wants, (n, self.per_sample))
        draws = sample_draws(
            _DRAWN_AS, self.seed, block.space, self._reservoir.samples, n, 1 + 2 * wants.shape[1]
        )
        picks = self._reservoir.walk(labels, draws, wants)
        # The first pick without a result gives the reason.
        each = picks.fates.reshape(n, self.per_sample, width)
        fates = np.take_along_axis(each, (each != FOUND).argmax(axis=2)[:, :, None], axis=2)[:, :, 0]
        self._fates.meet(fates)
        rows, which = np.nonzero(fates == FOUND)
        picked = picks.references.reshape(n, self.per_sample, width)[rows, which]
        made = packing.blocks(
            Kind.TRIPLET,
            RULE,
            picked if self.anchors == "class" else np.column_stack([rows, picked]),
            partial(self._reservoir.tables, tables),
            block.time_ms,
            events=rows if self.per_sample > 1 else None,
        )
        self._reservoir.settle(tables, block.ids)
        return made

    def state(self) -> State:
        counts: State = {"counts": self._fates.state()}
        return self._space.state() | with_prefix("reservoir.", self._reservoir.state()) | counts

    def restore(self, state: State) -> None:
        self._space.restore(state)
        self._reservoir.restore(without_prefix("reservoir.", state))
        self._fates.restore(state["counts"])
