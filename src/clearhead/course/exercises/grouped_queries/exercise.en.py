"""Exercise 11: grouped queries (chapter 11).

Fewer heads of keys and values than of queries: neighbouring query heads share one. With 4 query
heads and 2 key heads

    query heads 0, 1  look at  key head 0 and value head 0
    query heads 2, 3  look at  key head 1 and value head 1

The number of parameters falls a little; the cache shrinks by a factor equal to the group size.

Replace each blank() and save. Check: clearhead learn check
"""

import torch
from torch import Tensor

from clearhead.course import blank


def grouped_attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """queries (batch, heads, query, d_head), keys and values (batch, kv_heads, key, d_head) →
    (batch, heads, query, d_head). No mask. Raise a ValueError if kv_heads does not divide heads."""
    return blank()


def cache_bytes(
    n_layers: int, d_model: int, n_heads: int, n_kv_heads: int, length: int, bytes_each: int
) -> int:
    """The bytes of the keys and values of one text with so many tokens, in all layers;
    `bytes_each` is the size of one number (bf16: 2). A head is d_model / n_heads wide."""
    return blank()
