"""Checks the first forward and backward pass: the output, the loss and the gradient."""

import math
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..copying import copy_model
from ..findings import Finding, NotApplicableError
from ..patient import Patient
from ..seeding import set_seed

# A random output layer adds half its variance to ln V: with PyTorch's own initial weights 0.2 at
# most. One nat more than ln V is a spread that no common initialisation gives.
_SPREAD_ALLOWED = 1.0
# Random targets cannot be guessed; this is far outside the noise of five hundred of them.
_KNOWLEDGE_ALLOWED = 0.2
# Changes of the loss that are large beside rounding and small beside its curvature, the usual one
# first.
_STEPS = (1e-3, 1e-4, 1e-5)
_NEGLIGIBLE_GRADIENT = 0.01
"""The share of the largest gradient below which a gradient is negligible."""
_SLOPE_TOLERANCE = 0.03
_SLOPE_TOLERANCE_OF_TABLES = 0.1


def output(patient: Patient) -> Iterator[Finding]:
    """The output is finite scores, not probabilities."""
    with torch.no_grad():
        logits = patient.logits(patient.plain, patient.draw(3)).double()
    if not logits.isfinite().all():
        share = float((~logits.isfinite()).double().mean())
        numbers: dict[str, object] = {"share": share}
        for name, weight in patient.model.named_parameters():
            if bad := int((~weight.detach().isfinite()).sum()):
                numbers |= {"name": name, "bad": bad, "n": weight.numel()}
                place = name.rpartition(".")[0]
                yield Finding("output.weights", "error", numbers, place=place)
                return
        yield Finding("output.not_finite", "error", numbers)
    elif (logits >= 0).all() and (logits.sum(dim=-1) - 1).abs().max() < 1e-3:
        yield Finding("output.probabilities", "error")


def first_loss(patient: Patient) -> Iterator[Finding]:
    """Before training, all tokens are equally likely: the loss is about ln V."""
    if not patient.fresh:
        raise NotApplicableError("trained")
    if not patient.scores_tokens:
        raise NotApplicableError("no_token_scores")
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


def gradient_value(patient: Patient) -> Iterator[Finding]:
    """A small step along the gradient changes the loss as the gradient predicts, in training mode,
    with the same draws of dropout."""
    if patient.is_frozen or not patient.runs_in_double:
        raise NotApplicableError("frozen" if patient.is_frozen else "no_double")
    model, inputs = copy_model(patient.specimen).train(), patient.draw(2)
    targets = patient.draw(2, seed=1).tokens.flatten()

    def loss() -> Tensor:
        set_seed(patient.seed)
        logits = patient.logits(model, inputs).flatten(0, 1)
        return F.cross_entropy(logits, targets % logits.shape[-1])

    before = loss()
    before.backward()
    with torch.no_grad():
        if not torch.equal(loss(), before):
            raise NotApplicableError("chance_in_training")
        learnt = [(p, p.grad.to_dense()) for p in model.parameters() if p.grad is not None]
        sizes = [float(gradient.double().norm()) for _, gradient in learnt]
        # Along the gradient, and so far in each parameter that all of them should change the loss
        # alike: one that is wrong is then not drowned by the others. Where next to nothing is
        # learnt, the step would be too large.
        directions = [
            (parameter, gradient / size**2)
            for (parameter, gradient), size in zip(learnt, sizes)
            if size > _NEGLIGIBLE_GRADIENT * max(sizes)
        ]
        if not directions:
            raise NotApplicableError("no_gradient_in_double")
        directions = [(p, direction / len(directions)) for p, direction in directions]
    measured = _nearest_slope(directions, loss, expected_slope=1.0, gradient_norm=1.0)
    if not abs(measured - 1) <= _SLOPE_TOLERANCE:
        yield Finding("gradient_value.differs", "warning", {"measured": measured})
        return
    for name, parameter in model.named_parameters():
        # A table may be used twice, and its gradient flow back through one use only.
        if parameter.dim() == 2 and len(parameter) == patient.vocab_size:
            measured = _slope_of(parameter, loss)
            if not abs(measured - 1) <= _SLOPE_TOLERANCE_OF_TABLES:
                yield Finding("gradient_value.differs", "warning", {"measured": measured}, name)
                return


def _nearest_slope(
    directions: Sequence[tuple[Tensor, Tensor]],
    loss: Callable[[], Tensor],
    *,
    expected_slope: float,
    gradient_norm: float,
) -> float:
    """Return the measured slope of the loss in these directions of the parameters: 1 if it is the
    expected slope, and more or less by its distance from that, in units of the gradient's norm.
    Steps of several sizes are tried until one agrees: a large step follows a bend of the loss, and
    a small one is lost in the rounding of code that always computes in single precision."""
    measured: list[float] = []
    for step in _STEPS:
        slope = _slope(directions, loss, step / max(gradient_norm, 1.0))
        measured.append(1.0 + (slope - expected_slope) / max(gradient_norm, 1e-12))
        if abs(measured[-1] - 1) <= _SLOPE_TOLERANCE:
            break
    return min(measured, key=lambda value: abs(value - 1))


def _slope(
    directions: Sequence[tuple[Tensor, Tensor]], loss: Callable[[], Tensor], step: float
) -> float:
    """Return the slope between a step to either side of the current parameters, which are
    restored."""
    losses: list[float] = []
    with torch.no_grad():
        kept = [parameter.clone() for parameter, _ in directions]
        for sign in (1, -1):
            for (parameter, direction), before in zip(directions, kept):
                parameter.copy_(before + sign * step * direction)
            losses.append(float(loss()))
        for (parameter, _), before in zip(directions, kept):
            parameter.copy_(before)
    return (losses[0] - losses[1]) / (2 * step)


def _slope_of(parameter: Tensor, loss: Callable[[], Tensor]) -> float:
    """Return the measured slope of the loss in a random direction of one parameter, as in
    `_nearest_slope`."""
    if parameter.grad is None:
        return 1.0
    direction = torch.randn(parameter.shape, dtype=parameter.dtype, device=parameter.device)
    gradient = parameter.grad.to_dense()
    return _nearest_slope(
        [(parameter, direction)],
        loss,
        expected_slope=float((gradient * direction).sum()),
        gradient_norm=float(gradient.norm()),
    )
