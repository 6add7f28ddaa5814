"""A parser whose errors read like clearhead's others: they say what is wrong, and what to write."""

import argparse
import re
from typing import NoReturn

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
            raise ClearheadError(f"{match[1]} {match[2]} is not a choice; choose from {match[3]}")
        if match := _NO_VALUE.fullmatch(message):
            raise ClearheadError(f"{match[1]} needs a value; {help_text}")
        if match := _MISSING.fullmatch(message):
            missing = [name.strip() for name in match[1].split(",")]
            explained = {action.dest: action.help for action in self._actions}
            names = ", ".join(
                f"{name.upper()} ({explained[name]})" if explained.get(name) else name.upper()
                for name in missing
            )
            raise ClearheadError(f"{self.prog} needs {names}; {help_text}")
        raise ClearheadError(f"{self.prog}: {message.removeprefix('argument ')}; {help_text}")
