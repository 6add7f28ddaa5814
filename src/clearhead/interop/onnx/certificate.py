"""Makes the parity certificate of an ONNX folder: onnxruntime runs its graphs on the same tokens as
the model, first on all tokens at once and then token by token."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import ConfigError, setting
from clearhead.interop.certificate import (
    Certificate,
    furthest_apart,
    in_fp64,
    refuse_overflow,
    versions_of,
)
from clearhead.interop.folders import read_json
from clearhead.interop.huggingface.certificate import TEXTS
from clearhead.interop.huggingface.tokenizer import added_here
from clearhead.interop.model_folder import Description, load_model
from clearhead.interop.onnx.precision import Precision, round_weights
from clearhead.interop.onnx.running import OnnxFolder
from clearhead.interop.probes import Probe, batch_of_five, probes
from clearhead.interop.tokenizer_file import has_tokenizer, open_tokenizer

LIBRARY = "onnxruntime"
LIMIT = 1e-4
SHARE = 1e-5
"""onnxruntime computes in fp32: a correct folder differs by about 1e-6 of its largest logit."""
MAX_STEPS = 16
"""The length of the longest probe that is run token by token."""
MAX_ROUNDING: dict[Precision, float] = {"fp32": 0.0, "fp16": 0.01, "int8": 0.1}
"""How much rounding the weights may change the logits, as a share of their spread."""


def certify(
    model_folder: Path,
    out: Path,
    description: Description,
    precision: Precision,
    architecture: str,
) -> Certificate:
    """Compare the graphs with a model that has the same rounded weights, in fp64, so that any
    difference comes from the function. The effect of rounding itself is measured separately."""
    config = description.model
    tried = [*probes(config), batch_of_five(config)]
    model = load_model(model_folder, dtype=torch.float32)
    refuse_overflow(model_folder, _real(tried[0], tried[0].ours(model)), "logits")
    model = in_fp64(model)
    before = [_real(probe, probe.ours(model)) for probe in tried]
    round_weights(model, precision)
    expected = [_real(probe, probe.ours(model)) for probe in tried]
    del model
    rounding = _refuse_rounding(precision, torch.cat(before), torch.cat(expected))
    del before
    opened = OnnxFolder(out, precision)
    difference = 0.0
    for probe, own_logits in zip(tried, expected):
        inputs = probe.theirs(config)
        steps = [None]
        if config.family != "encoder" and 1 < probe.tokens.shape[1] <= MAX_STEPS:
            steps = [None, 1, 3]
        for step in steps:
            logits = _real(probe, opened.logits(inputs, tokens_at_once=step))
            difference = max(difference, furthest_apart(logits, own_logits))
    largest = max(logits.abs().max().item() for logits in expected)
    by_steps = () if config.family == "encoder" else ("token by token and by threes with a cache",)
    return _certificate(
        architecture,
        precision,
        largest_difference=difference,
        limit=max(LIMIT, SHARE * largest),
        n_tokens=sum(int(probe.real.sum()) for probe in tried),
        compared=(*(probe.name for probe in tried), *by_steps),
        faults=tuple(_tokenizer_faults(model_folder, out, description)),
        rounding=rounding,
    )


def unchecked(architecture: str, precision: Precision, reason: str) -> Certificate:
    """Make a parity certificate that says why nothing was compared."""
    return _certificate(architecture, precision, unchecked=reason)


def _certificate(architecture: str, precision: Precision, **found: Any) -> Certificate:
    return Certificate(
        family="ONNX" if precision == "fp32" else f"ONNX with weights in {precision}",
        architecture=architecture,
        library=LIBRARY,
        versions=versions_of("torch", "onnx", LIBRARY, "tokenizers"),
        **found,
    )


def _refuse_rounding(precision: Precision, before: Tensor, after: Tensor) -> float | None:
    """Return how much rounding has changed the logits, as a share of their spread. Raises if the
    share is too large."""
    if precision == "fp32":
        return None
    spread = (before - before.mean()).square().mean().sqrt().item()
    moved = (after - before).square().mean().sqrt().item()
    share = moved / spread if spread else (math.inf if moved else 0.0)
    if not share <= MAX_ROUNDING[precision]:  # NaN is refused too: weights too large for fp16
        rule = (
            f"moves the logits by {share:.1%} of their spread, and at most "
            f"{MAX_ROUNDING[precision]:.0%} is accepted"
        )
        remedy = (
            f"export with {setting('precision', 'fp16')}" if precision == "int8" else "leave it out"
        )
        raise ConfigError("precision", precision, rule, remedy)
    return share


def _real(probe: Probe, logits: Tensor) -> Tensor:
    """Return the logits to compare: without padding; for a classifier, those of each row."""
    return logits if logits.ndim == 2 else logits[probe.real]


def _tokenizer_faults(model_folder: Path, out: Path, description: Description) -> Iterator[str]:
    """Return texts that the exported tokenizer turns into other ids than the model reads here."""
    if not has_tokenizer(out):
        return
    ours, exported = open_tokenizer(model_folder), open_tokenizer(out)
    before, behind = added_here(model_folder, description, ours)
    split = read_json(out, "tokenizer_config.json")["split_special_tokens"]
    ours.encode_special_tokens = exported.encode_special_tokens = split
    for text in TEXTS:
        try:
            ids = ours.encode(text, add_special_tokens=False).ids
        except Exception:  # an unknown letter; the library raises no narrower type
            continue
        if exported.encode(text).ids != [*before, *ids, *behind]:
            yield f"tokenizer.json gives other ids for {text!r}"
