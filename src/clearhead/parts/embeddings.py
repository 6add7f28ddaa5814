"""Turns tokens into vectors and back (section 3.4)."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from clearhead.errors import TokenIdError
from clearhead.parts.dropout import Dropout
from clearhead.parts.feed_forward import Activation
from clearhead.shapes import Float, Int, Logits, Positions, Real, Stream, Tensor, Tokens


class TokenEmbedding(nn.Module):
    """Gives each token its vector, times √d_model if `scale` is set, so that the positions, which
    are added later, do not dominate."""

    def __init__(self, vocab_size: int, d_model: int, *, scale: bool) -> None:
        super().__init__()
        self.scale = math.sqrt(d_model) if scale else 1.0
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))

    def forward(self, tokens: Tokens) -> Stream:
        try:
            vectors = F.embedding(tokens, self.weight)
        except IndexError:  # on CPUs only: an accelerator would report the error later
            raise TokenIdError(
                f"ids from {int(tokens.min())} to {int(tokens.max())} are looked up in a table of "
                f"{len(self.weight)}, whose ids are 0 to {len(self.weight) - 1}; encode the text "
                "with the tokenizer of this model"
            ) from None
        return vectors if self.scale == 1.0 else vectors * self.scale

    def extra_repr(self) -> str:
        return f"vocab_size={self.weight.shape[0]}, scale={self.scale:.4g}"


class InputEmbedding(nn.Module):
    """Makes the input of the first layer: adds positions and segments to the token vectors, and
    applies the norm, if there is one, and dropout. Padding becomes zeros, whatever its row of the
    table holds. The caller passes the token table, since both stacks and the output may share
    it."""

    def __init__(
        self,
        *,
        positions: nn.Module | None,
        segments: TokenEmbedding | None,
        norm: nn.Module | None,
        p_dropout: float,
    ) -> None:
        super().__init__()
        self.positions = positions
        self.segments = segments
        self.norm = norm
        self.dropout = Dropout(p_dropout)

    def forward(
        self,
        tokens: Stream,
        positions: Positions,
        real: Real | None,
        segments: Int[Tensor, "batch length"] | None = None,
    ) -> Stream:
        x = tokens
        if self.positions is not None:
            x = x + self.positions(positions).to(x.dtype)
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(positions) if segments is None else segments)
        if self.norm is not None:
            x = self.norm(x)
        x = self.dropout(x)
        return x if real is None else x.masked_fill(~real[:, :, None], 0.0)


class OutputProjection(nn.Module):
    """Turns the last layer's output into a score per token of the vocabulary. If tied, it has no
    matrix of its own; each call passes the token table. The table is then one tensor with one name,
    so copying, loading or moving the model cannot split it in two."""

    def __init__(self, d_model: int, vocab_size: int, *, tied: bool, bias: bool) -> None:
        super().__init__()
        self.weight = None if tied else nn.Parameter(torch.empty(vocab_size, d_model))
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None

    def forward(self, x: Stream, table: TokenEmbedding) -> Logits:
        return F.linear(x, table.weight if self.weight is None else self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"tied={self.weight is None}, bias={self.bias is not None}"


class MaskedLMHead(nn.Module):
    """BERT's layers between the last layer and the output projection."""

    def __init__(
        self, d_model: int, *, activation: Activation, norm: nn.Module, bias: bool
    ) -> None:
        super().__init__()
        self.dense = nn.Linear(d_model, d_model, bias=bias)
        self.activation = activation
        self.norm = norm

    def forward(self, x: Stream) -> Stream:
        return self.norm(self.activation(self.dense(x)))


class ClassificationHead(nn.Module):
    """Turns one vector of a text into a score per label: BERT's pooler and its classifier."""

    def __init__(self, d_model: int, n_labels: int, *, p_dropout: float, bias: bool) -> None:
        super().__init__()
        self.dense = nn.Linear(d_model, d_model, bias=bias)
        self.dropout = Dropout(p_dropout)
        self.output = nn.Linear(d_model, n_labels, bias=bias)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch labels"]:
        return self.output(self.dropout(self.dense(x).tanh()))
