"""Writes a model folder as one that other software opens, and compares what both compute."""

import argparse
from pathlib import Path

from clearhead.api.exporting import EXPORTS, export
from clearhead.api.loading import find_model
from clearhead.cli.calling import settings
from clearhead.decoding.opening import model_folder
from clearhead.interop.folders import has_file
from clearhead.interop.huggingface.families import table_of_families
from clearhead.interop.tokenizer_file import SOURCE, has_tokenizer

CALLS = export


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="a run, a model folder, or the name of a shipped model")
    parser.add_argument("out", type=Path, help="the new folder")
    parser.add_argument(
        "--to",
        choices=list(EXPORTS),
        required=True,
        help="whose format; ctranslate2 is for models that generate, and needs the extra serve",
    )
    parser.add_argument(
        "--table",
        action=_ShowTable,
        nargs=0,
        help="show which options go to which Hugging Face family, and stop",
    )
    parser.add_argument(
        "--no-check",
        dest="check",
        action="store_false",
        help="leave out the comparison, which needs the memory of the model in fp64",
    )


def run(namespace: argparse.Namespace) -> int:
    model, out = find_model(namespace.model), namespace.out
    certificate = export(model, out, to=namespace.to, **settings(namespace, export))
    print(*certificate.lines(out), sep="\n")
    if not (has_tokenizer(out) or has_file(out, SOURCE)):
        print(f"missing   a tokenizer: {_why_no_tokenizer(model_folder(model.folder))}")
    return 0


def _why_no_tokenizer(model: Path) -> str:
    if has_file(model, SOURCE):
        return (
            "the two sides have one each, and that format holds one; "
            f'{model} keeps both (data.vocabularies = "shared" makes one)'
        )
    return f"{model} has none"


class _ShowTable(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(table_of_families())
        parser.exit()
