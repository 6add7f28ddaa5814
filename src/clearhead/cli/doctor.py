"""Finds what is silently wrong in any Transformer,
and says why, where and how to fix it."""

import argparse
import sys
from dataclasses import replace

from clearhead.api.examining import examine
from clearhead.cli.calling import add_part_argument, settings
from clearhead.cli.console import TextConsole
from clearhead.cli.folders import open_model
from clearhead.doctor.options import add_examine_options
from clearhead.doctor.page import as_html
from clearhead.doctor.printing import captured
from clearhead.doctor.terminal import as_renderable
from clearhead.files import write_whole

CALLS = examine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_examine_options(
        parser,
        "FILE.py:NAME, which is run (only name a file that you trust): NAME is a model or a "
        "function that returns one; or a run, the folder of a clearhead or Hugging Face model, or "
        "the name of a shipped model",
    )
    add_part_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    with captured() as printed:
        try:
            # Only a clearhead folder can need parts; other models bring their own.
            model = open_model(arguments) if arguments.part else arguments.model
            report = examine(model, **settings(arguments, examine))
        except Exception:
            if printed.tail:  # what the model printed may say why it was not built
                print(printed.tail, file=sys.stderr)
            raise
    report = replace(report, n_printed=report.n_printed + printed.n_lines)
    if arguments.html is not None:
        write_whole(arguments.html, as_html(report, arguments.language))
    if arguments.json:
        print(report.to_json(arguments.language))
    else:
        TextConsole().print(as_renderable(report, arguments.language, notes=arguments.notes))
    return report.exit_code(arguments.fail_on, strict=arguments.strict)
