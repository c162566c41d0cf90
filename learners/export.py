"""A learned metric as one file that needs nothing of Kinstream to be used: `x @ map.T + offset`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from learners.base import Learner
from learners.registry import create
from learners.single import SingleModal
from streams.errors import CheckpointError, SettingsError
from streams.records import ModelVersion
from streams.space import core_state, restore_space
from streams.state import from_bytes

FORMATS: Final = ("npz", "safetensors")


@dataclass(frozen=True, slots=True, eq=False)
class Export:
    """A linear metric.

    Parameters
    ----------
    map, offset : (k, d) and (k,); the learned distance of two vectors is the Euclidean one of what
        `x @ map.T + offset` makes of them. Where metadata says `scaler=unit`, x is divided by its length before.
    metadata : texts by name.
    """

    map: NDArray[np.floating[Any]]
    offset: NDArray[np.floating[Any]]
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
    state = from_bytes(data)
    core = core_state(state)
    if core is None:
        raise CheckpointError("nothing has been learned in this epoch of the space yet")
    declaration = restore_space(state).declaration
    if declaration is not None and declaration.scaler is not None:
        arguments = {**arguments, "scaler": declaration.scaler}
    learner = create(kind, **arguments)
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
    matrix = learner.map
    if learner.scaler == "unit":
        return matrix, np.zeros(len(matrix), matrix.dtype), "unit"
    scaling = learner.affine()
    if scaling is None:
        return matrix, np.zeros(len(matrix), matrix.dtype), "none"
    shift, factor = scaling
    # In float64: a shift that is large against the width cancels only to rounding.
    folded = matrix.astype(np.float64) * factor
    return folded, -(folded @ shift), "none"


def export(learner: Learner, version: ModelVersion, versions: dict[str, str]) -> Export:
    """The learned metric with what it is and where it comes from.

    Raises
    ------
    SettingsError, CheckpointError : as `linear_map`.
    """
    matrix, offset, scaler = linear_map(learner)
    metadata = {
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
        "scaler": scaler,
        "use": "x @ map.T + offset" if scaler == "none" else "(x / |x|) @ map.T + offset",
        "versions": json.dumps(versions, sort_keys=True),
    }
    return Export(matrix, offset, metadata)


def encode(exported: Export, form: str) -> bytes:
    """The bytes of a file: npz (arrays `map`, `offset`, and `metadata` as JSON text) or safetensors.

    Raises
    ------
    SettingsError : another format.
    """
    arrays = {"map": np.ascontiguousarray(exported.map), "offset": np.ascontiguousarray(exported.offset)}
    match form:
        case "npz":
            file = BytesIO()
            np.savez(file, **arrays, metadata=np.array(json.dumps(exported.metadata, sort_keys=True)))  # type: ignore[arg-type, unused-ignore]
            return file.getvalue()
        case "safetensors":
            from safetensors.numpy import save

            return bytes(save(arrays, metadata=exported.metadata))
        case _:
            raise SettingsError(f"format must be one of {', '.join(FORMATS)}, not {form!r}")
