"""The state of an algorithm as bytes: safetensors, in which the same state is always the same bytes.

Arrays are tensors. Everything else is JSON in one metadata entry: several entries would come in random order.
Nothing is pickled, so a checkpoint from a shared store cannot run code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from kinstream.streams.compute.memory import ask
from kinstream.streams.errors import CheckpointError
from kinstream.streams.records.state import State as State

FORMAT: Final = 1
_METADATA: Final = "kinstream"
_RESERVED: Final = "__metadata__"
#: safetensors itself refuses a longer header.
_MAX_HEADER: Final = 100_000_000
#: Longer strings become tensors, because safetensors refuses a header above 100 MB.
_LONG_STRING: Final = 1024
#: Python refuses to convert longer integers to decimal digits.
_DECIMAL_BITS: Final = 4096
_DTYPES: Final = frozenset(
    {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
    | {"float16", "float32", "float64", "complex64"}
)


def to_bytes(state: Mapping[str, NDArray[Any] | int | float | str | bool]) -> bytes:
    """Encode a state. The order of the mapping, PYTHONHASHSEED and memory layouts do not change the bytes.

    Parameters
    ----------
    state : arrays of bool, integer, float or complex64, and Python scalars. A numpy scalar is refused, since
        it would come back as another type, with other promotion rules.

    Raises
    ------
    CheckpointError : a value that could not be restored exactly.
    MemoryError : the bytes do not fit into the memory of this process.
    """
    tensors: dict[str, NDArray[Any]] = {}
    scalars: dict[str, list[str | bool]] = {}
    texts: list[str] = []
    for name in sorted(state):
        value = state[name]
        if name == _RESERVED:
            raise CheckpointError(f"state: the name {name!r} is reserved by safetensors; use another")
        if isinstance(value, np.ndarray):
            tensors[name] = _plain(name, value)
        elif type(value) is str and len(value) > _LONG_STRING:
            texts.append(name)
            tensors[name] = np.frombuffer(value.encode("utf-8", "surrogatepass"), np.uint8)
        else:
            scalars[name] = _scalar(name, value)
    described = {"format": FORMAT, "scalars": scalars, "texts": texts}
    metadata = {_METADATA: json.dumps(described, sort_keys=True, separators=(",", ":"))}
    # safetensors makes the bytes, and copies them for Python. Without memory it panics or aborts.
    ask(2 * sum(tensor.nbytes for tensor in tensors.values()))
    try:
        return bytes(save(tensors, metadata=metadata))
    except (SafetensorError, UnicodeError) as error:
        raise CheckpointError(f"state: safetensors refused it: {error}") from error


def from_bytes(data: bytes) -> State:
    """Decode a state. Arrays are writable, C-contiguous and in the machine's byte order; names come sorted.

    Raises
    ------
    CheckpointError : the bytes are not a complete state, or have a later format.
    MemoryError : the state does not fit into the memory of this process.
    """
    ask(len(data))
    try:
        described = json.loads(_metadata(data)[_METADATA])
        tensors = load(data)
        found = int(described["format"])
        texts = set(described["texts"])
        state: State = {name: _value(*pair) for name, pair in described["scalars"].items()}
        for name, tensor in tensors.items():
            state[name] = tensor.tobytes().decode("utf-8", "surrogatepass") if name in texts else tensor
    except (SafetensorError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"state: not a whole safetensors state of Kinstream: {error!r}") from error
    if found > FORMAT:
        raise CheckpointError(f"state: format {found} is newer than {FORMAT}; read it with a newer Kinstream")
    return {name: state[name] for name in sorted(state)}


def _plain(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """The array in C order and little-endian: safetensors copies memory and ignores strides."""
    if array.dtype.name not in _DTYPES or isinstance(array, np.ma.MaskedArray):
        kind = f"{type(array).__name__} of {array.dtype}"
        raise CheckpointError(
            f"state: {name!r} is a {kind}, which has no exact form; known: {sorted(_DTYPES)}"
        )
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _scalar(name: str, value: object) -> list[str | bool]:
    if type(value) is bool:
        return ["bool", value]
    if type(value) is int:
        return ["int", str(value) if value.bit_length() <= _DECIMAL_BITS else hex(value)]
    if type(value) is float:
        return ["float", repr(value)]
    if type(value) is str:
        return ["str", value]
    raise CheckpointError(
        f"state: {name!r} is a {type(value).__module__}.{type(value).__qualname__}; "
        "allowed are arrays and plain int, float, str and bool"
    )


def _value(kind: str, text: str | bool) -> int | float | str | bool:
    if kind == "bool" and isinstance(text, bool):
        return text
    if kind == "int":
        return int(str(text), 0)
    if kind == "float":
        return float(text)
    if kind == "str":
        return str(text)
    raise ValueError(f"scalar of unknown kind {kind!r}")


def _metadata(data: bytes) -> dict[str, str]:
    """The metadata of safetensors bytes; its own reader gives it for files only."""
    size = int.from_bytes(data[:8], "little")
    if size > _MAX_HEADER:
        raise ValueError(f"a header of {size} bytes")
    header = json.loads(data[8 : 8 + size])
    metadata = header[_RESERVED]
    if not isinstance(metadata, dict):
        raise ValueError("no metadata")
    return metadata
