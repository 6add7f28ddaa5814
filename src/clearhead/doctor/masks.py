"""Finds out which argument is a mask, what it means and which shape it has, by its name and by
trying."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from .attention_trace import trace_attention
from .calls import CallInputs
from .form import CALL_ERRORS, Form, arguments_of, takes_anything
from .mask_form import MaskForm, MaskShape
from .patient import Patient, change_size

# Arguments that say which tokens are real, or which are not; which of the two, and in which
# shape, is found by trying.
_MASKS = ("real", "attention_mask", "mask", "key_padding_mask", "padding_mask", "pad_mask")
_TARGET_MASKS = (
    "target_real",
    "decoder_attention_mask",
    "tgt_key_padding_mask",
    "tgt_padding_mask",
    "target_padding_mask",
    "target_mask",
    "tgt_mask",
    "trg_mask",
)
_SOURCE_MASKS = (
    "source_real",
    "src_key_padding_mask",
    "src_padding_mask",
    "source_padding_mask",
    "source_mask",
    "src_mask",
    *_MASKS,
)
OF_SOURCE = ("src", "source", "enc", "mem", "context", "input")
"""Words in the names of masks of the source."""
# Shapes that go together: of padding, of a causal mask, of a source's mask that is not padding.
_STYLES: tuple[tuple[MaskShape, MaskShape, MaskShape], ...] = (
    ("(batch, 1, length)", "(batch, length, length)", "(batch, 1, length)"),
    ("(batch, 1, 1, length)", "(batch, 1, length, length)", "(batch, 1, 1, length)"),
    ("(batch, length)", "(length, length)", "(length, length)"),
    ("(batch, length)", "(batch, length)", "(batch, length)"),
)
SENSES = ((True, torch.bool), (False, torch.bool), (True, torch.long), (True, torch.float32))
"""The forms of a mask to try: whether True means a real token (or may look), and the dtype. A float
mask holds 0 and -inf."""
# A mask of -10000 hides well enough to be recognised; whether it really does, a check asks.
_SAME = 1e-4
_HIDDEN = 2


def is_mask(name: str) -> bool:
    """Tell whether an argument of this name is a mask; `masked_pos`, for example, is a list of
    positions."""
    low = name.lower()
    return ("mask" in low and "masked" not in low) or name in ("real", "source_real")


def is_length(name: str) -> bool:
    """Tell whether an argument of this name is a length."""
    low = name.lower()
    return "len" in low and not low.startswith("max")


def required_masks(patient: Patient, names: list[str]) -> Iterator[dict[str, MaskForm]]:
    """Return the ways to fill arguments without which a model cannot be called."""
    for (padding, causal, source), (sense, dtype) in product(_STYLES, SENSES):
        masks: dict[str, MaskForm] = {}
        for name in names:
            low = name.lower()
            of_source = patient.kind == "encoder-decoder" and any(w in low for w in OF_SOURCE)
            role = "source_real" if of_source else "real"
            role = f"{role} {len(masks)}" if role in masks else role
            looks = not of_source and patient.kind != "encoder" and "pad" not in low
            shape = padding if "pad" in low else causal if looks else source
            # Padding is never added to scores.
            kind = torch.bool if "pad" in low and dtype.is_floating_point else dtype
            # One mask for all rows leaves padding to an argument of its own, if there is one.
            shared = shape == "(length, length)" and any("pad" in other.lower() for other in names)
            causal_too = "length, length" in shape and looks
            masks[role] = MaskForm(
                name, shape, sense, kind, causal=causal_too, always=True, padding=not shared
            )
        yield masks


BEST = 9.0
"""The score of masks that do everything that they are for. Without a mask, nothing is scored."""


def score(patient: Patient, form: Form) -> float:
    """Return how well masks do their work. In the logits of a model with another defect, no mask
    may seem to work; what its attentions look at still shows what True means."""
    with torch.no_grad():
        logits = form.logits(patient.plain, patient.draw(3))
    if not logits.isfinite().all():
        return -1
    points = 4 if patient.kind == "encoder" or _is_causal(patient, form) else 0
    roles = ["real", "source_real"] if patient.has_source else ["real"]
    points += sum(hides(patient, form, role) for role in roles if role in form.masks)
    return points + 3 * _share_open(patient, form)


def _share_open(patient: Patient, form: Form) -> float:
    """Return the share of the pairs of query and key, without padding, that are open or closed as
    they should be: a target sees its past, and all other sequences see everything."""
    inputs, model = patient.draw(2), patient.plain
    n, n_source = patient.length, patient.source_length if patient.has_source else 0
    shapes = {(n, n), (n_source, n_source), (n, n_source)}
    right = total = 0
    for attention in trace_attention(model, lambda: form.logits(model, inputs), shapes):
        open_ = attention.weights > 0
        meant = torch.ones(open_.shape[-2:], dtype=torch.bool)
        if open_.shape[-2:] == (n, n) and patient.kind != "encoder":
            meant = meant.tril()
        right += int((open_.cpu() == meant).sum())
        total += open_.numel()
    return right / max(total, 1)


def _is_causal(patient: Patient, form: Form) -> bool:
    """Tell whether a model is causal: the last token does not matter at the first position, but the
    first token matters at the last."""
    inputs = patient.draw(2)
    last, first = inputs.tokens.clone(), inputs.tokens.clone()
    last[:, -1] = patient.other_tokens(last[:, -1])
    first[:, 0] = patient.other_tokens(first[:, 0])
    with torch.no_grad():
        plain, with_other_last, with_other_first = (
            form.logits(patient.plain, replace(inputs, tokens=tokens))
            for tokens in (inputs.tokens, last, first)
        )
    sees_its_past = change_size(plain[:, -1], with_other_first[:, -1]) > _SAME * 1e-2
    return sees_its_past and change_size(plain[:, :1], with_other_last[:, :1]) < _SAME


def hides(patient: Patient, form: Form, role: str) -> bool:
    """Tell whether another token at a position that is marked as padding changes nothing elsewhere,
    and another token at an unmarked position changes something."""
    inputs = patient.draw(5)  # not 3 again: a model may have as many heads as rows
    name = "tokens" if role == "real" else "source"
    tokens: Tensor = getattr(inputs, name)
    last = tokens.shape[1] - 1
    padded = last if "lengths" in form.masks[role].shape else _HIDDEN
    if padded > last:
        return False
    real = torch.ones_like(tokens, dtype=torch.bool)
    real[:, padded] = False
    changed: list[Tensor] = []
    for position in (padded, -1 if padded < last else 0):
        changed.append(tokens.clone())
        changed[-1][:, position] = patient.other_tokens(tokens[:, position])
    with torch.no_grad():
        plain, with_other_padding, with_other_token = (
            form.logits(patient.plain, replace(inputs, **{name: sequence, role: real}))
            for sequence in (tokens, *changed)
        )
    if change_size(plain, with_other_token) < _SAME * 1e-2:
        return False
    if role == "real":
        elsewhere = [n for n in range(tokens.shape[1]) if n != padded]
        plain, with_other_padding = plain[:, elsewhere], with_other_padding[:, elsewhere]
    return bool(plain.isfinite().all()) and change_size(plain, with_other_padding) < _SAME


def optional_masks(patient: Patient, form: Form) -> tuple[Form, dict[str, str]]:
    """Return the masks that a model takes and can do without. Also return, by role, an argument
    that is named like a padding mask, but changes an unpadded batch whatever True means."""
    roles = {"real": _MASKS}
    if patient.kind == "encoder-decoder" and patient.has_source:
        roles = {"real": _TARGET_MASKS, "source_real": _SOURCE_MASKS}
    unread: dict[str, str] = {}
    for role, names in roles.items():
        if role not in form.masks:
            mask, changing = _named_mask(patient, form, role, names)
            if mask is None and takes_anything(patient.plain):
                mask = _passed_on(patient, form, role, names)
            form = form if mask is None else replace(form, masks={**form.masks, role: mask})
            if role == "source_real" and mask is not None:
                form = _with_memory(patient, form, mask)
            if mask is None and changing is not None:
                unread[role] = changing
    return form, unread


def _named_mask(
    patient: Patient, form: Form, role: str, names: tuple[str, ...]
) -> tuple[MaskForm | None, str | None]:
    """Find the mask by the argument's name, and what True means by trying: a mask under which every
    token is real changes nothing, and a mask that hides a token is accepted and hides it. If no
    mask hides, the first that is accepted is returned. Also returned is the first padding mask that
    was accepted with each meaning of True, and changed something with each."""
    inputs = patient.draw(3)
    masked = _all_real(inputs, role)
    taken: list[MaskForm] = []
    changing: set[tuple[str, bool]] = set()
    used = {mask.argument for mask in form.masks.values()}
    arguments = [name for name in arguments_of(patient.plain) if name not in used]
    shapes: tuple[MaskShape, ...] = (
        "(batch, length)",
        "(batch, 1, length)",
        "(batch, 1, 1, length)",
    )
    with torch.no_grad():
        plain = form.logits(patient.plain, inputs)
    for name, shape, (true_is_real, dtype) in product(
        [name for name in names if name in arguments], shapes, SENSES
    ):
        if dtype.is_floating_point and shape == "(batch, length)":
            continue  # ones and zeros by custom: a model that adds them as they are has a bug
        mask = MaskForm(name, shape, true_is_real, dtype)
        tried = replace(form, masks={**form.masks, role: mask})
        try:
            with torch.no_grad():
                logits = tried.logits(patient.plain, masked)
            if not change_size(plain, logits) < _SAME:
                changing.add((name, true_is_real))
                continue
            if hides(patient, tried, role):
                return mask, None
        except CALL_ERRORS:
            continue
        taken.append(mask)
    padding = [n for n in names if "pad" in n and {(n, True), (n, False)} <= changing]
    return taken[0] if taken else None, padding[0] if padding else None


def _passed_on(patient: Patient, form: Form, role: str, names: tuple[str, ...]) -> MaskForm | None:
    """Find a mask that the model passes on by its **kwargs. Any name may be accepted there without
    being read: a mask that is read leaves an unpadded batch unchanged, and changes the result if it
    hides a token."""
    inputs = patient.draw(3)
    masked = _all_real(inputs, role)
    hidden = _all_real(inputs, role)
    real: Tensor = getattr(hidden, role)
    real[:, -1 if real.shape[1] <= _HIDDEN else _HIDDEN] = False
    with torch.no_grad():
        plain = form.logits(patient.plain, inputs)
    named = arguments_of(patient.plain)
    for name, (sense, dtype) in product([n for n in names if n not in named], SENSES[:3]):
        mask = MaskForm(name, "(batch, length)", sense, dtype)
        tried = replace(form, masks={**form.masks, role: mask})
        try:
            with torch.no_grad():
                same = change_size(plain, tried.logits(patient.plain, masked)) < _SAME
                if same and change_size(plain, tried.logits(patient.plain, hidden)) > _SAME:
                    return mask
        except CALL_ERRORS:
            continue
    return None


def _with_memory(patient: Patient, form: Form, mask: MaskForm) -> Form:
    """Find a second mask of the source. Some models take it twice: for the encoder, and for
    attention to the encoder's output (`memory_key_padding_mask`, `src_tgt_mask`). The second is the
    argument with which the padding of the source is hidden, and without which it is not."""
    if hides(patient, form, "source_real"):
        return form
    used = {known.argument for known in form.masks.values()}
    for name in arguments_of(patient.plain):
        if is_mask(name) and name not in used:
            again = {"source_real 2": replace(mask, argument=name)}
            both = replace(form, masks={**form.masks, **again})
            try:
                if hides(patient, both, "source_real"):
                    return both
            except CALL_ERRORS:
                continue
    return form


def _all_real(inputs: CallInputs, role: str) -> CallInputs:
    tokens = inputs.tokens if role == "real" else inputs.source
    assert tokens is not None
    return replace(inputs, **{role: torch.ones_like(tokens, dtype=torch.bool)})
