"""Checks that several configurations share."""

import re
from dataclasses import fields
from functools import cache
from math import isfinite
from pathlib import Path, PurePath
from typing import Any, Literal, get_args, get_origin, get_type_hints

from clearhead.errors import ConfigError, InputError, nearest, setting, type_of

MOST = 2**62
"""Every whole number in a setting must be below this: torch and numpy count in 64 bits."""


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def check_choices(config: object) -> None:
    """Raises unless every field that is annotated with a Literal holds one of its words, and
    fractions, strings and lists of strings have the types of their fields."""
    hints = _hints(type(config))
    for field in fields(config):  # pyright: ignore[reportArgumentType]
        value, hint = getattr(config, field.name), hints[field.name]
        if hint is bool and not isinstance(value, bool):
            raise ConfigError(field.name, value, "must be true or false", "write true or false")
        if hint in (float, float | None) and (value is not None or hint is float):
            _refuse_others_numbers(field.name, value)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ConfigError(field.name, value, "must be a number", "write it without quotes")
            if abs(value) >= MOST:  # NaN is left to the rule of the field: it is in no order
                raise ConfigError(field.name, value, "must be a finite number", "try 1.0")
        if hint in (str, str | None) and not isinstance(value, hint):
            raise ConfigError(field.name, value, "must be a string", f"try str({field.name})")
        if get_origin(hint) is tuple:
            _check_texts(field.name, value, get_args(hint)[0])
        words = get_args(hint)
        if words and all(isinstance(word, str) for word in words) and value not in words:
            raise ConfigError(
                field.name, value, "is not a valid choice", nearest(str(value), words)
            )


def _check_texts(name: str, value: object, kind: Any) -> None:
    """Raises unless the value is a list of strings (or of numbers too, if `kind` allows them), and
    not one string, which Python would read letter by letter."""
    if isinstance(value, str | PurePath):
        raise ConfigError(name, value, "is one string", f"give a list: [{str(value)!r}]")
    if not isinstance(value, list | tuple):
        raise ConfigError(name, value, "must be a list of strings", "try ['a', 'b']")
    allowed = str if get_origin(kind) is Literal else kind
    if any(not isinstance(item, allowed) or isinstance(item, bool) for item in value):
        rule = "must be strings" if allowed is str else "must be strings or whole numbers"
        raise ConfigError(name, value, rule, "try str(…) for each")


def _refuse_others_numbers(name: str, value: object) -> None:
    """Raises for a number of numpy or torch, which a recipe could not store."""
    if not isinstance(value, int | float) and getattr(value, "ndim", 1) == 0:
        rule = f"is a number of {type(value).__module__}, not of Python"
        raise ConfigError(name, value, rule, f"try {setting(name, value.item())}")  # type: ignore[attr-defined]


def _quoted(name: str, value: object) -> str:
    """Return the remedy for a number in quotes; empty if the value is something else."""
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value.strip()):
        return f"write {setting(name, int(value))}, without quotes"
    return ""


def check_at_least(name: str, value: int, lowest: int) -> None:
    """Raises unless the value is a whole number of at least `lowest`."""
    check_between(name, value, lowest, MOST)


def check_between(name: str, value: int, lowest: int, highest: int) -> None:
    """Raises unless the value is a whole number between the two."""
    _refuse_others_numbers(name, value)
    if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
        rule = f"must be a whole number of at least {lowest}"
        raise ConfigError(name, value, rule, _quoted(name, value) or f"try {setting(name, lowest)}")
    if value > highest:
        rule = f"must be at most {highest:,}"
        raise ConfigError(name, value, rule, f"try {setting(name, highest)}")


def share_remedy(name: str, value: object, otherwise: str) -> str:
    """Return the remedy for a share that should be from 0 to 1: 90 was probably meant as 90%."""
    if isinstance(value, int | float) and 1 < value <= 100:
        return f"did you mean {setting(name, value / 100)}?"
    return otherwise


def check_number(name: str, value: float) -> None:
    """Raises unless the value is a finite number."""
    _refuse_others_numbers(name, value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(name, value, f"is {type_of(value)}", "give a number")
    if not isfinite(value):
        raise ConfigError(name, value, "must be a finite number", f"try {setting(name, 1.0)}")


def check_whole(name: str, value: int) -> None:
    """Raises unless the value is a whole number."""
    _refuse_others_numbers(name, value)
    if isinstance(value, bool) or not isinstance(value, int):
        remedy = _quoted(name, value) or f"try {setting(name, 0)}"
        raise ConfigError(name, value, "must be a whole number", remedy)


def check_seed(value: int) -> None:
    """Raises unless the value is a seed that torch takes."""
    check_whole("seed", value)
    if not -(2**63) <= value < 2**63:
        raise ConfigError("seed", value, "must fit in 64 bits", f"try {setting('seed', 0)}")


def check_labels(labels: tuple[str, ...]) -> None:
    """Raises unless there are two labels or more, which differ and can be seen."""
    if len(labels) < 2 or len(set(labels)) != len(labels):
        rule = "must be at least two different strings"
        raise ConfigError("labels", labels, rule, "try labels=['positive', 'negative']")
    if any(not isinstance(label, str) or label != label.strip() or not label for label in labels):
        rule = "must not be empty, nor start or end with white space"
        raise ConfigError("labels", labels, rule, "remove the white space")


def nearest_divisor(of: int, to: int) -> int:
    """Return the divisor of `of` that is nearest to `to`: the smaller one if two are equally near,
    and 1 if none is near. Only a message shows it. The search is bounded because users may write
    numbers of any size."""
    to = min(to, of)
    for distance in range(10_000):
        for n in (to - distance, to + distance):
            if n >= 1 and of % n == 0:
                return n
    return 1


def user_path(path: str | Path) -> Path:
    """Expand a path that starts with ~ (a user's own folder), unless ~ is part of a file's
    name."""
    try:
        return Path(path).expanduser()
    except RuntimeError:  # there is no such user
        return Path(path)


def as_path(name: str, path: str | Path | None, default: Path | None = None) -> Path:
    """Convert what the user gave, a string or a path, to a path."""
    if path is None and default is not None:
        return default
    if len(repr(path)) > 200 and not isinstance(path, str | Path):
        raise InputError(
            f"{setting(name)} is {type_of(path)}, not a path; give a string or a pathlib.Path, or, "
            "where a model is meant, what clearhead.load returned"
        )
    if not isinstance(path, str | Path) or not str(path):
        raise InputError(f"{setting(name, path)} is not a path; give a string or a pathlib.Path")
    if "\0" in str(path):
        raise InputError(f"{setting(name, str(path))} contains a zero byte; check the path")
    return user_path(path)


def as_folder(name: str, path: str | Path | None, default: Path | None = None) -> Path:
    """Convert what the user gave to the path of a folder, which need not exist."""
    folder = as_path(name, path, default)
    on_the_way = next((part for part in (folder, *folder.parents) if part.exists()), folder)
    if on_the_way.exists() and not on_the_way.is_dir():
        shown = setting(name, str(folder))
        raise InputError(f"{shown}: {on_the_way} is a file; give the path of a folder")
    return folder
