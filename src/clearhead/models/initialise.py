"""The initial weights of every kind of part.

Matrices are drawn from N(0, init_std); the two (or, with cross-attention, three) matrices per layer
that write into the residual stream have a standard deviation that is smaller by 1/√(number of such
matrices in the stack), so that the stream's variance does not grow with depth (GPT-2). Biases are 0
and norms are 1. A user's own part initialises itself in its constructor.

The first loss is then about ln V + d_model·init_std²/2. With a tied and scaled table, the token
just read also raises its own score, by up to d_model·init_std: with V = 8,000 and d_model = 512,
the first loss is 9.9, not 9.1."""

import math
from collections.abc import Iterator

import torch
from torch import nn

from clearhead.config import ModelConfig
from clearhead.models.own_parts import first_values, own_parts_in
from clearhead.parts.attention import MultiHeadAttention
from clearhead.parts.embeddings import OutputProjection, TokenEmbedding
from clearhead.parts.feed_forward import FeedForward
from clearhead.parts.later.alibi import AlibiPositions
from clearhead.parts.later.gated import GatedFeedForward
from clearhead.parts.later.rms_norm import RMSNorm
from clearhead.parts.later.rotary import RotaryPositions
from clearhead.parts.norm import LayerNorm
from clearhead.parts.positions import LearnedPositions, SinusoidalPositions
from clearhead.parts.residual import Residual
from clearhead.stacks.encoder import Stack

DRAWN = (nn.Linear, TokenEmbedding, LearnedPositions, OutputProjection)
"""clearhead's modules whose matrices are drawn at random."""


def materialise(model: nn.Module, device: torch.device | str) -> None:
    """Allocate memory for a model that was built on the meta device. This fills the fixed tables
    but not the parameters: initialise or load them next. `to_empty` would import sympy, which takes
    a second."""
    model._apply(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype, device=device))
    fill_tables(model)


def fill_tables(model: nn.Module) -> None:
    """Fill the fixed tables, which are not stored with the weights."""
    for module in model.modules():
        if isinstance(module, SinusoidalPositions | RotaryPositions | AlibiPositions):
            module.fill_tables()
    for part, config in own_parts_in(model).items():
        buffers = set(part.buffers())
        if buffers:
            device = next(iter(buffers)).device
            for tensor, values in first_values(part, config, 0, device):
                if tensor in buffers:
                    tensor.copy_(values)


@torch.no_grad()
def initialise(model: nn.Module, seed: int) -> None:
    """Overwrites all weights in place with values drawn from the seed."""
    for parameter, values in initial_weights(model, seed):
        parameter.copy_(values)


def initial_weights(model: nn.Module, seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Draw values for every parameter, in the order of the model's modules. The values depend only
    on the configuration, the seed and the kind of device, not on torch's global generator."""
    config: ModelConfig = model.config  # pyright: ignore
    device = next(model.parameters()).device
    generator = torch.Generator(device=device).manual_seed(seed)
    narrow = _residual_stds(model, config.init_std)
    own = own_parts_in(model)
    inside_own = {module for part in own for module in part.modules()}
    for module in model.modules():
        if module in own:
            drawn = torch.randint(2**62, (), generator=generator, device=device)
            yield from first_values(module, own[module], int(drawn), device)
        if module in inside_own:
            continue
        for name, parameter in module.named_parameters(recurse=False):
            values = torch.zeros(parameter.shape, dtype=parameter.dtype, device=device)
            if isinstance(module, LayerNorm | RMSNorm):
                if name != "bias":
                    nn.init.ones_(values)
            elif not isinstance(module, DRAWN):
                raise AssertionError(f"no rule for the initial weights of {type(module).__name__}")
            elif name != "bias":
                std = narrow.get(module, config.init_std)
                nn.init.normal_(values, 0.0, std, generator=generator)
            yield parameter, values


def _residual_stds(model: nn.Module, std: float) -> dict[nn.Module, float]:
    """Return the standard deviation of each matrix that writes into a stack's residual stream. Each
    residual connection has one such matrix; the user's own parts count too."""
    stds: dict[nn.Module, float] = {}
    for tower in model.modules():
        if isinstance(tower, Stack):
            n_writers = sum(isinstance(part, Residual) for part in tower.modules())
            writers = [_writer(part) for part in tower.modules()]
            writers = [writer for writer in writers if writer is not None]
            stds.update(dict.fromkeys(writers, std / math.sqrt(n_writers)))
    return stds


def _writer(part: nn.Module) -> nn.Linear | None:
    if isinstance(part, MultiHeadAttention):
        return part.output
    return part.down if isinstance(part, FeedForward | GatedFeedForward) else None
