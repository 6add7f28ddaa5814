"""Checks the model's own loss: which targets it counts, by what it divides, and which token it
compares with which."""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..calls import CallInputs
from ..findings import Finding, NotApplicableError
from ..loss_forms import adds_a_constant, smoothed
from ..patient import Patient, once_per_patient

_N_IGNORED = 4


def loss_value(patient: Patient) -> Iterator[Finding]:
    """The loss is the cross-entropy of the logits with the right targets, or a smoothed one."""
    if patient.calls.own_loss is not None:
        yield from _own_loss(patient)
        return
    if patient.calls.class_loss is not None:
        yield from _loss_of_classes(patient)
        return
    logits, draws, losses = _drawn(patient)
    right, shift, loss = patient.calls.loss_shift, _seen_shift(patient), float(losses[0])
    if shift == right:
        return
    if shift is not None:
        # By none or by one: right, if callers pass their targets accordingly.
        severity = "warning" if shift in (0, 1) else "error"
        numbers = {"loss": loss, "shift": shift, "right": right}
        case = "shift_back" if shift < 0 else f"shift_{shift}"
        yield Finding(f"loss_value.{case}", severity, numbers)
        return
    smoothing = _wrong_sign(logits, draws, right, losses)
    if smoothing is not None:
        numbers = {"loss": loss, "smoothing": smoothing}
        yield Finding("loss_value.smoothing_sign", "error", numbers)
        return
    expected = float(_cross_entropy(logits, draws[0], right))
    if _explained(patient, logits.softmax(dim=-1), draws, right, losses):
        numbers = {"loss": loss, "expected": expected}
        yield Finding("loss_value.probabilities", "error", numbers)
        return
    yield Finding("loss_value.other", "warning", {"loss": loss, "expected": expected})


def _loss_of_classes(patient: Patient) -> Iterator[Finding]:
    """Check a loss of classes. Probabilities instead of scores are a known error; any other kind of
    loss may be intended."""
    assert patient.calls.class_loss is not None
    model, inputs = patient.noisy.eval(), patient.draw(patient.rows(4))
    losses, expected, of_probabilities = [], [], []
    with torch.no_grad():
        logits = patient.logits(model, inputs).double()
        scores = logits[:, 0] if patient.pooled else logits.flatten(0, 1)
        for seed in (1, 2, 3):
            drawn = patient.draw(len(inputs.tokens), seed=seed).tokens % logits.shape[-1]
            labels = drawn[:, 0] if patient.pooled else drawn
            losses.append(float(patient.calls.class_loss(model, inputs, labels)))
            expected.append(float(F.cross_entropy(scores, labels.flatten())))
            of_probabilities.append(float(F.cross_entropy(scores.softmax(-1), labels.flatten())))
    if all(map(_near, losses, of_probabilities)) and not all(map(_near, losses, expected)):
        numbers = {"loss": losses[0], "expected": expected[0]}
        yield Finding("loss_value.probabilities", "error", numbers)


