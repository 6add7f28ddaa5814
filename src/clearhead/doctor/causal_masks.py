"""Finds a causal mask that the caller passes: which argument it is, and in which form, by
trying."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import torch

from .attention_trace import trace_attention
from .form import CALL_ERRORS, Form, arguments_of
from .mask_form import MaskForm, MaskShape
from .masks import OF_SOURCE, SENSES, hides, is_mask
from .patient import Patient
from .reach import reach_in

_SHAPES: tuple[MaskShape, ...] = (
    "(batch, 1, length, length)",
    "(batch, length, length)",
    "(length, length)",
)
_OF_ANOTHER = ("enc", "mem", "cross")


def with_causal_mask(patient: Patient, form: Form) -> Form:
    """Return the form with a causal mask in an optional argument, or with a flag that switches one
    on, if the model leaks without it and leaks less with it; otherwise, return the same form."""
    if patient.kind == "encoder" or patient.one_sequence or form.methods or form.one_by_one:
        return form
    if any(mask.causal for mask in form.masks.values()):
        return form
    flags, names = _flags(patient), _names(patient, form)
    if not (flags or names):
        return form
    asked = replace(patient, calls=replace(patient.calls, logits=form.logits))
    least = _leaks(asked, form)
    if least is None or least == (0, 0):
        return form
    best = form
    for tried in _ways(form, flags, names):
        try:
            leaks = _leaks(asked, tried)
        except CALL_ERRORS:
            continue
        if leaks is not None and leaks < least:
            best, least = tried, leaks
        if least[0] == 0:
            break
    return _with_padding(patient, form, best)


def _ways(form: Form, flags: list[str], names: list[str]) -> Iterator[Form]:
    for flag in flags:
        yield replace(form, flag=flag)
    for name, shape, (sense, dtype) in product(names, _SHAPES, SENSES):
        mask = MaskForm(name, shape, sense, dtype, causal=True, always=True, padding=False)
        yield replace(form, masks={**form.masks, "real causal": mask})


def _flags(patient: Patient) -> list[str]:
    """Return arguments that switch on a model's own causal mask."""
    arguments = arguments_of(patient.model).items()
    return [n for n, a in arguments if a.default is False and ("causal" in n or is_mask(n))]


def _names(patient: Patient, form: Form) -> list[str]:
    """Return optional arguments that may be a causal mask. If an argument hides padding as (batch,
    length), it is not returned: such a model makes its causal mask itself, or lacks one."""
    others = OF_SOURCE if patient.has_source else _OF_ANOTHER
    used = {mask.argument for mask in form.masks.values()}
    return [
        name
        for name, argument in arguments_of(patient.model).items()
        if is_mask(name) and argument.default is not argument.empty and name not in used
        if not any(word in name.lower() for word in ("pad", "real", *others))
        if not _is_of_padding(patient, form, name)
    ]


def _is_of_padding(patient: Patient, form: Form, name: str) -> bool:
    for sense, dtype in SENSES:
        mask = MaskForm(name, "(batch, length)", sense, dtype)
        try:
            if hides(patient, replace(form, masks={**form.masks, "real": mask}), "real"):
                return True
        except CALL_ERRORS:
            continue
    return False


def _leaks(patient: Patient, form: Form) -> tuple[int, int] | None:
    """Return how many pairs (position, later token) leak in the logits and in all attentions; None
    if a value is not finite, or if no position sees the token before it."""
    model = patient.specimen
    sees = reach_in(patient, model, form.logits)
    if not sees.isfinite().all() or not (sees.diagonal(-1) > patient.tolerance).any():
        return None
    in_logits = int((sees > patient.tolerance).triu(1).sum())
    if in_logits == 0:
        return 0, 0
    n, inputs = patient.inner_length, patient.draw(2)
    seen = trace_attention(model, lambda: form.logits(model, inputs), {(n, n)})
    return in_logits, sum(int((one.weights > 0).triu(1).sum()) for one in seen)


def _with_padding(patient: Patient, form: Form, found: Form) -> Form:
    """Return a form in which a target's mask hides padding as well, if that works. A decoder's
    batch is padded on the right, where a causal mask hides the padding already."""
    mask = found.masks.get("real causal")
    if mask is None or not patient.has_source or mask.shape == "(length, length)":
        return found
    both = replace(form, masks={**form.masks, "real": replace(mask, padding=True)})
    with torch.no_grad():
        return both if hides(patient, both, "real") else found
