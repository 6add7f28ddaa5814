"""The command-line options, which clearhead and the doctor's own command share. A default that is
not given here is that of the function that the command calls."""

import argparse
from pathlib import Path

from .naming import COMMAND, IS_PART
from .patient import KINDS
from .texts import LANGUAGES

_DIFF = "clearhead diff" if IS_PART else f"{COMMAND} diff"
_FILE = "FILE.py may define `calls = Calls(...)` for a model with an unusual signature.\n"


def add_examine_options(parser: argparse.ArgumentParser, model: str) -> None:
    """Add the options of an examination. `model` is the help text of the argument of that name."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "examples:\n"
        f"  {COMMAND} my_model.py:build_model --kind decoder\n"
        f"  {COMMAND} path/to/model/folder --language zh --html report.html\n\n"
        f"{_FILE}"
        "The exit code is 0 if every check ran and found no defect, 1 if one found a\n"
        "defect (see --fail-on), 2 if the model cannot be opened or called, 3 if no\n"
        "defect was found and some checks could not run (with --strict: 1)."
    )
    parser.add_argument("model", help=model)
    parser.add_argument("--kind", choices=KINDS, help="required if the model does not define it")
    parser.add_argument("--vocab-size", type=int, help="required if the model does not define it")
    parser.add_argument("--pad-id", type=int, help="the id of the padding token")
    parser.add_argument(
        "--max-length", type=int, help="the highest number of tokens that the model accepts"
    )
    parser.add_argument(
        "--quick", action="store_true", help="skip the training and compilation checks"
    )
    parser.add_argument("--only", nargs="+", metavar="CHECK", help="run only these checks")
    _add_seed(parser)
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
        "--notes", action="store_true", help="explain each note, and list each check with its time"
    )
    _add_output(parser)


def add_diff_options(parser: argparse.ArgumentParser, model: str) -> None:
    """Add the options of a comparison. `model` is the help text of the reference."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "examples:\n"
        f"  {_DIFF} gpt2-folder my_port.py:build\n"
        f"  {_DIFF} reference.py:build port.py:build --html report.html\n\n"
        f"{_FILE}"
        "The exit code is 0 if the port computes the same as the reference, 1 if it\n"
        "departs from the reference, 2 if a model cannot be opened or called."
    )
    parser.add_argument("reference", help=model)
    parser.add_argument("port", help="the model that should compute the same, given likewise")
    parser.add_argument("--kind", choices=KINDS, help="required if neither model defines it")
    parser.add_argument("--vocab-size", type=int, help="required if neither model defines it")
    parser.add_argument("--pad-id", type=int, help="the id of the padding token")
    parser.add_argument(
        "--copy-weights",
        action="store_true",
        help="copy the reference's weights into the port, if the two models have no weights in "
        "common and the shapes determine which weight goes where",
    )
    parser.add_argument(
        "--no-steps",
        dest="steps",
        action="store_false",
        help="do not compare decoding steps that use a cache",
    )
    _add_seed(parser)
    parser.add_argument(
        "--seconds", type=float, help="time limit of the search for lines (default: %(default)s)"
    )
    _add_output(parser)


def _add_seed(parser: argparse.ArgumentParser) -> None:
    what = "seed of all random numbers (default: %(default)s)"
    parser.add_argument("--seed", type=int, help=what)


def _add_output(parser: argparse.ArgumentParser) -> None:
    what = "language of the report (default: %(default)s)"
    parser.add_argument("--language", choices=LANGUAGES, help=what)
    parser.add_argument("--json", action="store_true", help="print the report as JSON, and only it")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write the report as a page")
