"""The metric of a mixture: the maps of its members by part, added up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import Rows
from kinstream.learners.base.one_modality import SingleModal
from kinstream.learners.mixture.joint_map import joined, shortest
from kinstream.learners.mixture.views import View
from kinstream.streams.compute.blas_threads import one_blas_thread

Vector = NDArray[np.float64]
#: Views of vectors z, each with a matrix (k, d) for what it shows.
Metric = list[tuple[View, Rows]]


@dataclass(frozen=True, slots=True, eq=False)
class Component:
    """One metric of a mixture.

    Parameters
    ----------
    view : name of what it sees.
    learner : is handed that.
    learns : false for an un-learned metric.
    """

    name: str
    view: str
    learner: SingleModal
    learns: bool

    @property
    def part(self) -> str:
        """Members of one part are linear maps of the same coordinates: of z, of z within bounds, or of directions."""
        if self.view in ("cosine", "zscore-cosine"):
            return self.view
        return "plain" if self.view == "one-scale" else "bounded"


def shown(part: str, views: Mapping[str, View]) -> View:
    """What a part sees: members of one part see the same vectors, and the scale of each is in its matrix."""
    if part in ("cosine", "zscore-cosine"):
        return views[part]
    bounded = views["zscore"].bounded
    d = len(views["zscore"].factor)
    return View(np.zeros(d), np.ones(d), bounded=bounded if part == "bounded" else None)


def together(
    members: Sequence[Component], shares: Vector, views: Mapping[str, View], sample: Rows, rank: int
) -> dict[str, Rows]:
    """The matrices of the members by part, as one map with few columns.

    Parameters
    ----------
    shares : (N,) of each member's squared distance in that of the metric.
    sample : (n, d) vectors z; see `kinstream.learners.mixture.joint_map.joined`.
    rank : columns at most.
    """
    stacks: dict[str, list[Rows]] = {}
    for member, share in zip(members, shares, strict=True):
        if share == 0.0:
            continue
        view = views[member.view]
        matrix = np.asarray(member.learner.map, np.float64) if member.learns else np.eye(sample.shape[1])
        if not view.directions:
            matrix = matrix * view.factor
        stacks.setdefault(member.part, []).append(float(np.sqrt(share)) * matrix)
    with one_blas_thread():
        parts = [(shown(part, views), shortest(np.concatenate(stack))) for part, stack in stacks.items()]
        found = joined(parts, sample, rank)
    names = {id(view): part for (view, _), part in zip(parts, stacks, strict=True)}
    return {names.get(id(view), "plain"): matrix for view, matrix in found}


def added(Z: Rows, metric: Metric, dtype: str) -> Rows:
    """(n, k) what the metric makes of vectors z (n, d)."""
    return np.asarray(sum(view.apply(Z) @ matrix.T for view, matrix in metric), dtype)


def margins(mapped: Rows, index: NDArray[np.int32]) -> Vector:
    """(m,) of triplets of mapped vectors (n, k): squared distance to the negative less that to the positive."""
    x, near, far = (mapped[column].astype(np.float64) for column in index.T)
    with np.errstate(all="ignore"):
        return np.asarray(np.einsum("ij,ij->i", x - far, x - far) - np.einsum("ij,ij->i", x - near, x - near))


def arrays(metric: Metric) -> tuple[dict[str, Rows], list[dict[str, str]]]:
    """The metric as arrays by name, and its parts; see docs/mixture.md."""
    found: dict[str, Rows] = {}
    parts = []
    for k, (view, matrix) in enumerate(metric):
        own: dict[str, Rows] = {"map": matrix}
        if view.bounded is not None:
            own |= {"low": view.bounded[0], "high": view.bounded[1]}
        if view.directions:
            own |= {"offset": view.offset, "scale": view.factor, "least": np.array(view.least)}
        found |= {f"{name}.{k}": array for name, array in own.items()}
        name = "directions" if view.directions else "plain"
        parts.append({"view": name} | {name: f"{name}.{k}" for name in own})
    return found, parts
