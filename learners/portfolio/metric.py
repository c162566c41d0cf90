"""The metric of a portfolio: those of its members side by side, by their weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.distances import spread
from kinstream.learners.oahu.learner import OAHU
from kinstream.learners.portfolio.members import Member
from kinstream.learners.shared.scaler import UnitLength
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.errors import SettingsError

Rows = NDArray[np.floating[Any]]
Matrix = NDArray[np.float64]

#: The input of a linear member: scaled vectors z, or their directions z / |z|.
VIEWS: Final = ("plain", "directions")
_DIRECTIONS: Final = UnitLength()


@dataclass(frozen=True, eq=False)
class Metric:
    """A map of scaled vectors whose squared Euclidean distances are sum_i w_i D_i^2 / s_i over the members i.

    Parameters
    ----------
    stacks : by view, the matrices of its linear members, each times the root of w_i / s_i.
    others : members that are not linear maps, with the root of w_i / s_i.
    """

    stacks: dict[str, list[Matrix]]
    others: tuple[tuple[Member, float], ...]

    @cached_property
    def maps(self) -> dict[str, Matrix]:
        """By view, the (k, d) matrix that all linear members of that view make together."""
        return {view: _root(stack) for view, stack in self.stacks.items()}

    def distance(self, left: Rows, right: Rows) -> Matrix:
        """Squared distances (n,) of scaled vectors, member by member; this avoids the maps, which take O(d^3)."""
        found = np.zeros(len(left))
        with np.errstate(all="ignore"), one_blas_thread():
            for view, stack in self.stacks.items():
                moved = seen(view, np.asarray(left, np.float64)) - seen(view, np.asarray(right, np.float64))
                for matrix in stack:
                    mapped = moved @ matrix.T
                    found += np.einsum("ij,ij->i", mapped, mapped)
            for member, factor in self.others:
                mapped = factor * (member.learner.transform(left) - member.learner.transform(right))
                found += np.einsum("ij,ij->i", mapped, mapped)
        return found

    def apply(self, Z: Rows) -> Rows:
        """Scaled vectors (n, d) under the metric, float64."""
        wide = np.asarray(Z, np.float64)
        with np.errstate(all="ignore"):
            found: list[Rows] = [seen(view, wide) @ matrix.T for view, matrix in self.maps.items()]
            found += [factor * member.learner.transform(Z) for member, factor in self.others]
        return np.concatenate(found, axis=1, dtype=np.float64)


def seen(view: str, Z: Rows) -> Rows:
    """Scaled vectors (n, d) under a view."""
    return Z if view == "plain" else _DIRECTIONS.apply(Z)


def together(members: Sequence[Member], weights: Sequence[float], sample: Matrix) -> Metric:
    """The metric of some members by their weights.

    A member's squared distances are divided by s_i, their standard deviation from one vector of the sample (n, d) to
    the others, so weights have the same effect for all members: the order of neighbours depends on differences of
    distances. A member that separates nothing in the sample, or maps it to values that are not finite, is excluded; if
    none remains, the metric is Euclidean distance.
    """
    stacks: dict[str, list[Matrix]] = {}
    others: list[tuple[Member, float]] = []
    for member, weight in zip(members, weights, strict=True):
        if weight <= 0.0 or member.learner.dimension is None:
            continue
        matrix = _matrix(member)
        with np.errstate(all="ignore"):
            mapped = (
                member.learner.transform(sample) if matrix is None else seen(_view(member), sample) @ matrix.T
            )
            apart = spread(np.asarray(mapped, np.float64))
            factor = np.sqrt(weight / apart) if apart > 0.0 else np.inf
        if not 0.0 < factor < np.inf:
            continue
        if matrix is None:
            others.append((member, float(factor)))
        else:
            stacks.setdefault(_view(member), []).append(factor * matrix)
    if not stacks and not others:
        return Metric({"plain": [np.eye(sample.shape[1])]}, ())
    return Metric({view: stacks[view] for view in VIEWS if view in stacks}, tuple(others))


def arrays(metric: Metric) -> tuple[dict[str, Rows], list[dict[str, str]]]:
    """A metric as arrays by name, and their use; see docs/portfolio.md.

    Returns
    -------
    arrays, parts
        Each part has `view`, and either `map`, the name of an array, or `network`, the prefix of a network's arrays.

    Raises
    ------
    SettingsError
        A member is neither a linear map nor a network.
    """
    found: dict[str, Rows] = {f"map.{view}": matrix for view, matrix in metric.maps.items()}
    parts: list[dict[str, str]] = [{"view": view, "map": f"map.{view}"} for view in metric.maps]
    for member, factor in metric.others:
        learner = member.learner
        if not isinstance(learner, OAHU):
            raise SettingsError(f"{learner.algorithm} (members.{member.name}) has no export")
        if learner.anchors or learner.scaler != "none":
            raise SettingsError(
                f"members.{member.name} has no export: of OAHU in a portfolio there is one without anchors and scaler"
            )
        network = _network(learner, factor)
        found |= {f"network.{member.name}.{name}": array for name, array in network.items()}
        parts.append({"view": "plain", "network": f"network.{member.name}"})
    return found, parts


def _network(learner: OAHU, factor: float) -> dict[str, Rows]:
    """Theta0 .. ThetaL, W1 .. WL, b1 .. bL, `factor` (L + 1,) of the embeddings, and `lift` (0 or 1,), the constant."""
    state = learner.state()
    found: dict[str, Rows] = {
        name: np.asarray(value) for name, value in state.items() if name[0] in "TWb" and name[-1].isdigit()
    }
    count, total = int(state["lift_count"]), float(state["lift_sum"])
    constant = np.sqrt(float(state["lift"]) * (total / count if total > 0.0 else 1.0))
    found["lift"] = np.array([constant] if constant > 0.0 else [])
    found["factor"] = factor * np.sqrt(list(learner.weights.values()))
    return found


def _matrix(member: Member) -> Matrix | None:
    """The map of a member behind its view; None if it is not a linear map."""
    try:
        return np.asarray(member.learner.map, np.float64)
    except SettingsError:
        return None


def _view(member: Member) -> str:
    return "directions" if member.learner.scaler == "unit" else "plain"


def _root(stack: list[Matrix]) -> Matrix:
    """A matrix R with R^T R = sum_i M_i^T M_i."""
    if len(stack) == 1:
        return stack[0]
    with one_blas_thread():
        return np.asarray(np.linalg.qr(np.concatenate(stack), mode="r"))
