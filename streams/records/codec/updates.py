"""Updates of a model as Avro bodies: the two factors of a change of the map."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.errors import BadRecord, Reason
from kinstream.streams.records.checks import MAX_DIMENSION, check_space, text
from kinstream.streams.records.values import ModelUpdate

_TYPES: Final[dict[str, np.dtype[Any]]] = {"float64": np.dtype("<f8"), "float32": np.dtype("<f4")}
#: More parts than the largest update of the largest map can have, at one direction each.
_MAX_PARTS: Final = MAX_DIMENSION


def update_out(r: ModelUpdate) -> dict[str, Any]:
    body = {name: getattr(r, name) for name in ModelUpdate.__dataclass_fields__}
    dtype = r.U.dtype.name
    return body | {"dtype": dtype, "U": _bytes(r.U, _TYPES[dtype]), "V": _bytes(r.V, _TYPES[dtype])}


def update_in(b: dict[str, Any]) -> ModelUpdate:
    check_space(b["space"])
    text(b["learner"], "learner")
    text(b["topic"], "topic")
    dtype = _TYPES.get(b.pop("dtype"))
    d, rank, first = b["dimension"], b["rank"], b["first"]
    if dtype is None or not 1 <= d <= MAX_DIMENSION or not 0 <= rank <= d:
        raise BadRecord(Reason.BAD_SHAPE, f"an update of a map of {d} features, of rank {rank}")
    if not 0 <= b["part"] < b["parts"] <= _MAX_PARTS:
        raise BadRecord(Reason.BAD_SHAPE, f"part {b['part']} of {b['parts']}")
    if min(b[name] for name in ("generation", "epoch", "partition", "offset", "base_step", "check")) < 0:
        raise BadRecord(Reason.BAD_SHAPE, "a negative number")
    if b["step"] <= b["base_step"]:
        raise BadRecord(Reason.BAD_SHAPE, f"an update from step {b['base_step']} to step {b['step']}")
    if rank and not b["whole"]:
        raise BadRecord(Reason.BAD_SHAPE, "an update that is not whole, with directions")
    count, rest = divmod(len(b["V"]), d * dtype.itemsize)
    if rest or len(b["U"]) != len(b["V"]) or first < 0 or first + count > rank:
        raise BadRecord(
            Reason.BAD_SHAPE, f"{len(b['U'])} and {len(b['V'])} bytes from direction {first} of {rank}"
        )
    U = np.frombuffer(b["U"], dtype).reshape(d, count)
    V = np.frombuffer(b["V"], dtype).reshape(count, d)
    if not (np.isfinite(U).all() and np.isfinite(V).all()):
        raise BadRecord(Reason.NOT_FINITE, "an update must be finite")
    return ModelUpdate(**b | {"U": U, "V": V})


def _bytes(values: NDArray[Any], dtype: np.dtype[Any]) -> bytes:
    return np.ascontiguousarray(values, dtype=dtype).tobytes()
