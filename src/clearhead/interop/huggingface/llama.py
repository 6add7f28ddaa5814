"""Llama: a pre-norm decoder with root-mean-square norms, rotary positions in halves, and SwiGLU."""

from collections.abc import Iterator
from typing import Any

from clearhead.config import ModelConfig
from clearhead.errors import FolderError
from clearhead.interop.huggingface.family import HuggingFaceFamily, Keys, Need, Setting
from clearhead.interop.huggingface.rules import Rule, Spelling, module
from clearhead.interop.huggingface.shared import (
    NO_EMBEDDING_NORM,
    NO_OUTPUT_BIAS,
    RESIDUAL,
    output_table,
)

_LINEAR = {
    "self_attention.query": "self_attn.q_proj",
    "self_attention.key": "self_attn.k_proj",
    "self_attention.value": "self_attn.v_proj",
    "self_attention.output": "self_attn.o_proj",
    "feed_forward.gate": "mlp.gate_proj",
    "feed_forward.up": "mlp.up_proj",
    "feed_forward.down": "mlp.down_proj",
}
_NORMS = {
    "around_self_attention.norm": "input_layernorm",
    "around_feed_forward.norm": "post_attention_layernorm",
}


def _rules(config: ModelConfig) -> Iterator[Rule]:
    yield Rule(("tokens.weight",), "model.embed_tokens.weight")
    for i in range(config.n_layers):
        ours, theirs = f"decoder.layers.{i}", f"model.layers.{i}"
        for our_name, their_name in _LINEAR.items():
            weight, bias = module(f"{ours}.{our_name}", f"{theirs}.{their_name}")
            yield weight
            if config.bias:
                yield bias
        for our_name, their_name in _NORMS.items():
            yield Rule((f"{ours}.{our_name}.weight",), f"{theirs}.{their_name}.weight")
    yield Rule(("decoder.norm.weight",), "model.norm.weight")
    yield output_table(config)


def _write_rotation(config: ModelConfig) -> dict[str, Any]:
    base = config.position_base
    # The flat key is where releases before 5 look for the base.
    return {"rope_parameters": {"rope_type": "default", "rope_theta": base}, "rope_theta": base}


def _read_more(keys: Keys, _: dict[str, Any]) -> dict[str, Any]:
    base = keys.take("rope_theta", 10_000.0)
    for name in ("rope_scaling", "rope_parameters"):  # before release 5, and since
        parameters = keys.take(name, None) or {}
        if not isinstance(parameters, dict):
            raise FolderError(f"config.json: {name}={parameters!r} must be null or a table")
        for key, value in parameters.items():
            if key != "rope_theta" and (key, value) != ("rope_type", "default"):
                rule = "only rope_type='default' and rope_theta are"
                raise FolderError(f"config.json: {name} {key}={value!r} is not known; {rule}")
        base = parameters.get("rope_theta", base)
    # Their residuals have no dropout, and no key for it.
    return {"position_base": base, "p_dropout": 0.0}


LLAMA = HuggingFaceFamily(
    name="Llama",
    model_type="llama",
    architecture="LlamaForCausalLM",
    needs=(
        Need("family", ("decoder",)),
        Need("norm", ("rms",)),
        Need("norm_placement", ("pre",)),
        Need("feed_forward", ("swiglu",)),
        Need("positions", ("rotary",)),
        Need("first_position", (0,)),  # what rotary positions have
        Need(
            "n_heads",
            lambda c: (c.n_heads,) if c.d_model % c.n_heads == 0 else (),
            "d_model % n_heads == 0",
        ),
        NO_EMBEDDING_NORM,
        NO_OUTPUT_BIAS,
        RESIDUAL,
    ),
    settings=(
        Setting("vocab_size", ("vocab_size",), 32000),
        Setting("d_model", ("hidden_size",), 4096),
        Setting("n_layers", ("num_hidden_layers",), 32),
        Setting("n_heads", ("num_attention_heads",), 32),
        Setting("n_kv_heads", ("num_key_value_heads",), None),
        Setting("d_head", ("head_dim",), None),
        Setting("d_ff", ("intermediate_size",), 11008),
        Setting("norm_eps", ("rms_norm_eps",), 1e-6),
        Setting("bias", ("attention_bias", "mlp_bias"), False),
        Setting("max_length", ("max_position_embeddings",), 2048),
        Setting("tie_output", ("tie_word_embeddings",), False),
        Setting("p_attention_dropout", ("attention_dropout",), 0.0),
        Setting("init_std", ("initializer_range",), 0.02),
    ),
    write_more=_write_rotation,
    read_more=_read_more,
    fixed={"hidden_act": "silu", "is_encoder_decoder": False},
    harmless=frozenset({"pretraining_tp"}),
    ids={"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None},
    form=lambda _: {"embedding_scale": False, "position_pairs": "halves"},
    rules=_rules,
    spelling=Spelling(
        prefix="model.",
        left_out=(r"(model\.)?layers\.\d+\.self_attn\.rotary_emb\.inv_freq",),
    ),
)
