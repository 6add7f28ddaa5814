"""A layer without its feed-forward network, for a study. A file of its own: a result belongs to the
file of its parts as it was."""

import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig


class NoFeedForward(nn.Module):
    """Adds nothing to the residual stream: a layer is its attention alone."""

    def __init__(self, _: ModelConfig) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)
