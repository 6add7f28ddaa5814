"""Shows what a model does with one text: attention, layers, candidates, the beam search, and every
tensor's shape. With --html, it writes a page that needs no network; otherwise, it prints a
summary."""

import argparse
from pathlib import Path

from clearhead.api.microscope import see
from clearhead.cli.calling import settings
from clearhead.cli.folders import add_folder, open_model
from clearhead.cli.lines import at_least_one
from clearhead.cli.options import add_options
from clearhead.config.options import SeeOptions

CALLS = see


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_folder(parser)
    parser.add_argument("text", help="the text that the model reads")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the page to this file")
    add_options(
        parser,
        SeeOptions,
        types={"beam": at_least_one, "max_new": at_least_one},
        metavars={"target": "TEXT", "temperature": "T"},
    )


def run(arguments: argparse.Namespace) -> int:
    seen = see(open_model(arguments), arguments.text, **settings(arguments, see))
    if arguments.html is None:
        print(seen)
        print("The whole picture: the same command with --html FILE.html")
        return 0
    size = seen.save(arguments.html).stat().st_size
    print(f"wrote {arguments.html} ({size / 1000:,.0f} kB); open it in a browser, online or not")
    return 0
