"""The doctor's own command: `transformer-doctor FILE.py:NAME`, `transformer-doctor diff REF PORT`.
clearhead has a command of its own for each."""

import argparse
import inspect
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from .diff import diff
from .diff.page import as_html as diff_as_html
from .errors import DoctorError
from .examination import examine
from .hub_folders import offline
from .naming import COMMAND, DISTRIBUTION
from .opening import names_a_file, open_model
from .options import add_diff_options, add_examine_options
from .page import as_html
from .plain import as_plain, visible
from .printing import Printed, captured

_MODEL = (
    "FILE.py:NAME, which is run (only name a file that you trust): NAME is a model or a function "
    "that returns one; or the folder of a Hugging Face model"
)


def main(given: list[str] | None = None) -> int:
    """Run the command and return its exit code: 0, 1 for a defect or a departure, 2 after a user
    error, 3 if checks could not run, 130 after Ctrl-C."""
    given = sys.argv[1:] if given is None else given
    # A pipe on Windows has a code page without ✓ or Chinese.
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
    compares = given[:1] == ["diff"]
    arguments = _parser(compares).parse_args(given[1:] if compares else given)
    with captured() as printed:
        try:
            if compares:
                code, shown = _compare(arguments)
            else:
                code, shown = _examine(arguments, printed)
        except (DoctorError, OSError) as error:
            # What the model printed may say why it was not built.
            said = [printed.tail] if printed.tail else []
            print(*said, f"{COMMAND}: {visible(str(error))}", sep="\n", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            return 130
    try:
        if isinstance(shown, str):
            print(shown, flush=True)
        else:
            from .console import ReportConsole

            ReportConsole().print(shown)
    except BrokenPipeError:  # the reader of the output has closed it
        sys.stderr.close()
    return code


def _parser(compares: bool) -> argparse.ArgumentParser:
    """Return the parser. Every option that is a parameter of the function has the function's
    default."""
    function: Callable[..., Any] = diff if compares else examine
    parser = argparse.ArgumentParser(prog=f"{COMMAND} diff" if compares else COMMAND)
    if compares:
        parser.description = "Find the line at which a port departs from its reference."
        add_diff_options(parser, _MODEL)
    else:
        parser.description = (
            "Find what is silently wrong in any Transformer, and say why, where and how to fix it. "
            f"To compare two models: {COMMAND} diff --help"
        )
        add_examine_options(parser, _MODEL)
        shown = f"{COMMAND} {version(DISTRIBUTION)}"
        parser.add_argument("--version", action="version", version=shown)
    known = inspect.signature(function).parameters.values()
    options = {action.dest for action in parser._actions}
    parser.set_defaults(
        **{p.name: p.default for p in known if p.name in options and p.default is not p.empty}
    )
    return parser


def _settings(arguments: argparse.Namespace, function: Callable[..., Any]) -> dict[str, Any]:
    """Return the options that are parameters of the function, except the models."""
    known = inspect.signature(function).parameters.values()
    names = [p.name for p in known if p.kind is p.KEYWORD_ONLY]
    return {name: value for name, value in vars(arguments).items() if name in names}


def _examine(arguments: argparse.Namespace, printed: Printed) -> tuple[int, Any]:
    language = arguments.language
    # A model of the user's own may reach the network; what a folder names may not.
    with nullcontext() if names_a_file(arguments.model) else offline():
        opened = open_model(arguments.model, language, arguments.seed)
        report = examine(
            opened.model,
            calls=opened.calls,
            fresh=opened.fresh,
            **_settings(arguments, examine),
        )
    report = replace(report, n_printed=report.n_printed + printed.n_lines)
    if arguments.html is not None:
        arguments.html.write_text(as_html(report, language), encoding="utf-8")
    code = report.exit_code(arguments.fail_on, strict=arguments.strict)
    if arguments.json:
        return code, report.to_json(language)
    try:
        from .terminal import as_renderable
    except ImportError:  # rich is not installed
        return code, visible(as_plain(report, language, notes=arguments.notes, checks=True))
    return code, as_renderable(report, language, notes=arguments.notes)


def _compare(arguments: argparse.Namespace) -> tuple[int, Any]:
    language = arguments.language
    one, other = (
        open_model(name, language, arguments.seed) for name in (arguments.reference, arguments.port)
    )
    report = diff(
        one.model,
        other.model,
        reference_calls=one.calls,
        port_calls=other.calls,
        **_settings(arguments, diff),
    )
    if arguments.html is not None:
        arguments.html.write_text(diff_as_html(report, language), encoding="utf-8")
    code = 1 if report.fails() else 0
    if arguments.json:
        return code, report.to_json(language)
    try:
        from .diff.terminal import as_renderable
    except ImportError:  # rich is not installed
        return code, visible(str(report))
    return code, as_renderable(report, language)
