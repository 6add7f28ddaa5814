"""Handles `clearhead.json` in an exported folder, which holds what a model folder says about its
texts and a Hugging Face `config.json` cannot express. An import reads it, so that a model comes
back unchanged."""

from dataclasses import asdict
from pathlib import Path

from clearhead.config import ModelConfig
from clearhead.interop.folders import has_file, read_json, write_json
from clearhead.interop.model_folder import TokenIds, token_ids

OWN = "clearhead.json"
NAMES = ("target_start", "prompt_start", "strip")


def write_own_ids(folder: Path, ids: TokenIds) -> None:
    """Write the file, if there is something to say."""
    own = {name: getattr(ids, name) for name in NAMES}
    if own != {name: getattr(TokenIds(), name) for name in NAMES}:
        write_json(folder, OWN, own)


def with_own_ids(folder: Path, ids: TokenIds, config: ModelConfig) -> TokenIds:
    """Return the ids of an untrusted folder, with those that its `clearhead.json` adds."""
    if not has_file(folder, OWN):
        return ids
    content = read_json(folder, OWN)
    own = {name: content[name] for name in NAMES if name in content}
    return token_ids(asdict(ids) | own, config)
