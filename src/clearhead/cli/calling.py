"""Takes names and defaults from the API: an option has the name and the default of a parameter of
the function that its command calls."""

import argparse
import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from clearhead.config.data import DEFECTS
from clearhead.errors import ClearheadError, nearest

T = TypeVar("T")


def fill_defaults(parser: argparse.ArgumentParser, function: Callable[..., Any]) -> None:
    """Give each option the default of the parameter of the same name, so that each default is
    written once. An option that is passed on only if it was typed gets no default."""
    defaults = _parameters(function)
    for action in parser._actions:
        if action.dest in defaults and action.default != argparse.SUPPRESS:
            action.default = defaults[action.dest]


def settings(namespace: argparse.Namespace, function: Callable[..., Any]) -> dict[str, Any]:
    """Return the options that are parameters of the function, to pass them on."""
    values = vars(namespace)
    return {name: values[name] for name in _parameters(function) if name in values}


def options_of(namespace: argparse.Namespace, kind: type[T]) -> T:
    """Make an object of the class from the options that are its fields."""
    values = vars(namespace)
    names = [field.name for field in fields(kind)]  # pyright: ignore[reportArgumentType]
    return kind(**{name: values[name] for name in names if name in values})


def _parameters(function: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.default is not parameter.empty
    }


def add_clean_argument(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the option --clean, which takes kinds of defects; `what` says what happens to them."""
    parser.add_argument(
        "--clean",
        nargs="*",
        choices=DEFECTS,
        metavar="KIND",
        help=f"{what}, of all kinds or of these: {', '.join(DEFECTS)}; each one is listed",
    )


def add_part_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option --part, which takes the user's own parts."""
    parser.add_argument(
        "--part",
        action="append",
        default=[],
        metavar="ROLE=FILE.py:NAME",
        help="use a class of your own as ROLE: attention, feed_forward, norm or positions; may be "
        "given several times; FILE.py is run",
    )


def parts(namespace: argparse.Namespace) -> dict[str, str]:
    """Return the values of --part by role, as the API takes them."""
    from clearhead.api.own_parts import ROLES

    named: dict[str, str] = {}
    for text in namespace.part:
        role, equals, name = text.partition("=")
        if not equals or role not in ROLES:
            is_role = role in ROLES
            remedy = f"write --part {role}=FILE.py:NAME" if is_role else nearest(role, ROLES)
            raise ClearheadError(f"--part {text!r} is not ROLE=FILE.py:NAME; {remedy}")
        named[role] = name
    return named
