"""Turns a `ModelConfig` into a model. No other place chooses a part for an option; other code only
reads options, to count operations (`training/flops.py`) or to export a model (`interop`)."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from clearhead.config import ModelConfig
from clearhead.models.causal_lm import CausalLM
from clearhead.models.initialise import initialise, materialise
from clearhead.models.masked_lm import Classifier, MaskedLM
from clearhead.models.own_parts import NONE, OwnParts, build_part
from clearhead.models.seq2seq import Seq2Seq
from clearhead.parts.attention import MultiHeadAttention
from clearhead.parts.embeddings import (
    ClassificationHead,
    InputEmbedding,
    MaskedLMHead,
    OutputProjection,
    TokenEmbedding,
)
from clearhead.parts.feed_forward import Activation, FeedForward
from clearhead.parts.later.alibi import AlibiPositions
from clearhead.parts.later.gated import GatedFeedForward
from clearhead.parts.later.rms_norm import RMSNorm
from clearhead.parts.later.rotary import RotaryPositions
from clearhead.parts.norm import LayerNorm
from clearhead.parts.positions import LearnedPositions, SinusoidalPositions, sinusoid
from clearhead.parts.residual import Residual
from clearhead.stacks.decoder import Decoder, DecoderLayer
from clearhead.stacks.encoder import Encoder, EncoderLayer

Model = Seq2Seq | CausalLM | MaskedLM | Classifier


def build_model(
    config: ModelConfig,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    own_parts: OwnParts = NONE,
) -> Model:
    """Build a model with its initial weights. The same seed gives the same weights. On the device
    "meta", the model has no weights and uses no memory."""
    with torch.device("meta"):
        model = assemble(config, own_parts)
    if torch.device(device).type != "meta":
        materialise(model, device)
        initialise(model, seed)
    return model


def assemble(config: ModelConfig, own: OwnParts = NONE) -> Model:
    """Put the model's parts together, with whatever weights their constructors leave."""
    model = _assemble(config, own)
    model.own_parts = own
    return model


def _assemble(config: ModelConfig, own: OwnParts) -> Model:
    tokens = _token_table(config, config.vocab_size)
    embedding = _input_embedding(config, own)
    match config.family:
        case "encoder-decoder":
            separate = config.target_vocab_size is not None
            return Seq2Seq(
                config,
                tokens=tokens,
                embedding=embedding,
                target_tokens=_token_table(config, config.output_vocab_size) if separate else None,
                target_embedding=_input_embedding(config, own),
                encoder=_encoder(config, own),
                decoder=_decoder(config, own, cross=True),
                output=_output(config),
            )
        case "decoder":
            return CausalLM(
                config,
                tokens=tokens,
                embedding=embedding,
                decoder=_decoder(config, own, cross=False),
                output=_output(config),
            )
        case "encoder" if config.labels:
            return Classifier(
                config,
                tokens=tokens,
                embedding=embedding,
                encoder=_encoder(config, own),
                head=_classification_head(config),
            )
        case "encoder":
            return MaskedLM(
                config,
                tokens=tokens,
                embedding=embedding,
                encoder=_encoder(config, own),
                head=_masked_lm_head(config, own),
                output=_output(config),
            )


def _encoder(config: ModelConfig, own: OwnParts) -> Encoder:
    layers = [
        EncoderLayer(
            self_attention=_attention(config, own, causal=False),
            feed_forward=_feed_forward(config, own),
            residuals=(_residual(config, own), _residual(config, own)),
        )
        for _ in range(config.n_layers)
    ]
    return Encoder(
        layers,
        norm=_last_norm(config, own),
        rotary=_rotary(config, own),
        alibi=_alibi(config, own),
    )


def _decoder(config: ModelConfig, own: OwnParts, *, cross: bool) -> Decoder:
    layers = [
        DecoderLayer(
            self_attention=_attention(config, own, causal=True),
            cross_attention=_attention(config, own, causal=False) if cross else None,
            feed_forward=_feed_forward(config, own),
            residuals=[_residual(config, own) for _ in range(3 if cross else 2)],
        )
        for _ in range(config.decoder_layers)
    ]
    return Decoder(
        layers,
        norm=_last_norm(config, own),
        rotary=_rotary(config, own),
        alibi=_alibi(config, own),
    )


