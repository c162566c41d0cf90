"""A learned metric as one file that needs nothing of Kinstream to be used: `x @ map.T + offset`.

A metric of several modalities has a map and an offset for each.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.learners.base import Learner
from kinstream.learners.composite import Composite
from kinstream.learners.mixture.learner import Mixture
from kinstream.learners.registry import create_in
from kinstream.learners.several_modalities.fusion import Fusion
from kinstream.learners.shared.bilinear import Bilinear
from kinstream.learners.shared.one_modality import SingleModal
from kinstream.learners.shared.several_modalities import MultiModal
from kinstream.streams.agents.space import core_state, restore_space
from kinstream.streams.checkpoints.state_bytes import State, from_bytes
from kinstream.streams.errors import CheckpointError, SettingsError
from kinstream.streams.records.values import ModelVersion

FORMATS: Final = ("npz", "safetensors", "onnx")
CONCATENATED: Final = "x_NAME @ map.NAME.T + offset.NAME of all modalities, concatenated"
ADDED: Final = "x_NAME @ map.NAME.T + offset.NAME of all modalities, added up"

PARTS: Final = "z = (x - shift) * factor; then all `parts` concatenated: docs/portfolio.md"
PARTS_ADDED: Final = "z = (x - shift) * factor; then all `parts` added up: docs/mixture.md"
PARTS_UNIT: Final = "z = (x / |x| - shift) * factor; then all `parts` concatenated: docs/portfolio.md"

RANKED: Final = "((q - shift) * factor) @ similarity @ ((x - shift) * factor), largest first"
RANKED_UNIT: Final = "(q / |q|) @ similarity @ (x / |x|), largest first"

#: Matrix and offset by modality.
Maps = dict[str, tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]]


@dataclass(frozen=True, slots=True, eq=False)
class Export:
    """A linear metric.

    Parameters
    ----------
    arrays : `map` (k, d) and `offset` (k,); the learned distance of two vectors is the Euclidean one of what
        `x @ map.T + offset` makes of them. Where metadata says `scaler=unit`, x is divided by its length before.
        With several modalities, `map.NAME` and `offset.NAME` of each that measures; metadata says whether what
        they make is concatenated or added up.
        A learner of a similarity has, besides, `similarity` W (d, d), which need not be symmetric, with `shift` and
        `factor` (d,) of its scaler. Metadata gives the similarity of x to a query q under `rank`; it orders otherwise
        than the distance, which belongs to the positive semi-definite part of W only.
        A portfolio and a mixture have no single map, but the parts that metadata lists under `parts`.
    metadata : texts by name.
    """

    arrays: dict[str, NDArray[np.floating[Any]]]
    metadata: dict[str, str]


def learner_from(data: bytes, kind: str, arguments: dict[str, Any]) -> Learner:
    """The learner of a space, from its data file in a checkpoint.

    Parameters
    ----------
    kind, arguments : of the learner's settings; the scaler of the space's declaration goes before theirs.

    Raises
    ------
    CheckpointError : not a state, or nothing was learned in it yet.
    SettingsError : the arguments do not fit the state.
    """
    learner = learner_of(from_bytes(data), kind, arguments)
    if learner is None:
        raise CheckpointError("nothing has been learned in this epoch of the space yet")
    return learner


def learner_of(state: State, kind: str, arguments: dict[str, Any]) -> Learner | None:
    """The learner of a space, from its state in a checkpoint; None where nothing was learned in it yet.

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
    """Matrix (k, d) and offset (k,) of each modality, how they go together, and the scaler as in `linear_map`.

    Raises
    ------
    SettingsError : the learner is made of others that are not linear maps.
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
    # Where they end does not matter, because they are summed: the first one has the offset.
    offsets = [offset] + [np.zeros_like(offset)] * (len(columns) - 1)
    names = [name for name, _ in learner.modalities]
    return dict(zip(names, zip(columns, offsets, strict=True), strict=True)), ADDED, scaler


def _folded(
    matrix: NDArray[np.floating[Any]], scaling: tuple[NDArray[np.float64], NDArray[np.float64]] | None
) -> tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]:
    """A map of scaled features as one of raw features, and its offset."""
    if scaling is None:
        return matrix, np.zeros(len(matrix), matrix.dtype)
    shift, factor = scaling
    # In float64: a shift that is large against the width cancels only to rounding.
    folded = matrix.astype(np.float64) * factor
    return folded, -(folded @ shift)


def _left_over(scaler: str) -> str:
    """The scaler, if it has to be applied before a map."""
    return "unit" if scaler == "unit" else "none"


def export(learner: Learner, version: ModelVersion, versions: dict[str, str]) -> Export:
    """The learned metric with what it is and where it comes from.

    Raises
    ------
    SettingsError, CheckpointError : as `linear_map` and `linear_maps`.
    """
    more = {}
    if isinstance(learner, Composite):
        arrays, parts = learner.exported()
        scaler = _left_over(learner.scaler)
        use = PARTS if scaler == "none" else PARTS_UNIT
        if isinstance(learner, Mixture):
            use = PARTS_ADDED
        more["parts"] = json.dumps(parts)
    elif isinstance(learner, MultiModal | Fusion):
        maps, use, scaler = linear_maps(learner)
        arrays = {f"map.{name}": matrix for name, (matrix, _) in maps.items()}
        arrays |= {f"offset.{name}": offset for name, (_, offset) in maps.items()}
        if scaler != "none":
            use += f", of vectors divided by their length{' over all modalities' if use == ADDED else ''}"
    else:
        matrix, offset, scaler = linear_map(learner)
        arrays = {"map": matrix, "offset": offset}
        use = "x @ map.T + offset" if scaler == "none" else "(x / |x|) @ map.T + offset"
    if isinstance(learner, Bilinear):
        W = learner.W
        shift, factor = learner.affine() or (np.zeros(len(W)), np.ones(len(W)))
        arrays |= {"similarity": W, "shift": shift, "factor": factor}
        more["rank"] = RANKED if scaler == "none" else RANKED_UNIT
    metadata = more | origin(version, versions) | {"scaler": scaler, "use": use}
    return Export(arrays, metadata)


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
    arrays = {name: np.ascontiguousarray(array) for name, array in exported.arrays.items()}
    match form:
        case "npz":
            file = BytesIO()
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
            raise SettingsError(f"format must be one of {', '.join(FORMATS)}, not {form!r}")
