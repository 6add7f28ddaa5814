"""The losses, besides plain cross-entropy, that people compute from logits and targets: label
smoothing in its forms, and terms that do not depend on the targets."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

SMOOTHINGS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
"""Usual shares of label smoothing."""
# Rounding in single precision is a tenth of this; what targets change is far more.
_CONSTANT = 3e-5


def smoothed(logits: Tensor, targets: Tensor, pad_id: int) -> Iterator[float]:
    """Return the mean over all positions of each form of label smoothing, always in the same order.
    The share that is taken from the target goes to all tokens, to all other tokens, or to all other
    tokens except padding. Each form is computed as a cross-entropy and as a divergence, which is
    lower by the entropy of the smoothed target."""
    log_p, n = logits.double().log_softmax(dim=-1), logits.shape[-1]
    hard = -float(log_p.gather(-1, targets[..., None]).mean())
    all_tokens = -float(log_p.sum(dim=-1).mean())
    padding = -float(log_p[..., pad_id].mean())
    for smoothing in SMOOTHINGS:
        kept = 1 - smoothing
        for weight, n_others, others in (
            (kept + smoothing / n, n - 1, all_tokens - hard),
            (kept, n - 1, all_tokens - hard),
            (kept, n - 2, all_tokens - hard - padding),
        ):
            share = (1 - weight) / max(n_others, 1)
            cross = weight * hard + share * others
            entropy = -weight * math.log(weight) - (1 - weight) * math.log(share)
            yield cross
            yield cross - entropy


def adds_a_constant(losses: list[float], known: list[float]) -> bool:
    """Tell whether losses exceed known ones by an amount that does not depend on the targets, such
    as a load-balancing loss of experts or a z-loss."""
    rests = torch.tensor(losses, dtype=torch.double) - torch.tensor(known, dtype=torch.double)
    spread = float(rests.max() - rests.min())
    return float(rests.min()) > 0 and spread < _CONSTANT * max(map(abs, losses))