def _attention(config: ModelConfig, own: OwnParts, *, causal: bool) -> MultiHeadAttention:
    if own.attention is not None:
        built = build_part(own.attention, config, causal=causal)
        assert isinstance(built, MultiHeadAttention)
        return built
    return MultiHeadAttention(
        config.d_model,
        config.n_heads,
        n_kv_heads=config.kv_heads,
        d_head=config.head_width,
        causal=causal,
        bias=config.bias,
        p_dropout=config.p_attention_dropout,
        kind=config.attention,
    )


def _feed_forward(config: ModelConfig, own: OwnParts) -> nn.Module:
    if own.feed_forward is not None:
        return build_part(own.feed_forward, config)
    kind = GatedFeedForward if config.feed_forward in ("swiglu", "geglu") else FeedForward
    return kind(config.d_model, config.d_ff, activation=_activation(config), bias=config.bias)


def _activation(config: ModelConfig) -> Activation:
    match config.feed_forward:
        case "relu":
            return F.relu
        case "gelu" | "geglu":
            return F.gelu
        case "gelu-tanh":
            return partial(F.gelu, approximate="tanh")
        case "silu" | "swiglu":
            return F.silu


def _norm(config: ModelConfig, own: OwnParts) -> nn.Module:
    if own.norm is not None:
        return build_part(own.norm, config)
    match config.norm:
        case "layer":
            return LayerNorm(config.d_model, eps=config.norm_eps, bias=config.bias)
        case "rms":
            return RMSNorm(config.d_model, eps=config.norm_eps)


def _last_norm(config: ModelConfig, own: OwnParts) -> nn.Module | None:
    """Return the norm at the end of a stack, which pre-norm layers need."""
    return _norm(config, own) if config.norm_placement == "pre" else None


def _residual(config: ModelConfig, own: OwnParts) -> Residual:
    return Residual(
        _norm(config, own),
        placement=config.norm_placement,
        residual=config.residual,
        p_dropout=config.p_dropout,
    )


def _token_table(config: ModelConfig, vocab_size: int) -> TokenEmbedding:
    return TokenEmbedding(vocab_size, config.d_model, scale=config.embedding_scale)


def _input_embedding(config: ModelConfig, own: OwnParts) -> InputEmbedding:
    segments = None
    if config.n_segments:
        segments = TokenEmbedding(config.n_segments, config.d_model, scale=False)
    return InputEmbedding(
        positions=_added_positions(config, own),
        segments=segments,
        norm=_norm(config, own) if config.embedding_norm else None,
        p_dropout=config.p_dropout,
    )


def _added_positions(config: ModelConfig, own: OwnParts) -> nn.Module | None:
    if own.positions is not None:
        return build_part(own.positions, config)
    match config.positions:
        case "sinusoidal":
            formula = partial(
                sinusoid,
                pairs=config.position_pairs,
                base=config.position_base,
                spacing=config.position_spacing,
            )
            return SinusoidalPositions(
                config.max_length, config.d_model, first=config.first_position, formula=formula
            )
        case "learned":
            return LearnedPositions(config.max_length, config.d_model, first=config.first_position)
        case "rotary" | "alibi" | "none":
            return None


def _rotary(config: ModelConfig, own: OwnParts) -> RotaryPositions | None:
    if config.positions != "rotary" or own.positions is not None:
        return None
    return RotaryPositions(
        config.max_length, config.head_width, pairs=config.position_pairs, base=config.position_base
    )


def _alibi(config: ModelConfig, own: OwnParts) -> AlibiPositions | None:
    if config.positions != "alibi" or own.positions is not None:
        return None
    return AlibiPositions(config.n_heads)


def _classification_head(config: ModelConfig) -> ClassificationHead:
    return ClassificationHead(
        config.d_model, len(config.labels), p_dropout=config.p_dropout, bias=config.bias
    )


def _masked_lm_head(config: ModelConfig, own: OwnParts) -> MaskedLMHead:
    return MaskedLMHead(
        config.d_model, activation=_activation(config), norm=_norm(config, own), bias=config.bias
    )


def _output(config: ModelConfig) -> OutputProjection:
    return OutputProjection(
        config.d_model,
        config.output_vocab_size,
        tied=config.tie_output,
        bias=config.output_bias,
    )
