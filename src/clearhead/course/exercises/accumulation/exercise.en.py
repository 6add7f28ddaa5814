"""Exercise 17: gradient accumulation by tokens (chapter 8).

A batch that does not fit into memory is read in micro-batches. The step must be the same as if it
had been read at once: sum the losses of all tokens, divide once by the number of all tokens.

    micro-batches with the losses {4} and {1, 1, 1}:   7 / 4 = 1.75, and not (4 + 1) / 2 = 2.5

For each micro-batch backward() adds to the gradients, and its memory is free again before the next
one is read. The number of tokens is known at the end only, so the gradients are divided then. Then
they are clipped: if the norm of all gradients together exceeds max_norm, they are multiplied by
max_norm / norm. Then the optimizer takes one step.

Replace blank() and save. Check: clearhead learn check
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.course import blank

SumLoss = Callable[[nn.Module, Any], tuple[Tensor, int]]


def accumulated_step(
    model: nn.Module,
    sum_loss: SumLoss,
    micro_batches: Sequence[Any],
    optimizer: torch.optim.Optimizer,
    max_norm: float,
) -> float:
    """sum_loss(model, micro_batch) → the sum of the losses of its tokens, and their number, which
    may be 0 (but not for all). Call it once for each micro-batch. Gradients that are left from
    before do not count. → the mean loss of all tokens, before the step."""
    return blank()
