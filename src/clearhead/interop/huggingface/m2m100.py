"""M2M100 and NLLB: a pre-norm encoder-decoder with a sinusoid of its own. Its spacing is closed,
and the position of the first token is the pad token's number plus one."""

from collections.abc import Iterator
from typing import Any

from clearhead.config import ModelConfig
from clearhead.interop.huggingface import bart_like
from clearhead.interop.huggingface.family import HuggingFaceFamily, Keys, Need
from clearhead.interop.huggingface.rules import Rule, Spelling
from clearhead.interop.huggingface.shared import NO_OUTPUT_BIAS


def _pad_id(config: ModelConfig) -> int:
    """Return the id of padding. transformers sets its row to zero, in a table of max_length + 2
    rows."""
    pad_id = config.pad_id or 0
    return pad_id if pad_id < config.max_length + 2 else 0


def _form(config: ModelConfig) -> dict[str, Any]:
    return {
        **bart_like.form(config),
        **bart_like.all_shared_or_none(config),
        "position_pairs": "halves",
    }


def _rules(config: ModelConfig) -> Iterator[Rule]:
    yield from bart_like.one_table_or_three(config)
    yield from bart_like.layers(config)
    yield from bart_like.final_norms()


def _read_more(_: Keys, options: dict[str, Any]) -> dict[str, Any]:
    pad_id = options["pad_id"]
    return {
        "target_vocab_size": None if options["tie_output"] else options["vocab_size"],
        "first_position": pad_id + 1 if isinstance(pad_id, int) else 0,
    }


M2M100 = HuggingFaceFamily(
    name="M2M100",
    model_type="m2m_100",
    architecture="M2M100ForConditionalGeneration",
    needs=(
        *bart_like.NEEDS,
        Need("norm_placement", ("pre",)),
        *bart_like.PUBLISHED_SINUSOID,
        Need("position_spacing", ("closed",)),
        Need("pad_id", lambda c: (_pad_id(c),), "< max_length + 2"),
        Need("first_position", lambda c: (_pad_id(c) + 1,), "pad_id + 1"),
        Need("target_vocab_size", lambda c: (None, c.vocab_size), "None, vocab_size"),
        NO_OUTPUT_BIAS,
    ),
    settings=bart_like.settings(
        vocab_size=128112, activates_by="relu", scales=True, p_attention_dropout=0.1
    ),
    read_more=_read_more,
    fixed={"is_encoder_decoder": True},
    pads_have_positions=False,
    also=bart_like.ALSO,
    harmless=bart_like.HARMLESS | {"is_decoder"},
    ids={
        "bos_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 1,
        "decoder_start_token_id": 2,
    },
    form=_form,
    rules=_rules,
    spelling=Spelling(
        prefix="model.", left_out=(r"model\.(en|de)coder\.embed_positions\.weights",)
    ),
)
