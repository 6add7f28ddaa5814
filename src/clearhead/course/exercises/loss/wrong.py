"""Wrong answers to exercise 8."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.course.checking import Mistake, combined
from clearhead.course.exercises.loss import checks, solution

Pair = tuple[Tensor, Tensor]


def _no_shift(tokens: Tensor) -> Pair:
    return tokens[:, :-1], tokens[:, :-1]


def _backwards(tokens: Tensor) -> Pair:
    return tokens[:, 1:], tokens[:, :-1]


def _inputs_whole(tokens: Tensor) -> Pair:
    return tokens, tokens[:, 1:]


def _build(
    reduction: str = "sum",
    padding: str = "ignored",
    logits_of: Any = None,
    smooth: bool = True,
    pad: int | None = None,
) -> Callable[..., Pair]:
    """torch's own function, with one or two of its arguments wrong."""

    def loss(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> Pair:
        pad_id = pad_id if pad is None else pad
        total = F.cross_entropy(
            (logits if logits_of is None else logits_of(logits)).flatten(0, 1),
            targets.flatten(),
            ignore_index=pad_id if padding == "ignored" else -100,
            label_smoothing=smoothing if smooth else 0.0,
            reduction=reduction,
        )
        counted = torch.tensor(targets.numel())
        return total, counted if padding == "counted" else (targets != pad_id).sum()

    return loss


def _without_the_target(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> Pair:
    log_probs = logits.log_softmax(dim=-1)
    right = log_probs.gather(-1, targets[..., None])[..., 0]
    others = (log_probs.sum(-1) - right) / (logits.shape[-1] - 1)
    real = targets != pad_id
    return -(((1 - smoothing) * right + smoothing * others) * real).sum(), real.sum()


def _vocabulary_last(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> Pair:
    total = F.cross_entropy(
        logits, targets, ignore_index=pad_id, label_smoothing=smoothing, reduction="sum"
    )
    return total, (targets != pad_id).sum()


def _mean_times_count(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> Pair:
    mean, count = _build(reduction="mean")(logits, targets, pad_id, smoothing)
    return mean * count, count


def _by_hand(log_probs: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> Pair:
    real = targets != pad_id
    right = log_probs.gather(-1, targets[..., None])[..., 0]
    nats = -((1 - smoothing) * right + smoothing * log_probs.mean(-1))
    return nats[real].sum(), real.sum()


def _log_of_softmax(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> Pair:
    return _by_hand(logits.softmax(dim=-1).log(), targets, pad_id, smoothing)


def _infinite_or_clamped(loss: Any) -> bool:
    """Right for small logits, and infinite, NaN or bounded for large ones."""
    torch.manual_seed(0)
    logits, targets = torch.randn(1, 6, 9), torch.randint(1, 9, (1, 6))
    near, far = (float(loss(scale * logits, targets, 0, 0.1)[0]) for scale in (1, 200))
    right = [float(solution.loss(scale * logits, targets, 0, 0.1)[0]) for scale in (1, 200)]
    return abs(near - right[0]) < 1e-2 and not abs(far - right[1]) < 1


def _padding_smoothed(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> Pair:
    real, log_probs = targets != pad_id, logits.log_softmax(dim=-1)
    right = log_probs.gather(-1, targets[..., None])[..., 0] * real
    return -(((1 - smoothing) * right + smoothing * log_probs.mean(-1)).sum()), real.sum()


def _negative(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> Pair:
    total, count = solution.loss(logits, targets, pad_id, smoothing)
    return -total, count


def _no_gradient(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> Pair:
    total, count = solution.loss(logits, targets, pad_id, smoothing)
    return total.detach(), count


def _by_a_view(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> Pair:
    logits = logits.view(-1, logits.shape[-1]).reshape(logits.shape)
    return solution.loss(logits, targets, pad_id, smoothing)


WRONG_ARGUMENTS = {
    "reduction": {"mean instead of sum": "mean"},
    "padding": {"pads counted": "counted", "pads in the sum": "in the sum"},
    "logits_of": {
        "softmax first": lambda logits: logits.softmax(dim=-1),
        "sigmoid first": lambda logits: logits.sigmoid(),
    },
    "smooth": {"not smoothed": False},
    "pad": {"padding is 0": 0},
}
MISTAKES = [
    Mistake("no shift", "shift", _no_shift),
    Mistake("shifted backwards", "shift", _backwards),
    Mistake("inputs not cut", "shift", _inputs_whole),
    *combined("loss", _build, WRONG_ARGUMENTS),
    Mistake("vocabulary on the last axis", "loss", _vocabulary_last),
    Mistake("mean times count", "loss", _mean_times_count),
    Mistake("padding smoothed", "loss", _padding_smoothed),
    Mistake("smoothing without the target", "loss", _without_the_target),
    Mistake("sign", "loss", _negative),
    Mistake("log of softmax", "loss", _log_of_softmax, fits=_infinite_or_clamped),
    Mistake("view without contiguous", "loss", _by_a_view, probe=checks.probe_scattered),
    Mistake("no gradient", "loss", _no_gradient, probe=checks.probe_gradients),
]
