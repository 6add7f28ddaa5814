"""Finds the line at which a port of a Transformer departs from its reference,
and the change that makes the two agree."""

import argparse
import contextlib
import io
import sys

from clearhead.api.doctor_diff import diff
from clearhead.cli.calling import settings
from clearhead.cli.console import TextConsole
from clearhead.doctor.diff.page import as_html
from clearhead.doctor.diff.terminal import as_renderable
from clearhead.doctor.options import add_diff_options
from clearhead.files import write_whole

CALLS = diff


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_diff_options(
        parser,
        "FILE.py:NAME, which is run (only name a file that you trust): NAME is a model or a "
        "function that returns one, with its weights; or a run, the folder of a clearhead or "
        "Hugging Face model",
    )


def run(arguments: argparse.Namespace) -> int:
    # The models' own code may print; that must not get into the report.
    with contextlib.redirect_stdout(io.StringIO() if arguments.json else sys.stderr):
        report = diff(arguments.reference, arguments.port, **settings(arguments, diff))
    if arguments.html is not None:
        write_whole(arguments.html, as_html(report, arguments.language))
    if arguments.json:
        print(report.to_json(arguments.language))
    else:
        TextConsole().print(as_renderable(report, arguments.language))
    return 1 if report.fails() else 0
