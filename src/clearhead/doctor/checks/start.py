"""The first forward and backward pass: what comes out, what it costs, what learns."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..copying import copy_model
from ..findings import Finding, NotApplicableError
from ..form import CALL_ERRORS
from ..outputs import tensors_in
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
# The largest singular value of a table of random numbers is within a few per cent of what chance
# gives; that of trained vectors, which share a direction, is several times as large.
_LARGER_THAN_CHANCE = 1.15
_NUDGE = 0.02


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
    """Every parameter takes part, and every gradient is finite. A parameter is reported only if it
    has no gradient on any evidence: a batch, a long sequence, many tokens, the model's own weights
    and training mode. Each of these passes is made only if the ones before left a doubt."""
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
    if patient.fresh:
        yield from _frozen_table(patient)
        yield from _stuck(patient, inputs, targets)
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
                kept += [t for t in tensors_in(output) if t.requires_grad]

        try:
            with watching(model, leave=leave):
                logits = patient.logits(model, inputs)
            scores = [t for t in returned if t.dim() < 3 or t.shape[-1] == logits.shape[-1]]
            torch.stack([t.double().square().mean() for t in (logits, *scores)]).sum().backward()
        except CALL_ERRORS:
            continue  # in training it may need more than it is given here
        learnt |= {name for name, p in model.named_parameters() if p.grad is not None}
    return learnt


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


def _frozen_table(patient: Patient) -> Iterator[Finding]:
    """A table of tokens that holds random numbers is learnt, as all other matrices are."""
    tables = {
        f"{path}.weight": module.weight
        for path, module in patient.model.named_modules()
        if isinstance(module, nn.Embedding)
    }
    matrices = [(n, p) for n, p in patient.model.named_parameters() if p.dim() > 1]
    if not all(p.requires_grad for n, p in matrices if n not in tables):
        return  # most of the model may rightly be kept as it is
    sizes = (patient.vocab_size, patient.source_vocab_size)
    for name, weight in tables.items():
        if not weight.requires_grad and len(weight) in sizes and _is_random(weight.detach()):
            place = name.removesuffix(".weight")
            yield Finding("gradients.frozen", "warning", {"names": place}, place=place)
            return


def _is_random(table: Tensor) -> bool:
    """Independent numbers have no common direction; trained vectors, sinusoids and codes have, or
    are whole numbers."""
    table = table[(table != 0).any(dim=1)].double()
    if table.numel() == 0 or table.equal(table.round()):
        return False
    n_rows, width = table.shape
    largest = float(table.std()) * (n_rows**0.5 + width**0.5)
    return float(torch.linalg.matrix_norm(table, 2)) < _LARGER_THAN_CHANCE * largest


def _stuck(patient: Patient, inputs: CallInputs, targets: Tensor) -> Iterator[Finding]:
    """Zeros that are multiplied, such as a gate and the matrix in front of it, wait for each other:
    with the weights that the model begins with, none of them has a gradient; with noise on them
    alone, they have."""
    model = patient.copy()

    def learn() -> None:
        model.zero_grad()
        logits = patient.logits(model, inputs)
        F.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()

    def size(parameter: Tensor) -> float:
        return 0.0 if parameter.grad is None else float(parameter.grad.to_dense().abs().max())

    learn()
    waiting = {
        name: p
        for name, p in model.named_parameters()
        if p.requires_grad and not p.detach().any() and not size(p)
    }
    if not waiting:
        return
    with torch.no_grad():
        for parameter in waiting.values():
            parameter += _NUDGE * torch.randn_like(parameter)
    learn()
    rounding = 1e-6 * max(map(size, model.parameters()))
    woken = [name for name, parameter in waiting.items() if size(parameter) > rounding]
    if woken:
        yield Finding("gradients.stuck", "error", _names(woken), place=_common(woken))


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
