"""Layer normalisation (section 3.1)."""

import torch
import torch.nn.functional as F
from torch import nn

from clearhead.shapes import Float, Tensor


class LayerNorm(nn.Module):
    """(x - mean) / √(variance + eps) · weight + bias, over the last dimension."""

    def __init__(self, d_model: int, *, eps: float, bias: bool) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model)) if bias else None

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)
