"""Writes a model folder as one that other software opens, and proves that both compute the same."""

import argparse
from pathlib import Path

from clearhead.cli.folders import model_folder
from clearhead.interop.huggingface.exporting import export_model
from clearhead.interop.huggingface.families import table_of_families


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="a run, or any model folder")
    parser.add_argument("out", type=Path, help="the new folder")
    parser.add_argument("--to", choices=["huggingface"], required=True, help="whose format")
    parser.add_argument(
        "--table",
        action=_ShowTable,
        nargs=0,
        help="show which options go to which family there, and stop",
    )
    parser.add_argument(
        "--no-check",
        action="store_true",
        help="leave out the comparison, which needs the memory of the model in fp64",
    )


def run(arguments: argparse.Namespace) -> int:
    certificate = export_model(
        model_folder(arguments.model), arguments.out, check=not arguments.no_check
    )
    print(*certificate.lines(arguments.out), sep="\n")
    return 0


class _ShowTable(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(table_of_families())
        parser.exit()
