"""The options that `translate`, `generate` and `evaluate` share: beam search, batches, engine."""

import argparse

from clearhead.cli.lines import at_least_one
from clearhead.cli.options import add_options
from clearhead.config.options import EngineOptions, SearchOptions


def add_search_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of beam search."""
    names = ("beam", "length_penalty", "alpha", "max_new", "batch")
    types = {"beam": at_least_one, "max_new": at_least_one, "batch": at_least_one}
    add_options(parser, SearchOptions, *names, types=types, metavars={"length_penalty": "KIND"})


def add_engine_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the engine that runs the model."""
    add_options(parser.add_argument_group("engine"), EngineOptions)
