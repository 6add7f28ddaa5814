"""Graphs into files: a small `.onnx` for each, and one file of weights for all of them.

A weight that half precision holds exactly is stored so, as in the run's own file, and cast in the
graph: the numbers are the same, and half the bytes are sent. A weight of several graphs (or of
both ends of one, where input and output share a table) is stored once, even if one of them has it
transposed.
"""

import hashlib
import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.export import Dim

from clearhead.errors import ClearheadError
from clearhead.models import Model
from clearhead.web.graph import WebGraph, graphs

WEIGHTS = "weights.bin"
SMALL = 64  # elements up to which a constant stays inside its graph
ALIGNED = 64  # bytes


def draw_graphs(model: Model, folder: Path) -> list[WebGraph]:
    """Write the graphs of a model and their weights into a folder."""
    onnx = onnx_library()
    model = model.eval().requires_grad_(False)
    store = WeightStore()
    found = graphs(model)
    for graph in found:
        proto = _exported(graph)
        _forget_origins(proto)
        store.take_from(proto, onnx)
        (folder / f"{graph.name}.onnx").write_bytes(proto.SerializeToString())
    (folder / WEIGHTS).write_bytes(bytes(store.data))
    return found


def onnx_library() -> Any:
    """The module `onnx`, if all that an export needs is installed."""
    try:
        import onnx
        import onnxruntime  # noqa: F401 (which the comparison needs)
        import onnxscript  # noqa: F401 (which torch's exporter needs)
    except ImportError as error:
        raise ClearheadError(
            f"a graph for the browser is written by {error.name}, which is not installed; "
            "install it with: pip install 'clearhead[onnx]'"
        ) from None
    return onnx


def _exported(graph: WebGraph) -> Any:
    shapes = [
        None if given is None else dict.fromkeys(graph.lengths.get(name, ()), Dim.DYNAMIC)
        for name, given in graph.inputs.items()
    ]
    level = logging.getLogger("torch.onnx").level
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                graph.module,
                tuple(graph.inputs.values()),
                dynamo=True,
                input_names=[n for n, given in graph.inputs.items() if given is not None],
                output_names=graph.outputs,
                dynamic_shapes=tuple(shapes),
                optimize=True,
                verbose=False,
            )
    finally:
        logging.getLogger("torch.onnx").setLevel(level)
    assert program is not None
    return program.model_proto


def _forget_origins(proto: Any) -> None:
    """The exporter notes the stack of calls behind each node: paths of this machine, and most of
    the file's bytes."""
    del proto.metadata_props[:], proto.graph.metadata_props[:], proto.graph.value_info[:]
    for node in proto.graph.node:
        node.ClearField("doc_string")
        del node.metadata_props[:]
    for each in (*proto.graph.input, *proto.graph.output, *proto.graph.initializer):
        del each.metadata_props[:]


class WeightStore:
    """Bytes of tensors, each content once."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._places: dict[bytes, tuple[int, int]] = {}

    def take_from(self, proto: Any, onnx: Any) -> None:
        """Moves the constants of a graph here, but for the small ones."""
        restored: list[Any] = []
        for tensor in proto.graph.initializer:
            values = onnx.numpy_helper.to_array(tensor)
            if values.size <= SMALL:
                continue
            half = values.dtype == np.float32 and _is_half(values)
            values = values.astype(np.float16) if half else values
            turned = values.ndim == 2 and _content(values.T) in self._places
            if half or turned:
                # The name stays with what the graph uses; the stored tensor gets another.
                name, tensor.name = tensor.name, f"{tensor.name}.stored"
                steps = ["Cast"] * half + ["Transpose"] * turned
                names = [tensor.name, *(f"{tensor.name}.{n}" for n in range(1, len(steps))), name]
                for step, given, made in zip(steps, names, names[1:]):
                    settings = {"to": onnx.TensorProto.FLOAT} if step == "Cast" else {}
                    restored.append(onnx.helper.make_node(step, [given], [made], **settings))
            if turned:
                values = values.T
                tensor.dims[:] = values.shape
            if half:
                tensor.data_type = onnx.TensorProto.FLOAT16
            self._point(tensor, values, onnx)
        for place, node in enumerate(restored):
            proto.graph.node.insert(place, node)

    def _point(self, tensor: Any, values: np.ndarray, onnx: Any) -> None:
        data, key = values.tobytes(), _content(values)
        if key not in self._places:
            self.data += bytes(-len(self.data) % ALIGNED)
            self._places[key] = len(self.data), len(data)
            self.data += data
        offset, length = self._places[key]
        tensor.ClearField("raw_data")
        tensor.ClearField("float_data")
        tensor.ClearField("int64_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        del tensor.external_data[:]
        facts = {"location": WEIGHTS, "offset": offset, "length": length}
        for name, value in facts.items():
            tensor.external_data.add(key=name, value=str(value))


def _content(values: np.ndarray) -> bytes:
    """What a tensor is known by; `tobytes` is in the order of its rows, turned or not."""
    return hashlib.sha256(f"{values.dtype} {values.shape}".encode() + values.tobytes()).digest()


def _is_half(values: np.ndarray) -> bool:
    with np.errstate(over="ignore"):
        return bool((values.astype(np.float16).astype(np.float32) == values).all())
