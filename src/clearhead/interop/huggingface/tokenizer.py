"""The tokenizer goes along: what `AutoTokenizer` and `generate` ask for beside `tokenizer.json`."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from clearhead.errors import FolderError
from clearhead.interop.folders import has_file, read_json, write_json
from clearhead.interop.model_folder import TOKENIZER, Description


def write_tokenizer(model_folder: Path, out: Path, description: Description) -> None:
    """`generation_config.json` always; the tokenizer's files where the model has a tokenizer."""
    config, ids = description.model, description.ids
    starts_and_stops = {"bos": ids.bos, "eos": ids.eos, "pad": config.pad_id}
    generation = {f"{role}_token_id": index for role, index in starts_and_stops.items()}
    if config.family == "encoder-decoder":
        generation["decoder_start_token_id"] = ids.decoder_start
    write_json(out, "generation_config.json", {"max_length": config.max_length, **generation})
    if not has_file(model_folder, TOKENIZER):
        return
    content = read_json(model_folder, TOKENIZER)
    tokenizer = open_tokenizer(content, model_folder)
    named = {
        f"{role}_token": tokenizer.id_to_token(index)
        for role, index in starts_and_stops.items()
        if index is not None and tokenizer.id_to_token(index) is not None
    }
    if config.family == "encoder-decoder" and content.get("post_processor") is None:
        content["post_processor"] = _ended_by(named.get("eos_token"), ids.eos)
    write_json(out, TOKENIZER, content)
    write_json(out, "special_tokens_map.json", named)
    write_json(
        out,
        "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": config.max_length,
            # A decoder goes on from the last token, which must not be padding.
            "padding_side": "left" if config.family == "decoder" else "right",
            "clean_up_tokenization_spaces": False,
            # The characters of "<eos>" in a text are text, and end nothing.
            "split_special_tokens": True,
            "model_input_names": ["input_ids", "attention_mask"],
            **named,
        },
    )


def open_tokenizer(content: dict[str, Any], folder: Path) -> Tokenizer:
    """As our own text room reads it."""
    try:
        tokenizer = Tokenizer.from_str(json.dumps(content))
    except Exception as error:  # the library raises nothing narrower
        raise FolderError(f"{folder / TOKENIZER} is not a tokenizer ({error}); damaged?") from None
    tokenizer.encode_special_tokens = True
    return tokenizer


def _ended_by(token: str | None, index: int | None) -> dict[str, Any] | None:
    """Our sources end in <eos>, which we add to the ids and not in the tokenizer."""
    if token is None or index is None:
        return None
    text, end = (
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": token, "type_id": 0}},
    )
    return {
        "type": "TemplateProcessing",
        "single": [text, end],
        "pair": [text, {"Sequence": {"id": "B", "type_id": 0}}, end],
        "special_tokens": {token: {"id": token, "ids": [index], "tokens": [token]}},
    }
