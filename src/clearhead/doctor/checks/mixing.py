"""Checks that positions exchange information only in attention."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..attention_trace import LookAtYourself, plain_kernels, trace_attention
from ..blocks import is_norm
from ..findings import Finding, NotApplicableError
from ..patient import Patient
from ..witness import axis_of, differs, first_change, watch

# What parts are called in which positions meet without a softmax, and are meant to.
_OTHERS = ("att", "mix", "mamba", "delta", "recur", "ssm", "conv")


@dataclass(frozen=True)
class Spread:
    """Where a token arrives if every attention looks only at its own position."""

    token: int
    length: int
    reached: list[int]
    """The positions whose logits change with the token."""
    place: str | None = None
    """The first module in which the token reaches another position."""
    of_a_norm: bool = False
    by_design: bool = False
    """True if that module is another kind of attention, or a recurrence."""

    @property
    def elsewhere(self) -> bool:
        """Tell whether the token arrives anywhere but at its own position."""
        return any(position != self.token for position in self.reached)


def mixing(patient: Patient) -> Iterator[Finding]:
    """If every attention is replaced by one in which each position looks only at itself, a token
    must not reach another position. If it does, something else moves positions, such as heads that
    are merged in the wrong order."""
    if patient.pooled:
        raise NotApplicableError("pooled")
    spread = _spread(patient)
    if not spread.reached:  # it does not even reach its own: the attentions are of another kind
        raise NotApplicableError("other_mixing")
    if not spread.elsewhere:
        return
    numbers = {"token": spread.token}
    if spread.reached == [spread.token + 1]:
        # The model itself moves its tokens to the right, and begins with one of its own.
        yield Finding("mixing.shifted", "note", {**numbers, "next": spread.token + 1})
    elif _reaches_the_next_few(spread):
        far = spread.reached[-1] - spread.token
        yield Finding("mixing.neighbours", "note", {**numbers, "far": far}, place=spread.place)
    elif spread.by_design:
        raise NotApplicableError("other_mixing")
    else:
        origin = "norm" if spread.of_a_norm else None
        case = "mixing.outside_attention"
        yield Finding(case, "warning", numbers, place=spread.place, origin=origin)


def _reaches_the_next_few(spread: Spread) -> bool:
    """Tell whether the token reaches only its own position and the next few, as in a token shift or
    a convolution that is written by hand. A misplaced token would go anywhere."""
    n_next = len(spread.reached) - 1
    few = 2 * n_next < spread.length - spread.token
    return few and spread.reached == list(range(spread.token, spread.token + n_next + 1))


def _spread(patient: Patient) -> Spread:
    length, token = patient.length, patient.length // 3
    inner, n_source = patient.inner_length, patient.source_length
    shapes = {(inner, inner)}
    if patient.has_source:
        shapes |= {(n_source, n_source), (inner, n_source)}
    model, inputs = patient.specimen, patient.draw(2)
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
    size = patient.tolerance * one.double().square().mean().sqrt()
    moved = (one - other).double().abs().amax(dim=(0, 2)) > size
    spread = Spread(token, length, moved.nonzero().flatten().tolist())
    if not spread.elsewhere:
        return spread

    def elsewhere_moved(one: Tensor, other: Tensor) -> bool:
        axis = axis_of(one, length)
        if axis is None or one.dim() < 2:
            return False
        kept = [position for position in range(length) if position != token]
        one, other = one.movedim(axis, 0)[kept], other.movedim(axis, 0)[kept]
        return differs(one, other, patient.tolerance)

    with torch.no_grad(), plain_kernels(), eyes:
        before = watch(model, lambda: patient.logits(model, inputs))
        after = watch(model, lambda: patient.logits(model, others))
    place = first_change(before, after, elsewhere_moved)
    if place is None:
        return spread
    seen = trace_attention(model, lambda: patient.logits(model, inputs), shapes)
    return replace(
        spread,
        place=place,
        of_a_norm=is_norm(model.get_submodule(place)),
        by_design=_mixes_by_itself(model, place, [a.place for a in seen]),
    )


def _mixes_by_itself(model: nn.Module, place: str, attentions: list[str]) -> bool:
    """Tell whether a part is another kind of attention, such as a linear one: its name says so, and
    no softmax over scores runs in it."""
    name = f"{place} {type(model.get_submodule(place)).__name__}".lower()
    near = any(
        f"{a}.".startswith(f"{place}.") or f"{place}.".startswith(f"{a}.") for a in attentions
    )
    return not near and any(word in name for word in _OTHERS)
