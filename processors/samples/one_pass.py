"""One-pass triplets from labelled samples (OPML paper, Li et al. 2018)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np

from kinstream.processors.base.builder import MAX_BLOCK_BYTES, Made, Origin, State
from kinstream.processors.base.draws import below, block_draws
from kinstream.processors.base.packing import References
from kinstream.processors.base.validation import one_of, whole
from kinstream.processors.samples.sample_layout import SampleSpace, labels_of, row_bytes
from kinstream.streams.errors import SettingsError
from kinstream.streams.records.values import (
    PREFIX_RULE,
    ConstraintBlock,
    Event,
    ItemBlock,
    Kind,
    SampleBlock,
    Table,
    Vectors,
)

RULE: Final = "one-pass"
NEGATIVES: Final = ("random", "official")


class OnePass:
    """One triplet for each sample of a known class, in O(d) per sample.

    H holds the latest sample of each class. A sample x of a known class k gives the triplet (x, H[k], negative) once
    two classes are known, and then replaces H[k]. While exactly one class is known, it gives the pair (previous sample,
    x) instead, which COPML learns from. The first sample of a class gives nothing.

    Parameters
    ----------
    negatives : how the negative is chosen.

        - "random", as in the paper: H[k'] for k' uniform over the known classes other than k.
        - "official", as in the released code: the previous sample if it is of another class, otherwise the latest
          sample of the class that appeared last (or of the one before it, if that is k).
    prefix_pairs : whether to give pairs while one class is known.
    seed : of the random choice, which depends only on the seed and the identity of the sample.
    max_bytes : no encoded block is larger.

    Raises
    ------
    kinstream.streams.errors.SettingsError
        A setting is out of range.

    Notes
    -----
    A space has one label type, one set of modalities and one dimension for each: those of its first block.
    O(c d) memory for c classes. A tombstone of an item erases the sample of that name; its class gives no triplet until
    its next sample, as if it were new.

    References
    ----------
    Li, Gao, Wang, Zhou, Huo, Shi: OPML: A one-pass closed-form solution for online metric learning. Pattern
    Recognition 75, 2018. Section 3.1, and Algorithm 2 for the pairs.

    Examples
    --------
    >>> import numpy as np
    >>> from kinstream.processors.base.builder import Origin
    >>> from kinstream.processors.samples.one_pass import OnePass
    >>> from kinstream.streams.records.values import SampleBlock, Table
    >>> vectors = np.eye(4, dtype=np.float32)
    >>> block = SampleBlock("toys", (Table("x", vectors),), ("ball", "ball", "car", "ball"), time_ms=0)
    >>> pairs, triplets = OnePass().process(block, Origin(offset=0)).blocks
    >>> pairs.index.tolist(), triplets.index.tolist()
    ([[0, 1]], [[2, 0, 1]])
    >>> triplets.tables[0].vectors.argmax(axis=1).tolist()
    [1, 2, 3]
    """

    algorithm: ClassVar[str] = "one-pass/1"

    def __init__(
        self,
        negatives: str = "random",
        prefix_pairs: bool = True,
        seed: int = 0,
        max_bytes: int = MAX_BLOCK_BYTES,
    ) -> None:
        if not isinstance(prefix_pairs, bool):
            raise SettingsError(f"prefix_pairs must be true or false, not {prefix_pairs!r}")
        self.negatives = one_of("negatives", negatives, NEGATIVES)
        self.prefix_pairs = prefix_pairs
        self.seed = whole("seed", seed, 0, 2**63 - 1)
        self.max_bytes = whole("max_bytes", max_bytes, 1024, MAX_BLOCK_BYTES)
        # A class is identified by its number, the place of its first appearance; row k of H is its latest sample. The
        # store grows by doubling.
        self._classes: dict[int | str, int] = {}
        self._latest: dict[str, Vectors] = {}
        self._space = SampleSpace()
        self._previous = -1
        # Names of the latest samples, if they have one, and the classes whose latest sample was erased.
        self._ids: dict[int, str] = {}
        self._empty: set[int] = set()

    @property
    def follows(self) -> tuple[type, ...]:
        return SampleBlock, ItemBlock

    @property
    def emits(self) -> frozenset[Kind]:
        return frozenset({Kind.TRIPLET, Kind.PAIR} if self.prefix_pairs else {Kind.TRIPLET})

    def counts(self) -> dict[str, int]:
        return {}

    def process(self, event: Event, origin: Origin) -> Made:
        if isinstance(event, ItemBlock):
            self._erase(event.tombstones)
            return Made()
        if not isinstance(event, SampleBlock):
            raise TypeError(f"one-pass does not follow {type(event).__name__}")
        return Made(self._samples(event, origin.offset))

    def space_bytes(self, event: Event) -> int:
        if not isinstance(event, SampleBlock):
            return 0
        fresh = len(set(labels_of(event)[0]) - self._classes.keys())
        # The store grows by doubling.
        return 2 * (len(self._classes) + fresh) * row_bytes(event) if fresh else 0

    def _erase(self, ids: Sequence[str]) -> None:
        """Forget the vectors of items; a class that loses its sample waits for its next one."""
        gone = set(ids)
        for owner in [owner for owner, name in self._ids.items() if name in gone]:
            del self._ids[owner]
            self._empty.add(owner)
            for held in self._latest.values():
                held[owner] = 0

    def _samples(self, block: SampleBlock, offset: int) -> list[ConstraintBlock]:
        labels, tables, packing = self._space.admit(block, self.max_bytes, Kind.TRIPLET, RULE)
        latest, pairs, triplets = self._walk(labels, block, offset)

        def vectors(references: References) -> tuple[Table, ...]:
            old = ~references[references < 0]
            new = references[references >= 0]
            return tuple(Table(t.name, np.concatenate([self._held(t)[old], t.vectors[new]])) for t in tables)

        made = packing.blocks(Kind.PAIR, PREFIX_RULE, pairs, vectors, block.time_ms)
        made += packing.blocks(Kind.TRIPLET, RULE, triplets, vectors, block.time_ms)
        self._remember(latest, tables, block.ids)
        return made

    def _walk(
        self, labels: list[Any], block: SampleBlock, offset: int
    ) -> tuple[dict[int, int], References, References]:
        """Apply the rule of the class, row by row.

        A reference r >= 0 is a row of the block, and ~k < 0 is H[k] before the block.

        Returns
        -------
        The last row of each class in the block, references of the pairs (m, 2), and of the triplets (n, 3).
        """
        classes = self._classes
        previous = self._previous
        official = self.negatives == "official"
        draws = [] if official else block_draws(self.algorithm, self.seed, block, offset, len(labels))
        latest: dict[int, int] = {}
        empty = self._empty
        pairs: list[tuple[int, int]] = []
        triplets: list[tuple[int, int, int]] = []
        known = len(classes)
        for row, label in enumerate(labels):
            own = classes.get(label)
            if own is None:
                own = classes[label] = known
                known += 1
            elif empty and own in empty:
                empty.discard(own)
            elif known == 1:
                pairs.append((latest.get(0, ~0), row))
            elif empty:
                # Erased samples are skipped, as if their classes were unknown.
                others = [k for k in range(known) if k != own and k not in empty]
                if official:
                    others = [previous] if previous in others else others[-1:]
                if others:
                    other = others[0] if official else others[below(draws[row], len(others))]
                    triplets.append((row, latest.get(own, ~own), latest.get(other, ~other)))
            else:
                if not official:
                    other = below(draws[row], known - 1)
                    other += other >= own
                elif previous != own:
                    other = previous
                else:
                    other = known - 1 if own != known - 1 else known - 2
                triplets.append((row, latest.get(own, ~own), latest.get(other, ~other)))
            latest[own] = row
            previous = own
        self._previous = previous
        if not self.prefix_pairs:
            pairs = []
        return latest, np.array(pairs, np.int64).reshape(-1, 2), np.array(triplets, np.int64).reshape(-1, 3)

    def _held(self, table: Table) -> Vectors:
        return self._latest.get(table.name, table.vectors[:0])

    def _remember(
        self, latest: dict[int, int], tables: tuple[Table, ...], ids: tuple[str, ...] | None
    ) -> None:
        """H[k] <- the last row of class k, and its name if it has one."""
        if ids is not None:
            self._ids.update({owner: ids[row] for owner, row in latest.items()})
        elif self._ids:
            for owner in latest:
                self._ids.pop(owner, None)
        owners, rows = np.array(list(latest), np.intp), np.array(list(latest.values()), np.intp)
        for table in tables:
            held = self._held(table)
            if len(held) < len(self._classes):
                grown = np.empty((max(len(self._classes), 2 * len(held)), table.vectors.shape[1]), np.float32)
                grown[: len(held)] = held
                held = self._latest[table.name] = grown
            held[owners] = table.vectors[rows]

    def state(self) -> State:
        classes = list(self._classes)
        state = self._space.state() | {
            "classes": np.array(classes, np.int64) if self._space.labels is int else json.dumps(classes),
            "previous": self._previous,
        }
        for name, _ in self._space.modalities:
            state[f"latest.{name}"] = self._latest[name][: len(classes)].copy()
        if self._ids:
            state["ids"] = json.dumps([self._ids.get(owner) for owner in range(len(classes))])
        if self._empty:
            state["empty"] = np.array(sorted(self._empty), np.int64)
        return state

    def restore(self, state: State) -> None:
        self._space.restore(state)
        raw = state["classes"]
        labels: list[int | str] = raw.tolist() if isinstance(raw, np.ndarray) else json.loads(str(raw))
        self._classes = {label: number for number, label in enumerate(labels)}
        self._latest = {
            name: np.array(state[f"latest.{name}"], np.float32) for name, _ in self._space.modalities
        }
        self._previous = int(state["previous"])
        ids = json.loads(str(state.get("ids", "[]")))
        self._ids = {owner: name for owner, name in enumerate(ids) if name is not None}
        self._empty = {int(owner) for owner in np.asarray(state.get("empty", ()))}
