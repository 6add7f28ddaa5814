"""Reads a Hugging Face folder into a new model folder. Nothing in it is executed."""

import argparse
from pathlib import Path

from clearhead.interop.huggingface.importing import import_model
from clearhead.interop.tokenizer_file import TOKENIZER, has_tokenizer
from clearhead.models import build_model, count_parameters


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="config.json and safetensors")
    parser.add_argument("out", type=Path, help="the new model folder")


def run(arguments: argparse.Namespace) -> int:
    config = import_model(arguments.folder, arguments.out).model
    count = count_parameters(build_model(config, device="meta"))
    print(f"wrote     {arguments.out}: {config.family}, {count.total:,} parameters")
    if not has_tokenizer(arguments.out):
        print(f"without   a tokenizer: {arguments.folder} has no {TOKENIZER}")
    return 0
