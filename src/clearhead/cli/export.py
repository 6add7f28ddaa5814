"""Writes a model folder as one that other software opens, and proves that both compute the same."""

import argparse
from pathlib import Path

from clearhead.cli.folders import model_folder
from clearhead.interop.ctranslate2.exporting import export_ctranslate2
from clearhead.interop.folders import has_file
from clearhead.interop.huggingface.exporting import export_model
from clearhead.interop.huggingface.families import table_of_families
from clearhead.interop.tokenizer_file import SOURCE, has_tokenizer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="a run, or any model folder")
    parser.add_argument("out", type=Path, help="the new folder")
    parser.add_argument(
        "--to",
        choices=["huggingface", "ctranslate2"],
        required=True,
        help="whose format; ctranslate2 is for models that write, and needs the extra serve",
    )
    parser.add_argument(
        "--table",
        action=_ShowTable,
        nargs=0,
        help="show which options go to which Hugging Face family, and stop",
    )
    parser.add_argument(
        "--no-check",
        action="store_true",
        help="leave out the comparison, which needs the memory of the model in fp64",
    )


def run(arguments: argparse.Namespace) -> int:
    model = model_folder(arguments.model)
    export = {"huggingface": export_model, "ctranslate2": export_ctranslate2}[arguments.to]
    certificate = export(model, arguments.out, check=not arguments.no_check)
    print(*certificate.lines(arguments.out), sep="\n")
    if not (has_tokenizer(arguments.out) or has_file(arguments.out, SOURCE)):
        print(f"missing   a tokenizer: {_why_no_tokenizer(model)}")
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
