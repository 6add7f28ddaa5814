"""Checks attention itself: its weights, and the value that replaces hidden scores."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from ..attention_trace import (
    Attention,
    SoftmaxOutputs,
    plain_kernels,
    trace_attention,
)
from ..calls import CallInputs
from ..findings import Finding, NotApplicableError
from ..patient import Patient


def weights(patient: Patient) -> Iterator[Finding]:
    """A query's weights sum to one over the keys; it can see itself, and all of the source."""
    seen = attentions_in(patient, patient.draw(3))
    for attention in seen:
        if attention.axis != -1:
            sums = attention.weights.sum(dim=-1)
            numbers = {
                "axis": attention.axis,
                "low": float(sums.min()),
                "high": float(sums.max()),
            }
            yield Finding("weights.axis", "error", numbers, place=attention.place)
            return
    for attention in seen:
        n_queries, n_keys = attention.weights.shape[-2:]
        visible = attention.weights.flatten(0, -3).amax(dim=0) > 0
        if n_queries == n_keys and n_keys == patient.length:
            if not visible.diagonal()[1:].any() and visible.any():
                yield Finding("weights.not_itself", "warning", place=attention.place)
                return
        elif patient.has_source and n_keys != n_queries and not visible.all():
            numbers = {"n": int((~visible).sum()), "of": visible.numel()}
            yield Finding("weights.source_hidden", "warning", numbers, place=attention.place)
            return
    for attention in seen:
        # Differential attention uses one pair of queries and keys with several groups of values.
        alone = sum(_same_keys(attention, other) for other in seen) == 1
        if alone and _groups_differ(attention):
            yield Finding("weights.groups", "error", place=attention.place)
            return
    for attention in seen:
        if _proportional(attention.values, attention.keys):
            yield Finding("weights.values_are_keys", "warning", place=attention.place)
            return


def _groups_differ(attention: Attention) -> bool:
    """Tell whether query heads are grouped by their keys in one way and by their values in another.
    Heads that share their keys must share their values, and no other heads may."""
    keys, values, weights = attention.keys, attention.values, attention.weights
    if keys is None or values is None or weights.dim() != 4:
        return False
    batch, heads = weights.shape[:2]
    if len(keys) != batch * heads or len(values) != batch * heads:
        return False
    groups = [_alike(tensor.reshape(batch, heads, -1)) for tensor in (keys, values)]
    grouped = all(bool(alike.sum() > heads) for alike in groups)
    return grouped and not torch.equal(*groups)


def _same_keys(one: Attention, other: Attention) -> bool:
    if one.place != other.place or one.keys is None or other.keys is None:
        return one is other
    return one.keys.shape == other.keys.shape and torch.equal(one.keys, other.keys)


def _alike(heads: Tensor) -> Tensor:
    """Return a table (head, head) that tells which heads hold the same numbers."""
    return (heads[:, :, None] == heads[:, None]).all(dim=-1).all(dim=0)


def _proportional(one: Tensor | None, other: Tensor | None) -> bool:
    """Tell whether the numbers are the same apart from one factor (the kernel may scale its
    keys)."""
    if one is None or other is None or one.shape != other.shape:
        return False
    one, other = one.double().flatten(), other.double().flatten()
    factor = (one @ other) / (other @ other)
    return bool((one - factor * other).norm() < 1e-6 * one.norm())


def returned_weights(patient: Patient) -> Iterator[Finding]:
    """Weights that a model returns are (batch, heads, query, key), and their rows sum to one, in
    training too."""
    attention = patient.calls.attention
    if attention is None:
        raise NotApplicableError("no_weights")
    yield from _others(patient, attention)
    for mode in ("eval", "train"):
        model = patient.plain if mode == "eval" else patient.copy().train()
        seen = SoftmaxOutputs()
        with torch.no_grad(), plain_kernels(), seen:
            returned = attention(model, patient.draw(patient.rows(3)))
        with torch.no_grad():
            for index, given in enumerate(returned):
                sums = given.double().sum(dim=-1)
                worst = float((sums - 1).abs().max())
                if worst > 1e-3 and not seen.with_sink(given):
                    numbers = {"low": float(sums.min()), "high": float(sums.max()), "index": index}
                    severity = "error" if mode == "eval" else "note"
                    yield Finding(f"returned_weights.{mode}", severity, numbers)
                    return


def _others(
    patient: Patient, attention: Callable[[nn.Module, CallInputs], list[Tensor]]
) -> Iterator[Finding]:
    """Find returned weights that are not among those that a call without this option uses."""
    inputs = patient.draw(patient.rows(3))
    try:
        used = attentions_in(patient, inputs)
    except NotApplicableError:
        return  # other kernels than a softmax: nothing to compare with
    with torch.no_grad():
        given = attention(patient.specimen, inputs)
    for index, weights in enumerate(given):
        alike = [a.weights for a in used if a.weights.shape == weights.shape and a.axis == -1]
        if len(used) != len(given) or not alike:
            return
        nearest = min(float((weights - other).abs().max()) for other in alike)
        if nearest > 1e-3:
            numbers = {"index": index, "change": nearest}
            yield Finding("returned_weights.others", "error", numbers)
            return


def attentions_in(
    patient: Patient, inputs: CallInputs, model: torch.nn.Module | None = None
) -> list[Attention]:
    """Return every attention of a call; the specimen is called if no model is given."""
    length = inputs.tokens.shape[1] + patient.calls.inner_length
    shapes = {(length, length)}
    if inputs.source is not None:
        n_source = inputs.source.shape[1]
        shapes |= {(n_source, n_source), (length, n_source)}
    model = patient.specimen if model is None else model
    seen = trace_attention(model, lambda: patient.logits(model, inputs), shapes)
    if not seen:
        raise NotApplicableError("no_attention_seen")
    return seen


# Far beyond any score, and within reach of what a careless constant is.
_WEAK, _STRONG = 1e3, 1e5


def mask_strength(patient: Patient) -> Iterator[Finding]:
    """The value that replaces a hidden score must hide it."""
    for attention in attentions_in(patient, patient.draw(3)):
        hidden = attention.scores[attention.weights == 0]
        hidden = hidden[hidden.isfinite()]
        if attention.axis != -1 or not hidden.numel():
            continue
        value = float(hidden.max())
        if -_STRONG < value < -_WEAK:
            yield Finding("mask_strength.weak", "note", {"value": value}, place=attention.place)
            return
