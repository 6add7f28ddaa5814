import torch
from torch import Tensor


def masked_weights(scores: Tensor, allowed: Tensor) -> Tensor:
    e = scores.exp() * allowed
    total = e.sum(-1, keepdim=True)
    return e / torch.where(total == 0, 1.0, total)
