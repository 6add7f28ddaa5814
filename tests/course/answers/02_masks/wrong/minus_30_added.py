import torch
from torch import Tensor


def masked_weights(scores: Tensor, allowed: Tensor) -> Tensor:
    w = (scores + torch.where(allowed, 0.0, -30.0)).softmax(-1)
    return w * allowed.any(-1, keepdim=True) * allowed
