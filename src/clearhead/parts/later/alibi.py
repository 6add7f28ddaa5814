"""Attention with linear biases (Press et al. 2021): distance lowers the scores."""

import math

import torch
from torch import nn

from clearhead.shapes import Bias, Int, Tensor


class AlibiPositions(nn.Module):
    """Each head lowers its scores by the distance times its own slope, 2^(-8·h/n_heads). Without
    causality, the distance counts the same in both directions."""

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.empty(n_heads), persistent=False)
        self.slopes: Tensor
        self.fill_tables()

    def fill_tables(self) -> None:
        """Fills in the slopes. A model that was built on the meta device calls this again once it
        has memory."""
        if not self.slopes.is_meta:
            self.slopes.copy_(torch.tensor(_alibi_slopes(len(self.slopes))))

    def forward(
        self, queries: Int[Tensor, "#batch query"], keys: Int[Tensor, "#batch key"]
    ) -> Bias:
        distance = (queries[:, :, None] - keys[:, None, :]).abs()
        return -self.slopes[:, None, None] * distance[:, None]


def _alibi_slopes(n_heads: int) -> list[float]:
    """Return the paper's slopes. If n_heads is not a power of 2, the slopes that are missing are
    every second slope of twice as many heads."""
    power = 2 ** math.floor(math.log2(n_heads))
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2 ** (-8 * h / (2 * power)) for h in range(1, 2 * power + 1, 2)]
    return slopes + between[: n_heads - power]
