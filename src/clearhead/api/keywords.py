"""Handles keywords that are the fields of an option class: `help` shows them with their defaults
and explanations, and keywords that were renamed still work."""

import inspect
import sys
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from clearhead.config.explain import explanations
from clearhead.config.usual_names import remedy_for_option
from clearhead.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
WIDTH = 96


def takes(*options: type) -> Callable[[F], F]:
    """Declare in a function's signature which keywords `**options` stands for, and explain them."""

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        named = [
            parameter
            for parameter in signature.parameters.values()
            if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        ]
        explained: dict[str, str] = {}
        for kind in options:
            for field in fields(kind):
                if field.name not in explained:
                    explained[field.name] = explanations(kind)[field.name]
                if field.name not in {parameter.name for parameter in named}:
                    default = inspect.Parameter.empty if field.default is MISSING else field.default
                    named.append(
                        inspect.Parameter(
                            field.name,
                            inspect.Parameter.KEYWORD_ONLY,
                            default=default,
                            annotation=field.type,
                        )
                    )
        vars(function)["__signature__"] = signature.replace(parameters=named)
        lines = [
            textwrap.fill(f"{name}: {meaning}", WIDTH, subsequent_indent="    ")
            for name, meaning in explained.items()
        ]
        function.__doc__ = "\n".join([inspect.getdoc(function) or "", "", *lines])
        return function

    return decorate


def refuse_more(more: Sequence[object], example: str) -> None:
    """Raises for arguments after the texts that were given without their names. Type checkers see
    such a mistake without this."""
    if more:
        raise InputError(
            f"{more[0]!r:.60} has no name: options are keywords, such as {example}, and the texts "
            "come first, as one string or a list"
        )


def chosen(kind: type[T], keywords: Mapping[str, Any]) -> T:
    """Return the options, checked. An error about an unknown keyword names the nearest known
    one."""
    names = [field.name for field in fields(kind)]  # pyright: ignore[reportArgumentType]
    for name in keywords:
        if name not in names:
            raise TypeError(f"there is no option {name!r}; {remedy_for_option(name, names)}")
    return kind(**keywords)


def chosen_from(kinds: Sequence[type], keywords: Mapping[str, Any]) -> list[Any]:
    """Return the options of several classes, as `chosen` returns those of one. A keyword belongs to
    the first class that has it."""
    owners = {field.name: kind for kind in reversed(kinds) for field in fields(kind)}
    for name in keywords:
        if name not in owners:
            raise TypeError(f"there is no option {name!r}; {remedy_for_option(name, [*owners])}")
    return [
        kind(**{name: value for name, value in keywords.items() if owners[name] is kind})
        for kind in kinds
    ]


def warn_of_old(old: str, new: str) -> None:
    """Warn, at the line that called clearhead, and say what to write instead."""
    level = 1
    while sys._getframe(level).f_globals.get("__name__", "").startswith("clearhead."):
        level += 1
    message = f"{old} ends with version 0.4; {new}"
    warnings.warn(message, DeprecationWarning, stacklevel=level + 1)
