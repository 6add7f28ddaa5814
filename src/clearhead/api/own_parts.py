"""Finds the user's own parts, given as classes or as FILE.py:NAME."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import nn

from clearhead.doctor.user_files import run_file
from clearhead.errors import InputError, own_part
from clearhead.models.own_parts import OwnParts
from clearhead.parts.attention import MultiHeadAttention

PartGiven = type[nn.Module] | str | None
"""A class, or FILE.py:NAME (the file is run); None: the part that the configuration names."""
ROLES = tuple(field.name for field in fields(OwnParts))


def own_parts(**named_parts: Any) -> OwnParts:
    """Check the user's own parts, and return them by role. If a part is given by name, its file is
    run."""
    classes: dict[str, Any] = {}
    for role, part in named_parts.items():
        if part is None:
            continue
        part = _by_name(role, part) if isinstance(part, str) else part
        base = MultiHeadAttention if role == "attention" else nn.Module
        if not (isinstance(part, type) and issubclass(part, base)):
            raise InputError(
                f"{role}={part!r} is not a subclass of {base.__module__}.{base.__qualname__}; "
                "give the class itself, or FILE.py:NAME"
            )
        if role == "attention" and hasattr(part, "look_at"):
            raise InputError(
                f"{role}={part!r} has a method look_at, which clearhead calls keys_values_of since "
                "version 0.3; rename the method"
            )
        classes[role] = part
    return OwnParts(**classes)


def _by_name(role: str, name: str) -> Any:
    file, colon, symbol = name.rpartition(":")
    if not colon or not file.endswith(".py"):
        raise InputError(
            f"{role}={name!r} is not FILE.py:NAME; try {own_part(role, 'my_parts.py:MyPart')}"
        )
    return from_file(Path(file), symbol)


def from_file(file: Path, symbol: str) -> Any:
    """Return the object of this name in a Python file. The file is run, so only name a file that
    you trust."""
    if not file.is_file():
        raise InputError(f"there is no file {str(file)!r}; check the path")
    part = getattr(run_file(file), symbol, None)
    if part is None:
        raise InputError(f"{file} has no {symbol!r}; check the name")
    return part
