"""A learned metric as an ONNX model of raw features that includes the scaler, equal to `transform`."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from kinstream.learners.adapter.learner import Adapter
from kinstream.learners.base.learner import Learner
from kinstream.learners.base.one_modality import SingleModal
from kinstream.learners.base.several_modalities import MultiModal
from kinstream.learners.kernels.ensembles.oahu import DEAD
from kinstream.learners.mixture.learner import Mixture
from kinstream.learners.models.columns import best_columns
from kinstream.learners.models.onnx_graph import Graph, Value
from kinstream.learners.oahu.learner import OAHU
from kinstream.learners.oahu.network import OAHUNetwork
from kinstream.learners.ranking.learner import Ranking
from kinstream.learners.several_modalities.fusion import Fusion
from kinstream.streams.errors import CheckpointError, SettingsError

#: Name of the output, and prefix of the inputs.
OUTPUT = "y"
INPUT = "x"


def encode_onnx(learner: Learner, metadata: dict[str, str], rank: int | None = None) -> bytes:
    """The bytes of an ONNX file.

    Its input `x` (n, d) takes raw features; with several modalities there is an input `x_NAME` for each that measures.
    Squared Euclidean distance between rows of the output `y` (n, k) is the learned one. All are of the learner's type;
    scaling is done in float64, as in the learner, because a shift that is large against the width cancels only to
    rounding. The graph of an adapter takes raw queries; its output (n, d) is the query for a store of unchanged items.

    Parameters
    ----------
    learner : a linear map, OAHU, a mixture, or one of these for each modality.
    metadata : texts by name.
    rank : columns of the output at most: see `best_columns`. None for as many as there are.

    Raises
    ------
    SettingsError
        The learner has no such form or rank, or the package onnx is not installed.
    CheckpointError
        Nothing has been learned yet.
    """
    graph = Graph()
    if isinstance(learner, Fusion):
        output = _fused(graph, learner)
    elif isinstance(learner, MultiModal):
        output = _several(graph, learner)
    elif isinstance(learner, SingleModal):
        if learner.dimension is None:
            raise CheckpointError("nothing has been learned yet")
        x = graph.input(INPUT, learner.dtype, learner.dimension)
        output = _queries(graph, learner, x) if isinstance(learner, Adapter) else _single(graph, learner, x)
    else:
        raise SettingsError(f"{learner.algorithm} has no such export")
    if rank is not None and isinstance(learner, Adapter):
        raise SettingsError(f"{learner.algorithm} maps queries to as many columns; export npz or safetensors")
    if rank is not None and rank < output.width:
        output = graph.mapped(output, best_columns(learner, rank).T)
    named = graph.op("Identity", [output.name], output.dtype, output.width, named=OUTPUT)
    inputs = ", ".join(value.name for value in graph.inputs)
    use = f"{OUTPUT} of raw features {inputs}: squared Euclidean distance of its rows is the learned one"
    if isinstance(learner, Adapter):
        use = (
            f"{OUTPUT} of raw queries {inputs}: items are ordered by their {learner.product} product with it"
        )
    more = {"scaler": "none", "use": use}
    if isinstance(learner, Ranking):
        blend = learner.blend
        numbers = {"weights": blend.weights, "scales": blend.units}
        more |= blend.texts() | {name: json.dumps(one.tolist()) for name, one in numbers.items()}
    return graph.encode(named, "metric", metadata | more)


def _single(graph: Graph, learner: SingleModal, x: Value) -> Value:
    """Raw features under a learner of one modality."""
    z = graph.cast(_scaled(graph, learner.scaler, learner.affine(), graph.cast(x, "float64")), learner.dtype)
    if isinstance(learner, Mixture):
        return _mixture(graph, learner, z)
    if isinstance(learner, OAHU):
        return _oahu(graph, learner, z)
    # `linear_map` refuses learners that are not linear maps.
    return graph.mapped(z, learner.map.T)


def _scaled(graph: Graph, scaler: str, affine: tuple[Any, Any] | None, wide: Value) -> Value:
    """Raw features, float64, after a scaler."""
    if scaler == "unit":
        wide = graph.directions(wide)
    if affine is None:
        return wide
    shift, factor = affine
    moved = graph.with_constant("Sub", wide, shift) if np.any(shift) else wide
    return graph.with_constant("Mul", moved, factor)


def _queries(graph: Graph, learner: Adapter, q: Value) -> Value:
    """The mapped queries of an adapter."""
    factors = learner.factors
    if len(factors) == 1:
        return graph.mapped(q, learner.W)
    U, V = factors
    return graph.added([q, graph.mapped(graph.mapped(q, U), V.T)])


# ---- several modalities -----------------------------------------------------------------------------------------


def _several(graph: Graph, learner: MultiModal) -> Value:
    if not learner.linear:
        raise SettingsError(f"{learner.algorithm} is not a linear map and has no such export")
    if not learner.modalities:
        raise CheckpointError("nothing has been learned yet")
    scaling, maps, parts = learner.affine(), learner.maps, []
    for name, size in learner.modalities:
        x = graph.input(f"{INPUT}_{name}", learner.dtype, size)
        scaled = _scaled(graph, learner.scaler, scaling[name], graph.cast(x, "float64"))
        parts.append(graph.mapped(graph.cast(scaled, learner.dtype), maps[name].T))
    return graph.beside(parts)


def _fused(graph: Graph, learner: Fusion) -> Value:
    if not learner.modalities:
        raise CheckpointError("nothing has been learned yet")
    sizes, parts = dict(learner.modalities), []
    for name, metric in learner.learners.items():
        if not isinstance(metric, SingleModal):
            raise SettingsError(f"{learner.algorithm} has no such export")
        # A single metric over all modalities has no name.
        taken = [name] if name else list(sizes)
        inputs = [graph.input(f"{INPUT}_{one}", metric.dtype, sizes[one]) for one in taken]
        parts.append(_single(graph, metric, graph.beside(inputs)))
    return graph.beside(parts)


# ---- OAHU -------------------------------------------------------------------------------------------------------


def _oahu(graph: Graph, learner: OAHU, z: Value) -> Value:
    """All metrics that vote, each times its factor."""
    state = learner.state()
    mean, kappa = learner.mean_length, float(state["lift"])
    constant = float(np.sqrt(kappa * mean))
    lifted = z if kappa == 0.0 else graph.behind(z, constant)
    found = []
    for name in learner.anchors:
        if name == "euclidean":
            found.append(graph.with_constant("Div", z, [[np.sqrt(mean)]]))
            continue
        wide = graph.cast(lifted if name == "lifted" else z, "float64")
        found.append(graph.cast(graph.over(wide, graph.length(wide), 0.0, 1.0), z.dtype))
    found += _embedded(graph, learner.network, lifted)
    return graph.beside(
        [
            graph.with_constant("Mul", part, [[factor]])
            for part, factor in zip(found, learner.factors, strict=True)
        ]
    )


def _embedded(graph: Graph, network: OAHUNetwork, h: Value) -> list[Value]:
    """f_0 .. f_L; rows of a dead model are 0."""
    found = []
    for k, (theta, W) in enumerate(network.parts()):
        u = graph.mapped(h, theta)
        # Not below: the kernels test `length < DEAD`, and this number is above the one before it.
        kind = np.dtype(u.dtype).type
        least = float(np.nextafter(kind(DEAD), kind(0.0)))
        found.append(graph.over(u, graph.length(u), least, 0.0))
        if W is not None:
            z = graph.mapped(h, W)
            if len(network.biases):
                z = graph.with_constant("Add", z, network.biases[k][None, :])
            h = graph.op("Relu", [z.name], z.dtype, z.width)
    return found


# ---- mixtures ---------------------------------------------------------------------------------------------------


def _mixture(graph: Graph, learner: Mixture, z: Value) -> Value:
    wide, parts = graph.cast(z, "float64"), []
    for view, matrix in learner.metric:
        seen = wide
        if view.bounded is not None:
            for operation, bound in zip(("Max", "Min"), view.bounded, strict=True):
                seen = graph.with_constant(operation, seen, bound[None, :])
        if view.directions:
            moved = graph.with_constant("Add", seen, view.offset[None, :])
            seen = graph.directions(graph.with_constant("Mul", moved, view.factor[None, :]), view.least)
        parts.append(graph.mapped(seen, matrix.T))
    return graph.cast(graph.added(parts), learner.dtype)
