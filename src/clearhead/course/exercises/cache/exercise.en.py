"""Exercise 15: the cache (chapter 10).

A decoder that generates reads one new token at a time. Keys and values of the earlier tokens do not
change, so they are kept, and only those of the new tokens are computed. The new queries look at all
keys that are kept, old and new, but not at later ones: 2 new tokens after 3 old ones see

    token 3:  1 1 1 1 0
    token 4:  1 1 1 1 1          a triangle aligned to the bottom right

`attention` is a CrossAttention (exercise 4): its Linear layers are `query`, `key`, `value` and
`output`, and it has `n_heads`. `earlier` holds your own functions once their exercises have passed.

Replace each blank() and save. Check: clearhead learn check
"""

import math

import torch
from torch import Tensor

from clearhead.course import blank
from clearhead.course.earlier import (
    CrossAttention,
    causal,
    masked_weights,
    merge_heads,
    split_heads,
)


class CachedAttention:
    """What you write: causal self-attention that remembers keys and values."""

    def __init__(self, attention: CrossAttention) -> None:
        self.attention = attention
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """x (batch, new, d_model), the tokens after all those of earlier calls → (batch, new,
        d_model). Each of the four Linear layers sees each token once."""
        return blank()

    def reorder(self, rows: Tensor) -> None:
        """Row i of the cache becomes what row rows[i] was, as a beam search needs it. `rows` may
        name a row several times or not at all, and be longer or shorter than the batch. Before the
        first call there is nothing to do."""
        return blank()
