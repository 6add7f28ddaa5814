"""RoBERTa-PreLayerNorm: BERT with the norms before the sublayers, and a position table whose first
row in use is the one after the pad token's number."""

from collections.abc import Iterator
from typing import Any

from clearhead.config import ModelConfig
from clearhead.interop.huggingface import bert
from clearhead.interop.huggingface.family import HuggingFaceFamily, Keys, Need, Setting
from clearhead.interop.huggingface.rules import Rule, Spelling, module
from clearhead.interop.huggingface.shared import PAD_ID

NORMS = {
    "around_self_attention.norm": "attention.LayerNorm",
    "around_feed_forward.norm": "intermediate.LayerNorm",
}


def _first_position(pad_id: int | None) -> int:
    return 0 if pad_id is None else pad_id + 1


def _form(config: ModelConfig) -> dict[str, Any]:
    return bert.form(config, first_position=_first_position(config.pad_id))


def tower(config: ModelConfig) -> Iterator[Rule]:
    """Return the rules for the embeddings, the layers and the final norm."""
    yield from bert.tower(config, "roberta_prelayernorm", NORMS)
    yield from module("encoder.norm", "roberta_prelayernorm.LayerNorm")


def _rules(config: ModelConfig) -> Iterator[Rule]:
    yield from tower(config)
    yield from module("head.dense", "lm_head.dense")
    yield from module("head.norm", "lm_head.layer_norm")
    yield from bert.output(config, "lm_head")


def write_length(config: ModelConfig) -> dict[str, Any]:
    """Write the length; it counts the rows before the first row that is used."""
    return {"max_position_embeddings": config.max_length + config.first_position}


def read_length(keys: Keys, options: dict[str, Any]) -> dict[str, Any]:
    """Read the length, without the rows before the first row that is used."""
    rows, pad_id = keys.take("max_position_embeddings", 512), options["pad_id"]
    whole = isinstance(rows, int) and isinstance(pad_id, int)
    return {"max_length": rows - _first_position(pad_id) if whole else rows}


ROBERTA_PRE_LAYER_NORM = HuggingFaceFamily(
    name="RoBERTa-PreLayerNorm",
    model_type="roberta-prelayernorm",
    architecture="RobertaPreLayerNormForMaskedLM",
    needs=(
        *bert.ENCODER_NEEDS,
        Need("norm_placement", ("pre",)),
        Need("feed_forward", ("gelu",)),  # the head's is fixed, and ours is the layers' own
        PAD_ID,
    ),
    settings=(Setting("vocab_size", ("vocab_size",), 50265), *bert.SETTINGS),
    write_more=write_length,
    read_more=read_length,
    fixed={"hidden_act": "gelu", **bert.FIXED},
    harmless=bert.HARMLESS,
    ids={"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1},
    form=_form,
    rules=_rules,
    spelling=Spelling(
        prefix="roberta_prelayernorm.",
        left_out=(
            r"roberta_prelayernorm\.embeddings\.position_ids",
            r"roberta_prelayernorm\.pooler\..*",
        ),
    ),
)
