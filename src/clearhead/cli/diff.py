"""Finds the line at which a port of a Transformer departs from its reference,
and the change that makes the two agree."""

import argparse
import contextlib
import io
import sys
from pathlib import Path

from clearhead.api.comparing import diff
from clearhead.cli.calling import settings
from clearhead.cli.console import TextConsole
from clearhead.doctor.diff.page import as_html
from clearhead.doctor.diff.terminal import as_renderable
from clearhead.doctor.patient import KINDS
from clearhead.doctor.texts import LANGUAGES
from clearhead.files import write_whole

CALLS = diff
_WHAT = (
    "FILE.py:NAME, which is run (only name a file that you trust): NAME is a model or a function "
    "that returns one, with its weights; or a run, the folder of a clearhead or Hugging Face model"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "examples:\n"
        "  clearhead diff gpt2-folder my_port.py:build\n"
        "  clearhead diff reference.py:build port.py:build --html report.html\n\n"
        "FILE.py may define `calls = Calls(...)` for a model with an unusual signature.\n"
        "The exit code is 0 if the two compute the same, 1 if the port departs,\n"
        "2 if a model cannot be opened or called."
    )
    parser.add_argument("reference", help=_WHAT)
    parser.add_argument("port", help="the same, for the model that should compute the same")
    parser.add_argument("--kind", choices=KINDS, help="needed unless one of the models says it")
    parser.add_argument("--vocab-size", type=int, help="needed unless the models say it")
    parser.add_argument("--pad-id", type=int, help="the token that is padding")
    parser.add_argument(
        "--copy-weights",
        action="store_true",
        help="copy the reference's weights, if the two have none in common and shapes determine "
        "which goes where",
    )
    parser.add_argument(
        "--no-steps", dest="steps", action="store_false", help="leave out the cache"
    )
    parser.add_argument(
        "--seed", type=int, help="seed of all random numbers (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, help="bound of the search for lines (default: %(default)s)"
    )
    parser.add_argument(
        "--language", choices=LANGUAGES, help="language of the report (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON, and only it")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write the report as a page")


def run(arguments: argparse.Namespace) -> int:
    # What the models' own code prints is not the report.
    with contextlib.redirect_stdout(io.StringIO() if arguments.json else sys.stderr):
        report = diff(arguments.reference, arguments.port, **settings(arguments, diff))
    if arguments.html is not None:
        write_whole(arguments.html, as_html(report, arguments.language))
    if arguments.json:
        print(report.to_json(arguments.language))
    else:
        TextConsole().print(as_renderable(report, arguments.language))
    return 1 if report.fails() else 0
