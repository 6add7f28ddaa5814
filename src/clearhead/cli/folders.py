"""What every verb that takes a model shares."""

import argparse
from pathlib import Path

from clearhead.api.loading import load
from clearhead.api.text_model import TextModel
from clearhead.cli.calling import add_part_argument, parts


def add_folder(parser: argparse.ArgumentParser, *, needed: bool = True) -> None:
    what = "a run, a model folder, or the name of a shipped model"
    parser.add_argument("model", type=Path, nargs=None if needed else "?", help=what)
    add_part_argument(parser)


def open_model(namespace: argparse.Namespace) -> TextModel:
    return load(namespace.model, **parts(namespace))
