"""The first distinct vectors of a stream, for scales and for models that begin with them; and how far others may lie.

Statistics of a warm-up come from its vectors within **reach**: each feature at most `REACH` times its scale away from
its median. A feature's scale is the median of its distances from that, of the vectors that differ from it at all; where
few do, it is compared with those of other features, so that a fill value in a constant column is no scale. What lies
beyond is refused, but for numbers up to `SMALL` from the median. Of the vectors within reach, far values are cut before
they count, unless they are many.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import State
from kinstream.learners.kernels.ensembles.windows import (
    CUT,
    CUT_SPARSE,
    DIFFER,
    LEAST,
    REACH,
    SHARE,
    SMALL,
    is_even,
    many,
    moments,
)

_CONSTRAINTS_PER_ROW: Final = 4
_DIGEST: Final = 16

Rows = NDArray[np.floating[Any]]
Features = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: Vectors in which far values tell nothing yet.
FEW: Final = 8


class Buffer:
    """Distinct vectors in the order in which constraints name them.

    From 8 vectors on, it can tell which others are out of their reach; what it takes for their scales is renewed
    whenever it holds twice as many. It keeps vectors out of reach as well, in case most turn out to be like them, but
    they are not among `rows`.

    Parameters
    ----------
    warm_up : vectors to keep. The buffer also counts as full after four times as many constraints.
    """

    def __init__(self, warm_up: int) -> None:
        self.warm_up = warm_up
        #: None stands for a vector of a state that held its digest alone.
        self._seen: dict[bytes, Features | None] = {}
        self._constraints = 0
        self._scales: tuple[Features, Features] | None = None

    def __len__(self) -> int:
        return len(self._seen)

    @property
    def full(self) -> bool:
        """Whether it is full."""
        return len(self._seen) >= self.warm_up or self._constraints >= _CONSTRAINTS_PER_ROW * self.warm_up

    @property
    def rows(self) -> Features:
        """(k, D) the vectors so far that are within reach, with far values cut; at least one was observed."""
        return tempered(self._vectors())

    @property
    def whole(self) -> bool:
        """Whether it holds all vectors that it has seen."""
        return all(row is not None for row in self._seen.values())

    def observe(self, points: Features) -> list[Features]:
        """Take the vectors (k, D) of one constraint, unless it is full; returns those that are new."""
        return [] if self.full else self.take(points)

    def take(self, points: Features) -> list[Features]:
        """The same after any number of constraints."""
        new = []
        # Adding zero makes -0 and 0 one value.
        for row in points + 0.0:
            digest = blake2b(row.tobytes(), digest_size=_DIGEST).digest()
            if len(self._seen) < self.warm_up and digest not in self._seen:
                kept = row.copy()
                self._seen[digest] = kept
                new.append(kept)
                self._measure()
        self._constraints += 1
        return new

    @property
    def tells(self) -> bool:
        """Whether it can tell which vectors are out of reach."""
        return self._scales is not None

    def beyond(self) -> Features:
        """(k, D) the vectors that it holds and that are out of reach."""
        rows = self._vectors()
        return rows[~self.within(rows)]

    def within(self, X: Features) -> NDArray[np.bool_]:
        """(n,) vectors (n, D) that are within reach, as far as it can be told yet."""
        if self._scales is None:
            return np.asarray(np.isfinite(X).all(axis=1))
        return within(X, *self._scales)

    def clear(self) -> None:
        """Forget the vectors."""
        self._seen, self._scales = {}, None

    def state(self) -> State:
        """The vectors and the number of constraints."""
        state: State = {"constraints": self._constraints}
        digests = [digest for digest, row in self._seen.items() if row is None]
        if digests:
            state["digests"] = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, _DIGEST).copy()
        return state | {"rows": self._vectors()} if len(digests) < len(self._seen) else state

    def restore(self, state: State) -> None:
        """Continue from `state()`."""
        self._constraints = int(state["constraints"])
        digests = np.asarray(state.get("digests", np.empty((0, _DIGEST), np.uint8)))
        rows = np.asarray(state.get("rows", np.empty((0, 0))), np.float64)
        self._seen, self._scales = {digest.tobytes(): None for digest in digests}, None
        for row in rows:
            self._seen[blake2b(row.tobytes(), digest_size=_DIGEST).digest()] = row.copy()
            self._measure()

    def _vectors(self) -> Features:
        return np.array([row for row in self._seen.values() if row is not None])

    def _measure(self) -> None:
        if len(self._seen) >= FEW and len(self._seen).bit_count() == 1 and self.whole:
            self._scales = scales_of(self._vectors())


def scales_of(X: Features) -> tuple[Features, Features]:
    """Middle and scale (d,) of each feature of vectors (n, d), n at least 1; the scale is 0 if it does not vary."""
    with np.errstate(all="ignore"):
        middle = np.median(X, axis=0)
        apart = np.sort(np.abs(X - middle), axis=0)
    differ = np.count_nonzero(apart, axis=0)
    # The smaller of two middle values, which a far one cannot change.
    place = np.minimum(len(X) - differ + (differ - 1) // 2, len(X) - 1)
    scale = np.where(differ > 0, np.take_along_axis(apart, np.maximum(place, 0)[None], axis=0)[0], 0.0)
    solid = differ >= max(DIFFER, SHARE * len(X))
    usual = _usual(scale[solid] if solid.any() else scale)
    return middle, np.where(~solid & (scale > REACH * usual), usual, scale)


def within(X: Rows, middle: Features, scale: Features) -> Flags:
    """(n,) vectors (n, d) that are finite and within reach; any, where no feature has a scale.

    Parameters
    ----------
    middle, scale : (d,) of features; one with a small scale has the usual one of all.
    """
    usual = _usual(scale)
    if usual == 0.0:
        return np.asarray(np.isfinite(X).all(axis=1))
    least = np.maximum(usual, LEAST * np.abs(middle))
    with np.errstate(all="ignore"):
        reach = np.maximum(REACH * np.maximum(scale, least), SMALL)
        return np.asarray((np.abs(X - middle) <= reach).all(axis=1))


def reachable(X: Features) -> Flags:
    """(n,) vectors (n, d) within reach of the others.

    If most are out of reach, values are, not vectors: then all of them count.
    """
    near = within(X, *scales_of(X))
    return near if 2 * np.count_nonzero(near) >= len(X) else np.ones(len(X), np.bool_)


def tempered(X: Features) -> Features:
    """The vectors (n, d) within reach of the others, with far values cut; all if they are few."""
    if len(X) < FEW:
        return X
    near = reachable(X)
    return cut(X if near.all() else X[near])


def cut(X: Features) -> Features:
    """Vectors (n, d) with values not too far from their middle; as they are if they are few.

    A feature of which `many` values would be cut has a scale of rounding: its scale is then the distance that so many
    reach. Nor is a number up to `SMALL` from the middle cut where the scale is below a millionth.
    """
    if len(X) < FEW:
        return X
    middle, scale = scales_of(X)
    dense = 2 * np.count_nonzero(middle != X, axis=0) > len(X)
    times = np.where(dense, CUT, CUT_SPARSE)
    with np.errstate(all="ignore"):
        wide = np.sort(np.abs(X - middle), axis=0)[-many(len(X))]
        most = times * np.where(wide > times * scale, wide, scale)
        most = np.where(scale * REACH < SMALL, np.maximum(most, SMALL), most)
        low, high = middle - most, middle + most
    far = ((low > X) | (high < X)) & (scale > 0.0)
    return np.where(far, np.clip(X, low, high), X) if far.any() else X


def holding(vectors: Rows, index: NDArray[np.int32], beyond: Features) -> Flags:
    """(m,) constraints (m, k) of vectors (n, d) that hold one of some others."""
    if not len(beyond):
        return np.zeros(len(index), np.bool_)
    rows = (vectors[:, None, :] == beyond).all(axis=2).any(axis=1)
    return np.asarray(rows[index].any(axis=1))


def temper(kept: Features, sums: Features) -> None:
    """Let the sums of a window (`kinstream.learners.kernels.ensembles.windows`) be those of its vectors, tempered.

    Parameters
    ----------
    kept : (n, d) its vectors; none if they are not known.
    sums : (4, d), changed in place.
    """
    if len(kept) < FEW or is_even(kept):
        return
    found = tempered(kept)
    if found is kept:
        return
    moments(np.ascontiguousarray(found), sums)
    # Sums of squares are divided by the number of all vectors.
    sums[1] *= len(kept) / len(found)


def _usual(scale: Features) -> float:
    """The median of the scales that are none, 0 if all are."""
    known = scale[(scale > 0.0) & np.isfinite(scale)]
    return float(np.median(known)) if len(known) else 0.0
