"""Exercise 6: layer normalisation and the residual connection (chapter 5).

One token's vector (1, 2, 3, 6) has the mean 3 and the variance 3.5 (divided by n, not n - 1):
normalised it is (-1.069, -0.535, 0, 1.604).

A residual connection adds what a sublayer found to what went in. The paper normalises after the
addition (post-norm); most models since normalise what the sublayer reads (pre-norm), and leave x.

Replace each blank() and save. Check: clearhead learn check
"""

from collections.abc import Callable

import torch
from torch import Tensor

from clearhead.course import blank


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """x (…, d), weight (d), bias (d) → (…, d): mean 0 and variance 1, then weight and bias.

    eps is added to the variance, under the root. The gradient must be right, too."""
    return blank()


def residual(
    x: Tensor,
    sublayer: Callable[[Tensor], Tensor],
    norm: Callable[[Tensor], Tensor],
    placement: str,
) -> Tensor:
    """x joined with what the sublayer makes of it; placement is "pre" or "post"."""
    return blank()
