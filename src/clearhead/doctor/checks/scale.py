"""Checks the scale of attention scores: measurements of each attention, and rules that judge
them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from ..attention_trace import Attention
from ..blocks import is_norm
from ..findings import Finding, Severity
from ..patient import Patient
from ..witness import Visit, watch
from .attention import attentions_in

# Scores of a standard deviation of 1 are what the division by √d_head is for; at twice that the
# largest of ten weights is above a half before anything was learnt.
_WIDE = 2.0


@dataclass(frozen=True)
class Scores:
    """How the scores of one attention grow with the products of its queries and keys."""

    place: str
    d_head: int
    scale: float
    spread: float
    """The spread of the scores, with the weights that the model has."""
    widths: list[int]
    """The widths that may be the width of a head."""
    of_length_one: bool
    """True if products are cosines, apart from their scale: then any scale may be intended."""
    scaled_by_weights: bool
    """Queries are smaller than keys by about √d_head: the scale is in the weights, as in T5."""
    normalised: bool
    """Queries and keys have norms of their own, whose weights can be the scale."""


def attention_scale(patient: Patient) -> Iterator[Finding]:
    """Scores are q·k/√d_head."""
    for scores in _measured(patient):
        verdict = judge(scores)
        if verdict is not None:
            case, severity, d_model = verdict
            numbers = {"d_head": scores.d_head, "right": scores.d_head**-0.5, "d_model": d_model}
            numbers |= {"scale": scores.scale, "spread": scores.spread}
            yield Finding(f"attention_scale.{case}", severity, numbers, place=scores.place)
            return


def judge(scores: Scores) -> tuple[str, Severity, int | None] | None:
    """Return the case, the severity, and the width that is used in place of d_head; None if nothing
    is wrong."""

    def is_near(right: float) -> bool:
        return math.isclose(scores.scale, right, rel_tol=0.01)

    d_head = scores.d_head
    if is_near(d_head**-0.5) or d_head == 1 or scores.of_length_one:
        return None
    if is_near(1.0) and (scores.spread > _WIDE or not scores.scaled_by_weights):
        return "missing", "note" if scores.normalised else "warning", None
    wide = [width for width in scores.widths if is_near(width**-0.5)]
    if wide:
        return "d_model", "warning", wide[0]
    if is_near(1 / d_head):
        return "d_head", "warning", None
    if any(is_near(width**0.5) for width in (d_head, *scores.widths)):
        return "multiplied", "error", None
    return None


def _measured(patient: Patient) -> Iterator[Scores]:
    """Measure with two calls whose tokens differ. They separate masks and biases, which stay the
    same, from products, which change: score = slope · product + constant."""
    model, inputs = patient.plain, patient.draw(3)
    ones = attentions_in(patient, inputs, model)
    others = attentions_in(patient, patient.draw(3, seed=1), model)
    with torch.no_grad():
        visits = watch(model, lambda: patient.logits(model, inputs))
    for one, other in zip(ones, others):
        slope = _slope(one, other)
        if slope is not None and one.d_head is not None:
            yield Scores(
                place=one.place,
                d_head=one.d_head,
                scale=slope * one.scaled_before,
                spread=float(one.scores[one.weights > 0].std()),
                widths=_widths(visits, one),
                of_length_one=_of_length_one(one),
                scaled_by_weights=_scaled_by_weights(one),
                normalised=_normalised(patient, one),
            )


def _slope(one: Attention, other: Attention) -> float | None:
    """Return how much scores change with products; None if that is not a single number."""
    if one.product is None or other.product is None:
        return None
    open_to_both = (one.weights > 0) & (other.weights > 0)
    change = (one.scores - other.scores)[open_to_both].double()
    product = (one.product - other.product)[open_to_both].double()
    if not product.numel() or not product.any():
        return None
    slope = float((change @ product) / (product @ product))
    rest = change - slope * product
    return slope if float(rest.norm()) < 0.01 * float(change.norm()) else None


def _widths(visits: list[Visit], attention: Attention) -> list[int]:
    """Return the width of all heads together, and the widths of the inputs of the modules around
    the attention, if each head is a separate module."""
    assert attention.d_head is not None
    around = [v for v in visits if f"{attention.place}.".startswith(f"{v.path}.")]
    widths = [t.shape[-1] for visit in around for t in visit.given if t.dim() == 3]
    if attention.weights.dim() == 4:
        widths.append(attention.d_head * attention.weights.shape[1])
    return sorted({width for width in widths if width > attention.d_head})


def _scaled_by_weights(attention: Attention) -> bool:
    assert attention.queries is not None and attention.keys is not None and attention.d_head
    ratio = float(attention.queries.std() / attention.keys.std().clamp(min=1e-12))
    return ratio < 2 * attention.d_head**-0.5 and ratio < 0.7


def _of_length_one(attention: Attention) -> bool:
    assert attention.queries is not None and attention.keys is not None
    queries, keys = attention.queries.norm(dim=-1), attention.keys.norm(dim=-1)
    lengths = queries[..., :, None] * keys[..., None, :] / attention.scaled_before
    return bool(((lengths - 1).abs() < 0.01).all())


def _normalised(patient: Patient, attention: Attention) -> bool:
    parts = patient.plain.get_submodule(attention.place).children()
    norms = [p for p in parts if is_norm(p) and next(p.parameters(), None) is not None]
    return sum(next(p.parameters()).numel() == attention.d_head for p in norms) > 1
