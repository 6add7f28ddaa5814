"""How texts are searched for, and by which engine: the options that `translate`, `generate` and
`evaluate` share. Their defaults are those of the API."""

import argparse
from pathlib import Path

from clearhead.cli.lines import at_least_one


def add_search_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--beam", type=at_least_one, metavar="N", help="width (default 4; 1 is greedy)"
    )
    parser.add_argument(
        "--length-penalty",
        choices=["none", "average", "gnmt"],
        metavar="KIND",
        help="how long and short beams are compared: none, average (default), gnmt",
    )
    parser.add_argument(
        "--alpha", type=float, metavar="A", help="strength of the penalty (default 1)"
    )
    parser.add_argument("--max-new", type=at_least_one, metavar="N", help="tokens (default 256)")
    add_batch_argument(parser)


def add_batch_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--batch", type=at_least_one, metavar="N", help="lines that run side by side"
    )


def add_start_argument(parser: argparse._ActionsContainer, what: str) -> None:
    parser.add_argument("--start", choices=["none", "bos", "eos"], help=what)


def add_engine_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the engine")
    group.add_argument(
        "--engine",
        choices=["clearhead", "ctranslate2"],
        help="clearhead, the model itself (default), or ctranslate2, the faster (extra `serve`)",
    )
    group.add_argument(
        "--precision",
        choices=["float32", "int8"],
        help="of ctranslate2's weights (default float32)",
    )
    group.add_argument(
        "--engine-folder",
        type=Path,
        metavar="FOLDER",
        help="where ctranslate2's folders are kept (default: the cache directory)",
    )
