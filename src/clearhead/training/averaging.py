"""Averages of weights: a running one (EMA), and one over checkpoints."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from clearhead.training.checkpoint import Checkpoint, Checkpoints
from clearhead.training.distributed import widest

NamedWeights = dict[str, Tensor]


@torch.no_grad()
def copy_weights(module: nn.Module) -> NamedWeights:
    """A copy of the module's trainable weights, which an average starts from."""
    return {name: parameter.detach().clone() for name, parameter in module.named_parameters()}


@torch.no_grad()
def move_towards(average: NamedWeights, module: nn.Module, decay: float) -> None:
    """average ← decay · average + (1 - decay) · weights."""
    for name, parameter in module.named_parameters():
        average[name].lerp_(parameter, 1 - decay)


@contextmanager
def borrowed(module: nn.Module, weights: Mapping[str, Tensor] | None) -> Iterator[None]:
    """Runs the block with other weights in the module, then restores its own bit for bit. None: its
    own."""
    if weights is None:
        yield
        return
    own = copy_weights(module)
    _put(module, weights)
    try:
        yield
    finally:
        _put(module, own)


@torch.no_grad()
def _put(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    for name, parameter in module.named_parameters():
        parameter.copy_(weights[name])


@torch.no_grad()
def average_of(
    checkpoints: Checkpoints, chosen: Sequence[Checkpoint], module: nn.Module, part: str = "model"
) -> NamedWeights:
    """The mean of the chosen checkpoints' weights; one of them is in memory at a time, and the sum,
    in fp64, so that the order does not change the result."""
    read = copy_weights(module)
    wide = {name: widest(tensor.device) for name, tensor in read.items()}
    total = {name: torch.zeros_like(tensor, dtype=wide[name]) for name, tensor in read.items()}
    for checkpoint in chosen:
        checkpoints.load(checkpoint, {part: read})
        for name, tensor in read.items():
            total[name] += tensor.to(wide[name])
    return {name: (each / len(chosen)).to(read[name].dtype) for name, each in total.items()}
