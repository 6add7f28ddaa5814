"""Exercise 12: one step of AdamW (chapter 8).

m is a moving average of the gradient, v one of its square. Both begin at 0, so in the first steps
they are too small; dividing by 1 − βᵗ at step t corrects that:

    m ← β₁ m + (1 − β₁) g              m̂ = m / (1 − β₁ᵗ)
    v ← β₂ v + (1 − β₂) g²             v̂ = v / (1 − β₂ᵗ)
    w ← w − lr · decay · w − lr · m̂ / (√v̂ + eps)

The example of the chapter: w = 1, g = 0.1, β = (0.9, 0.95), lr 0.001, decay 0.1. After the first
step m = 0.01, v = 0.0005 and w = 0.9989.

Replace blank() and save. Check: clearhead learn check
"""

import torch
from torch import Tensor

from clearhead.course import blank


def adamw_step(
    w: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    *,
    step: int,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    decay: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """w, g, m, v of one shape → the new w, m and v; what was given stays as it is. Steps count from
    1."""
    return blank()
