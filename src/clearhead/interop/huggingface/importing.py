"""Imports a Hugging Face folder, which is untrusted input, into a model folder. Nothing in it is
executed: `config.json` is read key by key, and only safetensors are accepted as weights."""

import logging
from dataclasses import replace
from pathlib import Path

from clearhead.config import ModelConfig
from clearhead.errors import FolderError
from clearhead.interop.folders import read_json, refuse_address, whole_or_absent
from clearhead.interop.huggingface.families import family_of
from clearhead.interop.huggingface.own_ids import with_own_ids
from clearhead.interop.huggingface.rules import HuggingFaceTensors
from clearhead.interop.labels import copy_labels
from clearhead.interop.model_folder import (
    CONFIG,
    FORMAT,
    Description,
    TokenIds,
    check_plausible,
    shapes_of,
    write_description,
)
from clearhead.interop.tensor_files import MAX_SHARD_BYTES, TensorFiles, write_tensors
from clearhead.interop.tokenizer_file import (
    added_by_itself,
    copy_tokenizer,
    has_tokenizer,
    open_tokenizer,
)

_log = logging.getLogger(__name__)


def import_model(folder: Path, out: Path, *, max_shard_bytes: int = MAX_SHARD_BYTES) -> Description:
    """Write a model folder that computes what the Hugging Face folder computes. Weights keep their
    dtype, and only one shard is in memory at a time."""
    refuse_address(folder)
    if not folder.is_dir():
        wrong = "is a file" if folder.exists() else "is not there"
        remedy = "name the Hugging Face folder, with config.json and safetensors"
        if len(folder.parts) == 2 and not folder.exists():
            remedy += (
                f" (a model of the hub is downloaded first: hf download {folder} --local-dir …)"
            )
        raise FolderError(f"{folder} {wrong}; {remedy}")
    content = read_json(folder, CONFIG)
    if content.get("format") == FORMAT:
        raise FolderError(f"{folder} is already a model folder; every command opens it as it is")
    family = family_of(content)
    config, ids = family.read_config(content)
    ids = with_own_ids(folder, ids, config)
    with TensorFiles(folder) as files:
        check_plausible(config, files)
        theirs = HuggingFaceTensors(files, family.rules(config), shapes_of(config), family.spelling)
        config = family.settle(config, theirs.read_ours)
        kept = shapes_of(config)
        with whole_or_absent(out) as unfinished:
            write_tensors(
                unfinished,
                theirs.pieces(kept),
                dtype=theirs.dtype,
                max_shard_bytes=max_shard_bytes,
            )
            copy_tokenizer(folder, unfinished, config)
            copy_labels(folder, unfinished, config)
            if has_tokenizer(unfinished):
                ids = _as_their_tokenizer_starts(unfinished, config, ids)
                if config.pad_id is not None and config.pad_id == ids.prompt_start:
                    # the start token of a text is no padding here
                    config = replace(config, pad_id=None)
            description = Description(model=config, ids=ids)
            write_description(unfinished, description)
    return description


def _as_their_tokenizer_starts(folder: Path, config: ModelConfig, ids: TokenIds) -> TokenIds:
    """If the tokenizer begins every text with one token, let the prompts of a language model and
    the texts of a classifier begin with it. Other tokens that the tokenizer adds are named in a
    warning."""
    tokenizer = open_tokenizer(folder)
    before, behind = added_by_itself(tokenizer)
    if config.labels:
        if len(before) != 1 or len(behind) != 1:
            raise FolderError(
                f"in Hugging Face the tokenizer puts {len(before)} tokens before a text and "
                f"{len(behind)} after it, and a classifier here has one of each; give its "
                "tokenizer.json such a post_processor"
            )
        return replace(ids, bos=before[0], eos=behind[0])
    if config.family == "decoder" and len(before) == 1 and before[0] < config.vocab_size:
        ids, before = replace(ids, prompt_start=before[0]), []
    if config.family != "decoder" and behind[:1] == [ids.eos]:  # which clearhead adds too
        behind = behind[1:]
    if before or behind:
        _log.warning(
            "in Hugging Face the tokenizer adds %s to every text, and clearhead does not; a model "
            "that needs this must be given ids from Python",
            " and ".join(tokenizer.id_to_token(token) or str(token) for token in before + behind),
        )
    return ids
