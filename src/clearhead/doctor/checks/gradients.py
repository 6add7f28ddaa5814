"""Checks what learns: which parameters get a gradient, and whether it is right."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..calls import CallInputs
from ..copying import copy_model
from ..findings import Finding, NotApplicableError
from ..form import CALL_ERRORS
from ..outputs import tensors_in
from ..patient import Patient, change_size
from ..witness import watching

_LONG, _MANY, _FEW = 256, 64, 8
# The largest singular value of a table of random numbers is within a few per cent of what chance
# gives; that of trained vectors, which share a direction, is several times as large.
_LARGER_THAN_CHANCE = 1.15
_NUDGE = 0.02


@dataclass(frozen=True)
class Learning:
    """The gradients that each parameter, by its name, gets from the loss of random targets."""

    detached: list[str]
    """Embedding tables whose result gets no gradient."""
    wrong_row: tuple[str, int] | None
    """An embedding table, and its row that never learns although it is not the padding row."""
    frozen: str | None
    """An embedding table of random numbers that is not learnt."""
    stuck: list[str]
    """Parameters that begin at zero and prevent each other from learning."""
    unused: list[str]
    """The parameters that get no gradient in any of these: a batch, a long sequence, many tokens,
    the model's own weights, training mode."""
    unused_matter: bool
    """True if the logits depend on the unused parameters."""
    infinite: list[str]
    still: list[str]
    """Matrices whose gradient is zero in every element."""


def gradients(patient: Patient) -> Iterator[Finding]:
    """Every parameter takes part, and every gradient is finite."""
    if patient.is_frozen:
        raise NotApplicableError("frozen")
    yield from _judged(_learning(patient), patient.pad_id)


def _judged(learning: Learning, pad_id: int | None) -> Iterator[Finding]:
    if learning.detached:
        names = learning.detached
        yield Finding("gradients.detached", "error", _names(names), place=names[0])
    if learning.wrong_row is not None:
        place, row = learning.wrong_row
        numbers: dict[str, object] = {"index": row, "pad": pad_id}
        yield Finding("gradients.pad_row", "warning", numbers, place=place)
    if learning.frozen is not None:
        place = learning.frozen
        yield Finding("gradients.frozen", "warning", {"names": place}, place=place)
    if learning.stuck:
        names = learning.stuck
        yield Finding("gradients.stuck", "error", _names(names), place=_common(names))
    if learning.unused:
        names, origin = learning.unused, "cut" if learning.unused_matter else None
        numbers = _names(names)
        yield Finding("gradients.none", "error", numbers, place=_common(names), origin=origin)
    if learning.infinite:
        names = learning.infinite
        yield Finding("gradients.not_finite", "error", _names(names), place=names[0])
    if learning.still:
        names = learning.still
        yield Finding("gradients.zero", "error", _names(names), place=_common(names))


def _learning(patient: Patient) -> Learning:
    """Collect the gradients. Each further pass is made only if the earlier ones left a doubt."""
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
    stuck = _stuck(patient, inputs, targets) if patient.fresh else []
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if any(p.grad is None for _, p in trained):
        _learn_from_more(patient, model)
    if any(p.grad is None for _, p in trained):
        _learn_from_many(patient, model)
    unused = [name for name, p in trained if p.grad is None]
    if unused:
        elsewhere = _learnt_elsewhere(patient)
        unused = [name for name in unused if name not in elsewhere]
    unused_matter = bool(unused) and _matters(patient, unused[:_FEW], inputs)
    infinite = [name for name, p in trained if p.grad is not None and not p.grad.isfinite().all()]
    # Vectors may rightly have none: attention does not feel the bias of its keys.
    if _still(trained):
        _learn_from_many(patient, model)
    return Learning(
        detached=detached,
        wrong_row=_wrong_row(patient),
        frozen=_frozen_table(patient) if patient.fresh else None,
        stuck=stuck,
        unused=unused,
        unused_matter=unused_matter,
        infinite=infinite,
        still=_still(trained),
    )


def _matters(patient: Patient, names: list[str], inputs: CallInputs) -> bool:
    """Tell whether the logits depend on parameters that get no gradient; then something cuts the
    gradient off."""
    model = copy_model(patient.noisy)
    with torch.no_grad():
        before = patient.logits(model, inputs)
        for name in names:
            parameter = model.get_parameter(name)
            parameter += 0.1 * torch.randn_like(parameter)
        return change_size(before, patient.logits(model, inputs)) > 1e-4


