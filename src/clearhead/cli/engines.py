"""Which engine a verb runs on: what `translate`, `generate` and `evaluate` share."""

import argparse
from pathlib import Path

from clearhead.cli.folders import Opened
from clearhead.decoding.cached import GenerativeModel
from clearhead.decoding.engine import CTranslate2Engine, Engine, OwnEngine, check_engine


def add_engine_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the engine")
    group.add_argument(
        "--engine",
        choices=["clearhead", "ctranslate2"],
        default="clearhead",
        help="clearhead, the model itself (default), or ctranslate2, the faster (extra `serve`)",
    )
    group.add_argument(
        "--precision",
        choices=["float32", "int8"],
        default="float32",
        help="of ctranslate2's weights (default float32)",
    )
    group.add_argument(
        "--engine-folder",
        type=Path,
        metavar="FOLDER",
        help="where ctranslate2's folders are kept (default: the cache directory)",
    )


def engine_of(arguments: argparse.Namespace, opened: Opened, model: GenerativeModel) -> Engine:
    check_engine(arguments.engine, arguments.precision)
    if arguments.engine == "clearhead":
        return OwnEngine(model)
    return CTranslate2Engine(
        opened.folder, precision=arguments.precision, folder=arguments.engine_folder
    )
