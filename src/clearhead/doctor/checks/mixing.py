"""Positions may meet in attention only."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from clearhead.doctor.attention_trace import LookAtYourself, plain_kernels, trace_attention
from clearhead.doctor.findings import Finding, NotApplicableError
from clearhead.doctor.patient import Patient
from clearhead.doctor.witness import axis_of, differs, first_change, watch

# What parts are called in which positions meet without a softmax, and are meant to.
_OTHERS = ("att", "mix", "mamba", "delta", "recur", "ssm", "conv")


def mixing(patient: Patient) -> Iterator[Finding]:
    """With every attention replaced by one in which each position looks at itself alone, a token
    must not reach another position: if it does, something else moves positions about, such as
    heads that are merged in the wrong order."""
    if patient.pooled:
        raise NotApplicableError("pooled")
    length = patient.length
    inner, n_source = patient.inner_length, patient.source_length
    shapes = {(inner, inner)}
    if patient.has_source:
        shapes |= {(n_source, n_source), (inner, n_source)}
    model, inputs = patient.specimen, patient.draw(2)
    token = length // 2
    tokens = inputs.tokens.clone()
    tokens[:, token] = patient.other_tokens(tokens[:, token])
    eyes = LookAtYourself(shapes)
    others = replace(inputs, tokens=tokens)
    with torch.no_grad(), plain_kernels(), eyes:
        one, other = patient.logits(model, inputs), patient.logits(model, others)
    if not eyes.n_seen:
        raise NotApplicableError("no_attention_seen")
    if eyes.convolves:
        raise NotApplicableError("other_mixing")

    def elsewhere_moved(one: Tensor, other: Tensor) -> bool:
        axis = axis_of(one, length)
        if axis is None or one.dim() < 2:
            return False
        kept = [position for position in range(length) if position != token]
        one, other = one.movedim(axis, 0)[kept], other.movedim(axis, 0)[kept]
        return differs(one, other, patient.tolerance)

    if elsewhere_moved(one, other) and _moves_by_one(one, other, token, patient.tolerance):
        yield Finding("mixing.shifted", "note", {"token": token, "next": token + 1})
    elif elsewhere_moved(one, other):
        with torch.no_grad(), plain_kernels(), eyes:
            before = watch(model, lambda: patient.logits(model, inputs))
            after = watch(model, lambda: patient.logits(model, others))
        place = first_change(before, after, elsewhere_moved)
        seen = trace_attention(model, lambda: patient.logits(model, inputs), shapes)
        if place is not None and _mixes_by_itself(model, place, [a.place for a in seen]):
            raise NotApplicableError("other_mixing")
        yield Finding("mixing.outside_attention", "warning", {"token": token}, place=place)


def _moves_by_one(one: Tensor, other: Tensor, token: int, tolerance: float) -> bool:
    """A token arrives at the next position and nowhere else: the model itself moves its tokens to
    the right, and begins with one of its own."""
    moved = [
        differs(before, after, tolerance)
        for before, after in zip(one.unbind(dim=1), other.unbind(dim=1))
    ]
    return [place for place, is_moved in enumerate(moved) if is_moved] == [token + 1]


def _mixes_by_itself(model: nn.Module, place: str, attentions: list[str]) -> bool:
    """Whether a part is another kind of attention, such as a linear one: it is called so, and no
    softmax over scores runs in it."""
    name = f"{place} {type(model.get_submodule(place)).__name__}".lower()
    near = any(
        f"{a}.".startswith(f"{place}.") or f"{place}.".startswith(f"{a}.") for a in attentions
    )
    return not near and any(word in name for word in _OTHERS)
