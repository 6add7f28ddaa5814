"""Positions of tokens (section 3.5): sinusoidal and learned ones, added to the embeddings.

All kinds of positions, including those in `parts/later`, take the numbers of the positions as an
argument, so that padding on the left and cached tokens need no special case."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import nn

from clearhead.errors import InputError
from clearhead.shapes import Float, Positions, Tensor

Pairs = Literal["halves", "interleaved"]


def sinusoid(
    n_positions: int,
    d_model: int,
    *,
    pairs: Pairs = "halves",
    base: float = 10_000.0,
    spacing: Literal["open", "closed"] = "open",
) -> Float[Tensor, "n_positions d_model"]:
    """Compute sin and cos of position / base^(2i/d_model), for i in 0 … d_model/2 - 1 (section
    3.5).

    The paper interleaves sines and cosines; Marian and Pegasus put the sines in the first half.
    Only the order of the dimensions differs, but weights trained with one order do not fit the
    other. With `spacing="closed"` the wavelengths reach 2π·base itself (tensor2tensor, fairseq,
    M2M100)."""
    half = d_model // 2
    if spacing == "open":
        frequency = base ** -(torch.arange(half, dtype=torch.float64) / half)
    else:
        # M2M100 was trained, and is served, in fp32 and in this order of operations.
        frequency = torch.exp(torch.arange(half) * -(math.log(base) / (half - 1)))
    angle = torch.arange(n_positions)[:, None] * frequency
    sines_cosines = torch.stack((angle.sin(), angle.cos()), dim=1 if pairs == "halves" else 2)
    return sines_cosines.flatten(1).float()


def check_length(length: int, max_length: int) -> None:
    """Raises if a sequence is longer than the table of positions, before the table is indexed past
    its end."""
    if length > max_length:
        raise InputError(
            f"{length} tokens are more than max_length={max_length}; "
            "cut the sequence, or build the model with a larger max_length"
        )


class SinusoidalPositions(nn.Module):
    """The fixed table of positions. It is not a parameter and is not saved with the weights."""

    def __init__(
        self, n_positions: int, d_model: int, *, first: int, formula: Callable[[int, int], Tensor]
    ) -> None:
        """`formula` is `sinusoid`, with its settings."""
        super().__init__()
        self.first = first
        self.formula = formula
        self.register_buffer("table", torch.empty(first + n_positions, d_model), persistent=False)
        self.table: Tensor
        self.fill_tables()

    def fill_tables(self) -> None:
        """A model built on the meta device calls this again once it has memory."""
        if not self.table.is_meta:
            self.table.copy_(self.formula(*self.table.shape))

    def forward(self, positions: Positions) -> Float[Tensor, "#batch length d_model"]:
        return self.table[positions + self.first]


class LearnedPositions(nn.Module):
    """A table with a trained row per position. Its first `first` rows are not used (RoBERTa: 2)."""

    def __init__(self, n_positions: int, d_model: int, *, first: int = 0) -> None:
        super().__init__()
        self.first = first
        self.weight = nn.Parameter(torch.empty(first + n_positions, d_model))

    def forward(self, positions: Positions) -> Float[Tensor, "#batch length d_model"]:
        return self.weight[positions + self.first]


class Rotation(NamedTuple):
    """The cosines and sines of each position's angles, by which queries and keys are rotated."""

    cos: Float[Tensor, "#batch 1 length d_head"]
    sin: Float[Tensor, "#batch 1 length d_head"]
    pairs: Pairs


def rotate(
    x: Float[Tensor, "batch heads length d_head"], rotation: Rotation
) -> Float[Tensor, "batch heads length d_head"]:
    """Rotates each pair of dimensions by the angle of its position."""
    if rotation.pairs == "halves":
        first, second = x.chunk(2, dim=-1)
        quarter_turned = torch.cat((-second, first), dim=-1)
    else:
        quarter_turned = torch.stack((-x[..., 1::2], x[..., 0::2]), dim=-1).flatten(-2)
    cos, sin = rotation.cos.to(x.dtype), rotation.sin.to(x.dtype)
    return x * cos + quarter_turned * sin
