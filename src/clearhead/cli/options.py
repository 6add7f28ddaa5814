"""Makes options of a command from the fields of an option class: flag, type, choices and help.
`calling.fill_defaults` takes their defaults from the function that the command calls."""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args, get_type_hints

from clearhead.config.explain import explanations

NOTHING: Mapping[str, Any] = MappingProxyType({})


def add_options(
    parser: argparse._ActionsContainer,
    kind: type,
    *names: str,
    types: Mapping[str, Callable[[str], Any]] = NOTHING,
    metavars: Mapping[str, str] = NOTHING,
) -> None:
    """Add an option for each of the named fields of the class, or for all fields. `types` has
    functions that read values that are neither numbers nor words."""
    for name in names or [field.name for field in fields(kind)]:
        add_option(parser, kind, name, type=types.get(name), metavar=metavars.get(name))


def add_option(
    parser: argparse._ActionsContainer,
    kind: type,
    name: str,
    *,
    flag: str | None = None,
    type: Any = None,
    metavar: str | None = None,
    **more: Any,
) -> None:
    """Add an option for one field."""
    hint = get_type_hints(kind)[name]
    default = kind.__dataclass_fields__[name].default
    flag = flag or f"--{name.replace('_', '-')}"
    meaning = explanations(kind)[name].replace("%", "%%").removesuffix(".")
    if not meaning[1:2].isupper():  # other help texts begin in lower case; names such as BLEU stay
        meaning = meaning[0].lower() + meaning[1:]
    if hint is bool:
        if default:
            parser.add_argument(
                f"--no-{flag[2:]}", dest=name, action="store_false", help=f"do not: {meaning}"
            )
        else:
            parser.add_argument(flag, dest=name, action="store_true", help=meaning)
        return
    shown = "" if default is None else f" (default: {_shown(default)})"
    settings: dict[str, Any] = {"dest": name, "help": meaning + shown, **more}
    words = get_args(hint)
    if words and all(isinstance(word, str) for word in words):
        parser.add_argument(flag, choices=words, metavar=metavar, **settings)
        return
    kinds: set[Any] = {hint, *words}
    if type is None and Path in kinds:
        type, metavar = Path, metavar or "FOLDER"
    elif type is None and float in kinds:
        type, metavar = float, metavar or "X"
    elif type is None and int in kinds:
        type, metavar = int, metavar or "N"
    settings["type"] = type
    parser.add_argument(flag, metavar=metavar or "N", **settings)


def _shown(default: object) -> str:
    if not isinstance(default, float | int):
        return str(default)
    return f"{default:,g}" if default >= 10_000 else f"{default:g}"
