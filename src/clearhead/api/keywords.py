"""Handles keywords that are the fields of an option class: `help` shows them with their defaults
and explanations, and keywords that were renamed still work."""

import inspect
import sys
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import wraps
from typing import Any, TypeVar, cast

from clearhead.config.explain import explanations
from clearhead.config.recipe import recipe_keys
from clearhead.config.usual_names import remedy_for_key
from clearhead.errors import closest, nearest

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
            if parameter.kind is not parameter.VAR_KEYWORD
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
        takes_more = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
        return function if takes_more else _naming_the_nearest(function, signature)

    return decorate


def _naming_the_nearest(function: F, signature: inspect.Signature) -> F:
    """Let the function name the nearest keyword if it is called with one that it does not have."""

    @wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        for name in keywords:
            if name not in signature.parameters:
                called = f"{function.__name__} has no option {name!r}"
                raise TypeError(f"{called}; {_remedy(name, list(signature.parameters))}")
        return function(*arguments, **keywords)

    return cast(F, call)


def _remedy(name: str, known: list[str]) -> str:
    """Name the nearest option, or else the key of a recipe that is meant."""
    if closest(name, known, 0.75) is None and "recipe" in known:
        remedy = remedy_for_key(name, recipe_keys())
        if remedy is not None and (key := remedy.split("'")[1::2]):
            table, _, option = key[0].partition(".")
            change = f"clearhead.recipe(…, {table}={{{option!r}: …}})"
            return f"a recipe has {key[0]!r}: give {change} as the recipe"
    return nearest(name, known)


def chosen(kind: type[T], keywords: Mapping[str, Any]) -> T:
    """Return the options, checked. An error about an unknown keyword names the nearest known
    one."""
    names = [field.name for field in fields(kind)]  # pyright: ignore[reportArgumentType]
    for name in keywords:
        if name not in names:
            raise TypeError(f"there is no option {name!r}; {nearest(name, names)}")
    return kind(**keywords)


def chosen_from(kinds: Sequence[type], keywords: Mapping[str, Any]) -> list[Any]:
    """The options of several classes, as `chosen` returns those of one. A keyword belongs to the
    first class that has it."""
    homes = {field.name: kind for kind in reversed(kinds) for field in fields(kind)}
    for name in keywords:
        if name not in homes:
            raise TypeError(f"there is no option {name!r}; {nearest(name, homes)}")
    return [
        kind(**{name: value for name, value in keywords.items() if homes[name] is kind})
        for kind in kinds
    ]


def warn_of_old(old: str, new: str) -> None:
    """Warn, at the line that called clearhead, and say what to write instead."""
    level = 1
    while sys._getframe(level).f_globals.get("__name__", "").startswith("clearhead."):
        level += 1
    message = f"{old} ends with version 0.4; {new}"
    warnings.warn(message, DeprecationWarning, stacklevel=level + 1)
