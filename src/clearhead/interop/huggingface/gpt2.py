"""GPT-2: a pre-norm decoder with a table of positions. Weights are stored as input × output, and
queries, keys and values are one matrix."""

from collections.abc import Iterator
from typing import Any

from clearhead.config import ModelConfig
from clearhead.interop.huggingface.family import HuggingFaceFamily, Keys, Need, Setting, words
from clearhead.interop.huggingface.rules import Rule, Spelling, module
from clearhead.interop.huggingface.shared import (
    LAYER_NORM,
    NO_EMBEDDING_NORM,
    NO_OUTPUT_BIAS,
    PLAIN_FEED_FORWARD,
    PLAIN_HEADS,
    RESIDUAL,
    TABLE_OF_POSITIONS,
    activation,
    output_table,
)


def _form(_: ModelConfig) -> dict[str, Any]:
    return {
        "bias": True,
        "positions": "learned",
        "first_position": 0,
        "embedding_scale": False,
    }


def _rules(config: ModelConfig) -> Iterator[Rule]:
    yield Rule(("tokens.weight",), "transformer.wte.weight")
    yield Rule(("embedding.positions.weight",), "transformer.wpe.weight")
    for i in range(config.n_layers):
        ours, theirs = f"decoder.layers.{i}", f"transformer.h.{i}"
        qkv = tuple(f"{ours}.self_attention.{role}" for role in ("query", "key", "value"))
        yield from module(f"{ours}.around_self_attention.norm", f"{theirs}.ln_1")
        yield from module(qkv, f"{theirs}.attn.c_attn", "transposed")
        yield from module(f"{ours}.self_attention.output", f"{theirs}.attn.c_proj", "transposed")
        yield from module(f"{ours}.around_feed_forward.norm", f"{theirs}.ln_2")
        yield from module(f"{ours}.feed_forward.up", f"{theirs}.mlp.c_fc", "transposed")
        yield from module(f"{ours}.feed_forward.down", f"{theirs}.mlp.c_proj", "transposed")
    yield from module("decoder.norm", "transformer.ln_f")
    yield output_table(config)


def _read_more(keys: Keys, options: dict[str, Any]) -> dict[str, Any]:
    """Read d_ff; if the key is left out, it is four times d_model."""
    d_ff, d_model = keys.take("n_inner", None), options["d_model"]
    return {"d_ff": 4 * d_model if d_ff is None and isinstance(d_model, int) else d_ff}


GPT2 = HuggingFaceFamily(
    name="GPT-2",
    model_type="gpt2",
    architecture="GPT2LMHeadModel",
    needs=(
        Need("family", ("decoder",)),
        LAYER_NORM,
        Need("norm_placement", ("pre",)),
        PLAIN_FEED_FORWARD,
        TABLE_OF_POSITIONS,
        *PLAIN_HEADS,
        NO_EMBEDDING_NORM,
        NO_OUTPUT_BIAS,
        RESIDUAL,
    ),
    settings=(
        Setting("vocab_size", ("vocab_size",), 50257),
        Setting("d_model", ("n_embd",), 768),
        Setting("n_layers", ("n_layer",), 12),
        Setting("n_heads", ("n_head",), 12),
        activation("activation_function", "gelu_new"),
        Setting("norm_eps", ("layer_norm_epsilon",), 1e-5),
        Setting("max_length", ("n_positions",), 1024),
        Setting("tie_output", ("tie_word_embeddings",), True),
        Setting("p_dropout", ("resid_pdrop", "embd_pdrop"), 0.1),
        Setting("p_attention_dropout", ("attn_pdrop",), 0.1),
        Setting("init_std", ("initializer_range",), 0.02),
    ),
    write_more=lambda config: {"n_inner": config.d_ff},
    read_more=_read_more,
    fixed={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
        "is_encoder_decoder": False,
    },
    harmless=words(
        """n_ctx reorder_and_upcast_attn summary_activation summary_first_dropout
        summary_proj_to_labels summary_type summary_use_proj"""
    ),
    ids={"bos_token_id": 50256, "eos_token_id": 50256, "pad_token_id": None},
    form=_form,
    rules=_rules,
    spelling=Spelling(
        prefix="transformer.",
        left_out=(r"(transformer\.)?h\.\d+\.attn\.(masked_)?bias",),  # the causal mask, stored
    ),
)
