"""Proves that the graphs compute what the model computes, by giving both the same tokens."""

from pathlib import Path

import numpy as np
import torch

from clearhead.inspection.lens import logit_lens, stage_names
from clearhead.inspection.look import KINDS, Text, pass_over
from clearhead.inspection.trace import Trace, trace
from clearhead.interop.certificate import Certificate, versions_of
from clearhead.models import Classifier, MaskedLM, Model, Seq2Seq
from clearhead.web.running import PageGraphs

LENGTHS = ((1, 1), (2, 9), (17, 4), (60, 60))
MAX_WEIGHT = 1e-5
COMPARED = ("logits after each sublayer", "attention of each head")


def certify(model: Model, folder: Path) -> Certificate:
    """Compare logits after every sublayer, and the weights of every head, at several lengths."""
    graphs = PageGraphs(folder)
    generator = torch.Generator().manual_seed(1)
    logits, weights, n_tokens = 0.0, 0.0, 0
    for n_source, n_target in LENGTHS:
        text = _probe(model, n_source, n_target, generator)
        mine = graphs.run(text)
        with torch.no_grad(), trace(model) as t:
            pass_over(model, text)
        logits = max(logits, _largest(stage_logits(t), mine["logits"]))
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
    """Make the parity certificate of a folder that was not compared."""
    return Certificate(
        family="web",
        architecture=type(model).__name__,
        versions=versions_of("torch", "onnx"),
        library="onnxruntime",
        unchecked=why,
    )


@torch.no_grad()
def stage_logits(t: Trace) -> torch.Tensor:
    """Return the logits of tokens after each stage; for a classifier, the scores of the labels that
    each vector would give."""
    model = t.model
    if not isinstance(model, Classifier):
        return logit_lens(t).logits[:, 0]
    stages = torch.cat([t[stage] for stage in stage_names(model, "encoder")])
    return model.head(stages if model.encoder.norm is None else model.encoder.norm(stages))


def _probe(model: Model, n_source: int, n_target: int, generator: torch.Generator) -> Text:
    longest = model.config.max_length

    def drawn(n: int, size: int) -> list[int]:
        return torch.randint(size, (min(n, longest),), generator=generator).tolist()

    target = drawn(n_target, model.config.output_vocab_size)
    if isinstance(model, MaskedLM | Classifier):
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
