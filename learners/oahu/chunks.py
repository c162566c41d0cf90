"""OAHU's compiled form: chunks of triplets, with matrix products for the largest layer."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base.learner import Outcomes
from kinstream.learners.kernels.ensembles import oahu
from kinstream.learners.kernels.equal_vectors import first_equal
from kinstream.learners.kernels.spans import spans
from kinstream.learners.oahu.events import Look
from kinstream.learners.oahu.network import OAHUNetwork
from kinstream.learners.oahu.step_rule import HEDGES, Rule
from kinstream.streams.compute.blas_threads import one_blas_thread
from kinstream.streams.compute.compilation import limit

Rows = NDArray[np.floating[Any]]

#: Triplets of one chunk. More share the fixed cost of the products; fewer need fewer corrections.
CHUNK: Final = 32


def learn(
    network: OAHUNetwork,
    alpha: NDArray[np.float64],
    rule: Rule,
    X: Rows,
    index: NDArray[np.int32],
    usable: NDArray[np.bool_],
    given: NDArray[np.float64],
    bound: float,
    outcomes: Outcomes,
    look: Look,
    rows: slice,
) -> float:
    """Learn triplets one after the other, in chunks counted from the first of them.

    Parameters
    ----------
    network, alpha : changed in place.
    X : (n, d) inputs of the network's type.
    index, usable : see `kinstream.learners.base.one_modality.Batch`.
    given : (m,) the un-learned metrics' part of the fused score.
    bound : at least the network's largest entry, negative for unknown.
    outcomes : filled in.
    look : how the triplets of events are to be judged.
    rows : of all of these, what is to be learned now.

    Returns
    -------
    float
        The bound after the last triplet.
    """
    most = limit(network.first.dtype)
    with one_blas_thread(), np.errstate(all="ignore"):
        for start in range(rows.start, rows.stop, CHUNK):
            some = slice(start, min(start + CHUNK, rows.stop))
            if not 0.0 <= bound < 0.5 * most:
                parts = (network.first, network.rest, network.biases)
                bound = max(oahu.largest(np.ravel(part)) for part in parts)
            bound = _chunk(
                network,
                alpha,
                rule,
                X,
                index[some],
                usable[some],
                given[some],
                most,
                bound,
                outcomes[some],
                look,
                some,
            )
    return bound


def _chunk(
    network: OAHUNetwork,
    alpha: NDArray[np.float64],
    rule: Rule,
    X: Rows,
    index: NDArray[np.int32],
    usable: NDArray[np.bool_],
    given: NDArray[np.float64],
    most: float,
    bound: float,
    outcomes: Outcomes,
    look: Look,
    rows: slice,
) -> float:
    vectors, places = np.unique(index, return_inverse=True)
    inputs = X[vectors]
    if not usable.all():
        # A vector that is not finite would spoil the products of all.
        inputs[~np.isfinite(inputs).all(axis=1)] = 0
    places = np.take_along_axis(places.reshape(index.shape), first_equal(X, index), axis=1)
    first = network.first
    gradients = np.zeros((len(inputs), first.shape[1]), first.dtype)
    beside = _beside(look, rows, inputs, first) if look.begins(rows) else _nothing(first.dtype)
    bound = oahu.triplets(
        (inputs @ first, inputs @ inputs.T, gradients),
        (network.rest, network.biases),
        network.embedding,
        oahu.stripes(network.embedding + network.rest.shape[1]),
        oahu.stripes(network.embedding),
        alpha,
        (rule.tau, rule.eta, rule.temperature, rule.beta, rule.floor),
        HEDGES.index(rule.hedge),
        rule.by_alpha,
        rule.share,
        given,
        places,
        usable,
        most,
        bound,
        outcomes.report(),
        beside,
        (look.judged[0][rows], look.judged[1], look.judged[2]),
        rows.start,
    )
    gradients *= first.dtype.type(-rule.eta)
    first += inputs.T @ gradients
    return bound


def _beside(look: Look, rows: slice, inputs: Rows, first: Rows) -> oahu.Beside:
    """The products with the first layer, before it changes, for events that begin in some rows."""
    places, _, _ = next(spans(look.judged[0], rows))
    asked, where = look.inputs(places)
    products = asked @ first, asked @ inputs.T
    return *products, where, look.usable[places], look.given[places], int(places[0])


def _nothing(dtype: np.dtype[Any]) -> oahu.Beside:
    none = np.empty((0, 0), dtype)
    return none, none, np.empty((0, 3), np.int64), np.empty(0, np.bool_), np.empty(0), 0
