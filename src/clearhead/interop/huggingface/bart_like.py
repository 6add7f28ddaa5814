"""What Marian, Pegasus and M2M100 have in common, since the code of all three comes from BART."""

from collections.abc import Iterator
from typing import Any

from clearhead.config import ModelConfig
from clearhead.interop.huggingface.family import Need, Setting, words
from clearhead.interop.huggingface.rules import Rule, module
from clearhead.interop.huggingface.shared import (
    LAYER_NORM,
    NO_EMBEDDING_NORM,
    PLAIN_FEED_FORWARD,
    PLAIN_HEADS,
    RESIDUAL,
    activation,
)

_ROLES = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
_LAYER = {
    **{f"self_attention.{ours}": f"self_attn.{theirs}" for ours, theirs in _ROLES.items()},
    "around_self_attention.norm": "self_attn_layer_norm",
    "feed_forward.up": "fc1",
    "feed_forward.down": "fc2",
    "around_feed_forward.norm": "final_layer_norm",
}
_DECODER_LAYER = {
    **_LAYER,
    **{f"cross_attention.{ours}": f"encoder_attn.{theirs}" for ours, theirs in _ROLES.items()},
    "around_cross_attention.norm": "encoder_attn_layer_norm",
}
TOWERS = {"encoder": "embedding", "decoder": "target_embedding"}
"""For each tower of Hugging Face, clearhead's embedding before it."""

NEEDS = (
    Need("family", ("encoder-decoder",)),
    LAYER_NORM,
    Need("norm_eps", (1e-5,)),
    PLAIN_FEED_FORWARD,
    *PLAIN_HEADS,
    NO_EMBEDDING_NORM,
    RESIDUAL,
)
PUBLISHED_SINUSOID = (
    Need("positions", ("sinusoidal",)),
    Need("position_base", (10_000.0,)),
)
"""The needs of families that compute their table of positions, and cannot be given another one."""
ALSO = {"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "activation_dropout": 0.0}
HARMLESS = words(
    """add_bias_logits add_final_layer_norm classif_dropout classifier_dropout
    extra_pos_embeddings force_bos_token_to_be_generated normalize_before normalize_embedding
    num_hidden_layers static_position_embeddings"""
)


def settings(
    *, vocab_size: int, activates_by: str, scales: bool, p_attention_dropout: float
) -> tuple[Setting, ...]:
    """Return the settings that all three share; some defaults differ."""
    return (
        Setting("vocab_size", ("vocab_size",), vocab_size),
        Setting("d_model", ("d_model",), 1024),
        Setting("n_layers", ("encoder_layers",), 12),
        Setting("n_decoder_layers", ("decoder_layers",), 12),
        Setting("n_heads", ("encoder_attention_heads", "decoder_attention_heads"), 16),
        Setting("d_ff", ("encoder_ffn_dim", "decoder_ffn_dim"), 4096),
        activation("activation_function", activates_by),
        Setting("max_length", ("max_position_embeddings",), 1024),
        Setting("embedding_scale", ("scale_embedding",), scales),
        Setting("tie_output", ("tie_word_embeddings",), True),
        Setting("p_dropout", ("dropout",), 0.1),
        Setting("p_attention_dropout", ("attention_dropout",), p_attention_dropout),
        Setting("init_std", ("init_std",), 0.02),
    )


def form(config: ModelConfig) -> dict[str, Any]:
    """Return the options into which a model is rewritten before the rules apply."""
    return {"bias": True, "n_decoder_layers": config.decoder_layers}


def layers(config: ModelConfig) -> Iterator[Rule]:
    """Return the rules for all layers of both stacks."""
    for i in range(config.n_layers):
        for ours, theirs in _LAYER.items():
            yield from module(f"encoder.layers.{i}.{ours}", f"model.encoder.layers.{i}.{theirs}")
    for i in range(config.decoder_layers):
        for ours, theirs in _DECODER_LAYER.items():
            yield from module(f"decoder.layers.{i}.{ours}", f"model.decoder.layers.{i}.{theirs}")


def final_norms() -> Iterator[Rule]:
    """Return the rules for the norm at the end of each stack."""
    for tower in TOWERS:
        yield from module(f"{tower}.norm", f"model.{tower}.layer_norm")


def one_table() -> Iterator[Rule]:
    """Return the rules for one table for source, target and output, stored under any of its
    names."""
    yield Rule(("tokens.weight",), "model.shared.weight")
    for alias in ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head"):
        yield Rule(("tokens.weight",), f"{alias}.weight", kind="alias")


def three_tables() -> Iterator[Rule]:
    """Return the rules for separate tables of source, target and output."""
    yield Rule(("tokens.weight",), "model.encoder.embed_tokens.weight")
    yield Rule(("target_tokens.weight",), "model.decoder.embed_tokens.weight")
    yield Rule(("output.weight",), "lm_head.weight")


def one_table_or_three(config: ModelConfig) -> Iterator[Rule]:
    """Return the rules for Pegasus and M2M100, which share all tables or none. If they share none,
    the files hold one more table, which is not used."""
    if config.target_vocab_size is None:
        yield from one_table()
    else:
        yield from three_tables()
        yield Rule(("tokens.weight",), "model.shared.weight", kind="spare")


def all_shared_or_none(config: ModelConfig) -> dict[str, Any]:
    """Return the form of `one_table_or_three`: if one table is not shared, none is, and both
    vocabularies are as large as the larger one."""
    if config.target_vocab_size is None and config.tie_output:
        return {}
    size = max(config.vocab_size, config.output_vocab_size)
    return {"vocab_size": size, "target_vocab_size": size, "tie_output": False}
