"""Normalisation by the root mean square (Zhang and Sennrich 2019)."""

import torch
import torch.nn.functional as F
from torch import nn

from clearhead.shapes import Float, Tensor


class RMSNorm(nn.Module):
    """x / √(mean of x² + eps) · weight: no mean is subtracted, and there is no bias."""

    def __init__(self, d_model: int, *, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
