"""Shows one run of a model from inside: attention, layers, candidates, the beam search, and every
tensor's shape. With --html: a page that needs no network; without: a summary in the terminal."""

import argparse
from pathlib import Path

from clearhead.api.seeing import see
from clearhead.cli.calling import settings
from clearhead.cli.folders import add_folder, open_model
from clearhead.cli.lines import at_least_one
from clearhead.inspection.seeing import PAGE_LANGUAGES

CALLS = see


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_folder(parser)
    parser.add_argument("text", help="what the model is given")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the page to this file")
    parser.add_argument(
        "--target", metavar="TEXT", help="show the model this translation instead of its own"
    )
    parser.add_argument(
        "--beam",
        type=at_least_one,
        metavar="N",
        help="width of the beam search (default: 4 for an encoder-decoder, 1, which is greedy, for "
        "a decoder)",
    )
    parser.add_argument(
        "--max-new",
        type=at_least_one,
        metavar="N",
        help="tokens to generate (default: 64 for an encoder-decoder, 32 for a decoder)",
    )
    parser.add_argument(
        "--temperature",
        type=float,
        metavar="T",
        help="above 0: sample the tokens (default: %(default)g)",
    )
    parser.add_argument("--seed", type=int, help="seed of the sampling (default: %(default)s)")
    parser.add_argument(
        "--language", choices=PAGE_LANGUAGES, help="language of the page (default: %(default)s)"
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
