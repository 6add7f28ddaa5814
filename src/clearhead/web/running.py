"""Runs the graphs of a page with onnxruntime in Python, as the page runs them in the browser."""

from pathlib import Path
from typing import Any

import numpy as np

from clearhead.inspection.look import Text
from clearhead.interop.onnx.running import open_graph
from clearhead.web.graphs import OUTPUT


class PageGraphs:
    """The graphs of a folder."""

    def __init__(self, folder: Path) -> None:
        self._output = open_graph(folder / f"{OUTPUT}.onnx")
        self._towers = {
            name: open_graph(path)
            for name in ("encoder", "decoder")
            if (path := folder / f"{name}.onnx").exists()
        }

    def run(self, text: Text, **switches: np.ndarray) -> dict[str, np.ndarray]:
        """Run one text through all graphs. Returns the outputs of the towers, and `logits` after
        each stage. `switches` are inputs of the last tower; without them, everything is on."""
        results: dict[str, np.ndarray] = {}
        for name, session in self._towers.items():
            tokens = text.source if name == "encoder" else text.fed
            inputs = {**results, "tokens": np.array([tokens]), "written": np.array([text.written])}
            inputs |= switches if session is [*self._towers.values()][-1] else {}
            feeds = {value.name: _feed(value, inputs) for value in session.get_inputs()}
            names = [value.name for value in session.get_outputs()]
            results |= dict(zip(names, session.run(names, feeds)))
        rows = [self._output.run(None, {"rows": stage})[0] for stage in results["stages"]]
        return {**results, "logits": np.stack(rows)}


def _feed(declared: Any, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Return an input as given, or a switch that leaves everything on."""
    if declared.name in inputs:
        return inputs[declared.name]
    if declared.type == "tensor(bool)":
        return np.ones(declared.shape, dtype=np.bool_)
    return np.zeros(declared.shape, dtype=np.float32)
