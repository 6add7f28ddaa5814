"""Writes a model as a CTranslate2 specification, filled with clearhead's weights. No converter or
other library is involved."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.models import CausalLM, Seq2Seq
from clearhead.parts.embeddings import InputEmbedding
from clearhead.parts.later.gated import GatedFeedForward
from clearhead.parts.norm import LayerNorm
from clearhead.parts.positions import LearnedPositions, SinusoidalPositions
from clearhead.stacks.decoder import Decoder
from clearhead.stacks.encoder import Encoder

ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu-tanh": "GELUTanh",
    "silu": "SWISH",
    "swiglu": "SWISH",
    "geglu": "GELU",
}


def specification(model: Seq2Seq | CausalLM) -> Any:
    """Make the whole specification except the names of the tokens."""
    from ctranslate2.specs import (
        TransformerDecoderModelSpec,
        TransformerDecoderSpec,
        TransformerEncoderSpec,
        TransformerSpec,
    )

    config, options = model.config, _options(model.config)
    alibi: dict[str, Any] = {"alibi": config.positions == "alibi"}
    if isinstance(model, CausalLM):
        decoder: Any = TransformerDecoderSpec(
            config.n_layers, config.n_heads, with_encoder_attention=False, **options, **alibi
        )
        table, embedding = model.tokens.weight, model.embedding
        spec: Any = TransformerDecoderModelSpec(decoder)
    else:
        encoder: Any = TransformerEncoderSpec(config.n_layers, config.n_heads, **options)
        decoder = TransformerDecoderSpec(config.decoder_layers, config.n_heads, **options, **alibi)
        table, embedding = model.target_table.weight, model.target_embedding
        spec = TransformerSpec(encoder, decoder)
        encoder.embeddings[0].weight = _array(model.tokens.weight)
        _fill_tower(encoder, model.encoder, model.embedding, config)
    decoder.embeddings.weight = _array(table)
    _fill_tower(decoder, model.decoder, embedding, config)
    untied, bias = model.output.weight, model.output.bias
    decoder.projection.weight = _array(table if untied is None else untied)
    if bias is not None:
        decoder.projection.bias = _array(bias)
    spec.config.layer_norm_epsilon = config.norm_eps
    return spec


def _options(config: ModelConfig) -> dict[str, Any]:
    from ctranslate2.specs import common_spec

    options = {
        "pre_norm": config.norm_placement == "pre",
        "activation": common_spec.Activation[ACTIVATIONS[config.feed_forward]],
        "ffn_glu": config.feed_forward in ("swiglu", "geglu"),
        "rms_norm": config.norm == "rms",
        "layernorm_embedding": config.embedding_norm,
        "num_heads_kv": None if config.kv_heads == config.n_heads else config.kv_heads,
        "head_dim": config.d_head,
    }
    if config.positions == "rotary":
        interleaved = config.position_pairs == "interleaved"
        options |= {"rotary_dim": 0, "rotary_interleave": interleaved}
        options["rotary_base"] = config.position_base
    return options


def _fill_tower(
    spec: Any, tower: Encoder | Decoder, embedding: InputEmbedding, config: ModelConfig
) -> None:
    spec.scale_embeddings = config.embedding_scale
    if config.positions not in ("rotary", "alibi"):
        spec.position_encodings.encodings = _array(_positions(embedding, config))
    if embedding.norm is not None:
        _fill_norm(spec.layernorm_embedding, embedding.norm)
    for theirs, ours in zip(spec.layer, tower.layers, strict=True):
        _fill_layer(theirs, ours)
    if config.norm_placement == "pre":
        _fill_norm(spec.layer_norm, tower.norm)


def _positions(embedding: InputEmbedding, config: ModelConfig) -> Tensor:
    """Return the positions as the model stores them, because CTranslate2 also rounds a sinusoid in
    half precision."""
    match embedding.positions:
        case LearnedPositions() as learned:
            return learned.weight[config.first_position :]
        case SinusoidalPositions() as computed:
            return computed.table[config.first_position :]
        case _:  # without positions, the table holds zeros
            return torch.zeros(config.max_length, config.d_model)


def _fill_layer(theirs: Any, ours: Any) -> None:
    attention = ours.self_attention
    _fill_linear(theirs.self_attention.linear[0], attention.query, attention.key, attention.value)
    _fill_linear(theirs.self_attention.linear[1], attention.output)
    _fill_norm(theirs.self_attention.layer_norm, ours.around_self_attention.norm)
    cross = getattr(ours, "cross_attention", None)
    if cross is not None:
        _fill_linear(theirs.attention.linear[0], cross.query)
        _fill_linear(theirs.attention.linear[1], cross.key, cross.value)
        _fill_linear(theirs.attention.linear[2], cross.output)
        _fill_norm(theirs.attention.layer_norm, ours.around_cross_attention.norm)
    network = ours.feed_forward
    if isinstance(network, GatedFeedForward):
        _fill_linear(theirs.ffn.linear_0, network.gate)
        _fill_linear(theirs.ffn.linear_0_noact, network.up)
    else:
        _fill_linear(theirs.ffn.linear_0, network.up)
    _fill_linear(theirs.ffn.linear_1, network.down)
    _fill_norm(theirs.ffn.layer_norm, ours.around_feed_forward.norm)


def _fill_linear(theirs: Any, *ours: nn.Linear) -> None:
    theirs.weight = _array(torch.cat([linear.weight for linear in ours]))
    if ours[0].bias is not None:
        theirs.bias = _array(torch.cat([linear.bias for linear in ours]))


def _fill_norm(theirs: Any, ours: Any) -> None:
    theirs.gamma = _array(ours.weight)
    if isinstance(ours, LayerNorm):
        theirs.beta = _array(torch.zeros_like(ours.weight) if ours.bias is None else ours.bias)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().float().contiguous().numpy()
