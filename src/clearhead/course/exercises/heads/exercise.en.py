"""Exercise 3: heads are split and merged (chapter 3).

Two tokens of width 4, two heads:

    tokens             head 0       head 1
    [1 2 3 4]          [1 2]        [3 4]
    [5 6 7 8]          [5 6]        [7 8]

Numbers are only moved: the dtype stays, and x may lie in memory in any order.

Replace each blank() and save. Check: clearhead learn check
"""

from torch import Tensor

from clearhead.course import blank


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """(batch, length, width) → (batch, heads, length, d_head), where width = heads · d_head."""
    return blank()


def merge_heads(x: Tensor) -> Tensor:
    """(batch, heads, length, d_head) → (batch, length, width): the way back."""
    return blank()
