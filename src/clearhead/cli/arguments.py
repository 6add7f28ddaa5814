"""A parser whose errors read like clearhead's others: they say what is wrong, and what to write."""

import argparse
import re
from pathlib import Path
from typing import Any, NoReturn

from clearhead.errors import ClearheadError

_WRONG_TYPE = re.compile(r"argument (\S+?)(?:/\S+)?: invalid (\w+) value: (.*)", re.DOTALL)
_WRONG_WORD = re.compile(
    r"argument (\S+?)(?:/\S+)?: invalid choice: (.*) \(choose from (.*)\)", re.DOTALL
)
_NO_VALUE = re.compile(r"argument (\S+?)(?:/\S+)?: expected (?:at least )?one argument")
_MISSING = re.compile(r"the following arguments are required: (.*)", re.DOTALL)
_NUMBERS = {"float": ("a number", "10"), "int": ("a whole number", "10")}


class Arguments(argparse.ArgumentParser):
    """The arguments of one command."""

    def error(self, message: str) -> NoReturn:
        """Report the error that argparse found, in clearhead's own words if there are some for
        it."""
        help_text = f"see {self.prog} --help"
        if match := _WRONG_TYPE.fullmatch(message):
            what, such = _NUMBERS.get(match[2], ("a valid value", ""))
            remedy = f"give one, such as {match[1]} {such}" if such else help_text
            raise ClearheadError(f"{match[1]} {match[3]} is not {what}; {remedy}")
        if match := _WRONG_WORD.fullmatch(message):
            raise ClearheadError(
                f"{match[1]} {match[2]} is not a valid choice; choose from {match[3]}"
            )
        if match := _NO_VALUE.fullmatch(message):
            raise ClearheadError(f"{match[1]} needs a value; {help_text}")
        if match := _MISSING.fullmatch(message):
            missing = [name.strip() for name in match[1].split(",")]
            names = ", ".join(map(self._explained, missing))
            raise ClearheadError(f"{self.prog} needs {names}; {help_text}")
        raise ClearheadError(f"{self.prog}: {message.removeprefix('argument ')}; {help_text}")

    def _explained(self, name: str) -> str:
        """Return an argument that is missing, with its meaning or its choices."""
        for action in self._actions:
            if name in action.option_strings:
                choices = "|".join(map(str, action.choices or ()))
                return f"{name} {choices or action.metavar or action.dest.upper()}"
            if action.dest == name and action.help:
                return f"{name.upper()} ({action.help})"
        return name.upper()

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Refuse an empty path, which Python would take for the current folder."""
        if action.type is Path and not arg_string.strip():
            flag = next(iter(action.option_strings), action.dest.upper())
            raise ClearheadError(f"{flag} is empty; give the path of a file or a folder")
        return super()._get_value(action, arg_string)
