"""Exercise 13, the reference."""

import torch
from torch import Tensor


def chances(logits: Tensor, *, temperature: float, top_k: int | None, top_p: float) -> Tensor:
    """Masks before each softmax; what top-p cuts is counted in falling order."""
    if temperature == 0:
        best = logits.argmax(dim=1, keepdim=True)
        return torch.zeros_like(logits).scatter(1, best, 1.0)
    logits = logits / temperature
    if top_k is not None and top_k < logits.shape[1]:
        least = logits.topk(top_k, dim=1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    falling, order = logits.softmax(dim=1).sort(dim=1, descending=True)
    before = falling.cumsum(dim=1) - falling
    falling = falling.masked_fill((before >= top_p) & (top_p < 1), 0.0)
    kept = torch.zeros_like(falling).scatter(1, order, falling)
    return kept / kept.sum(dim=1, keepdim=True)


def draw(probabilities: Tensor, u: Tensor) -> Tensor:
    """u is scaled to the sum that rounding leaves; the last token that has a chance is the end."""
    summed = probabilities.double().cumsum(dim=1)
    above = summed > u[:, None].double() * summed[:, -1:]
    last = (summed < summed[:, -1:]).sum(dim=1)
    return torch.where(above.any(dim=1), above.int().argmax(dim=1), last)
