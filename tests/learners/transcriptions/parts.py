"""What the transcriptions share: the report of a step, the relative zero test, projection and soft threshold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, TypedDict

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

#: Always relative.
EPS: Final = 1e-12


class Report(TypedDict):
    """What one step reports, all by the state before it.

    Parameters
    ----------
    mistake : None where undefined.
    loss, size : the loss, and the sum of the magnitudes that it is a difference of (its rounding is relative to
        that).
    utilised, clipped, degenerate : as in docs/learning.md, "What is reported".
    rejected : the new state would not have been finite; the state is the old one.
    edge : relative distance from the nearest hinge, threshold or branch. Another order of the same sums may take
        the other side where it is tiny; exact ties, such as those of equal vectors, are no edges.
    """

    mistake: bool | None
    loss: float
    size: float
    utilised: bool
    clipped: bool
    degenerate: bool
    rejected: bool
    edge: float


def report(mistake: bool | None, loss: float, size: float, edge: float) -> Report:
    """A report of a step that changed nothing yet."""
    return {
        "mistake": mistake,
        "loss": float(loss),
        "size": float(size),
        "utilised": False,
        "clipped": False,
        "degenerate": False,
        "rejected": False,
        "edge": float(edge),
    }


def apart(left: float, right: float) -> float:
    """Relative distance of two numbers that are compared; 0 where they are equal."""
    if left == right:
        return 0.0
    size = abs(left) + abs(right)
    return max(abs(left - right) / size, EPS) if np.isfinite(size) else EPS


def nearest(*distances: float) -> float:
    """Of several distances from edges, exact ties aside."""
    return min((d for d in distances if d > 0.0), default=1.0)


def zero_difference(u: Vector, v: Vector) -> bool:
    """zz <= 1e-24 max(uu, vv), or zz < 1e-300."""
    z = u - v
    zz = z @ z
    return bool(zz < 1e-300 or zz <= EPS**2 * (u @ u) or zz <= EPS**2 * (v @ v))


def difference(u: Vector, v: Vector) -> Vector:
    """u - v, and 0 for a zero difference: what is left of it is rounding, and ranks nothing."""
    return np.zeros_like(u) if zero_difference(u, v) else u - v


def zero_vector(x: Vector) -> bool:
    """A vector with no direction at any scale."""
    return bool(x @ x < 1e-300)


def psd(M: Matrix) -> Matrix:
    """Frobenius projection on the cone of positive semi-definite matrices."""
    e, V = np.linalg.eigh((M + M.T) / 2.0)
    return np.asarray((V * np.maximum(e, 0.0)) @ V.T)


def soft(x: Any, threshold: Any) -> Any:
    """sign(x) max(|x| - threshold, 0), elementwise."""
    return np.sign(x) * np.maximum(np.abs(x) - threshold, 0.0)


class Transcription:
    """An algorithm in the form of its paper. `NAMES` are the attributes that make its state.

    Subclasses keep state that the product may hold in another form (counters, sums) under further attributes, named
    in `HIDDEN`.
    """

    NAMES: tuple[str, ...] = ()
    HIDDEN: tuple[str, ...] = ()

    def __init__(self) -> None:
        #: Largest entries on the way through the last step, of what `comparable` names: a projection may leave
        #: much smaller ones, whose rounding is that of the large.
        self.reach: dict[str, float] = {}
        #: Largest of the matrices' so far.
        self.peak = 0.0

    def reached(self, name: str, *values: Any) -> None:
        """Note the entries of intermediate matrices."""
        largest = max(float(np.abs(value).max()) for value in values)
        self.reach[name] = max(self.reach.get(name, 0.0), largest)
        if any(np.ndim(value) == 2 for value in values):
            self.peak = max(self.peak, largest)

    def state(self) -> dict[str, Any]:
        """Copies of the entries that the product's state has too."""
        return {name: np.array(getattr(self, name), np.float64) for name in self.NAMES}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over the entries that the product's state has too; the hidden ones stay."""
        for name in self.NAMES:
            value = np.array(state[name], np.float64)
            setattr(self, name, float(value) if value.ndim == 0 else value)

    def comparable(self, state: Mapping[str, Any]) -> dict[str, Matrix]:
        """A state, this one's or the product's, in a form in which equal models have equal entries."""
        return {name: np.asarray(state[name], np.float64) for name in self.NAMES}

    def committed(self, found: Report, step: Callable[[], None]) -> Report:
        """Take a step, unless it leaves the finite numbers: then the state stays as it was."""
        names = (*self.NAMES, *self.HIDDEN)
        found["rejected"] = True
        self.reach = {}
        before = {name: _copy(getattr(self, name)) for name in names}
        with np.errstate(all="ignore"), suppress(np.linalg.LinAlgError):
            step()
            found["rejected"] = False
        if found["rejected"] or not all(_finite(getattr(self, name)) for name in names):
            for name, value in before.items():
                setattr(self, name, value)
            found["rejected"], found["utilised"], found["clipped"] = True, False, False
        return found


class PairTranscription(Transcription):
    """Learns from pairs (u, v, sign)."""

    def distance(self, u: Vector, v: Vector) -> float:
        """Learned squared distance."""
        raise NotImplementedError

    def beside(self, yhat: float, level: float, z: Vector) -> float:
        """Relative distance of z' A z and a level. Where A was large before, yhat is its rounding at least."""
        if yhat == level:
            return 0.0 if self.peak == 0.0 or not z.any() else EPS
        size = abs(yhat) + abs(level) + 1e-7 * self.peak * float(z @ z)
        return max(abs(yhat - level) / size, EPS) if np.isfinite(size) else EPS

    def pair(
        self, u: Vector, v: Vector, sign: int, target: float | None = None, threshold: float | None = None
    ) -> Report:
        """One step."""
        raise NotImplementedError

    def triplet(
        self,
        x: Vector,
        positive: Vector,
        negative: Vector,
        targets: tuple[float | None, float | None] = (None, None),
        threshold: float | None = None,
    ) -> Report:
        """The two pairs of a triplet, (x, x+) and then (x, x-), as one constraint.

        Its mistake is the wrong ranking before both steps. Targets are y_S and y_D.
        """
        near, far = self.distance(x, positive), self.distance(x, negative)
        same = np.array_equal(positive, negative)
        longest = max((x - positive, x - negative), key=lambda z: float(z @ z))
        ranking = 0.0 if same else self.beside(near, far, longest)
        first = self.pair(x, positive, 1, targets[0], threshold)
        second = self.pair(x, negative, -1, targets[1], threshold)
        both = (first, second)
        found = report(
            near >= far,
            first["loss"] + second["loss"],
            first["size"] + second["size"],
            nearest(ranking, first["edge"], second["edge"]),
        )
        found["utilised"] = any(r["utilised"] for r in both)
        found["clipped"] = any(r["clipped"] for r in both)
        found["rejected"] = all(r["rejected"] for r in both)
        found["degenerate"] = any(r["degenerate"] for r in both) and not found["utilised"]
        return found


class TripletTranscription(Transcription):
    """Learns from triplets."""

    def triplet(self, x: Any, positive: Any, negative: Any) -> Report:
        """One step; dictionaries of vectors where there are several modalities."""
        raise NotImplementedError


def dense(values: Iterable[Any]) -> list[Vector]:
    """Vectors in float64."""
    return [np.asarray(value, np.float64) for value in values]


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copy(entry) for name, entry in value.items()}
    return value.copy() if isinstance(value, np.ndarray) else value


def _finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_finite(entry) for entry in value.values())
    return bool(np.isfinite(value).all())
