"""Checks that padding does not matter: not its amount, its place or its token."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..attention_trace import trace_attention
from ..calls import CallInputs
from ..copying import copy_model
from ..findings import Finding, NotApplicableError, Severity
from ..patient import Patient, change_size
from ..witness import differs

_N_PADS = 3


def padding(patient: Patient) -> Iterator[Finding]:
    """Three pads beside the real tokens of each sequence, on the right and on the left, change
    nothing."""
    for argument in patient.calls.inverted_masks:
        yield Finding("padding.inverted", "warning", {"argument": argument})
    unread = patient.calls.unread_masks
    for argument in unread.values():
        yield Finding("padding.unread", "warning", {"argument": argument})
    if unread and not patient.calls.masks:
        return
    _check_that_padding_exists(patient)
    for role in roles(patient):
        for side in _sides(patient):
            yield from _one_side(patient, role, side)
    yield from _vectors(patient)


def _vectors(patient: Patient) -> Iterator[Finding]:
    """Return an encoder's vectors of whole sequences, which it returns beside the states of the
    tokens."""
    more = patient.calls.more_outputs
    asked = patient.kind == "encoder" and not patient.pooled and "tokens" in roles(patient)
    if more is None or not asked or patient.rows(2) < 2:
        return
    inputs = patient.draw(2, *_room(patient))
    padded = pad(patient, inputs, "tokens", "right")
    if _change(patient, inputs, padded, "tokens", "right") is not None:
        return  # said already: padding changes the states themselves
    for one, other in zip(more(patient.specimen, inputs), more(patient.specimen, padded)):
        # What has as many numbers as there are tokens is no vector of a sequence.
        if one.shape == other.shape and differs(one, other, patient.tolerance):
            case = "right" if "real" in patient.calls.masks else "no_mask"
            numbers = {"n_pads": _N_PADS, "change": change_size(one, other), "role": "tokens"}
            yield Finding(f"padding.{case}", "error", numbers, origin="pooled")
            return


def _one_side(patient: Patient, role: str, side: str) -> Iterator[Finding]:
    inputs = patient.draw(2, *_room(patient))
    padded = pad(patient, inputs, role, side)
    change = _change(patient, inputs, padded, role, side)
    if change is None:
        return
    case = side if _mask_of(role) in patient.calls.masks else "no_mask"
    if case == "no_mask" and side == "left":
        return  # said already
    numbers = {"n_pads": _N_PADS, "change": change, "role": role}
    if math.isnan(change):
        case, numbers = "not_finite", {"n_pads": _N_PADS, "role": role, "side": side}
    looks = _lookers(patient, padded, role, side)
    origin = None if case == "not_finite" else _origin(patient, looks, side)
    yield Finding(f"padding.{case}", _severity(patient, side), numbers, looks.place, origin=origin)


@dataclass(frozen=True)
class Lookers:
    """The attentions that give weight to padding."""

    n_seen: int
    to_itself: bool
    """True if self-attention of the padded sequence gives padding weight, at a real token."""
    cross: bool
    """True if attention of the target to the padded source gives padding weight."""
    place: str | None
    """The path of the first such attention."""


def _origin(patient: Patient, looks: Lookers, side: str) -> str | None:
    """Return what lets padding affect the result."""
    if looks.to_itself:
        return "attention"
    if looks.cross:
        return "cross"
    if not looks.n_seen:
        return None
    if patient.pooled:
        return "pooled"
    return "positions" if side == "left" else None


def _lookers(patient: Patient, padded: CallInputs, role: str, side: str) -> Lookers:
    model = patient.specimen
    n, n_source = padded.tokens.shape[1] + patient.calls.inner_length, 0
    if padded.source is not None:
        n_source = padded.source.shape[1]
    own, cross = (n, n) if role == "tokens" else (n_source, n_source), (n, n_source)
    shapes = {own, cross} if role == "source" else {own}
    attentions = trace_attention(model, lambda: patient.logits(model, padded), shapes)
    pads, real = slice(-_N_PADS, None), slice(None, -_N_PADS)
    if side == "left":
        pads, real = slice(None, _N_PADS), slice(_N_PADS, None)
    looking: dict[str, str] = {}
    for attention in attentions:
        to_itself = tuple(attention.weights.shape[-2:]) == own
        rows = attention.weights[..., real, :] if to_itself else attention.weights
        if (rows[..., pads] > 0).any():
            looking.setdefault("to_itself" if to_itself else "cross", attention.place)
    first = next(iter(looking.values()), None)
    return Lookers(len(attentions), "to_itself" in looking, "cross" in looking, first)


def _change(
    patient: Patient, inputs: CallInputs, padded: CallInputs, role: str, side: str
) -> float | None:
    """How much padding changes the logits of the real tokens; None if it does not, NaN if it makes
    them NaN or infinite.

    Some models always compute their softmax in single precision, in which masks of double precision
    overflow: results that are not finite are computed again in the model's own precision.
    """
    for own in (False, True):
        model = patient.noisy.eval() if own else patient.specimen
        tolerance = 1e-4 if own else patient.tolerance
        with torch.no_grad():
            plain, logits = patient.logits(model, inputs), patient.logits(model, padded)
        if role == "tokens":
            length = inputs.tokens.shape[1]
            logits = logits[:, :length] if side == "right" else logits[:, -length:]
        if logits.isfinite().all():
            change = change_size(plain, logits)
            return change if change > tolerance else None
    return torch.nan


def _severity(patient: Patient, side: str) -> Severity:
    # Batches of prompts are padded on the left so that all of them end together; nobody needs to
    # pad an encoder's input there.
    if side == "left":
        return "warning" if patient.kind == "decoder" else "note"
    return "error"


def pad_value(patient: Patient) -> Iterator[Finding]:
    """Under a mask, the token at a padding position must not matter."""
    _check_that_padding_exists(patient)
    roles = [role for role in ("tokens", "source") if _mask_of(role) in patient.calls.masks]
    if not roles:
        raise NotApplicableError("no_mask_argument")
    for role in roles:
        inputs = patient.draw(2, *_room(patient))
        padded = pad(patient, inputs, role, "right")
        tokens: Tensor = getattr(padded, role).clone()
        tokens[:, -_N_PADS:] = patient.other_tokens(tokens[:, -_N_PADS:])
        other = replace(padded, **{role: tokens})
        with torch.no_grad():
            before = patient.logits(patient.specimen, padded)
            after = patient.logits(patient.specimen, other)
        if role == "tokens":
            before, after = before[:, :-_N_PADS], after[:, :-_N_PADS]
        change = change_size(before, after)
        if change > patient.tolerance:
            yield Finding("pad_value.matters", "error", {"change": change, "role": role})


def padding_finite(patient: Patient) -> Iterator[Finding]:
    """With rows of different lengths, one of them nearly all padding, everything stays finite."""
    _check_that_padding_exists(patient)
    for side in _sides(patient):
        inputs = patient.draw(2, *_room(patient))
        for role in roles(patient):
            inputs = pad(patient, inputs, role, side)
        # A large model's weights are shared: no gradient may be left at them.
        model = copy_model(patient.model, share_weights=patient.is_large).eval()
        logits = patient.logits(model, inputs)
        real = torch.ones_like(inputs.tokens, dtype=torch.bool)
        if "tokens" in roles(patient):
            real = inputs.tokens != patient.pad_id if inputs.real is None else inputs.real
        learnt = [p for p in model.parameters() if p.requires_grad]
        total = logits[real].logsumexp(dim=-1).sum()
        gradients = torch.autograd.grad(total, learnt, allow_unused=True) if learnt else ()
        finite = all(g is None or bool(g.isfinite().all()) for g in gradients)
        if not finite or not logits[real].isfinite().all():
            yield Finding("padding_finite.spreads", _severity(patient, side), {"side": side})
        elif not logits.isfinite().all():
            n_rows = int((~logits.isfinite()).any(dim=2).sum())
            severity = "note" if side == "left" and patient.kind != "decoder" else "warning"
            numbers = {"side": side, "n_rows": n_rows}
            yield Finding("padding_finite.rows", severity, numbers)


def _sides(patient: Patient) -> list[str]:
    return [side for side in ("right", "left") if side in patient.calls.sides]


def _check_that_padding_exists(patient: Patient) -> None:
    if patient.calls.unread_masks and not patient.calls.masks:
        raise NotApplicableError("unread_mask")
    if patient.pad_id is None and not patient.calls.masks:
        raise NotApplicableError("no_padding")
    if patient.kind == "decoder" and not patient.calls.masks:
        raise NotApplicableError("decoder_without_mask")
    if patient.length < _N_PADS + 2:
        raise NotApplicableError("too_short")
    if patient.equal_lengths or patient.one_sequence:
        raise NotApplicableError("equal_lengths" if patient.equal_lengths else "one_sequence")


def roles(patient: Patient) -> list[str]:
    """Return the sequences that can be padded: all, if the pad is known; otherwise those with a
    mask. A sequence whose mask cannot be read is left out."""
    roles = ["tokens", "source"] if patient.has_source else ["tokens"]
    roles = [role for role in roles if _mask_of(role) not in patient.calls.unread_masks]
    known = patient.pad_id is not None
    return [role for role in roles if known or _mask_of(role) in patient.calls.masks]


def _room(patient: Patient) -> tuple[int, int]:
    """Return lengths that leave space for the pads and still differ."""
    length = patient.length - _N_PADS
    return length, max(min(patient.source_length, length - 1), 1)


def _mask_of(role: str) -> str:
    return "real" if role == "tokens" else "source_real"


def pad(patient: Patient, inputs: CallInputs, role: str, side: str) -> CallInputs:
    """Add pads beside one sequence, and a mask if the model takes one."""
    tokens: Tensor = getattr(inputs, role)
    pads = tokens.new_full((len(tokens), _N_PADS), patient.pad_id or 0)
    both = (tokens, pads) if side == "right" else (pads, tokens)
    real = [torch.ones_like(t, dtype=torch.bool) for t in both]
    real[1 if side == "right" else 0].fill_(False)
    padded = replace(inputs, **{role: torch.cat(both, dim=1)})
    if _mask_of(role) in patient.calls.masks:
        padded = replace(padded, **{_mask_of(role): torch.cat(real, dim=1)})
    return padded


def hidden_tokens(patient: Patient) -> Iterator[Finding]:
    """Return the smallest ids, which `draw` leaves out because they are often special. In some
    vocabularies they are words: unless one is padding, other positions see it."""
    if patient.kind != "decoder" or patient.vocab_size <= 16 or patient.length < 6:
        raise NotApplicableError("no_low_tokens")
    position, later = 2, slice(3, None)
    inputs = patient.draw(2)
    for token in range(4):
        if token == patient.pad_id:
            continue
        logits: list[Tensor] = []
        # Two neighbours of the asked token tell how much any token changes.
        for other in (token, 5, 6):
            tokens = inputs.tokens.clone()
            tokens[:, position] = other
            with torch.no_grad():
                changed = patient.logits(patient.specimen, replace(inputs, tokens=tokens))
            logits.append(changed[:, later])
        with torch.no_grad():
            table = _without_its_row(patient, token, inputs, position)
        usual = change_size(logits[1], logits[2])
        if usual > patient.tolerance and table is not None and table < patient.tolerance:
            yield Finding("hidden_tokens.low", "warning", {"token": token, "other": 5})
            return


def _without_its_row(
    patient: Patient, token: int, inputs: CallInputs, position: int
) -> float | None:
    """Return how much later logits change when the token's own row of the table does."""
    model = copy_model(patient.specimen)
    tokens = inputs.tokens.clone()
    tokens[:, position] = token
    inputs = replace(inputs, tokens=tokens)
    before = patient.logits(model, inputs)[:, position + 1 :]
    tables = [m for m in model.modules() if isinstance(m, nn.Embedding)]
    tables = [m for m in tables if m.num_embeddings == patient.vocab_size]
    if not tables:
        return None
    for table in tables:
        row = table.weight.data[token]
        row += torch.linspace(-1, 2, len(row), dtype=row.dtype).sin()  # no norm takes it away
    after = patient.logits(model, inputs)[:, position + 1 :]
    # With tied weights the token's own logit changes as well: it is not asked.
    kept = [n for n in range(before.shape[-1]) if n != token]
    return change_size(before[..., kept], after[..., kept])
