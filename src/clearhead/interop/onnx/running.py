"""Runs an exported folder with onnxruntime: on all tokens at once, or piece by piece with a
cache."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.interop.onnx.graphs import DECODER, ENCODER, WHOLE
from clearhead.interop.onnx.precision import SUFFIXES, Precision

FOLDER = "onnx"
"""The folder in which transformers.js looks for the graphs."""


def need_onnx() -> None:
    """Raises if the libraries that write and run a graph are not installed."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError:
        raise ClearheadError(
            "an ONNX graph needs onnx and onnxruntime, which are not installed; "
            "install them with: pip install 'clearhead[onnx]'"
        ) from None


def open_graph(path: Path) -> Any:
    """Return the session that runs a file."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # its advice is for those who write kernels
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class OnnxFolder:
    """The graphs of a folder. Their inputs and outputs have the names that the files use."""

    def __init__(self, folder: Path, precision: Precision) -> None:
        self._sessions: dict[str, Any] = {}
        for name in (ENCODER, DECODER, WHOLE):
            path = folder / FOLDER / f"{name}{SUFFIXES[precision]}.onnx"
            if path.exists():
                self._sessions[name] = open_graph(path)

    def logits(self, given: dict[str, Tensor], *, tokens_at_once: int | None = None) -> Tensor:
        """Return the logits of all tokens, computed at once, or `tokens_at_once` tokens at a time,
        each time with the cache of the earlier calls. `given` uses the names that transformers has
        for the arguments of a model."""
        inputs = {name: tensor.numpy() for name, tensor in given.items()}
        if ENCODER in self._sessions:
            inputs = self._with_source(inputs)
        name = DECODER if DECODER in self._sessions else WHOLE
        n_tokens = inputs["input_ids"].shape[1]
        step = tokens_at_once or n_tokens
        past = self._empty_past(name, len(inputs["input_ids"]))
        pieces = []
        for start in range(0, n_tokens, step):
            end = start + step
            new = inputs | {"input_ids": inputs["input_ids"][:, start:end]}
            if past and "attention_mask" in inputs:  # of all tokens so far
                new["attention_mask"] = inputs["attention_mask"][:, :end]
            outputs = self._run(name, new | past)
            pieces.append(outputs["logits"])
            past = {
                past_name: outputs[past_name.replace("past_key_values", "present")]
                for past_name in past
            }
        return torch.from_numpy(np.concatenate(pieces, axis=1) if past else pieces[0])

    def _with_source(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return {
            "input_ids": inputs["decoder_input_ids"],
            "encoder_attention_mask": inputs["attention_mask"],
            "encoder_hidden_states": self._run(ENCODER, inputs)["last_hidden_state"],
        }

    def _empty_past(self, name: str, n_rows: int) -> dict[str, Any]:
        """Return the empty past that transformers.js makes, with the shapes that the file
        declares."""
        return {
            node.name: np.zeros((n_rows, node.shape[1], 0, node.shape[3]), dtype=np.float32)
            for node in self._sessions[name].get_inputs()
            if node.name.startswith("past_key_values.")
        }

    def _run(self, name: str, inputs: dict[str, Any]) -> dict[str, Any]:
        session = self._sessions[name]
        feed = {node.name: inputs[node.name] for node in session.get_inputs()}
        names = [node.name for node in session.get_outputs()]
        return dict(zip(names, session.run(names, feed)))
