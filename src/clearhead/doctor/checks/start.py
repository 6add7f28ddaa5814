"""The first forward and backward pass: what comes out, what it costs, what learns."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import is_dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..copying import copy_model
from ..findings import Finding, NotApplicableError
from ..form import CALL_ERRORS
from ..patient import CallInputs, Patient, change_size
from ..seeding import set_seed
from ..witness import watching

# A random output layer adds half its variance to ln V: with PyTorch's own initial weights 0.2 at
# most. One nat more than ln V is a spread that no common initialisation gives.
_SPREAD_ALLOWED = 1.0
# Random targets cannot be guessed; this is far outside the noise of five hundred of them.
_KNOWLEDGE_ALLOWED = 0.2
# Changes of the loss that are large beside rounding and small beside its curvature, the usual one
# first.
_STEPS = (1e-3, 1e-4, 1e-5)
_FAINT, _SLOPE_ALLOWED = 0.01, 0.03
_LONG, _MANY, _FEW = 256, 64, 8
_TABLE_ALLOWED = 0.1


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


def gradients(patient: Patient) -> Iterator[Finding]:
    """Every parameter takes part, and every gradient is finite."""
    if patient.is_frozen:
        raise NotApplicableError("frozen")
    # With noise on the weights: a layer that starts at zero passes nothing back.
    n_rows = patient.rows(8)
    model, inputs = patient.noisy_copy(), patient.draw(n_rows)
    tables: dict[str, list[Tensor]] = {}

    def leave(path: str, module: nn.Module, given: Any, output: Any) -> None:
        asked = given[0][0] if given[0] else None
        of_tokens = any(asked is tokens for tokens in (inputs.tokens, inputs.source))
        if isinstance(module, nn.Embedding) and of_tokens and output.requires_grad:
            output.retain_grad()
            tables.setdefault(path, []).append(output)

    with watching(model, leave=leave):
        logits = patient.logits(model, inputs)
    targets = patient.draw(n_rows, seed=1).tokens % logits.shape[-1]
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    if patient.calls.more_outputs is not None:
        # A head whose output is not the logits learns from another loss.
        loss = loss + sum(t.square().sum() for t in patient.calls.more_outputs(model, inputs))
    loss.backward()
    detached = [path for path, outputs in tables.items() if all(t.grad is None for t in outputs)]
    if detached:
        yield Finding("gradients.detached", "error", _names(detached), place=detached[0])
    yield from _wrong_row(patient)
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if any(p.grad is None for _, p in trained):
        _learn_from_more(patient, model)
    if any(p.grad is None for _, p in trained):
        _learn_from_many(patient, model)
    unused = [name for name, p in trained if p.grad is None]
    if unused:
        elsewhere = _learnt_elsewhere(patient)
        unused = [name for name in unused if name not in elsewhere]
    if unused:
        origin = "cut" if _matters(patient, unused[:_FEW], inputs) else None
        numbers, place = _names(unused), _common(unused)
        yield Finding("gradients.none", "error", numbers, place=place, origin=origin)
    infinite = [name for name, p in trained if p.grad is not None and not p.grad.isfinite().all()]
    if infinite:
        yield Finding("gradients.not_finite", "error", _names(infinite), place=infinite[0])
    # Vectors may rightly have none: attention does not feel the bias of its keys.
    if _still(trained):
        _learn_from_many(patient, model)
    still = _still(trained)
    if still:
        yield Finding("gradients.zero", "error", _names(still), place=_common(still))


def _matters(patient: Patient, names: list[str], inputs: CallInputs) -> bool:
    """Whether the logits depend on parameters that get no gradient: something cuts it off."""
    model = copy_model(patient.noisy)
    with torch.no_grad():
        before = patient.logits(model, inputs)
        for name in names:
            parameter = model.get_parameter(name)
            parameter += 0.1 * torch.randn_like(parameter)
        return change_size(before, patient.logits(model, inputs)) > 1e-4


def _learn_from_more(patient: Patient, model: nn.Module) -> None:
    """Some parts, such as a memory of what is far away, have nothing to do in a short sequence."""
    length = min(patient.max_length or _LONG, _LONG)
    if length <= patient.length or patient.equal_lengths:
        return
    try:
        logits = patient.logits(model, patient.draw(1, length, length))
    except CALL_ERRORS:
        return  # another check says which lengths fail
    logits.square().mean().backward()


def _still(trained: list[tuple[str, nn.Parameter]]) -> list[str]:
    return [n for n, p in trained if p.dim() > 1 and p.grad is not None and not p.grad.any()]


def _learn_from_many(patient: Patient, model: nn.Module) -> None:
    """Some parts, such as a router that weighs only experts of nearly one score, learn from few
    tokens."""
    logits = patient.logits(model, patient.draw(_MANY, seed=2))
    targets = patient.draw(_MANY, seed=3).tokens % logits.shape[-1]
    F.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()


def _learnt_elsewhere(patient: Patient) -> set[str]:
    """What has a gradient with the model's own weights, under which a router may choose other
    experts, or in training mode, where more parts may be used. All scores that come back are
    learnt; states are not, or an encoder that only returns its states would pass for used."""
    learnt: set[str] = set()
    inputs = patient.draw(_MANY, seed=2)
    for model in (patient.copy(), patient.training_copy()):
        returned: list[Tensor] = []

        def leave(
            path: str, _module: nn.Module, _given: Any, output: Any, kept: list[Tensor] = returned
        ) -> None:
            if not path:
                kept += _learnable(output)

        try:
            with watching(model, leave=leave):
                logits = patient.logits(model, inputs)
            scores = [t for t in returned if t.dim() < 3 or t.shape[-1] == logits.shape[-1]]
            torch.stack([t.double().square().mean() for t in (logits, *scores)]).sum().backward()
        except CALL_ERRORS:
            continue  # in training it may need more than it is given here
        learnt |= {name for name, p in model.named_parameters() if p.grad is not None}
    return learnt


def _learnable(output: Any) -> list[Tensor]:
    """The tensors in what a model returned that pass a gradient back."""
    if isinstance(output, torch.Tensor):
        return [output] if output.requires_grad else []
    if isinstance(output, dict):
        output = list(output.values())
    elif is_dataclass(output):
        output = list(vars(output).values())
    items = output if isinstance(output, tuple | list) else []
    return [tensor for item in items for tensor in _learnable(item)]


def _wrong_row(patient: Patient) -> Iterator[Finding]:
    """The row of a table that never learns is that of padding."""
    if patient.pad_id is None:
        return
    for path, module in patient.model.named_modules():
        if not isinstance(module, nn.Embedding) or module.padding_idx is None:
            continue
        of_tokens = module.num_embeddings in (patient.vocab_size, patient.source_vocab_size)
        if of_tokens and module.padding_idx != patient.pad_id:
            numbers = {"index": module.padding_idx, "pad": patient.pad_id}
            yield Finding("gradients.pad_row", "warning", numbers, place=path)
            return


def gradient_value(patient: Patient) -> Iterator[Finding]:
    """A small step along the gradient changes the loss by what the gradient says, in training
    mode, with the same draws of dropout."""
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
        # learnt, the way would be too far.
        way = [
            (parameter, gradient / size**2)
            for (parameter, gradient), size in zip(learnt, sizes)
            if size > _FAINT * max(sizes)
        ]
        if not way:
            raise NotApplicableError("no_gradient_in_double")
        way = [(parameter, direction / len(way)) for parameter, direction in way]
    measured = _nearest_slope(way, loss, 1.0, 1.0)
    if not abs(measured - 1) <= _SLOPE_ALLOWED:
        yield Finding("gradient_value.differs", "warning", {"measured": measured})
        return
    for name, parameter in model.named_parameters():
        # A table may be used twice, and its gradient flow back through one use only.
        if parameter.dim() == 2 and len(parameter) == patient.vocab_size:
            measured = _slope_of(parameter, loss)
            if not abs(measured - 1) <= _TABLE_ALLOWED:
                yield Finding("gradient_value.differs", "warning", {"measured": measured}, name)
                return


def _nearest_slope(
    way: Sequence[tuple[Tensor, Tensor]], loss: Callable[[], Tensor], said: float, unit: float
) -> float:
    """How the loss changes along a way, where 1 is what the gradient said, in these units. Steps of
    several sizes are taken until one agrees: a large one meets a bend of the loss, a small one
    drowns in the rounding of code that computes in single precision always."""
    measured: list[float] = []
    for step in _STEPS:
        slope = _slope(way, loss, step / max(unit, 1.0))
        measured.append(1.0 + (slope - said) / max(unit, 1e-12))
        if abs(measured[-1] - 1) <= _SLOPE_ALLOWED:
            break
    return min(measured, key=lambda value: abs(value - 1))


def _slope(way: Sequence[tuple[Tensor, Tensor]], loss: Callable[[], Tensor], step: float) -> float:
    """By a step to either side of where the parameters are; they are put back."""
    losses: list[float] = []
    with torch.no_grad():
        kept = [parameter.clone() for parameter, _ in way]
        for sign in (1, -1):
            for (parameter, direction), before in zip(way, kept):
                parameter.copy_(before + sign * step * direction)
            losses.append(float(loss()))
        for (parameter, _), before in zip(way, kept):
            parameter.copy_(before)
    return (losses[0] - losses[1]) / (2 * step)


def _slope_of(parameter: Tensor, loss: Callable[[], Tensor]) -> float:
    """How the loss changes along a random way in one parameter, in units of its gradient's size."""
    if parameter.grad is None:
        return 1.0
    direction = torch.randn(parameter.shape, dtype=parameter.dtype, device=parameter.device)
    gradient = parameter.grad.to_dense()
    said = float((gradient * direction).sum())
    return _nearest_slope([(parameter, direction)], loss, said, float(gradient.norm()))


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
