"""Builds models from configurations, and names the usual configurations."""

import torch

from clearhead.api.own_parts import PartGiven, own_parts
from clearhead.config import ModelConfig
from clearhead.config.checks import check_seed
from clearhead.errors import InputError, type_of
from clearhead.models import Model, preset
from clearhead.models import build_model as build


def build_model(
    config: ModelConfig | str,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    attention: PartGiven = None,
    feed_forward: PartGiven = None,
    norm: PartGiven = None,
    positions: PartGiven = None,
) -> Model:
    """Build a model with its initial weights, from a configuration or the name of a preset. The
    same seed gives the same weights. On the device "meta", the model has no weights and uses no
    memory.

    Your own part is a class that replaces one of clearhead's. clearhead builds it as
    `Part(config)`, and the part's constructor initialises its weights. An attention must be a
    subclass of `MultiHeadAttention`; clearhead builds it as `Part(config, causal=…)`. The model
    calls norms and feed-forward networks with a tensor (batch, length, d_model). It calls positions
    with the numbers of the positions, and adds the result to the embeddings.
    """
    if not isinstance(config, ModelConfig | str):
        raise InputError(
            f"config={config!r:.60} is {type_of(config)}; give a ModelConfig, or the name "
            "of a preset"
        )
    check_seed(seed)
    try:
        torch.device(device)
    except (RuntimeError, TypeError):
        raise InputError(f"device={device!r:.60} is not a device; try 'cpu' or 'cuda'") from None
    own = own_parts(attention=attention, feed_forward=feed_forward, norm=norm, positions=positions)
    model_config = preset(config) if isinstance(config, str) else config
    return build(model_config, seed=seed, device=device, own_parts=own)
