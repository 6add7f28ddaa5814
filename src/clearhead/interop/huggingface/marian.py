"""Marian: a post-norm encoder-decoder with computed sinusoids, as the paper has it."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from clearhead.config import ModelConfig
from clearhead.interop.equivalent import position_table
from clearhead.interop.huggingface import bart_like
from clearhead.interop.huggingface.family import HuggingFaceFamily, Keys, Need
from clearhead.interop.huggingface.rules import Rule, Spelling
from clearhead.interop.huggingface.shared import PAD_ID


def _form(config: ModelConfig) -> dict[str, Any]:
    form = {**bart_like.form(config), "output_bias": True, "position_pairs": "halves"}
    if not config.tie_output:
        form["target_vocab_size"] = config.output_vocab_size
    return form


def _rules(config: ModelConfig) -> Iterator[Rule]:
    if config.target_vocab_size is None:
        yield from bart_like.one_table()
    else:
        source, target, output = bart_like.three_tables()
        yield from (source, target)
        yield output if not config.tie_output else Rule(target.ours, output.theirs, kind="alias")
    yield from bart_like.layers(config)
    yield Rule(("output.bias",), "final_logits_bias", "row")
    for tower in bart_like.TOWERS:
        table = partial(position_table, config)
        yield Rule((), f"model.{tower}.embed_positions.weight", kind="alias", computed=table)


def _write_vocabularies(config: ModelConfig) -> dict[str, Any]:
    return {
        "share_encoder_decoder_embeddings": config.target_vocab_size is None,
        "decoder_vocab_size": config.output_vocab_size,
    }


def _read_vocabularies(keys: Keys, options: dict[str, Any]) -> dict[str, Any]:
    size = keys.take("decoder_vocab_size", None) or options["vocab_size"]
    shared = keys.take("share_encoder_decoder_embeddings", True)
    return {"target_vocab_size": None if shared and options["tie_output"] else size}


MARIAN = HuggingFaceFamily(
    name="Marian",
    model_type="marian",
    architecture="MarianMTModel",
    needs=(
        *bart_like.NEEDS,
        Need("norm_placement", ("post",)),
        PAD_ID,
        *bart_like.PUBLISHED_SINUSOID,
        Need("position_spacing", ("open",)),
        Need("first_position", (0,)),
    ),
    settings=bart_like.settings(
        vocab_size=58101, activates_by="gelu", scales=False, p_attention_dropout=0.0
    ),
    write_more=_write_vocabularies,
    read_more=_read_vocabularies,
    fixed={"is_encoder_decoder": True, "is_decoder": False},
    also={**bart_like.ALSO, "forced_eos_token_id": None},
    harmless=bart_like.HARMLESS,
    ids={
        "bos_token_id": None,
        "eos_token_id": 0,
        "pad_token_id": 58100,
        "decoder_start_token_id": 58100,
    },
    form=_form,
    rules=_rules,
    spelling=Spelling(prefix="model.", left_out=(r"model\.shared\.weight",)),
)
