"""Settings as the command line spells them. The library says `beam=2`, `prepared=…` or
`clearhead.prepare(…, overwrite=True)`; who typed a command reads `--beam 2`, `--prepared FOLDER` or
`clearhead prepare … --overwrite`."""

import argparse
import ast
import re
import shlex
from typing import NamedTuple

VALUE = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\[[^\]]*\]|…|[^\s;,:)'"]+"""
CALL = re.compile(rf"\bclearhead\.(\w+)\(…((?:, \w+=(?:{VALUE}))*)\)")
# Not inside a path or a name: runs/beam=2 and sweep,beam=2 may be folders.
SETTING = re.compile(rf"(?<![\w.\-'\"=/\\,])(?<!--part )([a-z_][a-z0-9_]*)=({VALUE})?(?!\w)")
OWN_TEXT = re.compile(rf"\bOwnText\.(\w+)\(({VALUE})\)")
KEY = re.compile(rf"(?<![\w.\-])((?:data|batches|model|train)\.\w+)=({VALUE})")

SAYS_BOTH = re.compile(r"\(command: --|（命令行：--")
"""In the doctor's texts, which its own command shows as they are."""


class _Option(NamedTuple):
    flag: str
    metavar: str


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


def as_flags(message: str, *, keys: bool = False) -> str:
    """The message with flags in place of the library's names of settings; with `keys`, those of
    a recipe too. Lines of Python, which are indented, stay as they are, and what says both."""
    lines = message.split("\n")
    return "\n".join(
        line if line.startswith("    ") or SAYS_BOTH.search(line) else _as_flags(line, keys)
        for line in lines
    )


def _as_flags(message: str, keys: bool) -> str:
    message = CALL.sub(_call, message)
    message = OWN_TEXT.sub(lambda match: f"--{match[1]} {_word(match[2])}", message)
    if keys:
        message = KEY.sub(lambda match: f"--{match[1]} {_toml_word(match[2])}", message)
    return SETTING.sub(_setting, message)


def _call(match: re.Match[str]) -> str:
    settings = SETTING.findall(match[2])
    flags = [f"--{name.replace('_', '-')}{_argument(value)}" for name, value in settings]
    return " ".join(["clearhead", match[1], "…", *flags])


def _setting(match: re.Match[str]) -> str:
    name, value = match[1], match[2]
    if "part" in _options and value and value.endswith(".py"):
        return f"--part {match[0]}"  # a class of the user's own
    if name not in _options:
        return match[0]
    flag, metavar = _options[name]
    if not flag.startswith("-"):
        return flag  # an argument without a name
    if value == "…":
        return f"{flag} {metavar}"
    return flag + _argument(value)


def _argument(value: str | None) -> str:
    """The argument that follows a flag; a switch has none."""
    return "" if value in (None, "", "True", "False") else f" {_word(str(value))}"


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
