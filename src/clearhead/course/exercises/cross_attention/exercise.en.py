"""Exercise 4: cross-attention with many heads (chapters 3 and 7).

Queries come from x, keys and values from source. The two have different
lengths. With x as its own source, forward(x, x, allowed) is self-attention.

`earlier` holds your own functions once their exercises have passed, and the reference until then.

Replace blank() and save. Check: clearhead learn check
"""

import math

import torch
from torch import Tensor, nn

from clearhead.course import blank
from clearhead.course.earlier import masked_weights, merge_heads, split_heads


class CrossAttention(nn.Module):
    """What you write: attention of x over source."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.output = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, source: Tensor, allowed: Tensor) -> Tensor:
        """x (batch, query, d), source (batch, key, d), allowed: Bool (batch, query or 1, key)
        → (batch, query, d). A query that may see nothing reads zeros."""
        return blank()
