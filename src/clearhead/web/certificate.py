"""The proof that the graphs compute what the model computes: both are given the same tokens."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from clearhead.inspection.lens import logit_lens
from clearhead.inspection.look import KINDS, Text, pass_over
from clearhead.inspection.trace import Trace, trace
from clearhead.interop.certificate import Certificate, versions_of
from clearhead.models import MaskedLM, Model, Seq2Seq
from clearhead.web.graph import WebGraph

LENGTHS = ((1, 1), (2, 9), (17, 4), (60, 60))
MAX_WEIGHT = 1e-5
COMPARED = ("logits after each sublayer", "attention of each head")


def certify(model: Model, graphs: list[WebGraph], folder: Path) -> Certificate:
    """Compares logits after every sublayer, and the weights of every head, at several lengths."""
    import onnxruntime

    sessions = {
        graph.name: onnxruntime.InferenceSession(folder / f"{graph.name}.onnx") for graph in graphs
    }
    generator = torch.Generator().manual_seed(1)
    logits, weights, n_tokens = 0.0, 0.0, 0
    for n_source, n_target in LENGTHS:
        text = _probe(model, n_source, n_target, generator)
        mine = run_graphs(graphs, sessions, text)
        with torch.no_grad(), trace(model) as t:
            pass_over(model, text)
        logits = max(logits, _largest(logit_lens(t).logits[:, 0], mine["logits"]))
        for kind, place in KINDS.items():
            if kind in mine:
                weights = max(weights, _largest(_weights(t, *place), mine[kind]))
        n_tokens += len(text.source or []) + len(text.fed or [])
    faults = (f"largest weight difference {weights:.1e}",) if not weights <= MAX_WEIGHT else ()
    return Certificate(
        family="web",
        architecture=type(model).__name__,
        versions=versions_of("torch", "onnx", "onnxruntime"),
        library="onnxruntime",
        largest_difference=logits,
        n_tokens=n_tokens,
        compared=COMPARED,
        faults=faults,
    )


def unchecked(model: Model, why: str) -> Certificate:
    """The parity certificate of a folder that was not compared."""
    return Certificate(
        family="web",
        architecture=type(model).__name__,
        versions=versions_of("torch", "onnx"),
        library="onnxruntime",
        unchecked=why,
    )


def run_graphs(
    graphs: list[WebGraph], sessions: dict[str, Any], text: Text, **switches: np.ndarray
) -> dict[str, np.ndarray]:
    """One text through all graphs: what the towers return, and `logits` after each stage.
    `switches` are inputs of the predicting tower in the place of those that leave all on."""
    found: dict[str, np.ndarray] = {}
    for graph in graphs[:-1]:
        given = {name: x.numpy() for name, x in graph.inputs.items() if x is not None}
        tokens = text.source if graph.name == "encoder" else text.fed
        given["tokens"] = np.array([tokens])
        if "written" in given:
            given["written"] = np.array([text.written])
        if "memory" in given:
            given["memory"] = found["memory"]
        if graph is graphs[-2]:
            given |= switches
        outputs = sessions[graph.name].run(graph.outputs, given)
        found |= dict(zip(graph.outputs, outputs))
    rows = [sessions["output"].run(["logits"], {"rows": stage})[0] for stage in found["stages"]]
    return {**found, "logits": np.stack(rows)}


def _probe(model: Model, n_source: int, n_target: int, generator: torch.Generator) -> Text:
    longest = model.config.max_length

    def drawn(n: int, size: int) -> list[int]:
        return torch.randint(size, (min(n, longest),), generator=generator).tolist()

    target = drawn(n_target, model.config.output_vocab_size)
    if isinstance(model, MaskedLM):
        return Text(target, None, target)
    source = drawn(n_source, model.config.vocab_size) if isinstance(model, Seq2Seq) else None
    return Text(source, target, target)


def _weights(t: Trace, tower: str, part: str) -> torch.Tensor:
    n_layers = len(getattr(t.model, tower).layers)
    return torch.stack([t[f"{tower}.layers.{i}.{part}.weights"][0] for i in range(n_layers)])


def _largest(theirs: torch.Tensor, mine: np.ndarray) -> float:
    if tuple(theirs.shape) != mine.shape:
        return float("nan")
    return float(np.abs(theirs.numpy() - mine).max())
