"""Settings as the command line spells them. The library says `beam=2`, `prepared=…` or
`clearhead.prepare(…, overwrite=True)`; whoever typed a command reads `--beam 2`, `--prepared
FOLDER` or `clearhead prepare … --overwrite`."""

import argparse
import ast
import shlex
from typing import NamedTuple

from clearhead.errors import Mention, in_python, respelt, with_marks


class _Option(NamedTuple):
    flag: str
    metavar: str


VERBS = {
    "examine": "doctor",
    "get_corpus": "data get",
    "import_model": "import",
    "recipe_for": "new",
    "study.run": "study run",
}
"""The verbs of functions whose name differs from the verb."""
_options: dict[str, _Option] = {}
"""The options of the command that runs, by the names that they have in Python."""


def know_options(parser: argparse.ArgumentParser) -> None:
    """Messages are about the options of this parser from now on."""
    _options.clear()
    for action in parser._actions:
        if "." not in action.dest:
            metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
            flag = action.option_strings[-1] if action.option_strings else metavar
            _options[action.dest] = _Option(flag, metavar)


def as_flags(message: str) -> str:
    """The message with flags in place of the settings that it mentions. A text without marks, such
    as one of the doctor's, stays as it is."""
    return respelt(with_marks(message), _on_command_line)


def _on_command_line(mention: Mention) -> str:
    kind, name, shown = mention
    match kind:
        case "setting" if name in _options:
            return _as_option(_options[name], shown)
        case "recipe key":
            return f"--{name} {_toml_word(shown)}"
        case "own part" if "part" in _options and ".py:" in shown:
            return f"--part {shlex.quote(f'{name}={shown}')}"
        case "own text":
            return f"--{'text' if name == 'files' else name} {_word(shown)}"
        case "function":
            switch = f" --{shown.replace('_', '-')}" if shown else ""
            return f"clearhead {VERBS.get(name, name)} …{switch}"
        case "call":
            argument = shown.upper() if shown.isidentifier() else _word(shown)
            return f"clearhead {VERBS.get(name, name)} {argument}"
        case "method":
            return f"clearhead {name} …"
        case _:
            return in_python(mention)


def _as_option(option: _Option, shown: str) -> str:
    if not option.flag.startswith("-") or shown in ("", "True", "False"):
        return option.flag  # an argument without a name, or a switch
    return f"{option.flag} {option.metavar if shown == '…' else _word(shown)}"


def _word(value: str) -> str:
    try:
        literal = ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return value
    if isinstance(literal, list):
        return " ".join(shlex.quote(str(item)) for item in literal)
    return shlex.quote(literal) if isinstance(literal, str) else value


def _toml_word(value: str) -> str:
    """A value of a recipe; only a string stands without its quotes."""
    return _word(value) if value[0] in "'\"" else shlex.quote(value)
