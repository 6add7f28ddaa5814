"""An ONNX graph that grows node by node. Values are known by their names, as in the file."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from clearhead.interop.onnx.precision import Precision, stored
from clearhead.models import Model

OPSET = 20
"""The first operator set in which GELU is an operation."""
IR_VERSION = 9
"""The version of the file format: the oldest that may contain opset 20."""

ALIGNED = 64
"""A tensor in a file of weights begins at a multiple of this number of bytes."""

Value = str
AxisSizes = tuple[int | str, ...]
"""Sizes of axes. A name stands for a size that is known only when the graph runs."""


class WeightFile:
    """The weights of several graphs in one file beside them. Equal contents are stored once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = bytearray()
        self._offsets: dict[bytes, int] = {}

    def take(self, tensor: Any) -> None:
        """Move the numbers of a tensor into this file; the tensor then refers to their place."""
        from onnx.external_data_helper import set_external_data

        data = tensor.raw_data
        key = hashlib.sha256(data).digest()
        if key not in self._offsets:
            self._data += bytes(-len(self._data) % ALIGNED)
            self._offsets[key] = len(self._data)
            self._data += data
        set_external_data(tensor, self.path.name, offset=self._offsets[key], length=len(data))
        tensor.ClearField("raw_data")

    def save(self) -> None:
        """Save the weights once all graphs exist, and before they are saved, because their check
        reads this file."""
        self.path.write_bytes(self._data)


class Graph:
    """The nodes, weights, inputs and outputs of one file, for one model. With a `weight_file`, the
    weights are stored there instead."""

    def __init__(
        self, model: Model, precision: Precision, weight_file: WeightFile | None = None
    ) -> None:
        self.precision: Precision = precision
        self._weight_file = weight_file
        named = (*model.named_parameters(), *model.named_buffers())
        self._names = {id(tensor): name for name, tensor in named}
        self._parameters = {id(tensor) for tensor in model.parameters()}
        self._nodes: list[Any] = []
        self._initializers: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._made: dict[Any, Value] = {}
        self.n_bytes = 0
        """The number of bytes of all stored numbers."""

    def op(self, kind: str, *inputs: Value, **attributes: Any) -> Value:
        """Return the result of a node with one output."""
        return self.ops(kind, *inputs, n_outputs=1, **attributes)[0]

    def ops(self, kind: str, *inputs: Value, n_outputs: int, **attributes: Any) -> list[Value]:
        """Return the results of a node with several outputs."""
        from onnx import helper

        name = f"{kind}_{len(self._nodes)}"
        outputs = [name] if n_outputs == 1 else [f"{name}_{i}" for i in range(n_outputs)]
        self._nodes.append(helper.make_node(kind, inputs, outputs, name=name, **attributes))
        return outputs

    def constant(self, value: int | float | list[int]) -> Value:
        """Return a number, or the numbers of a shape or of axes, as a constant."""
        key = (type(value), str(value))
        if key not in self._made:
            is_float = isinstance(value, float)
            array = np.array(value, dtype=np.float32 if is_float else np.int64)
            self._made[key] = self._initializer(f"constant_{len(self._made)}", array)
        return self._made[key]

    def weight(self, tensor: Tensor) -> Value:
        """Return a parameter or a table of the model, in fp32. Each tensor is stored once."""
        if id(tensor) not in self._made:
            self._made[id(tensor)] = self._weight(tensor)
        return self._made[id(tensor)]

    def matrix(self, weight: Tensor) -> Value:
        """Return the transposed weight, as `MatMul` takes it; runtimes transpose it when they load
        it."""
        key = ("transposed", id(weight))
        if key not in self._made:
            self._made[key] = self.op("Transpose", self.weight(weight), perm=[1, 0])
        return self._made[key]

    def size(self, value: Value, axis: int) -> Value:
        """Return the length of the value along this axis, as a number."""
        return self.op("Gather", self.op("Shape", value), self.constant(axis))

    def unsqueeze(self, value: Value, *axes: int) -> Value:
        """Insert axes of length 1 at these places."""
        return self.op("Unsqueeze", value, self.constant(list(axes)))

    def reshape(self, value: Value, *shape: int) -> Value:
        """Reshape as ONNX does: 0 keeps an axis, and -1 stands for the rest."""
        return self.op("Reshape", value, self.constant(list(shape)))

    def slice(self, value: Value, axis: int, start: Value | int, step: int = 1) -> Value:
        """Return the slice from `start` to the end."""
        first = self.constant([start]) if isinstance(start, int) else start
        end = self.constant([2**31 - 1])
        more = () if step == 1 else (self.constant([step]),)
        return self.op("Slice", value, first, end, self.constant([axis]), *more)

    def input(self, name: str, shape: AxisSizes, *, of: type = np.int64) -> Value:
        """Declare an input."""
        self._inputs.append(_value_info(name, shape, of))
        return name

    def output(self, name: str, value: Value, shape: AxisSizes) -> None:
        """Declare this value as an output."""
        from onnx import helper

        self._nodes.append(helper.make_node("Identity", [value], [name], name=f"to {name}"))
        self._outputs.append(_value_info(name, shape, np.float32))

    def save(self, path: Path) -> None:
        """Write the file, and let the library check it."""
        import onnx
        from onnx import helper

        graph = helper.make_graph(
            self._nodes, path.stem, self._inputs, self._outputs, self._initializers
        )
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(
            graph, producer_name="clearhead", opset_imports=opset, ir_version=IR_VERSION
        )
        onnx.save_model(model, str(path))
        onnx.checker.check_model(str(path))

    def _weight(self, tensor: Tensor) -> Value:
        name = self._names[id(tensor)]
        # A table that is computed is not a weight, and is never rounded.
        precision = self.precision if id(tensor) in self._parameters else "fp32"
        held = stored(tensor, precision)
        value = self._initializer(name, held.numbers.numpy(), self._weight_file)
        if held.scales is not None:
            scales = self._initializer(f"{name}.scales", held.scales.numpy())
            return self.op("DequantizeLinear", value, scales, axis=0)
        return value if precision == "fp32" else self.op("Cast", value, to=_type_of(np.float32))

    def _initializer(
        self, name: str, array: np.ndarray, weight_file: WeightFile | None = None
    ) -> Value:
        from onnx import numpy_helper

        self.n_bytes += array.nbytes
        self._initializers.append(numpy_helper.from_array(array, name))
        if weight_file is not None:
            weight_file.take(self._initializers[-1])
        return name


def _type_of(kind: type) -> int:
    from onnx import helper

    return helper.np_dtype_to_tensor_dtype(np.dtype(kind))


def _value_info(name: str, shape: AxisSizes, kind: type) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(name, _type_of(kind), shape)
