"""Turns a Hugging Face folder into a clearhead model folder. No code in the folder is run."""

import argparse
from pathlib import Path

from clearhead.api.loading import facts_of_folder, import_model
from clearhead.interop.tokenizer_file import TOKENIZER

CALLS = import_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="a Hugging Face folder: config.json, safetensors")
    parser.add_argument("out", type=Path, help="the folder to write; it must not exist")


def run(namespace: argparse.Namespace) -> int:
    out = import_model(namespace.folder, namespace.out).folder
    facts = facts_of_folder(out)
    print(f"wrote     {out}: {facts.family}, {facts.n_parameters:,} parameters")
    if not facts.has_tokenizer:
        print(f"without   a tokenizer: {namespace.folder} has no {TOKENIZER}")
    return 0
