"""The options that `translate`, `generate` and `evaluate` share: beam search, batches, engine.
Their defaults are those of the API."""

import argparse
from pathlib import Path

from clearhead.cli.lines import at_least_one


def add_search_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of beam search."""
    parser.add_argument(
        "--beam",
        type=at_least_one,
        metavar="N",
        help="width of the beam search (default: %(default)s; 1 is greedy)",
    )
    parser.add_argument(
        "--length-penalty",
        choices=["none", "average", "gnmt"],
        metavar="KIND",
        help="how the length of a hypothesis changes its score: none, average, gnmt (default: "
        "%(default)s)",
    )
    parser.add_argument(
        "--alpha",
        type=float,
        metavar="A",
        help="strength of the length penalty (default: %(default)s)",
    )
    add_max_new_argument(parser)
    add_batch_argument(parser)


def add_max_new_argument(parser: argparse.ArgumentParser) -> None:
    """The most tokens of an output."""
    parser.add_argument(
        "--max-new",
        type=at_least_one,
        metavar="N",
        help="most tokens to generate for each line (default: %(default)s)",
    )


def add_batch_argument(parser: argparse.ArgumentParser) -> None:
    """How many lines are processed together."""
    parser.add_argument(
        "--batch",
        type=at_least_one,
        metavar="N",
        help="lines that are processed together (default: %(default)s)",
    )


def add_start_argument(parser: argparse._ActionsContainer, what: str) -> None:
    """The token before each text; `what` explains it."""
    what += "; auto: what the model folder records, as in training (default: %(default)s)"
    parser.add_argument("--start", choices=["auto", "none", "bos", "eos"], help=what)


def add_engine_arguments(parser: argparse.ArgumentParser) -> None:
    """What runs the model."""
    group = parser.add_argument_group("engine")
    group.add_argument(
        "--engine",
        choices=["clearhead", "ctranslate2"],
        help="what runs the model: clearhead (the model itself), or ctranslate2, which is faster "
        "and needs the extra `serve` (default: %(default)s)",
    )
    group.add_argument(
        "--precision",
        choices=["float32", "int8"],
        help="of the weights in ctranslate2 (default: %(default)s)",
    )
    group.add_argument(
        "--engine-folder",
        type=Path,
        metavar="FOLDER",
        help="where the models for ctranslate2 are stored (default: the cache directory)",
    )
