"""Checks what only training shows: a model that learns nothing, or one that learns what it cannot
know."""

import math
import time
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..calls import CallInputs
from ..findings import Finding, NotApplicableError
from ..patient import Patient
from .loss import shift_of

_N_SAMPLES = 8
_LENGTH = 8
_N_SYMBOLS = 16
_N_STEPS = 150
# The training checks stop here on a slow machine, and give no verdict if they were not done. The
# time of this thread: what other processes take is not the model's.
_SECONDS = 12.0
_LEARNING_RATE = 3e-3
# A working model halves its loss on eight samples within tens of steps at any sensible rate.
_LEARNT, _NOT_LEARNT = 0.05, 0.5
# Below the entropy by this much on fresh data, a thousand tokens at a time: never by chance.
_KNOWS_TOO_MUCH = 0.15


def overfits(patient: Patient) -> Iterator[Finding]:
    """The model must be able to learn eight random samples by heart."""
    if patient.is_frozen or not patient.scores_tokens:
        raise NotApplicableError("frozen" if patient.is_frozen else "no_token_scores")
    model = patient.training_copy()
    inputs = patient.draw(_N_SAMPLES, _length(patient), _length(patient))
    targets = patient.draw(_N_SAMPLES, _length(patient), seed=1).tokens
    # Next tokens, where the first of each sample tells it from the others.
    first = patient.draw(1, patient.vocab_size, 1).tokens[0].unique()[:_N_SAMPLES]
    if len(first) < _N_SAMPLES:
        raise NotApplicableError("small_vocabulary")
    inputs.tokens[:, 0] = first

    def loss() -> Tensor:
        return _loss(patient, model, inputs, targets)

    losses = _train(model, loss)
    if losses is None:
        raise NotApplicableError("too_slow")
    if not min(losses) < _NOT_LEARNT * losses[0]:
        if len(losses) < _N_STEPS:
            raise NotApplicableError("too_slow")
        numbers = {"first": losses[0], "last": losses[-1], "steps": len(losses)}
        yield Finding("overfits.not", "error", numbers)


def knows_the_future(patient: Patient) -> Iterator[Finding]:
    """With new random tokens at every step, no model can do better than their entropy."""
    if patient.is_frozen or patient.kind == "encoder":
        raise NotApplicableError("frozen" if patient.is_frozen else "encoder")
    if patient.calls.fills is not None:
        raise NotApplicableError("fills")
    model = patient.training_copy()
    symbols = len(patient.draw(64, symbols=_N_SYMBOLS).tokens.unique())
    length = _length(patient)
    seed = iter(range(10, 10_000))

    def loss() -> Tensor:
        n_rows = patient.rows(16)
        inputs = patient.draw(n_rows, length, length, symbols=symbols, seed=next(seed))
        return _loss(patient, model, inputs, None)

    floor = math.log(symbols)
    losses = _train(model, loss, below=floor - 2 * _KNOWS_TOO_MUCH)
    if losses is None:
        raise NotApplicableError("too_slow")
    recent = sum(losses[-5:]) / len(losses[-5:])
    if recent < floor - _KNOWS_TOO_MUCH:
        numbers = {"loss": recent, "floor": floor, "symbols": symbols, "steps": len(losses)}
        yield Finding("knows_the_future.below_entropy", "error", numbers)


def _length(patient: Patient) -> int:
    return min(_LENGTH, patient.length)


def _loss(patient: Patient, model: nn.Module, inputs: CallInputs, labels: Tensor | None) -> Tensor:
    """Return the loss: an encoder's labels are given, while other models predict the next token."""
    if patient.kind != "encoder" and patient.calls.loss is not None:
        targets = inputs.tokens
        if not shift_of(patient):
            # The last target is nobody's next token: another row's first, which none can know.
            targets = torch.cat((targets[:, 1:], targets[:, :1].roll(1, dims=0)), dim=1)
        return patient.calls.loss(model, inputs, targets)
    logits = patient.logits(model, inputs).float()
    if patient.kind != "encoder":
        logits, labels = logits[:, :-1], inputs.tokens[:, 1:]
    assert labels is not None
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def _train(model: nn.Module, loss, *, below: float = _LEARNT) -> list[float] | None:
    """Return the losses of all steps until one is low enough; None if there was no time to tell."""
    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], lr=_LEARNING_RATE, weight_decay=0.0
    )
    losses: list[float] = []
    started = time.thread_time()
    for _ in range(_N_STEPS):
        if time.thread_time() - started > _SECONDS:
            return losses if len(losses) > _N_STEPS // 3 else None
        optimizer.zero_grad()
        value = loss()
        losses.append(float(value.detach()))
        if losses[-1] < below:
            break
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return losses
