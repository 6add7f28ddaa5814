"""Exercise 19: repair the specimen (chapter 7b).

A small pre-norm decoder with sinusoids, as many tutorials write it. It runs, it trains, and it has
five silent defects. No line of it raises an error.

1. Let the doctor examine it:  clearhead doctor 19_specimen.py:build --kind decoder --quick
   and write into `findings` the names of the checks that report an error or a warning, such as
   "causal" for causal.leak.
2. Repair the five defects. Keep every name and every parameter: nothing need be added or removed
   but lines of forward. Examine it again.

Replace blank() and save. Check: clearhead learn check
"""

import math

import torch
from torch import Tensor, nn

from clearhead.course import blank


def findings() -> set[str]:
    """The names of the doctor's checks that find something in the specimen as it was given."""
    return blank()


class SpecimenAttention(nn.Module):
    """Causal self-attention."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.d_model, self.n_heads = d_model, n_heads
        self.query, self.key, self.value, self.output = (
            nn.Linear(d_model, d_model) for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        q, k, v = (
            layer(x).unflatten(2, (self.n_heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_model)
        future = torch.ones(n, n).triu(1)
        weights = (scores - future).softmax(dim=-1)
        return self.output((weights @ v).transpose(1, 2).flatten(2))


class SpecimenLayer(nn.Module):
    """Pre-norm: x + sublayer(norm(x)), twice."""

    def __init__(self, d_model: int, n_heads: int, p_dropout: float) -> None:
        super().__init__()
        self.attention = SpecimenAttention(d_model, n_heads)
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.up, self.down = nn.Linear(d_model, 4 * d_model), nn.Linear(4 * d_model, d_model)
        self.dropout = nn.Dropout(p_dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm_1(x)
        x = x + self.dropout(self.attention(x))
        x = self.norm_2(x)
        return x + self.dropout(self.down(self.up(x).relu()))


class Specimen(nn.Module):
    """A decoder; embeddings are times √d_model, and the output is tied to them."""

    def __init__(
        self, vocab_size: int, d_model: int, n_heads: int, n_layers: int, p_dropout: float
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        nn.init.normal_(self.tokens.weight, std=0.02)
        angles = torch.arange(128)[:, None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)
        table = torch.stack((angles.sin(), angles.cos()), dim=2).flatten(1)
        self.register_buffer("positions", table)
        self.positions: Tensor
        self.dropout = nn.Dropout(p_dropout)
        self.layers = nn.ModuleList(
            SpecimenLayer(d_model, n_heads, p_dropout) for _ in range(n_layers)
        )
        self.norm = nn.LayerNorm(d_model)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (batch, length) → logits (batch, length, vocab)"""
        x = self.dropout(self.tokens(tokens) + self.positions[: tokens.shape[1]])
        x = self.dropout(x)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) @ self.tokens.weight.T


def build() -> nn.Module:
    """Builds the model for the doctor."""
    return Specimen(50, 32, 4, 2, 0.1)
