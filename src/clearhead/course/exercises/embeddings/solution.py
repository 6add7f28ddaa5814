"""Exercise 14, the reference."""

import math

import torch
from torch import Tensor, nn


class TiedTable(nn.Module):
    """One parameter, used twice."""

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__()
        self.table = nn.Parameter(0.02 * torch.randn(vocab_size, d_model))

    def embed(self, tokens: Tensor) -> Tensor:
        """Rows, times √d_model."""
        return self.table[tokens] * math.sqrt(self.table.shape[1])

    def score(self, x: Tensor) -> Tensor:
        """The product with every row."""
        return x @ self.table.T


def initialise(model: nn.Module, std: float, n_layers: int) -> None:
    """What a parameter is shows in its name and in its axes."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            writes = name.endswith(("output.weight", "down.weight"))
            nn.init.normal_(parameter, std=std / math.sqrt(2 * n_layers) if writes else std)
        else:
            nn.init.constant_(parameter, 0.0 if name.endswith("bias") else 1.0)
