import torch
from torch import Tensor


def masked_weights(scores: Tensor, allowed: Tensor) -> Tensor:
    scores = scores.masked_fill_(~allowed, torch.finfo(scores.dtype).min / 2)
    return scores.softmax(-1) * allowed.any(-1, keepdim=True)
