"""Gated feed-forward networks (Shazeer 2020)."""

from torch import nn

from clearhead.parts.feed_forward import Activation
from clearhead.shapes import Stream


class GatedFeedForward(nn.Module):
    """W₂ · (activation(W_gate · x) ⊙ W₁ · x): SwiGLU with SiLU, GEGLU with GELU.

    It has three matrices, so at equal size d_ff is two thirds of the plain network's."""

    def __init__(self, d_model: int, d_ff: int, *, activation: Activation, bias: bool) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, d_ff, bias=bias)
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.activation = activation
        self.down = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Stream) -> Stream:
        return self.down(self.activation(self.gate(x)) * self.up(x))
