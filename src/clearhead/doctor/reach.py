"""Measures how far a token reaches: which positions change when the token changes."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .calls import CallInputs
from .patient import Patient


def reach_in(
    patient: Patient, model: nn.Module, logits: Callable[[nn.Module, CallInputs], Tensor]
) -> Tensor:
    """Return (position, token): how much the logits at each position change when each token does,
    relative to their size. Of two random sequences and of all logits, the largest change counts."""
    inputs, length = patient.draw(2), patient.length
    tokens = inputs.tokens.repeat(length + 1, 1)  # as they are, then with each token changed
    for token in range(length):
        changed = tokens[2 * (token + 1) : 2 * (token + 2), token]
        changed.copy_(patient.other_tokens(changed))
    source = None if inputs.source is None else inputs.source.repeat(length + 1, 1)
    with torch.no_grad():
        plain, *others = logits(model, CallInputs(tokens, source)).split(2)
    moved = torch.stack([(other - plain).abs().amax(dim=(0, 2)) for other in others], dim=1)
    return (moved / plain.square().mean().sqrt().clamp(min=1e-12)).cpu()
