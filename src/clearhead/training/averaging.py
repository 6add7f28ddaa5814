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


def _copy_buffers(module: nn.Module) -> NamedWeights:
    """Copies the buffers that a checkpoint holds: a part of the user's own may have some."""
    kept = module.state_dict().keys()
    return {name: buffer.clone() for name, buffer in module.named_buffers() if name in kept}


@torch.no_grad()
def move_towards(average: NamedWeights, module: nn.Module, decay: float, step: int) -> None:
    """average ← decay · average + (1 - decay) · weights. In the first steps the decay is smaller,
    so that the weights that a run started with are forgotten."""
    decay = min(decay, (1 + step) / (10 + step))
    for name, parameter in module.named_parameters():
        average[name].lerp_(parameter, 1 - decay)


@contextmanager
def borrowed(module: nn.Module, weights: Mapping[str, Tensor] | None) -> Iterator[None]:
    """Runs the block with other weights in the module, then restores its own bit for bit. None: its
    own."""
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
    """The mean of the chosen checkpoints' weights; one of them is in memory at a time, and the sum,
    in fp64, so that the order does not change the result. Buffers are those of the last one."""
    read, buffers = copy_weights(module), _copy_buffers(module)
    wide = {name: widest(tensor.device) for name, tensor in read.items()}
    total = {name: torch.zeros_like(tensor, dtype=wide[name]) for name, tensor in read.items()}
    for checkpoint in chosen:
        destinations = {part: read}
        if buffers:  # which an average in the checkpoint does not have
            destinations["model"] = destinations.get("model", {}) | buffers
        checkpoints.load(checkpoint, destinations)
        for name, tensor in read.items():
            total[name] += tensor.to(wide[name])
    mean = {name: (tensor / len(chosen)).to(read[name].dtype) for name, tensor in total.items()}
    return mean | buffers
