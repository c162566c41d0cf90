"""A uniform sample of the earlier samples of each class, and random picks from it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinstream.processors.base.builder import State
from kinstream.processors.base.id_table import Hashes, hashes
from kinstream.processors.base.packing import References
from kinstream.processors.samples.reservoir_kernels import (
    ANCHORS,
    NEWEST,
    OLDEST,
    TOTAL,
    USED,
    Classes,
    Numbers,
    build,
    walk,
    weigh,
)
from kinstream.streams.records.values import Table, Vectors

_LEAST_CLASSES: Final = 16
_LEAST_ROWS: Final = 16


class Picks(NamedTuple):
    """The picks of the samples of a block.

    Parameters
    ----------
    references : (n, p) row of the block if >= 0, else ~place in the reservoirs before the block.
    same : (n, p) whether it is of the sample's class.
    fates : (n, p) FOUND, or the reason for no pick; the other two are then undefined.
    """

    references: References
    same: NDArray[np.bool_]
    fates: NDArray[np.int8]


class Reservoir:
    """Up to `rows` samples of each of up to `max_classes` classes, from any number of samples.

    **Distribution.** Sample number t of its class (1, 2, ...) enters if t <= rows, and with probability rows / t after
    that, replacing a row drawn uniformly (algorithm R). So the rows of a class are a uniform sample, without
    replacement, of all its samples so far. A pick over several classes chooses a class in proportion to its number of
    samples, then one of its rows uniformly: over the draws, each earlier sample is picked with the same probability,
    for classes of any size and any share held. Each pick is uniform; picks from the same reservoir are not independent
    of each other, because they choose among the same rows. A draw below a count has a bias of at most count / 2^64.

    **Erasure.** A tombstone removes the rows of that name. Their places stay empty until a later sample draws one, with
    the probability of any place. So the rows remain a uniform, though smaller, sample of the samples that were not
    erased, whether or not an erased sample was held at the time. The reservoir cannot know of an erased sample that it
    does not hold. The weight of a class is therefore its number of samples times the share of its places that still
    hold one, rounded down: exact while all samples of the class are held, and without bias (except for the rounding)
    after that.

    **More classes.** A class beyond `max_classes` replaces the class whose newest sample is the oldest. The replaced
    class is forgotten completely, and begins again if it returns. Picks are then uniform over the samples of the
    remembered classes since they were last added.

    Parameters
    ----------
    rows : rows of a class, >= 1.
    max_classes : remembered classes, >= 1.

    Notes
    -----
    The caller gives draws by the sample's number, so that block boundaries have no effect. O(log max_classes) time per
    pick and per sample. Memory is that of the vectors held and 8 bytes for each place of a class in use; it grows with
    the samples up to these bounds.

    References
    ----------
    Vitter: Random sampling with a reservoir. ACM Transactions on Mathematical Software 11, 1985. (algorithm R)
    Fenwick: A new data structure for cumulative frequency tables. Software: Practice and Experience 24, 1994.

    Examples
    --------
    >>> import numpy as np
    >>> from kinstream.processors.base.draws import sample_draws
    >>> from kinstream.processors.samples.reservoir_kernels import ANY
    >>> from kinstream.streams.records.values import Table
    >>> reservoir = Reservoir(rows=2, max_classes=10)
    >>> labels = ["ball", "car", "ball", "ball"]
    >>> tables = (Table("x", np.eye(4, dtype=np.float32)),)
    >>> wants = np.full((4, 1), ANY, np.int8)
    >>> picks = reservoir.walk(labels, sample_draws("example", 0, "toys", 0, 4, 3), wants)
    >>> bool((picks.references[1:, 0] < np.arange(1, 4)).all())
    True
    >>> reservoir.settle(tables, None)
    >>> reservoir.held
    3
    """

    def __init__(self, rows: int, max_classes: int) -> None:
        self.rows = rows
        self.max_classes = max_classes
        self._clear(_LEAST_CLASSES)

    def _clear(self, capacity: int) -> None:
        #: Number of samples seen, and of classes forgotten.
        self.samples = self.forgotten = 0
        self._labels: list[Any] = []
        self._slots: dict[Any, int] = {}
        # The vectors are in any order; `_row_of` has the row of each place, -1 for an empty place.
        self._vectors: dict[str, Vectors] = {}
        self._keys: Hashes = np.zeros((0, 2), np.uint64)
        self._named = False
        self._free: list[int] = []
        self._touched: Numbers = np.empty(0, np.int64)
        self._gone: NDArray[np.int32] = np.empty(0, np.int32)
        self._row_of = np.empty(0, np.int32)
        self._fresh = np.empty(0, np.int32)
        self._classes = _classes(0)
        self._allot(capacity)

    def _allot(self, capacity: int) -> None:
        """Make room for `capacity` classes, a power of two."""
        old, used = self._classes, len(self._labels)
        self._classes = _classes(capacity)
        for name in ("seen", "held", "weight", "last", "older", "newer"):
            getattr(self._classes, name)[:used] = getattr(old, name)[:used]
        self._classes.sums[:] = old.sums
        self._sum()
        self._owner = np.full(capacity, -1, np.int32)
        self._fresh = np.full(capacity * self.rows, -1, np.int32)
        rows = np.full(capacity * self.rows, -1, np.int32)
        rows[: used * self.rows] = self._row_of[: used * self.rows]
        self._row_of = rows

    def _sum(self) -> None:
        classes, anchors = self._classes, (self._classes.held >= 2).astype(np.int64)
        build(classes.weights, classes.weight)
        build(classes.anchors, anchors)
        classes.sums[TOTAL], classes.sums[ANCHORS] = classes.weight.sum(), anchors.sum()

    @property
    def held(self) -> int:
        """The number of samples held."""
        return int(self._classes.held.sum())

    def bytes_with(self, labels: Sequence[Any], row_bytes: int) -> int:
        """Bytes of the vectors with samples of these labels, at most; 0 if they only replace others."""
        fresh = 0
        for label, count in Counter(labels).items():
            slot = self._slots.get(label)
            fresh += min(count, self.rows - (0 if slot is None else int(self._classes.held[slot])))
        # The store grows by doubling.
        return 2 * min(self.held + fresh, self.rows * self.max_classes) * row_bytes if fresh else 0

    def walk(self, labels: Sequence[Any], draws: NDArray[np.uint64], wants: NDArray[np.int8]) -> Picks:
        """Let each sample of a block pick among earlier ones, and then enter. Call `settle` afterwards.

        Parameters
        ----------
        labels : n labels.
        draws : (n, >= 1 + 2 p): where the sample goes, then two draws for each pick.
        wants : (n, p) ANY, OWN, OTHERS, ANCHOR or MATE of `kinstream.processors.samples.reservoir_kernels`.
        """
        numbers: dict[Any, int] = {}
        local = np.array([numbers.setdefault(label, len(numbers)) for label in labels], np.int32)
        slots = np.array([self._slots.get(label, -1) for label in numbers], np.int32)
        before = slots.copy()
        most = min(self.max_classes, len(self._labels) + int((slots < 0).sum()))
        if most > len(self._classes.held):
            self._allot(1 << (most - 1).bit_length())
        n, shape = len(local), wants.shape
        picks = Picks(np.empty(shape, np.int64), np.zeros(shape, np.bool_), np.empty(shape, np.int8))
        touched, forgotten = np.empty(n, np.int64), np.empty(n, np.int32)
        places, lost = walk(
            local,
            slots,
            draws,
            wants,
            self.rows,
            self.max_classes,
            self.samples,
            self._classes,
            self._owner,
            self._fresh,
            *picks,
            touched,
            forgotten,
        )
        self.samples += n
        self.forgotten += lost
        self._touched, self._gone = touched[:places], np.unique(forgotten[:lost])
        if lost or (before != slots).any():
            self._rename(list(numbers), slots)
        return picks

    def _rename(self, labels: list[Any], slots: NDArray[np.int32]) -> None:
        for slot in self._gone.tolist():
            # A slot that a class of this block held only temporarily has no label yet.
            if slot < len(self._labels):
                del self._slots[self._labels[slot]]
        self._labels += [None] * (int(self._classes.sums[USED]) - len(self._labels))
        for label, slot in zip(labels, slots.tolist(), strict=True):
            if slot >= 0:
                self._slots[label] = slot
                self._labels[slot] = label

    def tables(self, block: tuple[Table, ...], references: References) -> tuple[Table, ...]:
        """The vectors of distinct references in ascending order, between `walk` and `settle`."""
        rows = self._row_of[~references[references < 0]]
        new = references[references >= 0]
        return tuple(Table(t.name, np.concatenate([self._held(t)[rows], t.vectors[new]])) for t in block)

    def _held(self, table: Table) -> Vectors:
        return self._vectors.get(table.name, table.vectors[:0])

    def settle(self, tables: tuple[Table, ...], ids: Sequence[str] | None) -> None:
        """Store the vectors of the samples that entered.

        Parameters
        ----------
        tables : of the block.
        ids : names of its samples, or None.
        """
        touched, held = self._touched, self._classes.held
        kept = touched % self.rows < held[touched // self.rows]
        places, rows = touched[kept], self._fresh[touched[kept]]
        self._fresh[touched] = -1
        if len(self._gone):
            # Only a forgotten class has empty places that held a sample before the block.
            gone = (self._gone[:, None].astype(np.int64) * self.rows + np.arange(self.rows)).ravel()
            self._release(gone[(gone % self.rows >= held[gone // self.rows]) & (self._row_of[gone] >= 0)])
        at = self._row_of[places]
        missing = np.flatnonzero(at < 0)
        if len(missing):
            at[missing] = self._row_of[places[missing]] = self._take(len(missing), tables)
        for table in tables:
            self._vectors[table.name][at] = table.vectors[rows]
        if ids is not None:
            self._keys[at] = hashes([ids[row] for row in rows.tolist()])
            self._named |= len(at) > 0
        elif self._named:
            self._keys[at] = 0

    def _release(self, places: Numbers) -> None:
        rows = self._row_of[places]
        for vectors in self._vectors.values():
            vectors[rows] = 0
        self._keys[rows] = 0
        self._row_of[places] = -1
        self._free += rows.tolist()

    def _take(self, count: int, tables: tuple[Table, ...]) -> NDArray[np.int32]:
        """Rows for vectors; the store grows by doubling."""
        size = len(self._keys)
        if len(self._free) < count:
            more = max(count - len(self._free), size, _LEAST_ROWS)
            more = min(more, self.rows * self.max_classes - size)
            for table in tables:
                room = np.zeros((more, table.vectors.shape[1]), np.float32)
                self._vectors[table.name] = np.concatenate([self._held(table), room])
            self._keys = np.concatenate([self._keys, np.zeros((more, 2), np.uint64)])
            self._free += range(size + more - 1, size - 1, -1)
        taken = self._free[-count:]
        del self._free[-count:]
        return np.array(taken[::-1], np.int32)

    def erase(self, ids: Sequence[str]) -> int:
        """Remove the samples of these names; returns how many were held."""
        if not self._named or not ids:
            return 0
        names = hashes(ids)
        places, rows = self._in_use()
        suspects = np.flatnonzero(np.isin(self._keys[rows, 0], names[:, 0]))
        wanted = set(map(tuple, names.tolist()))
        found = [n for n in suspects.tolist() if tuple(self._keys[rows[n]].tolist()) in wanted]
        if not found:
            return 0
        lost = places[found]
        self._release(lost)
        for slot in np.unique(lost // self.rows).tolist():
            mine = self._row_of[slot * self.rows : (slot + 1) * self.rows]
            left = mine[mine >= 0]
            mine[:] = -1
            mine[: len(left)] = left
            weigh(self._classes, slot, self.rows, len(left))
        return len(found)

    def _in_use(self) -> tuple[Numbers, NDArray[np.int32]]:
        """Places that hold a sample, in order, and the rows of their vectors."""
        places = np.flatnonzero(self._row_of >= 0)
        return places, self._row_of[places]

    def state(self) -> State:
        """A copy of everything that later picks depend on."""
        used = len(self._labels)
        whole = all(isinstance(label, int) for label in self._labels)
        state: State = {
            "numbers": np.array([self.samples, self.forgotten], np.int64),
            "classes": np.array(self._labels, np.int64) if whole else json.dumps(self._labels),
            "seen": self._classes.seen[:used].copy(),
            "held": self._classes.held[:used].copy(),
            "last": self._classes.last[:used].copy(),
        }
        _, rows = self._in_use()
        state |= {f"vectors.{name}": vectors[rows] for name, vectors in self._vectors.items()}
        if self._named and self._keys[rows].any():
            state["keys"] = self._keys[rows]
        return state

    def restore(self, state: State) -> None:
        """The inverse of `state`; other entries are ignored."""
        raw = state["classes"]
        labels = raw.tolist() if isinstance(raw, np.ndarray) else json.loads(str(raw))
        used = len(labels)
        self._clear(max(_LEAST_CLASSES, 1 << max(0, used - 1).bit_length()))
        self.samples, self.forgotten = np.asarray(state["numbers"]).tolist()
        self._labels = labels
        self._slots = {label: slot for slot, label in enumerate(labels)}
        classes, held = self._classes, np.asarray(state["held"], np.int64)
        classes.seen[:used], classes.held[:used], classes.last[:used] = state["seen"], held, state["last"]
        full = np.minimum(classes.seen, self.rows)
        classes.weight[:] = classes.seen * classes.held // np.maximum(full, 1)
        self._sum()
        order = np.argsort(classes.last[:used])
        classes.older[order[1:]], classes.newer[order[:-1]] = order[:-1], order[1:]
        classes.sums[USED] = used
        if used:
            classes.sums[OLDEST], classes.sums[NEWEST] = order[0], order[-1]
        for name, value in state.items():
            if name.startswith("vectors."):
                self._vectors[name.removeprefix("vectors.")] = np.array(value, np.float32)
        count = int(held.sum())
        starts = np.arange(used) * self.rows
        ranks = np.arange(count) - np.repeat(np.cumsum(held) - held, held)
        self._row_of[np.repeat(starts, held) + ranks] = np.arange(count)
        self._keys = np.zeros((count, 2), np.uint64)
        if "keys" in state:
            self._keys[:] = np.asarray(state["keys"], np.uint64)
            self._named = True


def _classes(capacity: int) -> Classes:
    seen, held, weight, last = (np.zeros(capacity, np.int64) for _ in range(4))
    older, newer = (np.full(capacity, -1, np.int32) for _ in range(2))
    weights, anchors = (np.zeros(capacity + 1, np.int64) for _ in range(2))
    sums = np.array([0, 0, 0, -1, -1], np.int64)
    return Classes(seen, held, weight, last, older, newer, weights, anchors, sums)
