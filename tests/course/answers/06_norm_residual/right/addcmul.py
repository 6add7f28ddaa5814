import torch
from torch import Tensor


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    d = x - x.mean(-1, keepdim=True)
    return torch.addcmul(bias, d * (d.square().mean(-1, keepdim=True) + eps).rsqrt(), weight)
