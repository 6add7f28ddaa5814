"""Exercise 13: sampling with temperature, top-k and top-p (chapter 10).

Four tokens with the logits 2, 1, 0, −1:

    temperature 0.5           0.865 0.117 0.016 0.002
    top_k = 2                 0.731 0.269 0     0
    top_p = 0.9               0.665 0.245 0.090 0

First the temperature, then top-k, then top-p. Top-p looks at what top-k has left, which sums to 1
again: it keeps the likeliest tokens up to the one with which their sum reaches top_p.

Replace each blank() and save. Check: clearhead learn check
"""

import torch
from torch import Tensor

from clearhead.course import blank


def chances(logits: Tensor, *, temperature: float, top_k: int | None, top_p: float) -> Tensor:
    """logits (batch, vocab) → the probability of each token, in the order of the vocabulary. A
    temperature of 0 gives 1 to the highest logit (of equal ones, the first); otherwise no two
    logits of a row are equal. top_k may be None (all tokens) or larger than the vocabulary, and
    top_p = 1 keeps all tokens."""
    return blank()


def draw(probabilities: Tensor, u: Tensor) -> Tensor:
    """probabilities (batch, vocab), u (batch,) random numbers with 0 ≤ u < 1 → (batch,) ids: the
    first token at which the sum of the probabilities exceeds u. So a token with the probability 0
    is never drawn, even where rounding leaves the whole sum a little below 1."""
    return blank()
