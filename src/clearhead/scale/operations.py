"""Tensors and operations of a model, from its configuration: nothing of it is allocated."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from clearhead.config import ModelConfig
from clearhead.models import build_model, count_parameters
from clearhead.training.distributed import layers_of

Convention = Literal["parameters", "full", "causal", "without-embeddings"]
Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """The shapes of a model's parameters, one layer of each kind."""

    layers: tuple[tuple[tuple[Shape, ...], int], ...]
    """The tensors of a layer, and how many such layers there are."""
    root: tuple[Shape, ...]
    """Token tables, output matrix, last norms: what belongs to no layer."""
    looked_up: int
    """Parameters of the tables that are looked up and not multiplied with."""

    @property
    def shapes(self) -> list[Shape]:
        """The shape of every parameter of the model."""
        return [*self.root, *(shape for layer, times in self.layers for shape in layer * times)]

    @property
    def total(self) -> int:
        """Parameters of the model."""
        return sum(map(math.prod, self.shapes))

    @property
    def largest_layer(self) -> int:
        """Parameters of the largest layer."""
        return max(sum(map(math.prod, layer)) for layer, _ in self.layers)

    @property
    def in_root(self) -> int:
        """Parameters that belong to no layer."""
        return sum(map(math.prod, self.root))


@cache
def inventory(config: ModelConfig) -> Inventory:
    """The shapes of all parameters, read from the model with one layer in each stack, on the meta
    device."""
    model = build_model(with_layers(config, 1), device="meta")
    layers = layers_of(model)
    in_layers = {id(p) for layer in layers for p in layer.parameters()}
    depths = [config.n_layers]
    if config.family == "encoder-decoder":
        depths.append(config.decoder_layers)
    counted = count_parameters(model)
    return Inventory(
        layers=tuple(
            (tuple(tuple(p.shape) for p in layer.parameters()), depth)
            for layer, depth in zip(layers, depths, strict=True)
        ),
        root=tuple(tuple(p.shape) for p in model.parameters() if id(p) not in in_layers),
        looked_up=0 if config.tie_output else counted.total - counted.without_embeddings,
    )


def with_layers(config: ModelConfig, depth: int) -> ModelConfig:
    """Return the configuration of the same model with `depth` layers in each stack."""
    both = config.family == "encoder-decoder"
    return replace(config, n_layers=depth, n_decoder_layers=depth if both else None)


def tensor_share(config: ModelConfig, group: int) -> ModelConfig:
    """The model that one of `group` tensor-parallel ranks holds and computes: of the same width,
    with its share of the heads, of the feed-forward network and of the vocabulary."""
    if group == 1:
        return config
    target = config.target_vocab_size
    return replace(
        config,
        n_heads=config.n_heads // group,
        n_kv_heads=config.kv_heads // group,
        d_head=config.head_width,
        d_ff=config.d_ff // group,
        vocab_size=-(-config.vocab_size // group),
        target_vocab_size=None if target is None else -(-target // group),
        pad_id=None if config.pad_id is None else 0,
    )


def share(shapes: Iterable[Shape], ranks: int) -> int:
    """Numbers that the first of the ranks holds. A tensor is dealt out by rows, and where they do
    not divide, the first rank holds the extra row."""
    return sum(-(-shape[0] // ranks) * math.prod(shape[1:]) for shape in shapes)


def flops_per_token(config: ModelConfig, length: int, convention: Convention) -> float:
    """The operations of training on one token: forward once, backward twice, 2 for each
    multiply-add. The conventions differ, and a utilisation means something only together with its
    own:

    - `parameters`: 6·N, what "6ND" is;
    - `full`: plus attention over all pairs of positions, 12·layers·width·length (PaLM,
      llm-foundry);
    - `causal`: plus attention over the pairs that a causal mask leaves, half of them;
    - `without-embeddings`: `full` without the tables that are only looked up (torchtitan).

    For an encoder-decoder, a token is one of the target with one of the source.
    """
    parameters = inventory(config).total
    stacks = config.n_layers
    if config.family == "encoder-decoder":
        stacks += 2 * config.decoder_layers  # to itself and to the source
    attention = 12 * stacks * config.n_heads * config.head_width * length
    match convention:
        case "parameters":
            return 6 * parameters
        case "full":
            return 6 * parameters + attention
        case "causal":
            return 6 * parameters + attention / 2
        case "without-embeddings":
            return 6 * (parameters - inventory(config).looked_up) + attention
