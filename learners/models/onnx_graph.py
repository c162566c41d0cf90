"""Builds an ONNX graph node by node, from the few operations of learned metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kinstream.streams.errors import SettingsError
from kinstream.streams.extras import importing

#: Versions of 2022, which current runtimes support.
OPSET: Final = 17
IR_VERSION: Final = 8
#: Limit of protobuf for one file, less room for the rest.
MAX_BYTES: Final = 2**31 - 2**20


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor (n, width) in the graph."""

    name: str
    dtype: str
    width: int


class Graph:
    """Nodes, constants, inputs.

    Raises
    ------
    SettingsError
        The package onnx is not installed.
    """

    def __init__(self) -> None:
        with importing("this format"):
            from onnx import helper, numpy_helper
        self._helper, self._numpy = helper, numpy_helper
        self._nodes: list[Any] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._initializers: list[Any] = []
        #: In the order of their first use.
        self.inputs: list[Value] = []

    # ---- tensors ------------------------------------------------------------------------------------------------

    def input(self, name: str, dtype: str, width: int) -> Value:
        """An input (n, width) for any n."""
        self.inputs.append(Value(name, dtype, width))
        return self.inputs[-1]

    def constant(self, array: Any, dtype: str) -> str:
        """The name of a constant; equal ones are stored once."""
        found = np.ascontiguousarray(array, dtype)
        # ascontiguousarray makes a scalar a row of one entry, which broadcasts as well.
        key = (dtype, found.shape, found.tobytes())
        if key not in self._constants:
            self._constants[key] = f"c{len(self._constants)}"
            self._initializers.append(self._numpy.from_array(found, self._constants[key]))
        return self._constants[key]

    def op(
        self,
        kind: str,
        inputs: list[str],
        dtype: str,
        width: int,
        named: str | None = None,
        **attributes: Any,
    ) -> Value:
        """The output of a node."""
        name = named or f"t{len(self._nodes)}"
        self._nodes.append(self._helper.make_node(kind, inputs, [name], **attributes))
        return Value(name, dtype, width)

    # ---- building blocks ----------------------------------------------------------------------------------------

    def cast(self, x: Value, dtype: str) -> Value:
        """The same numbers in another type."""
        if x.dtype == dtype:
            return x
        kinds = {"float32": 1, "float64": 11}  # onnx.TensorProto.FLOAT and DOUBLE
        return self.op("Cast", [x.name], dtype, x.width, to=kinds[dtype])

    def with_constant(self, kind: str, x: Value, array: Any) -> Value:
        """Add, Sub, Mul or Div of a tensor and what broadcasts to it."""
        return self.op(kind, [x.name, self.constant(array, x.dtype)], x.dtype, x.width)

    def mapped(self, x: Value, columns: NDArray[np.floating[Any]]) -> Value:
        """x @ columns (width, k), in the type of x."""
        return self.op("MatMul", [x.name, self.constant(columns, x.dtype)], x.dtype, columns.shape[1])

    def beside(self, parts: list[Value]) -> Value:
        """Tensors of one type, side by side."""
        if len(parts) == 1:
            return parts[0]
        width = sum(part.width for part in parts)
        return self.op("Concat", [part.name for part in parts], parts[0].dtype, width, axis=1)

    def added(self, parts: list[Value]) -> Value:
        """The sum of tensors of one type and width."""
        if len(parts) == 1:
            return parts[0]
        return self.op("Sum", [part.name for part in parts], parts[0].dtype, parts[0].width)

    def behind(self, x: Value, constant: float) -> Value:
        """x with a constant appended to every row."""
        pads = self.constant([0, 0, 0, 1], "int64")
        value = f"s{len(self._initializers)}"
        self._initializers.append(self._numpy.from_array(np.array(constant, x.dtype), value))
        return self.op("Pad", [x.name, pads, value], x.dtype, x.width + 1)

    def length(self, x: Value) -> Value:
        """The Euclidean length of every row, (n, 1)."""
        return self.op("ReduceL2", [x.name], x.dtype, 1, axes=[1], keepdims=1)

    def over(self, x: Value, divisor: Value, least: float, otherwise: float) -> Value:
        """x divided by a column; if the column is not above `least`, x times `otherwise`."""
        least_name, one = self.constant([[least]], x.dtype), self.constant([[1.0]], x.dtype)
        above = self.op("Greater", [divisor.name, least_name], "bool", 1)
        safe = self.op("Where", [above.name, divisor.name, one], x.dtype, 1)
        found = self.op("Div", [x.name, safe.name], x.dtype, x.width)
        if otherwise == 1.0:
            return found
        return self.op(
            "Where", [above.name, found.name, self.constant([[otherwise]], x.dtype)], x.dtype, x.width
        )

    def directions(self, x: Value, least: float = 0.0) -> Value:
        """Rows divided by their lengths, at any scale; those without an entry above `least` become zeros. As
        `kinstream.learners.base.scaler.UnitLength`."""
        size = self.op("Abs", [x.name], x.dtype, x.width)
        top = self.op("ReduceMax", [size.name], x.dtype, 1, axes=[1], keepdims=1)
        shrunk = self.over(x, top, least, 0.0 if least else 1.0)
        return self.over(shrunk, self.length(shrunk), 0.0, 1.0)

    # ---- the file -----------------------------------------------------------------------------------------------

    def encode(self, output: Value, name: str, metadata: dict[str, str]) -> bytes:
        """The bytes of a checked model that gives one tensor.

        Raises
        ------
        SettingsError
            It has more bytes than an ONNX file holds.
        """
        from onnx import checker

        helper, kinds = self._helper, {"float32": 1, "float64": 11}
        if sum(len(one.raw_data) for one in self._initializers) > MAX_BYTES:
            raise SettingsError("an ONNX file holds at most 2 GiB; use npz or safetensors")

        def described(value: Value) -> Any:
            return helper.make_tensor_value_info(value.name, kinds[value.dtype], ["n", value.width])

        graph = helper.make_graph(
            self._nodes,
            name,
            [described(value) for value in self.inputs],
            [described(output)],
            self._initializers,
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="kinstream",
        )
        helper.set_model_props(model, metadata)
        checker.check_model(model, full_check=True)
        return bytes(model.SerializeToString(deterministic=True))
