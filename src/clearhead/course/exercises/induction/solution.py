"""Exercise 18, the reference."""

from collections.abc import Sequence

import torch
from torch import Tensor


def repeated_texts(n_texts: int, period: int, vocab_size: int, seed: int) -> Tensor:
    """A generator of its own leaves the others alone."""
    generator = torch.Generator().manual_seed(seed)
    half = torch.randint(vocab_size, (n_texts, period), generator=generator)
    return torch.cat((half, half), dim=1)


def induction_scores(weights: Tensor, period: int) -> Tensor:
    """The mean weight from query i to key i − period + 1."""
    queries = torch.arange(period, 2 * period)
    return weights[:, :, queries, queries - period + 1].mean(dim=(0, 2))


def previous_scores(weights: Tensor) -> Tensor:
    """The diagonal below the main one."""
    return weights.diagonal(offset=-1, dim1=2, dim2=3).mean(dim=(0, 2))


def find_circuit(
    layers: Sequence[Tensor], period: int, threshold: float
) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Every pair whose layers are in order."""
    previous = [previous_scores(weights).tolist() for weights in layers]
    induction = [induction_scores(weights, period).tolist() for weights in layers]
    found = [
        (first * second, (i, h), (j, k))
        for i, firsts in enumerate(previous)
        for h, first in enumerate(firsts)
        for j, seconds in enumerate(induction)
        for k, second in enumerate(seconds)
        if i < j and first > threshold and second > threshold
    ]
    return [(first, second) for _, first, second in sorted(found, reverse=True)]
