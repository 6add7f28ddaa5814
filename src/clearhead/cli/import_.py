"""Turns a Hugging Face folder into a clearhead model folder. No code in the folder is run."""

import argparse
from pathlib import Path

from clearhead.api.loading import import_model
from clearhead.interop.model_folder import read_description
from clearhead.interop.tokenizer_file import TOKENIZER, has_tokenizer
from clearhead.models import build_model, count_parameters

CALLS = import_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="a Hugging Face folder: config.json, safetensors")
    parser.add_argument("out", type=Path, help="the folder to write; it must not exist")


def run(namespace: argparse.Namespace) -> int:
    out = import_model(namespace.folder, namespace.out).folder
    config = read_description(out).model
    count = count_parameters(build_model(config, device="meta"))
    print(f"wrote     {out}: {config.family}, {count.total:,} parameters")
    if not has_tokenizer(out):
        print(f"without   a tokenizer: {namespace.folder} has no {TOKENIZER}")
    return 0
