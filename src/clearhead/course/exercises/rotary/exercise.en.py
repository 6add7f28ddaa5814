"""Exercise 10: rotary positions (chapter 11).

The d/2 hands of exercise 5, but nothing is added: features 2i and 2i + 1 of a query or a key are
one point of a plane, and it is rotated by the angle p / 10000^(2i/d) of its position p:

    (a, b)  →  (a · cos − b · sin, a · sin + b · cos)

The point (1, 0) at position 1 becomes (0.540, 0.841). Two rotations add up, so the product of a
rotated query and a rotated key depends on their distance only.

Replace blank() and save. Check: clearhead learn check
"""

import torch
from torch import Tensor

from clearhead.course import blank


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """x (batch, heads, length, d_head), positions (length,) → the same shape, a new tensor. Token t
    is at positions[t], which need not be t: a cached token keeps its position. Positions have no
    upper limit. d_head is even."""
    return blank()
