"""Exercise 1: attention (chapter 1).

Every query shares its attention among the keys. The numbers of chapter 1: the query
fruit (2, 2, 0, 0) and the keys apple (1, 1, 0, 0), banana (1, 0.6, 0, 0), chair (-1, -1, 0, 0)
have the products 4, 3.2, -4 and, with d = 4, the scores 2, 1.6, -2 and the weights
0.592, 0.397, 0.011.

Training needs the gradient of what you write, so stay in torch; and scores may be as large as 200.

Replace each blank() and save. Check: clearhead learn check
"""

import math

import torch
from torch import Tensor

from clearhead.course import blank


def attention_weights(queries: Tensor, keys: Tensor) -> Tensor:
    """queries (batch, query, d), keys (batch, key, d) → weights (batch, query, key).

    softmax(q·k / √d), shared among the keys."""
    return blank()


def attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """values (batch, key, width) → (batch, query, width): their sum, weighted."""
    return blank()