def _drawn(patient: Patient) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Return logits, three draws of targets, and the loss of each."""
    model, inputs, _, _ = _scene(patient)
    draws = [patient.draw(4, seed=seed).tokens for seed in (1, 2, 3)]
    losses = [_loss(patient, model, inputs, drawn) for drawn in draws]
    return patient.logits(model, inputs), draws, losses


@once_per_patient
def _seen_shift(patient: Patient) -> int | None:
    """Return the shift that explains the loss; the promised shift is tried first."""
    logits, draws, losses = _drawn(patient)
    shifts = (patient.calls.loss_shift, 0, 1, 2, -1)
    return next((s for s in shifts if _explained(patient, logits, draws, s, losses)), None)


def shift_of(patient: Patient) -> int:
    """Return by how many tokens the loss shifts its targets: the promised number, unless the loss
    is seen to shift them by none or by one."""
    seen = _seen_shift(patient)
    return seen if seen in (0, 1) else patient.calls.loss_shift


def _own_loss(patient: Patient) -> Iterator[Finding]:
    """Check a loss whose targets the model makes from its tokens: each position is compared with
    the next one."""
    assert patient.calls.own_loss is not None
    model, draws = patient.noisy.eval(), [patient.draw(4, seed=seed) for seed in (1, 2, 3)]
    with torch.no_grad():
        losses = [float(patient.calls.own_loss(model, inputs)) for inputs in draws]
        logits = [patient.logits(model, inputs) for inputs in draws]

    def explained(shift: int) -> bool:
        right = [float(_cross_entropy(x, d.tokens, shift)) for x, d in zip(logits, draws)]
        return all(_near(one, other) for one, other in zip(losses, right))

    for shift in () if explained(1) else (0, 2, -1):
        if explained(shift):
            numbers = {"loss": losses[0], "shift": shift, "right": 1}
            case = {0: "own_token", 2: "shift_2", -1: "shift_back"}[shift]
            yield Finding(f"loss_value.{case}", "error", numbers)
            return


def ignored_targets(patient: Patient) -> Iterator[Finding]:
    """Ignored targets change nothing, and a batch with only ignored targets has a loss."""
    if patient.calls.own_loss is not None:
        yield from _counts_padding(patient)
        return
    if not patient.calls.ignores:
        raise NotApplicableError("nothing_ignored")
    yield from _of_every_draw(patient, _ignored_targets)


def _counts_padding(patient: Patient) -> Iterator[Finding]:
    """Check that an encoder-decoder's loss of its target leaves padding out, since the sentences of
    a batch differ in length."""
    assert patient.calls.own_loss is not None
    if patient.pad_id is None or not patient.has_source or patient.length < _N_IGNORED + 2:
        raise NotApplicableError("nothing_ignored")
    model, n_pads = patient.noisy.eval(), _N_IGNORED
    losses: list[float] = []
    counted: list[list[float]] = []
    right: list[list[float]] = []
    for seed in (1, 2, 3):
        inputs = patient.draw(patient.rows(4), seed=seed)
        inputs.tokens[:, -n_pads:] = patient.pad_id
        with torch.no_grad():
            losses.append(float(patient.calls.own_loss(model, inputs)))
            logits, targets = _shifted(patient.logits(model, inputs), inputs.tokens, 1)
        counted.append(_means(logits, targets, patient.pad_id))
        right.append(_means(logits[:, :-n_pads], targets[:, :-n_pads], patient.pad_id))
    for all_targets, real_targets in zip(zip(*counted), zip(*right)):
        if all(map(_near, losses, real_targets)):
            return
        if all(map(_near, losses, all_targets)):
            numbers = {"ignored": patient.pad_id, "loss": losses[0], "right": real_targets[0]}
            yield Finding("ignored_targets.counted", "error", numbers)
            return


def _means(logits: Tensor, targets: Tensor, pad_id: int) -> list[float]:
    """Return the mean cross-entropy, and that of each kind of label smoothing."""
    return [float(_cross_entropy(logits, targets, 0)), *smoothed(logits, targets, pad_id)]


def _of_every_draw(
    patient: Patient, look: Callable[[Patient, int], Iterator[Finding]]
) -> Iterator[Finding]:
    """Return what is found with each of three draws of targets: with a single draw, a wrong sum may
    happen to be close."""
    first, *others = ([*look(patient, seed)] for seed in (1, 2, 3))
    again = [{finding.case for finding in findings} for findings in others]
    yield from (finding for finding in first if all(finding.case in findings for findings in again))


def _ignored_targets(patient: Patient, seed: int) -> Iterator[Finding]:
    model, inputs, targets, ignored = _scene(patient, seed)
    shift = shift_of(patient)
    n_ignored = min(_N_IGNORED, patient.length - shift - 1)
    if n_ignored < 1:
        raise NotApplicableError("too_short")
    partly = targets.clone()
    partly[:, -n_ignored:] = ignored
    logits = patient.logits(model, inputs)
    loss = float(_loss(patient, model, inputs, partly))
    total = float(_cross_entropy(logits, partly, shift, ignored, "sum"))
    counted = (partly[:, shift:] != ignored).sum().item()
    averages = {"right": total / counted, "sum": total, "all": total / partly[:, shift:].numel()}
    if not _near(loss, averages["right"]) and (
        _near(loss, averages["all"]) or _halved(patient, model, inputs, targets)
    ):
        numbers = {"loss": loss, "right": averages["right"], "n": n_ignored * len(targets)}
        yield Finding("ignored_targets.divided_by_all", "error", numbers)
    yield from _counted(patient, logits, partly, loss, averages["right"])
    yield from _token(patient, model, inputs, targets, logits)
    yield from _smoothed(patient, logits, targets, partly, loss)
    nothing = torch.full_like(targets, ignored)
    empty = _loss(patient, model, inputs, nothing)
    if not empty.isfinite():
        yield Finding("ignored_targets.none_left", "note", {"loss": float(empty)})


def _halved(patient: Patient, model: nn.Module, inputs: CallInputs, targets: Tensor) -> bool:
    """Tell whether a loss is halved if as many rows with only ignored targets are added to the
    batch."""
    beside = targets.clone()
    beside[2:] = patient.calls.ignored
    alone = float(_loss(patient, model, inputs.rows(slice(0, 2)), targets[:2]))
    return _near(float(_loss(patient, model, inputs, beside)), alone / 2)


def _counted(
    patient: Patient, logits: Tensor, partly: Tensor, loss: float, right: float
) -> Iterator[Finding]:
    """Report ignored targets that are counted as if they were a token, the first or the last of the
    vocabulary."""
    ignored, shift = patient.calls.ignored, shift_of(patient)
    if _near(loss, right):
        return
    for token in (0, patient.vocab_size - 1):
        filled = torch.where(partly == ignored, token, partly)
        if _near(loss, float(_cross_entropy(logits, filled, shift))):
            numbers = {"ignored": ignored, "loss": loss, "right": right}
            yield Finding("ignored_targets.counted", "error", numbers)
            return


def _token(
    patient: Patient, model: nn.Module, inputs: CallInputs, targets: Tensor, logits: Tensor
) -> Iterator[Finding]:
    """Check that token 0 counts as a target, unless it is padding."""
    if patient.pad_id == 0:
        return
    shift, ignored = shift_of(patient), patient.calls.ignored
    some = targets.clone()
    some[:, ::2] = 0
    loss = float(_loss(patient, model, inputs, some))
    # -100 stands for nothing here: the target that the model itself ignores is asked about.
    counted = float(_cross_entropy(logits, some, shift, -100))
    left_out = float(_cross_entropy(logits, some, shift, 0))
    if _near(loss, left_out) and not _near(loss, counted):
        yield Finding("ignored_targets.token", "warning", {"token": 0, "ignored": ignored})


def _smoothed(
    patient: Patient, logits: Tensor, targets: Tensor, partly: Tensor, loss: float
) -> Iterator[Finding]:
    """Check that label smoothing leaves ignored targets out as well."""
    shift, ignored = shift_of(patient), patient.calls.ignored
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
    """Micro-batches with different numbers of targets must give the gradient of one large batch,
    and a loss must not average averages."""
    if patient.calls.loss is not None and patient.calls.ignores:
        yield from _of_every_draw(patient, _mean_of_means)
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


def _mean_of_means(patient: Patient, seed: int) -> Iterator[Finding]:
    """Check that rows with different numbers of targets give every target the same weight."""
    model, inputs, targets, ignored = _scene(patient, seed)
    targets[2:, 3:] = ignored
    shift = shift_of(patient)
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


def _scene(patient: Patient, seed: int = 1) -> tuple[nn.Module, CallInputs, Tensor, int]:
    if patient.calls.loss is None:
        raise NotApplicableError("no_loss")
    if patient.rows(4) < 4:
        raise NotApplicableError("few_rows")
    # With noise on the weights: logits that are all alike would hide which target is compared.
    return (
        patient.noisy.eval(),
        patient.draw(4),
        patient.draw(4, seed=seed).tokens,
        patient.calls.ignored,
    )


def _loss(patient: Patient, model: nn.Module, inputs: CallInputs, targets: Tensor) -> Tensor:
    assert patient.calls.loss is not None
    with torch.no_grad():
        return patient.calls.loss(model, inputs, targets).double()


def _shifted(logits: Tensor, targets: Tensor, shift: int) -> tuple[Tensor, Tensor]:
    """Return the logits that the loss compares, and the targets with which it compares them."""
    n = logits.shape[1] - abs(shift)
    if shift < 0:
        return logits[:, -n:], targets[:, :n]
    return logits[:, :n], targets[:, shift:]


def _cross_entropy(
    logits: Tensor, targets: Tensor, shift: int, ignored: int = -100, reduction: str = "mean"
) -> Tensor:
    logits, targets = _shifted(logits, targets, shift)
    return F.cross_entropy(
        logits.flatten(0, 1).double(), targets.flatten(), ignore_index=ignored, reduction=reduction
    )


def _explained(
    patient: Patient, logits: Tensor, draws: list[Tensor], shift: int, losses: list[Tensor]
) -> bool:
    """Tell whether the losses are a mean or a sum of cross-entropies, smoothed or not, or a mean
    with an added term that no target changes. The same form must explain all draws of targets,
    since for a single draw some form always comes close."""
    kept, _ = _shifted(logits, draws[0], shift)
    seen, n = [float(loss) for loss in losses], kept.shape[0] * kept.shape[1]
    plain = [float(_cross_entropy(logits, targets, shift)) for targets in draws]
    pad_id = patient.pad_id or 0
    forms = [
        plain,
        *zip(*(smoothed(kept, _shifted(logits, d, shift)[1], pad_id) for d in draws)),
    ]
    return any(
        all(map(_near, seen, known))
        or all(_near(one, n * other) for one, other in zip(seen, known))
        or adds_a_constant(seen, list(known))
        for known in forms
    )


def _wrong_sign(
    logits: Tensor, draws: list[Tensor], shift: int, losses: list[Tensor]
) -> float | None:
    """Return the amount of label smoothing, if the loss subtracts the smoothing term instead of
    adding it."""
    kept, _ = _shifted(logits, draws[0], shift)
    uniform = -float(kept.double().log_softmax(dim=-1).mean())
    plain = [float(_cross_entropy(logits, targets, shift)) for targets in draws]
    share = float(losses[0] - losses[1]) / (plain[0] - plain[1])
    away = [_near(share * p - (1 - share) * uniform, float(x)) for p, x in zip(plain, losses)]
    return 1 - share if 0.5 < share < 0.99 and all(away) else None


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-3 * max(abs(one), abs(other), 1e-6)
