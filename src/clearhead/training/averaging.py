"""Averages of weights: a running average (EMA), and an average over checkpoints."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from clearhead.training.checkpoint import Checkpoint, Checkpoints
from clearhead.training.distributed import widest

NamedWeights = dict[str, Tensor]


@torch.no_grad()
def copy_weights(module: nn.Module) -> NamedWeights:
    """Copy the module's trainable weights, from which an average starts."""
    return {name: parameter.detach().clone() for name, parameter in module.named_parameters()}


def _copy_buffers(module: nn.Module) -> NamedWeights:
    """Copy the buffers that a checkpoint holds: a user's own part may have some."""
    kept = module.state_dict().keys()
    return {name: buffer.clone() for name, buffer in module.named_buffers() if name in kept}


@torch.no_grad()
def move_towards(average: NamedWeights, module: nn.Module, decay: float, step: int) -> None:
    """Compute average ← decay · average + (1 - decay) · weights. In the first steps, the decay is
    smaller, so that the weights with which a run started are forgotten."""
    decay = min(decay, (1 + step) / (10 + step))
    for name, parameter in module.named_parameters():
        average[name].lerp_(parameter, 1 - decay)


@contextmanager
def borrowed(module: nn.Module, weights: Mapping[str, Tensor] | None) -> Iterator[None]:
    """Run the block with other weights in the module, and then restore its own weights bit for bit.
    None: run it with its own weights."""
    if weights is None:
        yield
        return
    own = copy_weights(module) | _copy_buffers(module)
    _put(module, weights)
    try:
        yield
    finally:
        _put(module, own)


@torch.no_grad()
def _put(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if name in weights:
            tensor.copy_(weights[name])


@torch.no_grad()
def average_of(
    checkpoints: Checkpoints, chosen: Sequence[Checkpoint], module: nn.Module, part: str = "model"
) -> NamedWeights:
    """Average the weights of the chosen checkpoints. Only one of them is in memory at a time, and
    the sum is in fp64, so that the order does not change the result. The buffers are those of the
    last checkpoint."""
    read, buffers = copy_weights(module), _copy_buffers(module)
    wide = {name: widest(tensor.device) for name, tensor in read.items()}
    total = {name: torch.zeros_like(tensor, dtype=wide[name]) for name, tensor in read.items()}
    for checkpoint in chosen:
        destinations = {part: read}
        if buffers:  # an average in the checkpoint has no buffers
            destinations["model"] = destinations.get("model", {}) | buffers
        checkpoints.load(checkpoint, destinations)
        for name, tensor in read.items():
            total[name] += tensor.to(wide[name])
    mean = {name: (tensor / len(chosen)).to(read[name].dtype) for name, tensor in total.items()}
    return mean | buffers
