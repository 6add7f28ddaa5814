"""Writes the files that `AutoTokenizer` and `generate` need besides `tokenizer.json`."""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from clearhead.config import BeamConfig, ModelConfig
from clearhead.interop.folders import MAX_JSON_BYTES, read_json, write_json
from clearhead.interop.labels import read_labels
from clearhead.interop.model_folder import Description
from clearhead.interop.tokenizer_file import (
    TOKENIZER,
    added_by_itself,
    copy_tokenizer,
    has_tokenizer,
    open_tokenizer,
)

MASKS = ("<mask>", "[MASK]")


def write_generation(out: Path, description: Description, **search: Any) -> None:
    """Write `generation_config.json`: where texts start and stop, and how they are searched for in
    transformers."""
    config, ids = description.model, description.ids
    generation = {f"{role}_token_id": index for role, index in _starts_and_stops(description)}
    if config.family == "encoder-decoder":
        generation["decoder_start_token_id"] = ids.decoder_start
    generation["max_length"] = config.max_length
    write_json(out, "generation_config.json", generation | search)


def write_tokenizer(model_folder: Path, out: Path, description: Description) -> None:
    """Write the tokenizer's files, if the model has a tokenizer."""
    config = description.model
    if not has_tokenizer(model_folder):
        return
    copy_tokenizer(model_folder, out, config)
    tokenizer = open_tokenizer(model_folder)
    named: dict[str, str] = {}
    for role, index in _starts_and_stops(description):
        token = None if index is None else tokenizer.id_to_token(index)
        if token is not None:
            named[f"{role}_token"] = token
    if config.family == "encoder" and (mask := _mask(model_folder, config, tokenizer)) is not None:
        named["mask_token"] = mask
    added = added_here(model_folder, description, tokenizer)
    if config.family == "encoder" and list(map(len, added)) == [1, 1]:  # as BERT has it
        for role, (index,) in zip(("cls", "sep"), added):
            named[f"{role}_token"] = str(tokenizer.id_to_token(index))
        unknown = read_json(out, TOKENIZER, most=MAX_JSON_BYTES).get("model", {}).get("unk_token")
        if isinstance(unknown, str) and tokenizer.token_to_id(unknown) is not None:
            named["unk_token"] = unknown
    _rewrite(out, tokenizer, added, named.get("mask_token"))
    segments = ["token_type_ids"] if config.n_segments > 1 else []
    write_json(out, "special_tokens_map.json", named)
    write_json(
        out,
        "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": config.max_length,
            # A decoder continues from the last token, which must not be padding.
            "padding_side": "left" if config.family == "decoder" else "right",
            "clean_up_tokenization_spaces": False,
            # The characters "<eos>" in a text are text and do not end it; "<mask>" is to be filled
            # in.
            "split_special_tokens": "mask_token" not in named,
            "model_input_names": ["input_ids", *segments, "attention_mask"],
            **named,
        },
    )


def _mask(folder: Path, config: ModelConfig, tokenizer: Tokenizer) -> str | None:
    """Return the token that stands for a token to fill in."""
    if (labels := read_labels(folder, config)) is not None:
        return None if labels.mask is None else tokenizer.id_to_token(labels.mask)
    return next((mask for mask in MASKS if tokenizer.token_to_id(mask) is not None), None)


def _starts_and_stops(description: Description) -> list[tuple[str, int | None]]:
    ids = description.ids
    return [("bos", ids.bos), ("eos", ids.eos), ("pad", description.model.pad_id)]


def search_as_here(config: ModelConfig) -> dict[str, Any]:
    """Return settings with which transformers searches as `clearhead translate` does by default."""
    if config.family != "encoder-decoder":
        return {}
    beam = BeamConfig()
    # the meaning of transformers' setting
    assert beam.length_penalty == "average" and beam.patience == 1.0
    return {"num_beams": beam.width, "length_penalty": beam.alpha, "early_stopping": True}


def added_here(
    folder: Path, description: Description, tokenizer: Tokenizer
) -> tuple[list[int], list[int]]:
    """Return the tokens that clearhead adds before and after a text. Its texts end in <eos>.
    Prompts may begin with <bos>, and so do texts for a head over the first token. An imported
    encoder without labels keeps what its tokenizer adds."""
    start, end = description.ids.prompt_start, description.ids.eos
    if description.model.labels:
        first = description.ids.bos
        return [] if first is None else [first], [] if end is None else [end]
    if description.model.family == "decoder":
        return [] if start is None else [start], []
    by_itself = added_by_itself(tokenizer)
    is_encoder = description.model.family == "encoder"
    if is_encoder and by_itself != ([], []) and read_labels(folder, description.model) is None:
        return by_itself
    return [], [] if end is None else [end]


def _rewrite(
    folder: Path, tokenizer: Tokenizer, added: tuple[list[int], list[int]], mask: str | None
) -> None:
    """Rewrite `tokenizer.json` so that it gives the ids that the model reads here: with the tokens
    that clearhead adds, and without the space before a mask, which belongs to the hidden token."""
    before: dict[str, Any] = read_json(folder, TOKENIZER, most=MAX_JSON_BYTES)
    content = dict(before)
    if added != added_by_itself(tokenizer):
        content["post_processor"] = _template(tokenizer, *added)
    if mask is not None:
        content["added_tokens"] = [
            {**token, "lstrip": token.get("lstrip", False) or token["content"] == mask}
            for token in before.get("added_tokens") or []
        ]
    if content != before:
        write_json(folder, TOKENIZER, content)


def _template(tokenizer: Tokenizer, before: list[int], behind: list[int]) -> dict[str, Any] | None:
    """Return the template in `tokenizer.json`, because clearhead adds these tokens to the ids
    outside the tokenizer."""
    names = {index: tokenizer.id_to_token(index) for index in before + behind}
    if not names or None in names.values():
        return None
    first, last = (
        [{"SpecialToken": {"id": names[index], "type_id": 0}} for index in ids]
        for ids in (before, behind)
    )
    text, second_text = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    return {
        "type": "TemplateProcessing",
        "single": [*first, text, *last],
        "pair": [*first, text, second_text, *last],
        "special_tokens": {
            name: {"id": name, "ids": [index], "tokens": [name]} for index, name in names.items()
        },
    }
