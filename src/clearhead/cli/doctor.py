"""Finds what is silently wrong in any Transformer,
and says why, where and how to fix it."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from clearhead.api.examining import examine
from clearhead.cli.calling import add_part_argument, settings
from clearhead.cli.console import TextConsole
from clearhead.cli.folders import open_model
from clearhead.doctor.page import as_html
from clearhead.doctor.patient import KINDS
from clearhead.doctor.printing import captured
from clearhead.doctor.terminal import as_renderable
from clearhead.doctor.texts import LANGUAGES
from clearhead.files import write_whole

CALLS = examine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "examples:\n"
        "  clearhead doctor my_model.py:build_model --kind decoder\n"
        "  clearhead doctor path/to/model/folder --language zh --html report.html\n\n"
        "FILE.py may define `calls = Calls(...)` for a model with an unusual signature.\n"
        "The exit code is 0 if every check ran and found no defect, 1 if one found a\n"
        "defect (see --fail-on), 2 if the model cannot be opened or called, 3 if no\n"
        "defect was found and some checks could not run (with --strict: 1)."
    )
    parser.add_argument(
        "model",
        help="FILE.py:NAME, which is run (only name a file that you trust): NAME is a model or a "
        "function that returns one; or a run, the folder of a clearhead or Hugging Face model, or "
        "the name of a shipped model",
    )
    add_part_argument(parser)
    parser.add_argument("--kind", choices=KINDS, help="needed unless the model says it")
    parser.add_argument("--vocab-size", type=int, help="needed unless the model says it")
    parser.add_argument("--pad-id", type=int, help="the token that is padding")
    parser.add_argument("--max-length", type=int, help="the most tokens that the model accepts")
    parser.add_argument("--quick", action="store_true", help="leave out training and compilation")
    parser.add_argument("--only", nargs="+", metavar="CHECK", help="run only these checks")
    parser.add_argument(
        "--seed", type=int, help="seed of all random numbers (default: %(default)s)"
    )
    parser.add_argument(
        "--fail-on",
        choices=("error", "warning"),
        default="warning",
        help="the least severe finding that gives exit code 1 (default: warning)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit code 1, not 3, if a check could not run"
    )
    parser.add_argument(
        "--language", choices=LANGUAGES, help="language of the report (default: %(default)s)"
    )
    parser.add_argument(
        "--notes", action="store_true", help="explain each note, and list each check with its time"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON, and only it")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write the report as a page")


def run(arguments: argparse.Namespace) -> int:
    with captured() as printed:
        try:
            # Only a folder of clearhead's can need parts: other models bring their own.
            model = open_model(arguments) if arguments.part else arguments.model
            report = examine(model, **settings(arguments, examine))
        except Exception:
            if printed.tail:  # it may say why the model was not built
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
