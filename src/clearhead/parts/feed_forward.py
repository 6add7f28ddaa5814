"""Position-wise feed-forward networks (section 3.3)."""

from collections.abc import Callable

from torch import nn

from clearhead.shapes import Stream, Tensor

Activation = Callable[[Tensor], Tensor]


class FeedForward(nn.Module):
    """W₂ · activation(W₁ · x): the same two matrices at every position."""

    def __init__(self, d_model: int, d_ff: int, *, activation: Activation, bias: bool) -> None:
        super().__init__()
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.activation = activation
        self.down = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Stream) -> Stream:
        return self.down(self.activation(self.up(x)))
