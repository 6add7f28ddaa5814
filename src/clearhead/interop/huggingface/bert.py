"""BERT: a post-norm encoder with a norm after the embedding, a table of segments, and its own head
before the output."""

from collections.abc import Iterator
from typing import Any

from clearhead.config import ModelConfig
from clearhead.interop.huggingface.family import HuggingFaceFamily, Need, Setting, words
from clearhead.interop.huggingface.rules import Rule, Spelling, module
from clearhead.interop.huggingface.shared import (
    LAYER_NORM,
    PLAIN_FEED_FORWARD,
    PLAIN_HEADS,
    RESIDUAL,
    TABLE_OF_POSITIONS,
    activation,
)

EMBEDDINGS = {
    "tokens.weight": "word_embeddings.weight",
    "embedding.positions.weight": "position_embeddings.weight",
    "embedding.segments.weight": "token_type_embeddings.weight",
}
LINEAR = {
    "self_attention.query": "attention.self.query",
    "self_attention.key": "attention.self.key",
    "self_attention.value": "attention.self.value",
    "self_attention.output": "attention.output.dense",
    "feed_forward.up": "intermediate.dense",
    "feed_forward.down": "output.dense",
}
NORMS = {
    "around_self_attention.norm": "attention.output.LayerNorm",
    "around_feed_forward.norm": "output.LayerNorm",
}
ENCODER_NEEDS = (
    Need("family", ("encoder",)),
    LAYER_NORM,
    TABLE_OF_POSITIONS,
    *PLAIN_HEADS,
    Need("embedding_norm", (True,)),
    RESIDUAL,
    Need("labels", ((),)),
)
SETTINGS = (
    Setting("d_model", ("hidden_size",), 768),
    Setting("n_layers", ("num_hidden_layers",), 12),
    Setting("n_heads", ("num_attention_heads",), 12),
    Setting("d_ff", ("intermediate_size",), 3072),
    Setting("n_segments", ("type_vocab_size",), 2),
    Setting("norm_eps", ("layer_norm_eps",), 1e-12),
    Setting("tie_output", ("tie_word_embeddings",), True),
    Setting("p_dropout", ("hidden_dropout_prob",), 0.1),
    Setting("p_attention_dropout", ("attention_probs_dropout_prob",), 0.1),
    Setting("init_std", ("initializer_range",), 0.02),
)
FIXED = {
    "is_decoder": False,
    "is_encoder_decoder": False,
    "add_cross_attention": False,
    "position_embedding_type": "absolute",
}
HARMLESS = words(
    """classifier_dropout directionality pooler_fc_size pooler_num_attention_heads
    pooler_num_fc_layers pooler_size_per_head pooler_type"""
)


def form(config: ModelConfig, *, first_position: int = 0) -> dict[str, Any]:
    """Return the options into which a model is rewritten before the rules apply."""
    return {
        "bias": True,
        "output_bias": True,
        "positions": "learned",
        "first_position": first_position,
        "n_segments": max(1, config.n_segments),
        "embedding_scale": False,
    }


def tower(config: ModelConfig, prefix: str, norms: dict[str, str]) -> Iterator[Rule]:
    """Return the rules for the embeddings and the layers; the two families differ in `norms`."""
    for ours, theirs in EMBEDDINGS.items():
        yield Rule((ours,), f"{prefix}.embeddings.{theirs}")
    yield from module("embedding.norm", f"{prefix}.embeddings.LayerNorm")
    for i in range(config.n_layers):
        for ours, theirs in (LINEAR | norms).items():
            yield from module(f"encoder.layers.{i}.{ours}", f"{prefix}.encoder.layer.{i}.{theirs}")


def output(config: ModelConfig, head: str) -> Iterator[Rule]:
    """Return the rules for the output. If it is tied, transformers has one name for the bias. If it
    is untied, the bias has another name, and the first one is stored but not used."""
    if config.tie_output:
        yield Rule(("output.bias",), f"{head}.bias")
        yield Rule(("tokens.weight",), f"{head}.decoder.weight", kind="alias")
        yield Rule(("output.bias",), f"{head}.decoder.bias", kind="alias")
    else:
        yield Rule(("output.weight",), f"{head}.decoder.weight")
        yield Rule(("output.bias",), f"{head}.decoder.bias")
        yield Rule(("output.bias",), f"{head}.bias", kind="spare")


def _rules(config: ModelConfig) -> Iterator[Rule]:
    yield from tower(config, "bert", NORMS)
    yield from module("head.dense", "cls.predictions.transform.dense")
    yield from module("head.norm", "cls.predictions.transform.LayerNorm")
    yield from output(config, "cls.predictions")


BERT = HuggingFaceFamily(
    name="BERT",
    model_type="bert",
    architecture="BertForMaskedLM",
    needs=(*ENCODER_NEEDS, Need("norm_placement", ("post",)), PLAIN_FEED_FORWARD),
    settings=(
        Setting("vocab_size", ("vocab_size",), 30522),
        Setting("max_length", ("max_position_embeddings",), 512),
        activation("hidden_act", "gelu"),
        *SETTINGS,
    ),
    fixed=FIXED,
    harmless=HARMLESS,
    ids={"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0},
    form=form,
    rules=_rules,
    spelling=Spelling(
        prefix="bert.",
        left_out=(
            r"bert\.embeddings\.position_ids",
            r"bert\.pooler\..*",
            r"cls\.seq_relationship\..*",
        ),
    ),
)
