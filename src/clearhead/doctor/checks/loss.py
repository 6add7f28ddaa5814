"""The model's own loss: what it counts, what it divides by, which token it compares with which."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn

from clearhead.doctor.findings import Finding, NotApplicableError
from clearhead.doctor.patient import Inputs, Patient
from clearhead.shapes import Tensor

_N_IGNORED = 4


def loss_value(patient: Patient) -> Iterator[Finding]:
    """The loss is the cross-entropy of the logits with the right targets, or a smoothed one."""
    model, inputs, targets, _ = _scene(patient)
    logits = patient.logits(model, inputs)
    loss = _loss(patient, model, inputs, targets)
    right = patient.calls.loss_shift
    if _explained(logits, targets, right, loss):
        return
    for shift in (0, 1, 2):
        if shift != right and _explained(logits, targets, shift, loss):
            severity = "warning" if shift == 1 else "error"
            numbers = {"loss": float(loss), "shift": shift, "right": right}
            yield Finding(f"loss_value.shift_{shift}", severity, numbers)
            return
    expected = float(_cross_entropy(logits, targets, right))
    numbers = {"loss": float(loss), "expected": expected}
    yield Finding("loss_value.other", "warning", numbers)


def ignored_targets(patient: Patient) -> Iterator[Finding]:
    """Targets that do not count change nothing, and a batch of nothing else has a loss."""
    model, inputs, targets, ignored = _scene(patient)
    partly = targets.clone()
    partly[:, -_N_IGNORED:] = ignored
    logits = patient.logits(model, inputs)
    loss = float(_loss(patient, model, inputs, partly))
    shift = patient.calls.loss_shift
    total = float(_cross_entropy(logits, partly, shift, ignored, "sum"))
    counted = (partly[:, shift:] != ignored).sum().item()
    averages = {"right": total / counted, "sum": total, "all": total / partly[:, shift:].numel()}
    if _near(loss, averages["all"]) and not _near(loss, averages["right"]):
        numbers = {"loss": loss, "right": averages["right"], "n": _N_IGNORED * len(targets)}
        yield Finding("ignored_targets.divided_by_all", "error", numbers)
    yield from _smoothed(patient, logits, targets, partly, loss)
    nothing = torch.full_like(targets, ignored)
    empty = _loss(patient, model, inputs, nothing)
    if not empty.isfinite():
        yield Finding("ignored_targets.none_left", "warning", {"loss": float(empty)})


def _smoothed(
    patient: Patient, logits: Tensor, targets: Tensor, partly: Tensor, loss: float
) -> Iterator[Finding]:
    """Label smoothing must leave ignored targets out as well."""
    shift, ignored = patient.calls.loss_shift, patient.calls.ignored
    whole = float(_loss(patient, patient.noisy.eval(), patient.draw(4), targets))
    plain = float(_cross_entropy(logits, targets, shift))
    uniform = -logits[:, : logits.shape[1] - shift].double().log_softmax(dim=-1).mean(dim=-1)
    smoothing = (whole - plain) / (float(uniform.mean()) - plain)
    if not 0.01 < smoothing < 0.5:
        return
    counted = partly[:, shift:] != ignored
    hard = float(_cross_entropy(logits, partly, shift, ignored, "sum"))
    n = int(counted.sum())
    right = ((1 - smoothing) * hard + smoothing * float(uniform[counted].sum())) / n
    # What is smoothed towards is summed over all positions, or averaged over them.
    for spread in (float(uniform.sum()) / n, float(uniform.mean())):
        wrong = (1 - smoothing) * hard / n + smoothing * spread
        if _near(loss, wrong) and not _near(loss, right):
            numbers = {"loss": loss, "right": right, "smoothing": smoothing}
            yield Finding("ignored_targets.smoothed", "error", numbers)
            return


def accumulation(patient: Patient) -> Iterator[Finding]:
    """Micro-batches with different numbers of targets leave the gradient of one big batch; and a
    loss does not average averages by itself."""
    if patient.calls.loss is not None:
        yield from _mean_of_means(patient)
    accumulate = patient.calls.accumulate
    if accumulate is None:
        if patient.calls.loss is None:
            raise NotApplicableError("no_accumulation")
        return
    ignored = patient.calls.ignored
    inputs, targets = patient.draw(4), patient.draw(4, seed=1).tokens
    targets[2:, 2:] = ignored
    one, many = patient.copy(), patient.copy()
    accumulate(one, [(inputs, targets)])
    accumulate(
        many, [(inputs.rows(slice(0, 2)), targets[:2]), (inputs.rows(slice(2, 4)), targets[2:])]
    )
    big, small = _gradient(one), _gradient(many)
    change = float((big - small).norm() / big.norm().clamp(min=1e-12))
    if change > 1e-3:
        numbers = {
            "change": change,
            "counted": [int((t != ignored).sum()) for t in targets.split(2)],
        }
        yield Finding("accumulation.differs", "error", numbers)


def _mean_of_means(patient: Patient) -> Iterator[Finding]:
    """Rows with different numbers of targets: every target weighs the same."""
    model, inputs, targets, ignored = _scene(patient)
    targets[2:, 3:] = ignored
    shift = patient.calls.loss_shift
    with torch.no_grad():
        logits = patient.logits(model, inputs)
    loss = float(_loss(patient, model, inputs, targets))
    right = float(_cross_entropy(logits, targets, shift, ignored))
    rows = [
        float(_cross_entropy(one, row, shift, ignored))
        for one, row in zip(logits.split(1), targets.split(1))
    ]
    wrong = sum(rows) / len(rows)
    if _near(loss, wrong) and not _near(loss, right):
        yield Finding("accumulation.by_row", "warning", {"loss": loss, "right": right})


def _gradient(model: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def _scene(patient: Patient) -> tuple[nn.Module, Inputs, Tensor, int]:
    if patient.calls.loss is None:
        raise NotApplicableError("no_loss")
    # With noise on the weights: logits that are all alike would hide which target is compared.
    return (
        patient.noisy.eval(),
        patient.draw(4),
        patient.draw(4, seed=1).tokens,
        patient.calls.ignored,
    )


def _loss(patient: Patient, model: nn.Module, inputs: Inputs, targets: Tensor) -> Tensor:
    assert patient.calls.loss is not None
    with torch.no_grad():
        return patient.calls.loss(model, inputs, targets).double()


def _cross_entropy(
    logits: Tensor, targets: Tensor, shift: int, ignored: int = -100, reduction: str = "mean"
) -> Tensor:
    logits = logits[:, : logits.shape[1] - shift].flatten(0, 1).double()
    return F.cross_entropy(
        logits, targets[:, shift:].flatten(), ignore_index=ignored, reduction=reduction
    )


def _explained(logits: Tensor, targets: Tensor, shift: int, loss: Tensor) -> bool:
    """A mean, a sum, or a mean with label smoothing between 0 and 0.3."""
    plain = _cross_entropy(logits, targets, shift)
    n = targets[:, shift:].numel()
    uniform = -logits[:, : logits.shape[1] - shift].double().log_softmax(dim=-1).mean()
    smoothing = float((loss - plain) / (uniform - plain))
    known = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
    smoothed = any(abs(smoothing - value) < 0.003 for value in known)
    return _near(float(loss), float(plain)) or _near(float(loss), float(plain) * n) or smoothed


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-3 * max(abs(one), abs(other), 1e-6)
