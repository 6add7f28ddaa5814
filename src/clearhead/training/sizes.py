"""Sizes of models that suit so much text, and the learning rates that suit their widths."""

from typing import NamedTuple


class Size(NamedTuple):
    """A row of the table: up to so many tokens, this model, this learning rate."""

    tokens: float
    d_model: int
    n_layers: int
    n_heads: int
    d_ff: int
    lr: float


SIZES = (
    Size(40_000, 64, 2, 4, 256, 0.003),
    Size(2_000_000, 128, 3, 4, 512, 0.003),
    Size(20_000_000, 256, 4, 4, 1024, 0.001),
    Size(200_000_000, 384, 6, 6, 1536, 0.0007),
    Size(float("inf"), 512, 6, 8, 2048, 0.0005),
)


def usual_lr(d_model: int) -> float:
    """The highest learning rate for a model of this width."""
    return next((size.lr for size in SIZES if d_model <= size.d_model), SIZES[-1].lr)
