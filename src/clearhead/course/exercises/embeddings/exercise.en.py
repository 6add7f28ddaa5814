"""Exercise 14: embeddings, tying and initial weights (chapter 6).

One table E of (vocab, d_model) numbers does two things. It embeds: the vector of token t is row t,
times √d_model. And it scores: the logits of a vector x are x Eᵀ, without the factor.

    d_model = 4, row 7 is (0.1, 0, 0, −0.2):   embed(7) = (0.2, 0, 0, −0.4)

The initial weights of a model with N layers: every matrix from N(0, std²). The two matrices of each
layer that write into the residual stream, called `output` and `down` here, are narrower by √(2N).
Biases are 0, and the weights of norms are 1.

Replace each blank() and save. Check: clearhead learn check
"""

import torch
from torch import Tensor, nn

from clearhead.course import blank


class TiedTable(nn.Module):
    """What you write: one table that embeds tokens and scores them."""

    def __init__(self, vocab_size: int, d_model: int) -> None:
        """The numbers of the table come from N(0, 0.02²)."""
        super().__init__()
        self.table = blank()

    def embed(self, tokens: Tensor) -> Tensor:
        """tokens (batch, length) → (batch, length, d_model)"""
        return blank()

    def score(self, x: Tensor) -> Tensor:
        """x (batch, length, d_model) → logits (batch, length, vocab)"""
        return blank()


def initialise(model: nn.Module, std: float, n_layers: int) -> None:
    """Draws every parameter of the model anew, in place. A parameter with two axes is a matrix.
    Names end as in `layers.0.down.weight`; everything called `bias` is a bias; the other
    parameters with one axis are weights of norms."""
    return blank()
