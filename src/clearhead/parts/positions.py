"""Positions of tokens (section 3.5, and later methods).

Sinusoidal and learned positions are added to the embeddings; rotary positions rotate queries and
keys; ALiBi is a bias on the scores. All of them take positions as numbers, so that padding on the
left and cached tokens need no special case."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import nn

from clearhead.errors import InputError
from clearhead.shapes import Bias, Float, Int, Positions, Tensor

Pairs = Literal["halves", "interleaved"]


def sinusoid(
    n_positions: int,
    d_model: int,
    *,
    pairs: Pairs = "halves",
    base: float = 10_000.0,
    spacing: Literal["open", "closed"] = "open",
) -> Float[Tensor, "n_positions d_model"]:
    """sin and cos of position / base^(2i/d_model), for i in 0 … d_model/2 - 1 (section 3.5).

    The paper interleaves sines and cosines; Marian and Pegasus put the sines in the first half.
    Only the order of dimensions differs; weights trained with one do not fit the other. With
    `spacing="closed"` the wavelengths reach 2π·base itself (tensor2tensor, fairseq, M2M100)."""
    half = d_model // 2
    if spacing == "open":
        frequency = base ** -(torch.arange(half, dtype=torch.float64) / half)
    else:
        # In fp32 and in this order of operations, as M2M100 was trained and is served.
        frequency = torch.exp(torch.arange(half) * -(math.log(base) / (half - 1)))
    angle = torch.arange(n_positions)[:, None] * frequency
    sines_cosines = torch.stack((angle.sin(), angle.cos()), dim=1 if pairs == "halves" else 2)
    return sines_cosines.flatten(1).float()


def check_length(length: int, max_length: int) -> None:
    """A table of positions ends somewhere: say so before it is indexed past its end."""
    if length > max_length:
        raise InputError(
            f"{length} tokens are more than max_length={max_length}; "
            "cut the sequence, or build the model with a larger max_length"
        )


class SinusoidalPositions(nn.Module):
    """The fixed table: no parameter, and not saved with the weights."""

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
    """A trained row per position. `first` leaves rows before the first position (RoBERTa: 2)."""

    def __init__(self, n_positions: int, d_model: int, *, first: int = 0) -> None:
        super().__init__()
        self.first = first
        self.weight = nn.Parameter(torch.empty(first + n_positions, d_model))

    def forward(self, positions: Positions) -> Float[Tensor, "#batch length d_model"]:
        return self.weight[positions + self.first]


class Rotation(NamedTuple):
    """cos and sin of each position's angles, ready to rotate queries and keys."""

    cos: Float[Tensor, "#batch 1 length d_head"]
    sin: Float[Tensor, "#batch 1 length d_head"]
    pairs: Pairs


class RotaryPositions(nn.Module):
    """Rotary position embedding (Su et al. 2021): query and key are rotated by their positions, so
    that scores depend on relative positions only."""

    def __init__(
        self, n_positions: int, d_head: int, *, pairs: Pairs = "halves", base: float = 10_000.0
    ) -> None:
        super().__init__()
        self.pairs: Pairs = pairs
        self.base = base
        for name in ("cos", "sin"):
            self.register_buffer(name, torch.empty(n_positions, d_head), persistent=False)
        self.cos: Tensor
        self.sin: Tensor
        self.fill_tables()

    def fill_tables(self) -> None:
        """Fills the tables of angles; called again once a model from the meta device has memory."""
        if not self.cos.is_meta:
            n_positions, d_head = self.cos.shape
            # In fp32 and in this order of operations, as Llama was trained and is served.
            frequency = 1.0 / self.base ** (torch.arange(0, d_head, 2).float() / d_head)
            angle = torch.arange(n_positions).float()[:, None] * frequency
            if self.pairs == "halves":
                angle = torch.cat((angle, angle), dim=1)
            else:
                angle = angle.repeat_interleave(2, dim=1)
            self.cos.copy_(angle.cos())
            self.sin.copy_(angle.sin())

    def forward(self, positions: Positions) -> Rotation:
        return Rotation(self.cos[positions][:, None], self.sin[positions][:, None], self.pairs)


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


class AlibiPositions(nn.Module):
    """Attention with linear biases (Press et al. 2021): each head discounts distance at its own
    rate, 2^(-8·h/n_heads). Without causality the distance counts the same in both directions."""

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.empty(n_heads), persistent=False)
        self.slopes: Tensor
        self.fill_tables()

    def fill_tables(self) -> None:
        """Fills the slopes; called again once a model from the meta device has memory."""
        if not self.slopes.is_meta:
            self.slopes.copy_(torch.tensor(_alibi_slopes(len(self.slopes))))

    def forward(
        self, queries: Int[Tensor, "#batch query"], keys: Int[Tensor, "#batch key"]
    ) -> Bias:
        distance = (queries[:, :, None] - keys[:, None, :]).abs()
        return -self.slopes[:, None, None] * distance[:, None]


def _alibi_slopes(n_heads: int) -> list[float]:
    """The paper's slopes; where n_heads is not a power of 2, the missing ones are every second
    slope of twice as many heads."""
    power = 2 ** math.floor(math.log2(n_heads))
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2 ** (-8 * h / (2 * power)) for h in range(1, 2 * power + 1, 2)]
    return slopes + between[: n_heads - power]
