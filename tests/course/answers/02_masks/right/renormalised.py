import torch
from torch import Tensor


def masked_weights(scores: Tensor, allowed: Tensor) -> Tensor:
    w = scores.softmax(-1) * allowed
    total = w.sum(-1, keepdim=True)
    return torch.where(total > 0, w / torch.where(total > 0, total, 1.0), 0.0)
