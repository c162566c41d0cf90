"""A learned metric as one file that can be used without Kinstream: `x @ map.T + offset`.

A metric of several modalities has a map and an offset for each.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.adapter.learner import Adapter
from kinstream.learners.base.learner import Learner
from kinstream.learners.base.one_modality import SingleModal
from kinstream.learners.base.several_modalities import MultiModal
from kinstream.learners.composite import Composite
from kinstream.learners.forms.bilinear import Bilinear
from kinstream.learners.models.columns import best_columns
from kinstream.learners.models.query_map import SCALERS, SIMILARITY, query_map
from kinstream.learners.ranking.learner import Ranking
from kinstream.learners.ranking.remembered import USE as REMEMBERED_USE
from kinstream.learners.registry import create_in
from kinstream.learners.several_modalities.fusion import Fusion
from kinstream.streams.agents.space import core_state, restore_space
from kinstream.streams.checkpoints.state_bytes import State, from_bytes
from kinstream.streams.errors import CheckpointError, SettingsError
from kinstream.streams.records.values import ModelVersion

FORMATS: Final = ("npz", "safetensors", "onnx")
CONCATENATED: Final = "x_NAME @ map.NAME.T + offset.NAME of all modalities, concatenated"
ADDED: Final = "x_NAME @ map.NAME.T + offset.NAME of all modalities, added up"

PARTS: Final = "z = (x - shift) * factor; then all `parts` added up: docs/mixture.md"
#: After it, of an export with fewer columns.
KEPT: Final = "; then @ keep.T"

RANKED: Final = "q @ similarity @ x, largest first"
RANKED_UNIT: Final = "(q / |q|) @ similarity @ (x / |x|), largest first"

NEAREST: Final = {
    "cosine": "query_map of q, @ (x / |x|), largest first",
    "dot": "query_map of q, @ x, largest first",
}

#: The same of an export with an item map, whose store holds mapped items and ranks by the inner product.
NEAREST_MAPPED: Final = "query_map of q, @ item_map of x, largest first"
QUERY_SIDE: Final = "q @ query.T"
ITEM_SIDE: Final = {"cosine": "(x / |x|) @ item.T", "dot": "x @ item.T"}

#: Matrix and offset by modality.
Maps = dict[str, tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]]


@dataclass(frozen=True, slots=True, eq=False)
class Export:
    """A linear metric.

    Parameters
    ----------
    arrays : `map` (k, d) and `offset` (k,); the learned distance of two vectors is the Euclidean distance of their
        images `x @ map.T + offset`. If metadata has `scaler=unit`, x is first divided by its length. With several
        modalities, `map.NAME` and `offset.NAME` of each that measures; metadata states whether the images are
        concatenated or added. A learner of a similarity that leaves features as they are, or divides them by their
        length, also has `similarity` W (d, d), which need not be symmetric. Metadata gives the similarity of x to a
        query q under `rank`; its order differs from that of the distance, which uses only the positive semi-definite
        part of W. Behind other scalers inner products favour long vectors, and only the distance is exported.
        An adapter has none of these, but float32 `U` and `V` (d, r), or `W` (d, d) of rank 0. Metadata gives under
        `query_map` the image of a raw query q, and under `rank` the order of items x: a service computes the query map
        with numpy, and queries a store of unchanged items by the cosine or dot `product`. A ranking also has `weights`
        and `scales` (K,) of the `signals` of metadata, which says under `blend` how they rank; and `known_weights`
        and `known_scales` of `known_signals` for queries that it remembers: see
        `kinstream.learners.ranking.remembered.Remembered` for its arrays `remembered_NAME`. Of a smaller rank k
        there are `query` and `item` (k, d) instead, and metadata gives the images of queries and of items, whose inner
        product ranks. Other learners of a similarity also have `query_map` if they do not scale items.
        A mixture has no single map, but the parts that metadata lists under `parts`, and `keep` (r, k)
        if fewer columns were asked for.
    metadata : texts by name.
    """

    arrays: dict[str, NDArray[Any]]
    metadata: dict[str, str]


def learner_from(data: bytes, kind: str, arguments: dict[str, Any]) -> Learner:
    """The learner of a space, from its data file in a checkpoint.

    Parameters
    ----------
    kind, arguments : of the learner's settings; the scaler of the space's declaration overrides theirs.

    Raises
    ------
    CheckpointError : the data is not a state, or nothing has been learned yet.
    SettingsError : the arguments do not fit the state.
    """
    learner = learner_of(from_bytes(data), kind, arguments)
    if learner is None:
        raise CheckpointError("nothing has been learned in this epoch of the space yet")
    return learner


def learner_of(state: State, kind: str, arguments: dict[str, Any]) -> Learner | None:
    """The learner of a space, from its state in a checkpoint; None if nothing has been learned yet.

    Raises
    ------
    SettingsError : the arguments do not fit the state.
    """
    core = core_state(state)
    if core is None:
        return None
    declaration = restore_space(state).declaration
    learner = create_in(None if declaration is None else declaration.scaler, kind, **arguments)
    learner.restore(core)
    return learner


def linear_map(learner: Learner) -> tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]], str]:
    """Matrix (k, d), offset (k,), and the scaler that could not be folded into them ("none" if it could).

    Raises
    ------
    SettingsError : the learner is not a linear map.
    CheckpointError : it has no dimension yet.
    """
    if not isinstance(learner, SingleModal):
        raise SettingsError(f"{learner.algorithm} is not a linear map and has no such export")
    if learner.dimension is None:
        raise CheckpointError("nothing has been learned yet")
    return *_folded(learner.map, learner.affine()), _left_over(learner.scaler)


def linear_maps(learner: MultiModal | Fusion) -> tuple[Maps, str, str]:
    """Matrix (k, d) and offset (k,) of each modality, how they are combined, and the scaler as in `linear_map`.

    Raises
    ------
    SettingsError : a member of the learner is not a linear map.
    CheckpointError : it has no dimensions yet.
    """
    if isinstance(learner, MultiModal) and not learner.linear:
        raise SettingsError(f"{learner.algorithm} is not a linear map and has no such export")
    if not learner.modalities:
        raise CheckpointError("nothing has been learned yet")
    if isinstance(learner, MultiModal):
        scaling = learner.affine()
        folded = {name: _folded(matrix, scaling[name]) for name, matrix in learner.maps.items()}
        return folded, CONCATENATED, _left_over(learner.scaler)
    if learner.how != "concatenate":
        metrics = {name: linear_map(metric) for name, metric in learner.learners.items()}
        scaler = {left for _, _, left in metrics.values()}.pop()
        return {name: (matrix, offset) for name, (matrix, offset, _) in metrics.items()}, CONCATENATED, scaler
    (metric,) = learner.learners.values()
    matrix, offset, scaler = linear_map(metric)
    ends = np.cumsum([size for _, size in learner.modalities])
    columns = np.split(matrix, ends[:-1], axis=1)
    # The place of the offset does not matter in a sum: the first one has it.
    offsets = [offset] + [np.zeros_like(offset)] * (len(columns) - 1)
    names = [name for name, _ in learner.modalities]
    return dict(zip(names, zip(columns, offsets, strict=True), strict=True)), ADDED, scaler


def _folded(
    matrix: NDArray[np.floating[Any]], scaling: tuple[NDArray[np.float64], NDArray[np.float64]] | None
) -> tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]:
    """A map of scaled features, converted to raw features, and its offset."""
    if scaling is None:
        return matrix, np.zeros(len(matrix), matrix.dtype)
    shift, factor = scaling
    # In float64, because a shift that is large against the width cancels only to rounding.
    folded = matrix.astype(np.float64) * factor
    return folded, -(folded @ shift)


def _left_over(scaler: str) -> str:
    """The scaler, if it must be applied before the map."""
    return "unit" if scaler == "unit" else "none"


def export(
    learner: Learner, version: ModelVersion, versions: dict[str, str], rank: int | None = None
) -> Export:
    """The learned metric with its description and origin.

    Parameters
    ----------
    rank : columns at most: see `best_columns`; of an adapter, whose items are then mapped as well: see
        `Adapter.item_map`. None for as many as there are.

    Raises
    ------
    SettingsError, CheckpointError : as `linear_map`, `linear_maps` and `best_columns`.
    """
    more = {}
    arrays: dict[str, NDArray[Any]]
    if isinstance(learner, Adapter) and rank is not None:
        use, scaler = QUERY_SIDE, _left_over(learner.scaler)
        arrays = dict(zip(("query", "item"), _item_map(learner, rank), strict=True))
        more = {"query_map": use, "item_map": ITEM_SIDE[learner.product]}
        more |= {"rank": NEAREST_MAPPED, "product": "dot"}
    elif isinstance(learner, Adapter):
        found = query_map(learner)
        arrays = {name: np.asarray(one, np.float32) for name, one in found.arrays.items()}
        use, scaler = found.use, _left_over(learner.scaler)
        more = {"query_map": use, "rank": NEAREST[learner.product], "product": learner.product}
    elif isinstance(learner, Composite):
        arrays, listed = learner.exported()
        scaler = _left_over(learner.scaler)
        use = PARTS
        if rank is not None:
            arrays["keep"] = best_columns(learner, rank)
            use += KEPT
        more["parts"] = json.dumps(listed)
    elif isinstance(learner, MultiModal | Fusion):
        maps, use, scaler = linear_maps(learner)
        lengths = "" if scaler == "none" else ", of vectors divided by their length"
        if lengths and use == ADDED:
            lengths += " over all modalities"
        if rank is not None:
            maps, use = _fewer_columns_of_several(learner, maps, use, rank), ADDED
        arrays = {f"map.{name}": matrix for name, (matrix, _) in maps.items()}
        arrays |= {f"offset.{name}": offset for name, (_, offset) in maps.items()}
        use += lengths
    else:
        matrix, offset, scaler = linear_map(learner)
        if rank is not None and rank < len(matrix):
            kept = best_columns(learner, rank)
            matrix, offset = (kept @ matrix).astype(matrix.dtype), (kept @ offset).astype(offset.dtype)
        arrays = {"map": matrix, "offset": offset}
        use = "x @ map.T + offset" if scaler == "none" else "(x / |x|) @ map.T + offset"
    if isinstance(learner, Ranking) and rank is None:
        blend = learner.blend
        arrays |= {"weights": blend.weights, "scales": blend.units}
        more |= blend.texts()
        if learner.remembered is not None:
            known = learner.known_blend
            arrays |= {"known_weights": known.weights, "known_scales": known.units}
            arrays |= learner.remembered.arrays()
            more |= {"known_signals": json.dumps(known.names), "remembered": REMEMBERED_USE}
    if isinstance(learner, Adapter) and learner.prior_digest is not None:
        more["prior"] = learner.prior_digest
    if isinstance(learner, Bilinear) and not isinstance(learner, Adapter) and learner.scaler in SCALERS:
        arrays["similarity"] = learner.W
        more |= {"rank": RANKED if scaler == "none" else RANKED_UNIT, "query_map": SIMILARITY}
    metadata = more | origin(version, versions) | {"scaler": scaler, "use": use}
    return Export(arrays, metadata)


def _fewer_columns_of_several(learner: MultiModal | Fusion, maps: Maps, use: str, rank: int) -> Maps:
    """The maps of the modalities as maps to `rank` columns, whose results are added up."""
    kept = best_columns(learner, rank)
    sizes = [len(matrix) for matrix, _ in maps.values()]
    cut = [kept] * len(maps) if use == ADDED else np.split(kept, np.cumsum(sizes)[:-1], axis=1)
    return {
        name: ((part @ matrix).astype(matrix.dtype), (part @ offset).astype(offset.dtype))
        for part, (name, (matrix, offset)) in zip(cut, maps.items(), strict=True)
    }


def _item_map(learner: Adapter, rank: int) -> tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]:
    """As float32, or a SettingsError that says why there is none."""
    try:
        A, B = learner.item_map(rank)
    except ValueError as error:
        raise SettingsError(f"{learner.algorithm} has no item map of rank {rank}: {error}") from error
    return np.asarray(A, np.float32), np.asarray(B, np.float32)


def origin(version: ModelVersion, versions: dict[str, str]) -> dict[str, str]:
    """The origin of an exported file: texts by name."""
    return {
        "space": version.space,
        "learner": version.learner,
        "algorithm": version.algorithm,
        "generation": str(version.generation),
        "epoch": str(version.epoch),
        "step": str(version.step),
        "topic": version.topic,
        "partition": str(version.partition),
        "offset": str(version.offset),
        "state_sha256": version.sha256,
        "versions": json.dumps(versions, sort_keys=True),
    }


def encode(exported: Export, form: str) -> bytes:
    """The bytes of a file: npz (the arrays, and `metadata` as JSON text) or safetensors.

    An ONNX file is not a set of arrays: `kinstream.learners.models.onnx` creates it from the learner.

    Raises
    ------
    SettingsError : another format.
    """
    arrays: dict[str, NDArray[Any]] = {
        name: np.ascontiguousarray(array) for name, array in exported.arrays.items()
    }
    match form:
        case "npz":
            file = BytesIO()
            for name in ("signals", "known_signals"):
                if name in exported.metadata:
                    arrays[name] = np.array(json.loads(exported.metadata[name]))
            np.savez(file, **arrays, metadata=np.array(json.dumps(exported.metadata, sort_keys=True)))  # type: ignore[arg-type, unused-ignore]
            return file.getvalue()
        case "safetensors":
            from safetensors.numpy import save

            return bytes(save(arrays, metadata=exported.metadata))
        case "onnx":
            raise SettingsError(
                "an ONNX file is made of the learner: kinstream.learners.models.onnx.encode_onnx"
            )
        case _:
            raise SettingsError(f"the file of a model ends in one of {', '.join(FORMATS)}, not {form!r}")