def _learn_from_more(patient: Patient, model: nn.Module) -> None:
    """Collect gradients from a long sequence, because some parts, such as a memory of distant
    tokens, have nothing to do in a short one."""
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
    """Collect gradients from many tokens, because some parts, such as a router that weighs only
    experts with almost equal scores, learn nothing from a few."""
    logits = patient.logits(model, patient.draw(_MANY, seed=2))
    targets = patient.draw(_MANY, seed=3).tokens % logits.shape[-1]
    F.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()


def _learnt_elsewhere(patient: Patient) -> set[str]:
    """Return parameters that get a gradient with the model's own weights, under which a router may
    choose other experts, or in training mode, in which more parts may be used. All returned scores
    count as learnt, but states do not: otherwise, an encoder that only returns its states would
    seem to be used."""
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


def _wrong_row(patient: Patient) -> tuple[str, int] | None:
    """Return an embedding table and its row that never learns, if that is not the padding row."""
    if patient.pad_id is None:
        return None
    for path, module in patient.model.named_modules():
        if not isinstance(module, nn.Embedding) or module.padding_idx is None:
            continue
        of_tokens = module.num_embeddings in (patient.vocab_size, patient.source_vocab_size)
        if of_tokens and module.padding_idx != patient.pad_id:
            return path, module.padding_idx
    return None


def _frozen_table(patient: Patient) -> str | None:
    """Return an embedding table that holds random numbers and is not learnt, although all other
    matrices are."""
    tables = {
        f"{path}.weight": module.weight
        for path, module in patient.model.named_modules()
        if isinstance(module, nn.Embedding)
    }
    matrices = [(n, p) for n, p in patient.model.named_parameters() if p.dim() > 1]
    if not all(p.requires_grad for n, p in matrices if n not in tables):
        return None  # most of the model may rightly be kept as it is
    sizes = (patient.vocab_size, patient.source_vocab_size)
    for name, weight in tables.items():
        if not weight.requires_grad and len(weight) in sizes and _is_random(weight.detach()):
            return name.removesuffix(".weight")
    return None


def _is_random(table: Tensor) -> bool:
    """Tell whether a table is random: independent numbers have no common direction, while trained
    vectors, sinusoids and codes have one, or are whole numbers."""
    table = table[(table != 0).any(dim=1)].double()
    if table.numel() == 0 or table.equal(table.round()):
        return False
    n_rows, width = table.shape
    largest = float(table.std()) * (n_rows**0.5 + width**0.5)
    return float(torch.linalg.matrix_norm(table, 2)) < _LARGER_THAN_CHANCE * largest


def _stuck(patient: Patient, inputs: CallInputs, targets: Tensor) -> list[str]:
    """Find parameters that begin at zero and are multiplied with each other, such as a gate and the
    matrix before it. With their initial values, none of them has a gradient; with noise on them
    alone, they have."""
    model = patient.copy()

    def learn() -> None:
        model.zero_grad()
        logits = patient.logits(model, inputs)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        if loss.requires_grad:
            loss.backward()

    def size(parameter: Tensor) -> float:
        return 0.0 if parameter.grad is None else float(parameter.grad.to_dense().abs().max())

    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    zeros = [(name, p) for name, p in trained if not p.detach().any()]
    if not zeros:
        return []
    # The gradients of the others would cost a pass, and as much memory as the model.
    model.requires_grad_(False)
    for _, parameter in zeros:
        parameter.requires_grad_()
    learn()
    waiting = {name: parameter for name, parameter in zeros if not size(parameter)}
    if not waiting:
        return []
    for _, parameter in trained:
        parameter.requires_grad_()
    with torch.no_grad():
        for parameter in waiting.values():
            parameter += _NUDGE * torch.randn_like(parameter)
    learn()
    rounding = 1e-6 * max(map(size, model.parameters()))
    return [name for name, parameter in waiting.items() if size(parameter) > rounding]


def _names(names: list[str]) -> dict[str, object]:
    shown = ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
    return {"n": len(names), "names": shown}


def _common(names: list[str]) -> str:
    """Return the part of the module tree that contains all of them; if there is none, that of the
    first."""
    parts = [name.split(".") for name in names]
    shared = []
    for level in zip(*parts):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    return ".".join(shared or parts[0])
