"""Measures gradients by layer, which show whether every layer of a stack learns, or only those near
the loss."""

import math
import sys
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from clearhead.data.batches import Batch
from clearhead.training.distributed import layers_of, objective_of
from clearhead.training.loss import count_targets

NormsByStack = dict[str, list[float]]
"""The gradient norms of each layer of a stack, the lowest layer first, by the name of the stack."""


def gradient_norms(objective: nn.Module, batch: Batch) -> NormsByStack:
    """Return the gradient norms of the batch's mean loss, without dropout and before any clipping.
    The objective is in fp64 afterwards: without residual connections, a gradient can be smaller
    than fp32 can hold."""
    inner = objective_of(objective).double().eval()
    inner.zero_grad()
    (inner(batch) / count_targets(batch, inner.model)).backward()
    names = {module: name for name, module in inner.model.named_modules()}
    norms: NormsByStack = {}
    for layer in layers_of(inner.model):
        gradients = [p.grad for p in layer.parameters() if p.grad is not None]
        stack = names[layer].split(".")[0]
        norms.setdefault(stack, []).append(_norm(gradients))
    inner.zero_grad()
    return norms


def _norm(gradients: Sequence[Tensor]) -> float:
    """The norm of all gradients together. They are scaled first: squares would vanish even in
    fp64."""
    largest = max(float(gradient.abs().max()) for gradient in gradients)
    if not largest:
        return 0.0
    return largest * float(nn.utils.get_total_norm([part / largest for part in gradients]))


def spread(norms: NormsByStack) -> float:
    """Return how many powers of ten lie between the largest and the smallest norm of a stack's
    layers, for the stack with the larger number. 0: all norms are equal."""

    def power(norm: float) -> float:
        return math.log10(max(norm, sys.float_info.min))  # 0 has none

    return max(power(max(stack_norms)) - power(min(stack_norms)) for stack_norms in norms.values())


@torch.no_grad()
def put_weights(objective: nn.Module, model: nn.Module) -> None:
    """Copy the weights of one objective's model to another of the same kind."""
    objective_of(objective).model.load_state_dict(model.state_dict())
