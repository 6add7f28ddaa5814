"""Exercise 2: masks (chapter 2).

A mask is a Bool; True means "may look". Row = query, column = key:

    causal(4, 4)          causal(1, 4): one new query; three cached keys and its own
    1 . . .
    1 1 . .               1 1 1 1
    1 1 1 .
    1 1 1 1

Replace each blank() and save. Check: clearhead learn check
"""

import torch
from torch import Tensor

from clearhead.course import blank


def causal(n_queries: int, n_keys: int) -> Tensor:
    """Bool (query, key): a query sees itself and what came before it.

    The last query belongs to the last key; with more queries than keys the first see nothing."""
    return blank()


def real_keys(real: Tensor) -> Tensor:
    """real: Bool (batch, key), False where a token is padding → Bool (batch, 1, key)."""
    return blank()


def masked_weights(scores: Tensor, allowed: Tensor) -> Tensor:
    """scores (…, query, key), allowed: Bool that broadcasts to it → weights (…, query, key).

    A softmax over the allowed keys, whatever the scores are (−2000, 2000) and with its gradient.
    A query that may attend to no key gets zeros. The scores that were given stay as they are."""
    return blank()
