"""Wrong answers to exercise 8."""

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.course.checking import Mistake
from clearhead.course.exercises.loss import solution

Pair = tuple[Tensor, Tensor]


def _no_shift(tokens: Tensor) -> Pair:
    return tokens[:, :-1], tokens[:, :-1]


def _backwards(tokens: Tensor) -> Pair:
    return tokens[:, 1:], tokens[:, :-1]


def _pads_counted(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> Pair:
    total = F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), label_smoothing=smoothing, reduction="sum"
    )
    return total, torch.tensor(targets.numel())


def _pads_in_the_sum(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> Pair:
    return _pads_counted(logits, targets, pad_id, smoothing)[0], (targets != pad_id).sum()


def _mean(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> Pair:
    mean = F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=pad_id, label_smoothing=smoothing
    )
    return mean, (targets != pad_id).sum()


def _softmax_first(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> Pair:
    return solution.loss(logits.softmax(dim=-1), targets, pad_id, smoothing)


def _without_the_target(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> Pair:
    log_probs = logits.log_softmax(dim=-1)
    right = log_probs.gather(-1, targets[..., None])[..., 0]
    others = (log_probs.sum(-1) - right) / (logits.shape[-1] - 1)
    real = targets != pad_id
    return -(((1 - smoothing) * right + smoothing * others) * real).sum(), real.sum()


def _not_smoothed(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> Pair:
    return solution.loss(logits, targets, pad_id, 0.0)


def _vocabulary_last(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> Pair:
    total = F.cross_entropy(
        logits, targets, ignore_index=pad_id, label_smoothing=smoothing, reduction="sum"
    )
    return total, (targets != pad_id).sum()


def _padding_is_0(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> Pair:
    return solution.loss(logits, targets, 0, smoothing)


def _mean_times_count(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> Pair:
    mean, count = _mean(logits, targets, pad_id, smoothing)
    return mean * count, count


def _padding_smoothed(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> Pair:
    real, log_probs = targets != pad_id, logits.log_softmax(dim=-1)
    right = log_probs.gather(-1, targets[..., None])[..., 0] * real
    return -(((1 - smoothing) * right + smoothing * log_probs.mean(-1)).sum()), real.sum()


MISTAKES = [
    Mistake("no shift", "shift", _no_shift),
    Mistake("shifted backwards", "shift", _backwards),
    Mistake("pads counted", "loss", _pads_counted),
    Mistake("pads in the sum", "loss", _pads_in_the_sum),
    Mistake("mean instead of sum", "loss", _mean),
    Mistake("vocabulary on the last axis", "loss", _vocabulary_last),
    Mistake("padding is 0", "loss", _padding_is_0),
    Mistake("mean times count", "loss", _mean_times_count),
    Mistake("padding smoothed", "loss", _padding_smoothed),
    Mistake("softmax first", "loss", _softmax_first),
    Mistake("smoothing without the target", "loss", _without_the_target),
    Mistake("not smoothed", "loss", _not_smoothed),
]
