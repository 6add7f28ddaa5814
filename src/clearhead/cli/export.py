"""Writes a model for other software, and compares that software's logits with clearhead's."""

import argparse
from pathlib import Path

from clearhead.api.exporting import EXPORTS, export, refuse_swapped, why_no_tokenizer
from clearhead.api.loading import find_model
from clearhead.cli.calling import settings
from clearhead.cli.options import add_options
from clearhead.cli.progress import add_quiet, showing_stages
from clearhead.config.tasks import ExportOptions
from clearhead.interop.huggingface.families import table_of_families

CALLS = export


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="a run, a model folder, or the name of a shipped model")
    parser.add_argument("out", type=Path, help="the folder to write; it must not exist")
    parser.add_argument(
        "--to",
        choices=list(EXPORTS),
        required=True,
        help="format; ctranslate2 is for models that generate, and needs the extra `serve`; "
        "onnx is for browsers and other runtimes, and web is a page in which the model runs; onnx "
        "and web need the extra `onnx`",
    )
    parser.add_argument(
        "--table",
        action=_ShowTable,
        nargs=0,
        help="only print which options each Hugging Face family supports",
    )
    add_options(parser, ExportOptions)
    add_quiet(parser)


def run(namespace: argparse.Namespace) -> int:
    refuse_swapped(namespace.model, namespace.out)
    model, out = find_model(namespace.model), namespace.out
    with showing_stages(namespace):
        certificate = export(model, out, **settings(namespace, export))
    print(*certificate.lines(out), sep="\n")
    if namespace.to == "web" and namespace.single_file:
        print(f"look at   it: open {out / 'index.html'} in a browser")
    elif namespace.to == "web":
        print(f"look at   it: python -m http.server --bind 127.0.0.1 --directory {out}")
    elif reason := why_no_tokenizer(model, out):
        print(f"missing   a tokenizer: {reason}")
    return 0


class _ShowTable(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(table_of_families())
        parser.exit()
