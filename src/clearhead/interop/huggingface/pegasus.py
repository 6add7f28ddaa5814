"""Pegasus: a pre-norm encoder-decoder. Its positions are a table of weights in the file."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from clearhead.config import ModelConfig
from clearhead.interop.equivalent import position_table
from clearhead.interop.huggingface import bart_like
from clearhead.interop.huggingface.family import HuggingFaceFamily, Keys, Need
from clearhead.interop.huggingface.rules import Read, Rule, Spelling
from clearhead.interop.huggingface.shared import PAD_ID, TABLE_OF_POSITIONS

_POSITIONS = {
    f"{embedding}.positions.weight": f"model.{tower}.embed_positions.weight"
    for tower, embedding in bart_like.TOWERS.items()
}


def _form(config: ModelConfig) -> dict[str, Any]:
    return {
        **bart_like.form(config),
        **bart_like.all_shared_or_none(config),
        "output_bias": True,
        "positions": "learned",
        "first_position": 0,
    }


def _rules(config: ModelConfig) -> Iterator[Rule]:
    yield from bart_like.one_table_or_three(config)
    for ours, theirs in _POSITIONS.items():
        yield Rule((ours,), theirs)
    yield from bart_like.layers(config)
    yield from bart_like.final_norms()
    yield Rule(("output.bias",), "final_logits_bias", "row")


def _settle(config: ModelConfig, read: Read) -> ModelConfig:
    """Tell a sinusoid from learned positions: a table that equals the sinusoid bit for bit is the
    sinusoid; any other table was learned."""
    tables = [read(name) for name in _POSITIONS]
    for pairs in ("halves", "interleaved"):
        candidate = replace(config, positions="sinusoidal", position_pairs=pairs)
        sinusoid = position_table(candidate).to(tables[0].dtype)
        if all(torch.equal(table, sinusoid) for table in tables):
            return candidate
    return config


def _read_vocabularies(_: Keys, options: dict[str, Any]) -> dict[str, Any]:
    return {"target_vocab_size": None if options["tie_output"] else options["vocab_size"]}


PEGASUS = HuggingFaceFamily(
    name="Pegasus",
    model_type="pegasus",
    architecture="PegasusForConditionalGeneration",
    needs=(*bart_like.NEEDS, Need("norm_placement", ("pre",)), PAD_ID, TABLE_OF_POSITIONS),
    settings=bart_like.settings(
        vocab_size=50265, activates_by="gelu", scales=False, p_attention_dropout=0.0
    ),
    read_more=_read_vocabularies,
    fixed={"is_encoder_decoder": True, "is_decoder": False},
    also={
        **bart_like.ALSO,
        "forced_eos_token_id": None,
        # Converters ask for these two; transformers itself does not.
        "normalize_before": True,
        "normalize_embedding": False,
    },
    harmless=bart_like.HARMLESS,
    ids={
        "bos_token_id": None,
        "eos_token_id": 1,
        "pad_token_id": 0,
        "decoder_start_token_id": 0,
    },
    form=_form,
    rules=_rules,
    settle=_settle,
    spelling=Spelling(prefix="model."),
)
