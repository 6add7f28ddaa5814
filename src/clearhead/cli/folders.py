"""Adds the arguments of every command that takes a model, and opens the model."""

import argparse
from pathlib import Path
from typing import Any

from clearhead.api.loading import load
from clearhead.api.text_model import TextModel
from clearhead.cli.calling import add_part_argument, parts


def add_folder(parser: argparse.ArgumentParser, *, needed: bool = True) -> None:
    """Adds the argument for the model, and the option for the user's own parts."""
    what = "a run, a model folder, or the name of a shipped model"
    parser.add_argument("model", type=Path, nargs=None if needed else "?", help=what)
    add_part_argument(parser)


def open_model(namespace: argparse.Namespace) -> TextModel:
    """Open the model that the command line names, with the given parts."""
    own: dict[str, Any] = dict(parts(namespace))
    return load(namespace.model, **own)
