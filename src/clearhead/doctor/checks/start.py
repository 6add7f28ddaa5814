"""The first forward and backward pass: what comes out, what it costs, what learns."""

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F

from clearhead.doctor.findings import Finding, NotApplicableError
from clearhead.doctor.patient import Patient

# A random output layer adds half its variance to ln V: with PyTorch's own first weights 0.2 at
# most. One nat more than ln V is a spread that no common initialisation gives.
_SPREAD_ALLOWED = 1.0
# Random targets cannot be guessed; this is far outside the noise of five hundred of them.
_KNOWLEDGE_ALLOWED = 0.2


def output(patient: Patient) -> Iterator[Finding]:
    """Finite scores, not probabilities."""
    with torch.no_grad():
        logits = patient.logits(patient.plain, patient.draw(3)).double()
    if not logits.isfinite().all():
        share = float((~logits.isfinite()).double().mean())
        yield Finding("output.not_finite", "error", {"share": share})
    elif (logits >= 0).all() and (logits.sum(dim=-1) - 1).abs().max() < 1e-3:
        yield Finding("output.probabilities", "error")


def first_loss(patient: Patient) -> Iterator[Finding]:
    """Before training, all tokens are equally likely: the loss is about ln V."""
    if not patient.fresh:
        raise NotApplicableError("trained")
    inputs, targets = patient.draw(48), patient.draw(48, seed=1).tokens
    with torch.no_grad():
        logits = patient.logits(patient.plain, inputs).float()
    if patient.kind != "encoder":
        logits, targets = logits[:, :-1], inputs.tokens[:, 1:]
    loss = float(F.cross_entropy(logits.flatten(0, 1), targets.flatten()))
    right = math.log(patient.vocab_size)
    numbers = {"loss": loss, "right": right, "vocab_size": patient.vocab_size}
    if loss > right + _SPREAD_ALLOWED:
        numbers["spread"] = float(logits.std(dim=-1).mean())
        yield Finding("first_loss.high", "warning", numbers)
    elif loss < right - _KNOWLEDGE_ALLOWED:
        yield Finding("first_loss.low", "error", numbers)


def gradients(patient: Patient) -> Iterator[Finding]:
    """Every parameter takes part, and every gradient is finite."""
    # With noise on the weights: a layer that starts at zero passes nothing back.
    model, inputs = patient.noisy_copy(), patient.draw(8)
    logits = patient.logits(model, inputs)
    targets = patient.draw(8, seed=1).tokens
    F.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    unused = [name for name, p in trained if p.grad is None]
    if unused:
        yield Finding("gradients.none", "error", _names(unused), place=_common(unused))
    infinite = [name for name, p in trained if p.grad is not None and not p.grad.isfinite().all()]
    if infinite:
        yield Finding("gradients.not_finite", "error", _names(infinite), place=infinite[0])
    # Vectors may rightly have none: attention does not feel the bias of its keys.
    still = [n for n, p in trained if p.dim() > 1 and p.grad is not None and not p.grad.any()]
    if still:
        yield Finding("gradients.zero", "error", _names(still), place=_common(still))


def _names(names: list[str]) -> dict[str, object]:
    shown = ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
    return {"n": len(names), "names": shown}


def _common(names: list[str]) -> str:
    """The part of the tree that all of them are in; the first one's, if there is no such part."""
    parts = [name.split(".") for name in names]
    shared = []
    for level in zip(*parts):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    return ".".join(shared or parts[0])
