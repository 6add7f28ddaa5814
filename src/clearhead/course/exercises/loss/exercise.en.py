"""Exercise 8: the shift and the loss (chapter 8).

A decoder reads a sentence and predicts, at each position, the token that comes next:

    tokens   <bos> I like you <eos>
    inputs   <bos> I    like you
    targets  I     like you  <eos>

<bos> is 1, <eos> is 2, padding is 0 here (passed as pad_id). The loss is returned as a
sum and a count, so that pieces of a batch can be added and divided once, at the end.

Replace each blank() and save. Check: clearhead learn check
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.course import blank


def shift(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """tokens (batch, length) → inputs and targets, both (batch, length - 1)"""
    return blank()


def loss(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float) -> tuple[Tensor, Tensor]:
    """logits (batch, length, vocab), targets (batch, length) → the summed cross-entropy of the real
    targets, and how many there are, each as a Tensor. Smoothing spreads that share of each target
    evenly over the whole vocabulary."""
    return blank()
